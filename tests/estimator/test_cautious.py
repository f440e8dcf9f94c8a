from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdscore
from gdscore.estimator import Calibration, Judge
from gdscore.estimator.interval import LeftOut
from gdscore.estimator.regress import Cautious, Nearest
from gdscore.estimator.views import ROW_SCORES, views_of

NAMES = gdscore.list_scores()
POPULATION = [name for name in NAMES if name not in ROW_SCORES]
RECIPE = ["cot", "nuclear", "confscore", "frechet", "atc", "agreescore"]
ERRORS = ("cot", "agreescore", "selfscore")

seeds = st.integers(0, 2**32 - 1)
subsets = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
masks = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)


# -- oracles --------------------------------------------------------------------------------------------------


def weights_by_hand(x, y, query, keep):
    """exp(-d²/d²₍ₖ₎) over the kept sets, one number at a time; seen from the edge of the table where beyond it."""
    kept = [i for i in range(len(y)) if keep[i]]
    query = [min(max(q, min(x[i][c] for i in kept)), max(x[i][c] for i in kept)) for c, q in enumerate(query)]
    n, scale = len(kept), []
    target = [y[i] - math.fsum(y[j] for j in kept) / n for i in kept]
    for column in range(len(query)):
        mean = math.fsum(x[i][column] for i in kept) / n
        moved = [x[i][column] - mean for i in kept]
        variance = math.fsum(m * m for m in moved) / n
        lengths = math.sqrt(math.fsum(m * m for m in moved) * math.fsum(t * t for t in target))
        related = abs(math.fsum(m * t for m, t in zip(moved, target, strict=True))) / max(lengths, 1e-300)
        scale.append(min(max(related, 0.05), 1.0) / max(math.sqrt(variance), 0.05))
    apart = [math.fsum(((q - v) * s) ** 2 for q, v, s in zip(query, x[i], scale, strict=True)) for i in kept]
    width = max(sorted(apart)[min(7, n) - 1], 1e-12)
    raw = [math.exp(-d / width) for d in apart]
    found = [0.0] * len(y)
    for i, weight in zip(kept, raw, strict=True):
        found[i] = weight / math.fsum(raw)
    return found


def said_by_hand(x, y, query, keep, view):
    weights = weights_by_hand([[row[c] for c in view] for row in x], y, [query[c] for c in view], keep)
    return math.fsum(w * v for w, v in zip(weights, y, strict=True))


def views_by_hand(x, y, query, keep, views):
    """Weights of each view: those of the first, and of others mixed with it, from 15 to 20 points of deviation."""
    right, found = [sigmoid(v) for v in y], []
    for view in views:
        weights = weights_by_hand([[row[c] for c in view] for row in x], y, [query[c] for c in view], keep)
        mean = math.fsum(w * a for w, a in zip(weights, right, strict=True))
        deviation = math.sqrt(math.fsum(w * (a - mean) ** 2 for w, a in zip(weights, right, strict=True)))
        say = min(max((0.2 - deviation) / 0.05, 0.0), 1.0) if found else 1.0
        found.append([say * w + (1 - say) * v for w, v in zip(weights, found[0] if found else weights, strict=True)])
    return found


def lowest_by_hand(x, y, query, keep, views):
    return min(
        math.fsum(w * v for w, v in zip(weights, y, strict=True)) for weights in views_by_hand(x, y, query, keep, views)
    )


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


# -- tables ---------------------------------------------------------------------------------------------------


def numbers(sets, scores, seed, grid=0.0):
    """Random scores, on a grid with ties where asked; sometimes a column says nothing at all."""
    rng = np.random.default_rng(seed)
    x, y, query = rng.normal(size=(sets, scores)), rng.normal(size=sets), 2 * rng.normal(size=(4, scores))
    x += y[:, None] * rng.uniform(-2, 2, size=scores)
    if grid:
        x, query = np.round(x / grid) * grid, np.round(query / grid) * grid
    if rng.random() < 0.3:
        x[:, rng.integers(scores)] = rng.normal()
    keep = rng.random(sets) < 0.6
    keep[rng.integers(sets, size=2)] = True
    return x, y, query, keep


def random_table(names, seed, sets=24, kinds=4):
    """Shifted sets whose scores have as little to do with accuracy as chance will have it."""
    rng = np.random.default_rng(seed)
    accuracy = rng.uniform(0.02, 0.99, sets)
    scores = {}
    for name in names:
        mixed = np.clip(accuracy + rng.uniform(0, 0.4) * rng.normal(size=sets), 0.0, 1.0)
        scores[name] = 1 - mixed if name in ERRORS else mixed
    families = [f"kind{i % kinds}" + ("+more" if i % 7 == 0 else "") for i in range(sets)]
    return Calibration(families, accuracy, rng.integers(200, 3000, sets), scores)


def random_scores(names, seed):
    rng = np.random.default_rng([seed, 1])
    return {name: float(rng.choice([0.0, 1.0, rng.random(), rng.random()])) for name in names}


def honest_table(names, kinds=6, rows=2000):
    """Shifted sets on which every score tells the accuracy."""
    accuracy = np.tile(np.linspace(0.05, 0.97, 30), kinds)
    rng = np.random.default_rng(0)
    families = [f"kind{i}" for i in range(kinds) for _ in range(30)]
    accuracy = np.clip(accuracy + 0.004 * rng.normal(size=accuracy.size), 0.01, 0.99)
    return Calibration(families, accuracy, np.full(accuracy.size, rows), {n: telling(n, accuracy) for n in names})


def telling(name, accuracy):
    """What a score says where it means this accuracy."""
    if name in ERRORS:
        return 1 - accuracy
    return np.exp(-4 * accuracy) if name == "frechet" else accuracy


def restricted(table, names):
    return replace(table, scores={name: table.scores[name] for name in names})


def population_of(names):
    return [name for name in names if name not in ROW_SCORES]


# -- views ----------------------------------------------------------------------------------------------------


class TestViews:
    @pytest.mark.parametrize(
        ("names", "views"),
        [
            ([], []),
            (["cot"], [[0]]),
            (["atc"], [[0]]),
            (["confscore", "atc"], [[0], [0, 1]]),
            (["atc", "confscore"], [[1], [1, 0]]),
            (["agreescore", "atc"], [[0], [1]]),
            (["cot", "agreescore", "nuclear"], [[0, 2], [1]]),
            (RECIPE, [[0, 1, 2, 3], [2, 4], [2, 5]]),
            (RECIPE[::-1], [[2, 3, 4, 5], [3, 0], [3, 1]]),
            (tuple(POPULATION), [list(range(len(POPULATION)))]),
            (dict.fromkeys(["atc", "cot"]), [[1], [0]]),
        ],
    )
    def test_positions(self, names, views):
        assert views_of(names) == views

    def test_row_scores_are_scores(self):
        assert set(ROW_SCORES) < set(NAMES)

    @given(subsets)
    def test_every_score_is_seen_and_rows_are_kept_apart(self, names):
        views = [[names[i] for i in view] for view in views_of(names)]
        assert set().union(*views) == set(names)
        assert all(view and len(set(view)) == len(view) for view in views)
        assert len({frozenset(view) for view in views}) == len(views)
        population, rows = population_of(names), [name for name in names if name in ROW_SCORES]
        assert len(views) == bool(population) + len(rows)
        if population:
            assert views[0] == population
        for row in rows:
            (own,) = [view for view in views if row in view]
            assert set(own) == {row} | ({"confscore"} & set(names))

    @given(subsets, seeds)
    def test_order_of_names_changes_positions_only(self, names, seed):
        other = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
        named, again = ({frozenset(order[i] for i in v) for v in views_of(order)} for order in (names, other))
        assert named == again


# -- the regressor --------------------------------------------------------------------------------------------


class TestCautious:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(2, 20), st.lists(masks, min_size=1, max_size=3), seeds, st.sampled_from([0.0, 0.5, 2.0]))
    def test_the_lowest_view_by_hand(self, sets, views, seed, grid):
        x, y, query, keep = numbers(sets, 4, seed, grid)
        fit = Cautious(x, y, views)
        for kept, mask in ((np.ones(sets, dtype=bool), None), (keep, keep)):
            expected = [lowest_by_hand(x, y, q, kept, views) for q in query]
            np.testing.assert_allclose(fit.predict(query, mask), expected, rtol=1e-9, atol=1e-9)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(2, 20), st.lists(masks, min_size=1, max_size=3), seeds, st.booleans())
    def test_weights_are_shares_of_the_kept_and_explain_the_prediction(self, sets, views, seed, far):
        x, y, query, keep = numbers(sets, 4, seed)
        query = query * 1e6 if far else query
        fit = Cautious(x, y, views)
        for mask in (None, keep):
            weights = fit.weights(query, mask)
            assert weights.shape == (4, sets)
            assert np.all(weights >= 0)
            np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
            np.testing.assert_allclose(weights @ y, fit.predict(query, mask), rtol=1e-12)
        assert np.all(weights[:, ~keep] == 0)

    @settings(max_examples=30, deadline=None)
    @given(st.integers(2, 20), masks, seeds, st.integers(1, 3))
    def test_one_view_is_nearest_and_so_is_the_same_view_again(self, sets, view, seed, times):
        x, y, query, keep = numbers(sets, 4, seed)
        fit, nearest = Cautious(x, y, [view] * times), Nearest(x[:, view], y)
        for mask in (None, keep):
            np.testing.assert_allclose(fit.weights(query, mask), nearest.weights(query[:, view], mask), rtol=1e-12)
            np.testing.assert_allclose(fit.predict(query, mask), nearest.predict(query[:, view], mask), rtol=1e-12)

    @settings(max_examples=30, deadline=None)
    @given(st.lists(masks, min_size=2, max_size=4), seeds)
    def test_another_view_never_raises_and_the_order_of_others_means_nothing(self, views, seed):
        x, y, query, _ = numbers(15, 4, seed)
        more = Cautious(x, y, views).predict(query)
        assert np.all(more <= Cautious(x, y, views[:-1]).predict(query) + 1e-12)
        np.testing.assert_allclose(Cautious(x, y, [views[0], *views[:0:-1]]).predict(query), more, rtol=1e-12)

    def test_sets_that_are_not_kept_have_no_say(self):
        x, y, query, keep = numbers(40, 4, 3)
        x_other, y_other = x.copy(), y.copy()
        x_other[~keep], y_other[~keep] = -50.0, -1e6
        views = [[0, 1], [2], [1, 3]]
        said = Cautious(x, y, views).predict(query, keep)
        np.testing.assert_array_equal(Cautious(x_other, y_other, views).predict(query, keep), said)

    def test_each_row_has_its_own_deciding_view(self):
        y = np.linspace(-3, 3, 61)
        fit = Cautious(np.c_[y, y], y, [[0], [1]])
        np.testing.assert_allclose(fit.predict(np.array([[-2.0, 2.0], [2.0, -2.0], [1.0, 1.0]])), [-2, -2, 1], atol=0.1)


# -- the judge ------------------------------------------------------------------------------------------------


levels = st.sampled_from([0.3, 0.6, 0.75, 0.9, 0.999])


class TestJudge:
    @settings(max_examples=40, deadline=None)
    @given(subsets.filter(population_of), seeds, levels, st.sampled_from([1, 30, 300, 3000, 10**6]))
    def test_never_above_the_population_and_its_interval_holds_that_of_the_population(self, names, seed, level, rows):
        table, scores = random_table(names, seed), random_scores(names, seed)
        accuracy, low, high = Judge(table, "cautious").judge(scores, rows, level)
        first = Judge(restricted(table, population_of(names)), "nearest")
        plain, plain_low, plain_high = first.judge(scores, rows, level)
        assert 0 <= low <= accuracy <= high <= 1
        assert accuracy <= plain + 1e-12
        assert low <= plain_low + 1e-12
        x, own = table.x(), views_of(names)[0]
        fit = Nearest(x[:, own], table.y())
        left_out = LeftOut.make(fit, table.families)
        level = min(level, left_out.reachable_level)
        cv_low, cv_high = map(sigmoid, left_out.bounds(fit, table.transformed(scores, rows)[own], level))
        assert low <= cv_low + 1e-12
        assert high >= cv_high - 1e-12
        if rows >= 3000 and cv_high >= plain:
            assert high >= plain_high - 1e-12

    @settings(max_examples=25, deadline=None)
    @given(subsets, seeds, levels, st.sampled_from([20, 3000]))
    def test_the_estimate_is_the_lowest_view_by_hand(self, names, seed, level, rows):
        table, scores = random_table(names, seed), random_scores(names, seed)
        x, y, query = table.x(), table.y(), table.transformed(scores, rows)
        accuracy, low, high = Judge(table).judge(scores, rows, level)
        expected = lowest_by_hand(x, y, query, np.ones(len(y)), views_of(names))
        assert accuracy == pytest.approx(sigmoid(expected), abs=1e-9)
        assert 0 <= low <= accuracy <= high <= 1

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.sampled_from(POPULATION), min_size=1, unique=True), seeds, levels, st.sampled_from([20, 3000]))
    def test_population_scores_alone_are_nearest(self, names, seed, level, rows):
        table, scores = random_table(names, seed), random_scores(names, seed)
        cautious, nearest = Judge(table, "cautious"), Judge(table, "nearest")
        # But for the order in which columns are summed.
        assert cautious.judge(scores, rows, level) == pytest.approx(nearest.judge(scores, rows, level), rel=1e-12)
        likes, others = (
            {like.family: like.weight for like in j.lookalikes(scores, rows, 9)} for j in (cautious, nearest)
        )
        assert likes == pytest.approx(others, rel=1e-9)
        np.testing.assert_allclose(cautious.table.predicted, nearest.table.predicted, rtol=1e-12)

    @settings(max_examples=20, deadline=None)
    @given(subsets, seeds)
    def test_the_order_of_scores_means_nothing(self, names, seed):
        table, scores = random_table(names, seed), random_scores(names, seed)
        turned = Judge(restricted(table, names[::-1])).judge(scores, 500, 0.7)
        # Without a score of the population the first score of rows gives the interval.
        count = 3 if population_of(names) else 1
        assert turned[:count] == pytest.approx(Judge(table).judge(scores, 500, 0.7)[:count], abs=1e-9)

    @settings(max_examples=20, deadline=None)
    @given(st.sampled_from(ROW_SCORES), seeds)
    def test_one_more_row_score_never_raises_estimate_or_lower_end(self, row, seed):
        table, scores = random_table(RECIPE, seed), random_scores(RECIPE, seed)
        all_of_them = Judge(table).judge(scores, 5000, 0.7)
        fewer = Judge(restricted(table, [n for n in RECIPE if n != row])).judge(scores, 5000, 0.7)
        assert all_of_them[0] <= fewer[0] + 1e-12
        assert all_of_them[1] <= fewer[1] + 1e-12

    def test_few_rows_leave_the_population_its_upper_end(self):
        names = ["cot", "nuclear", "atc"]
        table = honest_table(names)
        scores = {"cot": 0.2, "nuclear": 0.8, "atc": 0.5}
        _, _, high = Judge(table, "cautious").judge(scores, 50, 0.8)
        _, _, plain = Judge(restricted(table, names[:2]), "nearest").judge(scores, 50, 0.8)
        assert high >= plain - 1e-12

    def test_the_interval_holds_what_the_population_says(self):
        names, seed = ["agreescore", "entropy"], 1031274
        table, scores = random_table(names, seed), random_scores(names, seed)
        said, _, _ = Judge(restricted(table, ["entropy"]), "nearest").judge(scores, 3000, 0.3)
        assert Judge(table).judge(scores, 3000, 0.3)[2] >= said

    def test_scores_worse_than_those_of_every_set_are_not_taken_for_better(self):
        accuracy = np.r_[np.linspace(0.4, 0.95, 40), np.full(40, 0.9)]
        names, families = ["cot", "nuclear", "confscore", "atc"], ["a", "b", "c", "d"] * 10 + ["resampled-class"] * 40
        judge = Judge(Calibration(families, accuracy, np.full(80, 1000), {n: telling(n, accuracy) for n in names}))
        said = [judge.judge({n: telling(n, a) for n in names}, 1000, 0.7)[0] for a in (0.4, 0.2, 0.05, 0.0)]
        assert max(said) <= 0.5

    @pytest.mark.parametrize("rows", [2000, 100])
    def test_errors_that_the_population_does_not_see(self, rows):
        table = honest_table(RECIPE[:5])
        scores = {name: float(telling(name, 0.5 if name in ("atc", "confscore") else 0.8)) for name in table.scores}
        accuracy, low, high = Judge(table).judge(scores, rows, 0.8)
        population, _, _ = Judge(restricted(table, RECIPE[:4]), "nearest").judge(scores, rows, 0.8)
        blind = ["cot", "nuclear", "frechet"]
        assert Judge(restricted(table, blind), "nearest").judge(scores, rows, 0.8)[0] == pytest.approx(0.8, abs=0.02)
        assert accuracy == pytest.approx(0.5, abs=0.02)
        assert population > 0.6
        assert low <= 0.5
        assert high >= population
        # Confidence is one of the population's scores too: without it, its view says 80 % outright.
        alone, _, high = Judge(restricted(table, [*blind, "atc"])).judge(scores, rows, 0.8)
        assert alone == pytest.approx(0.5, abs=0.02)
        assert high >= 0.78

    def test_errors_that_rows_do_not_see(self):
        """A model that is sure of the same wrong classes everywhere."""
        names = ["cot", "nuclear", "frechet", "atc"]
        scores = {name: float(telling(name, 0.9 if name in ("atc", "confscore") else 0.2)) for name in RECIPE[:5]}
        accuracy, low, _ = Judge(honest_table(names)).judge(scores, 2000, 0.8)
        assert accuracy == pytest.approx(0.2, abs=0.03)
        assert low <= 0.2
        rows_alone = Judge(honest_table(["confscore", "atc"])).judge(scores, 2000, 0.8)[0]
        assert rows_alone == pytest.approx(0.9, abs=0.03)
        # With confidence in it the population's view is drawn towards 90 %, and stays far below.
        assert 0.2 <= Judge(honest_table(RECIPE[:5])).judge(scores, 2000, 0.8)[0] < 0.45
        # Where calibration knows sets of that kind, it is not drawn at all.
        table = honest_table(RECIPE[:5])
        known = {n: np.r_[v, np.full(9, scores[n])] for n, v in table.scores.items()}
        table = Calibration(
            [*table.families, *["sure"] * 9],
            np.r_[table.accuracy, np.full(9, 0.2)],
            np.r_[table.rows, [2000] * 9],
            known,
        )
        assert Judge(table).judge(scores, 2000, 0.8)[0] == pytest.approx(0.2, abs=0.03)

    def test_errors_that_only_a_second_model_sees(self):
        names = ["cot", "nuclear", "atc", "agreescore"]
        scores = {name: float(telling(name, 0.4 if name == "agreescore" else 0.85)) for name in names}
        assert Judge(honest_table(names)).judge(scores, 2000, 0.8)[0] == pytest.approx(0.4, abs=0.02)

    @settings(max_examples=25, deadline=None)
    @given(subsets, seeds)
    def test_lookalikes_are_of_the_view_that_decided(self, names, seed):
        table, scores = random_table(names, seed), random_scores(names, seed)
        x, y, query = table.x(), table.y(), table.transformed(scores, 800)
        keep = np.ones(len(y))
        weights = np.array(min(views_by_hand(x, y, query, keep, views_of(names)), key=lambda w: np.array(w) @ y))
        families = np.array(table.families)
        likes = Judge(table).lookalikes(scores, 800, count=100)
        assert {like.family for like in likes} == set(table.families)
        for like in likes:
            own = families == like.family
            assert like.weight == pytest.approx(weights[own].sum(), abs=1e-9)
            if like.weight > 1e-9:
                assert like.accuracy == pytest.approx(np.average(table.accuracy[own], weights=weights[own]), abs=1e-6)
        assert sum(like.weight for like in likes) == pytest.approx(1.0)

    def test_lookalikes_follow_the_blindness(self):
        rng = np.random.default_rng(0)
        accuracy = np.concatenate([rng.uniform(0.2, 0.6, 40), rng.uniform(0.7, 0.95, 40)])
        table = Calibration(
            [f"bad{i % 3}" for i in range(40)] + [f"good{i % 3}" for i in range(40)],
            accuracy,
            np.full(80, 1000),
            {"cot": 1 - accuracy, "nuclear": accuracy, "atc": accuracy},
        )
        judge = Judge(table)
        for scores in ({"cot": 0.15, "nuclear": 0.85, "atc": 0.4}, {"cot": 0.6, "nuclear": 0.4, "atc": 0.85}):
            assert all(like.family.startswith("bad") for like in judge.lookalikes(scores, 1000, count=3))
            assert judge.judge(scores, 1000, 0.7)[0] == pytest.approx(0.4, abs=0.05)

    def test_predictions_without_the_family_are_the_lowest_view_too(self):
        table = random_table(["cot", "confscore", "atc"], 5)
        table = replace(table, families=[f"kind{i % 4}" for i in range(24)])
        x, y, families = table.x(), table.y(), np.array(table.families)
        expected = [sigmoid(lowest_by_hand(x, y, x[i], families != families[i], ([0, 1], [1, 2]))) for i in range(24)]
        np.testing.assert_allclose(Judge(table).table.predicted, expected, rtol=1e-9)

    @pytest.mark.parametrize("seed", [0, 4, 10])  # at 10 % the estimate is an end of the interval in the last two
    @pytest.mark.parametrize(("level", "count"), [(0.7, 21), (0.1, 3)])
    def test_interval_by_hand(self, seed, level, count):
        """CV+ of the population's view, its lower end moved down as far as the estimate."""
        names = ["cot", "nuclear", "confscore", "atc"]
        table = replace(random_table(names, seed), families=[f"kind{i % 4}" for i in range(24)])
        scores = random_scores(names, seed)
        x, y, query, families = table.x(), table.y(), table.transformed(scores, 10**6), np.array(table.families)
        ends = []
        for kind in sorted(set(families)):
            keep = families != kind
            said = said_by_hand(x, y, query, keep, [0, 1, 2])
            ends += [(said, abs(y[i] - said_by_hand(x, y, x[i], keep, [0, 1, 2]))) for i in np.flatnonzero(~keep)]
        # 4 kinds of 6 sets: 24 values of 1/30 each.
        lows, highs = sorted((s - r for s, r in ends), reverse=True), sorted(s + r for s, r in ends)
        low, high = lows[count - 1], highs[count - 1]
        said = [said_by_hand(x, y, query, np.ones(24), [0, 1, 2])]
        value = lowest_by_hand(x, y, query, np.ones(24), ([0, 1, 2], [2, 3]))
        expected = (
            sigmoid(value),
            min(sigmoid(low - said[0] + value), sigmoid(value)),
            max(sigmoid(high), sigmoid(said[0])),
        )
        assert Judge(table).judge(scores, 10**6, level) == pytest.approx(expected, abs=1e-9)


# -- the estimator --------------------------------------------------------------------------------------------


CENTRES = np.random.default_rng(7).normal(size=(5, 6)) * 1.4
W, B = CENTRES.T, -0.5 * np.square(CENTRES).sum(1)
PEER = np.random.default_rng(8).normal(size=(6, 5)) * 0.4 + W


def outputs(rows, noise=1.0, *, seed=0, peer=False, shrink=1.0, only=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, rows) if only is None else np.full(rows, only)
    x = shrink * CENTRES[y] + noise * rng.normal(size=(rows, 6))
    more = {"peer_logits": x @ PEER + B} if peer else {}
    return gdscore.Outputs(logits=x @ W + B, features=x, labels=y, **more)


def shifted_sets(peer):
    for i, strength in enumerate(np.linspace(0, 1, 5)):
        yield gdscore.ShiftedSet(outputs(200, 1 + 3 * strength, seed=10 + i, peer=peer), "noise")
        yield gdscore.ShiftedSet(outputs(200, shrink=1 - 0.9 * strength, seed=20 + i, peer=peer), "shrink")
        yield gdscore.ShiftedSet(
            outputs(200, 1 + strength, shrink=1 - 0.5 * strength, seed=30 + i, peer=peer), "noise+shrink"
        )
        yield gdscore.ShiftedSet(outputs(200, 1 + strength**2, seed=40 + i, peer=peer), "other")


def fit(peer=True, **options):
    return gdscore.AccuracyEstimator(level=0.7, **options).fit(
        outputs(300, seed=1, peer=peer), shifted_sets=shifted_sets(peer)
    )


@pytest.fixture(scope="module")
def fitted():
    return fit()


def assert_sensible(e):
    assert np.isfinite([e.accuracy, e.low, e.high]).all()
    assert 0 <= e.low <= e.accuracy <= e.high <= 1
    assert all(0 <= c.low <= c.recall <= c.high <= 1 for c in e.per_class)
    assert e.method == "cautious"


def sensible_or_refused(run):
    """An estimate that makes sense, or an error that says why not: never anything else."""
    try:
        e = run()
    except gdscore.GdscoreError:
        return
    assert_sensible(e)


class TestEstimator:
    def test_cautious_is_the_default(self, fitted):
        assert gdscore.AccuracyEstimator().regressor == "cautious"
        e = fitted.estimate(outputs(300, 1.8, seed=5, peer=True))
        assert e.method == e.to_dict()["method"] == "cautious"
        assert_sensible(e)

    def test_atc_is_computed_for_its_own_view_only(self):
        assert "atc" in gdscore.AccuracyEstimator().scores
        for regressor in ("nearest", "stack"):
            assert "atc" not in gdscore.AccuracyEstimator(regressor=regressor).scores
        assert set(gdscore.AccuracyEstimator(regressor="atc").scores) == {"atc"}
        assert "atc" in gdscore.AccuracyEstimator(regressor="nearest", scores=["cot", "atc"]).scores
        target = outputs(200, seed=5)
        assert set(fit(peer=False).estimate(target).scores) == set(RECIPE[:5])
        nearest = fit(peer=False, regressor="nearest").estimate(target)
        assert set(nearest.scores) == set(RECIPE[:4])
        assert nearest.method == "nearest"

    def test_scores_are_those_of_the_recipe_or_those_asked_for(self, fitted):
        assert list(fitted.calibration_.scores) == RECIPE
        asked = fit(scores=RECIPE[::-1])
        assert list(asked.calibration_.scores) == RECIPE[::-1]
        assert_sensible(asked.estimate(outputs(200, 2.0, seed=5, peer=True)))

    @pytest.mark.parametrize("options", [{}, {"noise": 2.0}, {"shrink": 0.4}, {"only": 3}])
    def test_never_above_its_own_population(self, fitted, options):
        e = fitted.estimate(outputs(500, seed=6, peer=True, **options))
        plain = Judge(restricted(fitted.calibration_, RECIPE[:4]), "nearest").judge(e.scores, e.n, e.level)
        assert e.accuracy <= plain[0] + 1e-12
        assert e.low <= plain[1] + 1e-12
        assert e.high >= plain[2] - 1e-12

    def test_round_trip(self, fitted, tmp_path):
        fitted.save(tmp_path / "m.gdscore")
        again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
        assert again.regressor == "cautious"
        for noise in (1.0, 2.5):
            target = outputs(300, noise, seed=7, peer=True)
            assert again.estimate(target) == fitted.estimate(target)
        np.testing.assert_array_equal(again.calibration_.predicted, fitted.calibration_.predicted)

    def test_same_seed_same_answer(self, fitted):
        target = outputs(300, 1.7, seed=8, peer=True)
        assert fit(seed=0).estimate(target) == fitted.estimate(target)

    @pytest.mark.parametrize("scores", [["gdscore"], "atc", ["atc", "gdscore"], {"confscore": {}, "atc": {}}])
    def test_scores_of_ones_own(self, scores, tmp_path):
        est = gdscore.AccuracyEstimator(level=0.7, scores=scores).fit(outputs(200, seed=1), head=(W, B))
        e = est.estimate(outputs(200, 1.5, seed=2))
        assert_sensible(e)
        assert list(e.scores) == ([scores] if isinstance(scores, str) else list(scores))
        est.save(tmp_path / "m.gdscore")
        assert gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore").estimate(outputs(200, 1.5, seed=2)) == e

    def test_row_scores_alone(self):
        est = fit(scores=["atc", "agreescore"])
        assert_sensible(est.estimate(outputs(200, 2.0, seed=2, peer=True)))

    @pytest.mark.parametrize("rows", [1, 2, 150])
    def test_predictions_of_one_class(self, fitted, rows):
        x = np.random.default_rng(0).normal(size=(rows, 6))
        z = np.tile([0.0, 0.0, 50.0, 0.0, 0.0], (rows, 1))
        for logits in (z, 0 * z):
            target = gdscore.Outputs(logits=logits, features=x, peer_logits=z)
            if rows == 1:
                with pytest.raises(gdscore.GdscoreError, match="`frechet` needs at least 2 rows"):
                    fitted.estimate(target)
            else:
                assert_sensible(fitted.estimate(target))

    @pytest.mark.parametrize("head", [None, (W, B)])
    def test_reference_without_errors(self, head):
        perfect = outputs(200, 0.05, seed=1)
        assert perfect.accuracy == 1.0
        sensible_or_refused(lambda: gdscore.AccuracyEstimator().fit(perfect, head=head).estimate(outputs(150, 2.0)))

    @pytest.mark.parametrize("own", [False, True])
    def test_reference_without_errors_and_no_doubt(self, own):
        """Confidence of exactly 1 on every row: no threshold of ATC means anything."""
        y = np.arange(200) % 5
        perfect = gdscore.Outputs(logits=1e4 * np.eye(5)[y], labels=y)
        sets = [
            gdscore.ShiftedSet(outputs(150, 1 + n, seed=n).only({"logits", "labels"}), f)
            for f in "ab"
            for n in range(4)
        ]
        est = gdscore.AccuracyEstimator(level=0.5)
        sensible_or_refused(lambda: est.fit(perfect, shifted_sets=sets if own else None).estimate(perfect))

    @pytest.mark.parametrize("head", [None, (np.zeros((6, 5)), np.array([0.0, 9, 0, 0, 0]))])
    def test_reference_of_one_predicted_class(self, head):
        rng = np.random.default_rng(0)
        val = gdscore.Outputs(
            logits=np.tile([0.0, 9, 0, 0, 0], (200, 1)),
            features=rng.normal(size=(200, 6)),
            labels=rng.integers(0, 5, 200),
        )
        sensible_or_refused(lambda: gdscore.AccuracyEstimator().fit(val, head=head).estimate(val))

    def test_reference_of_one_class(self):
        val = outputs(200, 1.5, seed=1, only=2)
        sensible_or_refused(lambda: gdscore.AccuracyEstimator().fit(val, head=(W, B)).estimate(outputs(150, 2.0)))

    def test_unknown_regressor(self):
        with pytest.raises(gdscore.GdscoreError, match="did you mean 'cautious'"):
            gdscore.AccuracyEstimator(regressor="cautius")
