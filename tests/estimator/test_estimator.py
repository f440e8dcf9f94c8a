from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gdscore
from gdscore.estimator import cautions
from tests.data import batches

RNG = np.random.default_rng(0)
CENTRES = np.random.default_rng(7).normal(size=(6, 8)) * 1.3
W = CENTRES.T
B = -0.5 * np.square(CENTRES).sum(1)


def said(rows, noise=1.0, *, seed=0, mix=None, shrink=1.0, turn=0.0):
    """A linear classifier on six clusters whose surroundings can change in several ways."""
    rng = np.random.default_rng(seed)
    y = rng.choice(6, size=rows, p=mix)
    x = shrink * CENTRES[y] + noise * rng.normal(size=(rows, 8))
    if turn:
        x = (1 - turn) * x + turn * np.roll(x, 1, axis=1)
    return gdscore.Outputs(logits=x @ W + B, features=x, labels=y)


def predict(rows):
    return gdscore.Outputs(logits=rows @ W + B, features=rows)


def shifted_sets(rows=800):
    for family, options in {
        "noise": [{"noise": n} for n in np.linspace(1, 4, 10)],
        "shrink": [{"shrink": s} for s in np.linspace(1, 0.1, 10)],
        "turn": [{"turn": t} for t in np.linspace(0, 0.7, 10)],
        "both": [{"noise": 1 + 2 * t, "shrink": 1 - 0.5 * t} for t in np.linspace(0, 1, 10)],
    }.items():
        for index, option in enumerate(options):
            yield gdscore.ShiftedSet(said(rows, seed=100 + index, **option), family)
    yield from gdscore.shifts.resampled(said(1500, seed=1), 40, rows=rows)


@pytest.fixture(scope="module")
def fitted():
    reference = said(1500, seed=1)
    return gdscore.AccuracyEstimator(level=0.8).fit(reference, shifted_sets=shifted_sets())


class TestEstimate:
    @pytest.mark.parametrize("options", [{"noise": 2.2}, {"shrink": 0.5}, {"turn": 0.35}, {"noise": 1.6, "turn": 0.2}])
    def test_near_the_truth(self, fitted, options):
        target = said(3000, seed=55, **options)
        e = fitted.estimate(target)
        assert e.low <= target.accuracy <= e.high
        assert e.accuracy == pytest.approx(target.accuracy, abs=0.12)
        assert e.reference_accuracy == pytest.approx(said(1500, seed=1).accuracy)

    def test_unshifted_data(self, fitted):
        target = said(4000, seed=77)
        e = fitted.estimate(target)
        assert e.accuracy == pytest.approx(target.accuracy, abs=0.02)
        assert e.warnings == []

    def test_streams_and_seeds(self, fitted):
        target = said(3000, seed=55, noise=2.0)
        whole = fitted.estimate(target)
        assert fitted.estimate(iter(batches(target, 333))) == whole
        again = gdscore.AccuracyEstimator(level=0.8).fit(said(1500, seed=1), shifted_sets=shifted_sets())
        assert again.estimate(target) == whole

    def test_fewer_rows_wider_interval(self):
        est = gdscore.AccuracyEstimator(level=0.6, scores=["nuclear", "confscore"])
        est.fit(said(1500, seed=1), shifted_sets=shifted_sets())
        few = said(60, seed=3, noise=1.5)
        many = few[np.tile(np.arange(60), 50)]
        narrow, wide = est.estimate(many), est.estimate(few)
        assert wide.accuracy == pytest.approx(narrow.accuracy, abs=1e-6)
        assert wide.high - wide.low > narrow.high - narrow.low + 0.005

    def test_size_of_the_target_means_little(self, fitted):
        """The Fréchet distance of few rows is larger; calibration sets have as many rows as the reference."""
        target = said(8000, seed=6, noise=1.4)
        whole = fitted.estimate(target)
        parts = [fitted.estimate(target[np.arange(i, 8000, 20)]).accuracy for i in range(10)]
        assert np.mean(parts) == pytest.approx(whole.accuracy, abs=0.03)

    def test_lookalikes(self, fitted):
        e = fitted.estimate(said(3000, seed=4, shrink=0.4))
        assert e.lookalikes[0].family == "shrink"
        assert 0 < sum(like.weight for like in e.lookalikes) <= 1 + 1e-9
        weights = [like.weight for like in e.lookalikes]
        assert weights == sorted(weights, reverse=True)
        assert e.to_dict()["lookalikes"][0]["family"] == "shrink"

    def test_per_class_recalls_average_to_the_accuracy(self, fitted):
        target = said(4000, seed=5, noise=2.0)
        e = fitted.estimate(target)
        assert sum(c.recall * c.share for c in e.per_class) == pytest.approx(e.accuracy, abs=1e-6)
        true = [float((target.predictions == k)[target.labels == k].mean()) for k in range(6)]
        held = [c.low <= t <= c.high for c, t in zip(e.per_class, true, strict=True)]
        assert sum(held) >= 5

    def test_views(self, fitted):
        e = fitted.estimate(said(150, seed=5, noise=2.0))
        assert str(e).startswith(f"about {e.accuracy:.1%} accurate, between {e.low:.1%} and {e.high:.1%}")
        assert "careful: 150 rows are few" in str(e)
        assert f"<b>{e.accuracy:.1%}</b>" in e._repr_html_()
        assert e.to_dict()["per_class"][0]["label"] == 0
        assert gdscore.files.write_json is not None


class TestWarnings:
    def test_few_rows(self, fitted):
        assert any("150 rows are few" in w for w in fitted.estimate(said(150)).warnings)
        assert not any("are few" in w for w in fitted.estimate(said(500)).warnings)

    def test_class_mix(self, fitted):
        mix = [0.6, 0.3, 0.05, 0.03, 0.01, 0.01]
        target = said(3000, seed=9, mix=mix)
        e = fitted.estimate(target)
        assert any("mix of predicted classes is far" in w for w in e.warnings)
        assert e.class_mix_accuracy == pytest.approx(target.accuracy, abs=0.03)
        assert not any("mix" in w for w in fitted.estimate(said(3000, seed=9, noise=1.3)).warnings)

    def test_collapse(self, fitted):
        z = np.zeros((500, 6))
        z[:, 2] = 3 + RNG.normal(size=500)
        e = fitted.estimate(gdscore.Outputs(logits=z, features=RNG.normal(size=(500, 8))))
        assert any("collapsed to few classes" in w for w in e.warnings)

    @pytest.mark.parametrize(
        ("classes", "rows", "reference"), [(1000, 300, 2000), (1000, 50_000, 2000), (100, 50, 5000), (2, 30, 500)]
    )
    def test_unshifted_mixes_raise_no_alarm(self, classes, rows, reference):
        rng = np.random.default_rng(0)
        true = rng.dirichlet(np.full(classes, 5.0))
        for _ in range(5):
            seen, drawn = (rng.multinomial(n, true) / n for n in (reference, rows))
            assert cautions.about_class_mix(drawn, seen, rows, reference, None) == []

    def test_reference_too_small_or_too_easy(self):
        assert any("only 120 rows" in w for w in cautions.about_reference(120, 0.9))
        assert any("almost no errors" in w for w in cautions.about_reference(5000, 0.999))
        assert cautions.about_reference(5000, 0.9) == []

    def test_scores_that_disagree(self):
        assert any("a alone would say 20%" in w for w in cautions.about_scores({"a": 0.2, "b": 0.9}))
        assert cautions.about_scores({"a": 0.6, "b": 0.7}) == []
        assert cautions.about_scores({"a": 0.6}) == []
        # Less will do where accuracy has fallen: on unseen subclasses of CIFAR-100 scores are 20 to 30 points apart.
        assert cautions.about_scores({"a": 0.45, "b": 0.7}) == []
        assert cautions.about_scores({"a": 0.45, "b": 0.7}, fallen=0.2)
        assert cautions.about_scores({"a": 0.6, "b": 0.7}, fallen=0.2) == []

    def test_another_model(self, fitted):
        target = said(800, seed=3, noise=1.4)
        assert not any("another model" in w for w in fitted.estimate(target).warnings)
        half = gdscore.Outputs(logits=target.logits.astype(np.float16), features=target.features.astype(np.float16))
        assert not any("another model" in w for w in fitted.estimate(half).warnings)
        logs = gdscore.Outputs(logits=np.log(target.probabilities), features=target.features)
        assert not any("another model" in w for w in fitted.estimate(logs).warnings)
        first = iter([target[:1], target[1:]])
        assert not any("another model" in w for w in fitted.estimate(first).warnings)
        other = gdscore.Outputs(logits=target.features @ np.roll(W, 1, axis=0) + B, features=target.features)
        own = target.only({"logits", "features"})
        assert any("another model" in w for w in fitted.estimate(iter([own, other])).warnings)
        (warning,) = [w for w in fitted.estimate(other).warnings if "another model" in w]
        assert "calibrate anew" in warning

    def test_far_from_every_calibration_set(self, fitted):
        assert not any("unlike those of every" in w for w in fitted.estimate(said(2000, seed=3, noise=2.5)).warnings)
        strange = said(2000, seed=3)
        strange = gdscore.Outputs(logits=1e3 * strange.logits, features=1e3 * strange.features)
        assert any("unlike those of every calibration set" in w for w in fitted.estimate(strange).warnings)

    def test_outputs_only_and_reachable_level(self):
        est = gdscore.AccuracyEstimator(level=0.9).fit(said(1500, seed=1), head=(W, B))
        e = est.estimate(said(2000, seed=2, noise=1.5))
        assert any("outputs alone" in w for w in e.warnings)
        assert e.level == 0.9
        alone = gdscore.AccuracyEstimator(level=0.9).fit(said(1500, seed=1)).estimate(said(2000, seed=2))
        assert alone.level == pytest.approx(5 / 6)
        assert any("support intervals of at most 83%" in w for w in alone.warnings)


class TestFitting:
    def test_reference_from_the_shifted_sets(self):
        est = gdscore.AccuracyEstimator(level=0.8).fit(shifted_sets=list(shifted_sets()))
        target = said(3000, seed=55, noise=2.2)
        assert est.estimate(target).accuracy == pytest.approx(target.accuracy, abs=0.12)

    def test_a_single_score_with_a_line(self):
        est = gdscore.AccuracyEstimator(level=0.8, regressor="gdscore").fit(
            said(1500, seed=1), shifted_sets=shifted_sets()
        )
        e = est.estimate(said(3000, seed=55, noise=2.0))
        assert list(e.scores) == ["gdscore"]
        assert e.method == "gdscore"

    def test_own_scores_must_be_possible(self):
        with pytest.raises(gdscore.GdscoreError, match="`agreescore` needs peer_logits"):
            gdscore.AccuracyEstimator(scores=["agreescore"]).fit(said(500), shifted_sets=shifted_sets(200))
        with pytest.raises(gdscore.GdscoreError, match="did you mean 'nuclear'"):
            gdscore.AccuracyEstimator(scores=["nucler"])
        with pytest.raises(gdscore.GdscoreError, match="Unknown `regressor` 'stak'"):
            gdscore.AccuracyEstimator(regressor="stak")
        with pytest.raises(gdscore.GdscoreError, match="among `scores`"):
            gdscore.AccuracyEstimator(scores=["nuclear"], regressor="gdscore")
        with pytest.raises(gdscore.GdscoreError, match="`level`"):
            gdscore.AccuracyEstimator(level=1.0)

    def test_predictor_with_own_shifts(self):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 6, 1200)
        x = CENTRES[y] + rng.normal(size=(1200, 8))

        def noisy(strength):
            def shift(rows):
                return rows + strength * np.random.default_rng(3).normal(size=rows.shape)

            shift.__name__ = f"noise-{strength:.1f}"
            return shift

        shifts = [noisy(s) for s in np.linspace(0, 3, 12)]
        est = gdscore.AccuracyEstimator(level=0.8).fit_predictor(predict, x, y, shifts=shifts, resamples=20)
        target = said(2000, seed=8, noise=2.0)
        e = est.estimate(target)
        assert e.low <= target.accuracy <= e.high

    def test_predictor_on_images(self):
        from sklearn.datasets import load_digits
        from sklearn.linear_model import LogisticRegression

        digits = load_digits()
        images, labels = (digits.images[:, None] / 16).astype(np.float32), digits.target
        clf = LogisticRegression(max_iter=300).fit(images[:600].reshape(600, -1), labels[:600])

        def predict(rows):
            return gdscore.sklearn_outputs(clf, rows.reshape(len(rows), -1))

        shifts = gdscore.shifts.corruptions((3, 6))
        est = gdscore.AccuracyEstimator().fit_predictor(
            predict, images[600:1000], labels[600:1000], shifts=shifts, resamples=12
        )
        assert len(est.families_) == 19 + 5
        target = gdscore.sklearn_outputs(clf, images[1000:].reshape(797, -1), labels[1000:])
        e = est.estimate(target)
        assert e.low <= target.accuracy <= e.high

    @pytest.mark.parametrize(
        ("fit", "message"),
        [
            (lambda e: e.fit(), "`reference` or `shifted_sets`"),
            (lambda e: e.fit(gdscore.Outputs(logits=2 * np.eye(3))), "with labels"),
            (lambda e: e.fit(shifted_sets=[]), "empty"),
            (lambda e: e.fit(shifted_sets=[said(10)]), "`gdscore.ShiftedSet`, but got Outputs"),
            (lambda e: e.fit(shifted_sets=[gdscore.ShiftedSet(said(300), "a")] * 3), "at least two families"),
            (
                lambda e: e.fit(shifted_sets=[gdscore.ShiftedSet(said(300), f) for f in "abc"]),
                "different accuracies",
            ),
            (lambda e: e.estimate(said(10)), "fitted estimator"),
            (lambda e: e.save("x.gdscore"), "fitted estimator"),
            (lambda e: e.fit_predictor(lambda x: x, np.zeros((3, 2)), np.zeros(2, dtype=int)), "as many labels"),
            (
                lambda e: e.fit_predictor(lambda x: x, np.zeros((3, 2)), np.zeros(3, dtype=int), shifts=[]),
                "`predict` to return",
            ),
        ],
    )
    def test_bad_input(self, fit, message):
        with pytest.raises(gdscore.GdscoreError, match=message):
            fit(gdscore.AccuracyEstimator(level=0.5))

    def test_bad_targets(self, fitted):
        with pytest.raises(gdscore.GdscoreError, match="6 classes as in calibration, but they have 4"):
            fitted.estimate(gdscore.Outputs(logits=np.zeros((9, 4)), features=np.zeros((9, 8))))
        with pytest.raises(gdscore.GdscoreError, match="8 features as in calibration"):
            fitted.estimate(gdscore.Outputs(logits=np.zeros((9, 6)), features=np.zeros((9, 3))))
        with pytest.raises(gdscore.GdscoreError, match="have rows"):
            fitted.estimate([])

    def test_second_model_and_head(self):
        """Sets of a disturbed head have no second model's logits: the estimator does without."""
        val = said(1500, seed=1)
        both = gdscore.Outputs(**val.arrays, peer_logits=val.logits[:, ::-1].copy())
        est = gdscore.AccuracyEstimator(level=0.8).fit(both, head=(W, B))
        assert "agreescore" not in est.calibration_.scores
        assert "agreescore" not in est.estimate(both).scores

    def test_sets_of_which_some_have_a_second_model(self):
        sets = list(shifted_sets(300))
        first = sets[0].outputs
        sets[0] = gdscore.ShiftedSet(gdscore.Outputs(**first.arrays, peer_logits=first.logits), sets[0].family)
        val = said(1500, seed=1)
        est = gdscore.AccuracyEstimator(level=0.8).fit(
            gdscore.Outputs(**val.arrays, peer_logits=val.logits), shifted_sets=sets
        )
        assert "agreescore" not in est.calibration_.scores

    def test_several_threads(self, fitted):
        targets = [said(1500, seed=i, noise=n) for i, n in enumerate((1.0, 1.5, 2.0, 2.5, 3.0))]
        with ThreadPoolExecutor(5) as pool:
            together = list(pool.map(fitted.estimate, targets))
        assert together == [fitted.estimate(t) for t in targets]

    def test_unshifted_data_where_all_own_sets_are_shifted(self):
        sets = [gdscore.ShiftedSet(said(600, n, seed=i), f) for f in "abc" for i, n in enumerate((2.5, 3.0, 3.5, 4.0))]
        est = gdscore.AccuracyEstimator(level=0.6).fit(said(1500, seed=1), shifted_sets=sets)
        target = said(2000, seed=5)
        assert est.estimate(target).accuracy == pytest.approx(target.accuracy, abs=0.03)

    def test_perfect_reference(self):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 4, 600)
        val = gdscore.Outputs(logits=9.0 * np.eye(4)[y] + rng.normal(size=(600, 4)) * 0.1, labels=y)
        sets = [
            gdscore.ShiftedSet(gdscore.Outputs(logits=9 * np.eye(4)[y] + n * rng.normal(size=(600, 4)), labels=y), f)
            for f in "abcde"
            for n in (3, 4, 5, 7)
        ]
        est = gdscore.AccuracyEstimator(level=0.7).fit(val, shifted_sets=sets)
        assert est.temperature_ == 1.0
        target = gdscore.Outputs(logits=9 * np.eye(4)[y] + 4.5 * rng.normal(size=(600, 4)), labels=y)
        assert est.estimate(target).accuracy == pytest.approx(target.accuracy, abs=0.08)

    def test_saturated_scores_and_other_sizes(self):
        """A score at its bound on every set must not tell sets apart by their number of rows."""
        rng = np.random.default_rng(0)

        def sure(rows, wrong):
            y = rng.integers(0, 2, rows)
            shown = np.where(rng.random(rows) < wrong, 1 - y, y)
            return gdscore.Outputs(logits=80.0 * np.eye(2)[shown], labels=y)

        sets = [gdscore.ShiftedSet(sure(1000, w), f) for f in "abc" for w in (0.01, 0.05, 0.1)]
        est = gdscore.AccuracyEstimator(level=0.6).fit(sure(1000, 0.01), shifted_sets=sets)
        e = est.estimate(sure(777, 0.05))
        assert not any("unlike those of every" in w for w in e.warnings)

    def test_families_that_cannot_be_left_out(self):
        sets = [gdscore.ShiftedSet(said(300, noise=1 + i, seed=i), f) for i, f in enumerate(("x", "y", "x+y"))]
        est = gdscore.AccuracyEstimator(level=0.5).fit(said(1500, seed=1), shifted_sets=sets)
        assert np.isfinite(est.estimate(said(500)).accuracy)
        table = replace(est.calibration_, families=["x+y"] * len(est.calibration_.families))
        with pytest.raises(gdscore.GdscoreError, match="can be left out"):
            gdscore.estimator.Judge(table)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"scores": []}, "at least one score"),
            ({"scores": {"gdscore": None}}, "options of `gdscore` as a dict"),
            ({"scores": "nonsense"}, "nonsense"),
        ],
    )
    def test_bad_scores(self, options, message):
        with pytest.raises(gdscore.GdscoreError, match=message):
            gdscore.AccuracyEstimator(**options)

    @pytest.mark.parametrize("head", [3, (np.eye(3), None), (W, np.zeros(3))])
    def test_bad_heads(self, head):
        with pytest.raises(gdscore.GdscoreError, match="`head`"):
            gdscore.AccuracyEstimator(level=0.5).fit(said(800, seed=1), head=head, shifted_sets=shifted_sets(200))

    def test_shifts_of_any_kind(self):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 6, 600)
        x = CENTRES[y] + rng.normal(size=(600, 8))

        def weaker(rows):
            return 0.5 * rows

        weaker.family = "dim"

        def moved(rows, by):
            return rows + by

        shifts = [weaker, partial(moved, by=0.5), partial(moved, by=1.5), lambda rows: rows[:, ::-1].copy()]
        est = gdscore.AccuracyEstimator(level=0.5).fit_predictor(predict, x, y, shifts=shifts, resamples=10)
        assert {"dim", "moved", "<lambda>"} < set(est.families_)
        for bad, message in ((["fog"], "callables"), ([weaker], "batch_size")):
            with pytest.raises(gdscore.GdscoreError, match=message):
                gdscore.AccuracyEstimator().fit_predictor(predict, x, y, shifts=bad, batch_size=0)
        with pytest.raises(gdscore.GdscoreError, match="as many labels"):
            gdscore.AccuracyEstimator().fit_predictor(predict, x, None, shifts=shifts)

    def test_interrupted_halfway(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        def sets():
            yield from list(shifted_sets())[:30]
            raise KeyboardInterrupt

        est = gdscore.AccuracyEstimator(level=0.8)
        with pytest.raises(KeyboardInterrupt):
            est.fit(said(1500, seed=1), shifted_sets=sets())
        assert not [name for name in vars(est) if name.endswith("_")]
        assert list(tmp_path.iterdir()) == []

    def test_judged_by_scores_alone(self, fitted):
        e = fitted.estimate(said(1500, seed=5, noise=1.7))
        judge = gdscore.estimator.Judge(fitted.calibration_)
        assert judge.judge(e.scores, e.n, 0.8) == pytest.approx((e.accuracy, e.low, e.high))

    def test_a_stream_of_rows_is_not_held(self, fitted):
        import tracemalloc

        part = said(10_000, seed=2, noise=1.4)
        peaks = []
        for repeats in (5, 50):
            tracemalloc.start()
            fitted.estimate(part for _ in range(repeats))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < 1.2 * peaks[0] + 1e6


class TestFiles:
    def test_round_trip(self, fitted, tmp_path):
        fitted.save(tmp_path / "m.gdscore")
        again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
        target = said(3000, seed=55, noise=2.0)
        assert again.estimate(target) == fitted.estimate(target)
        assert [p.name for p in tmp_path.iterdir()] == ["m.gdscore"]

    def test_foreign_old_and_damaged_files(self, fitted, tmp_path):
        path = tmp_path / "m.gdscore"
        fitted.save(path)
        state = gdscore.files.read_arrays(path)
        gdscore.files.write_arrays(path, {**state, "version": 99})
        with pytest.raises(gdscore.GdscoreError, match="version 3 of the estimator's file, but .* has version 99"):
            gdscore.AccuracyEstimator.load(path)
        gdscore.files.write_arrays(path, {k: v for k, v in state.items() if k != "seen.accuracy"})
        with pytest.raises(gdscore.GdscoreError, match="damaged"):
            gdscore.AccuracyEstimator.load(path)
        gdscore.files.write_arrays(path, {"something": 1})
        with pytest.raises(gdscore.GdscoreError, match="something else"):
            gdscore.AccuracyEstimator.load(path)
        path.write_bytes(b"not an estimator")
        with pytest.raises(gdscore.GdscoreError):
            gdscore.AccuracyEstimator.load(path)

    def test_fitted_again_after_loading(self, fitted, tmp_path):
        """Scores that were chosen by what there is are chosen anew."""
        fitted.save(tmp_path / "m.gdscore")
        again = gdscore.AccuracyEstimator.load(tmp_path / "m.gdscore")
        plain = [gdscore.ShiftedSet(s.outputs.only({"logits", "labels"}), s.family) for s in shifted_sets(200)]
        again.fit(said(800, seed=1).only({"logits", "labels"}), shifted_sets=plain)
        assert "frechet" not in again.calibration_.scores


class TestDirect:
    @pytest.mark.parametrize("name", ["confscore", "doc", "atc", "cot", "cott"])
    @pytest.mark.parametrize("temperature", [True, False])
    def test_equals_the_score(self, name, temperature):
        reference, target = said(1500, seed=1), said(2000, seed=2, noise=1.5)
        e = gdscore.direct_estimate(name, target, reference=reference, temperature=temperature)
        divisor = gdscore.fit_temperature(reference) if temperature else 1.0
        value = gdscore.score(name, target.with_temperature(divisor), reference=reference.with_temperature(divisor))
        assert e.accuracy == pytest.approx(1 - value if name == "cot" else value)
        assert e.low < e.accuracy < e.high
        assert f"not the error of {name} itself" in e.warnings[0]

    def test_agreement(self):
        target = said(500)
        peer = gdscore.Outputs(**target.arrays, peer_logits=target.logits)
        assert gdscore.direct_estimate("agreescore", peer, reference=said(500)).accuracy == 1.0

    def test_refusals(self):
        with pytest.raises(gdscore.GdscoreError, match="Unknown `name` 'nuclear'"):
            gdscore.direct_estimate("nuclear", said(10), reference=said(500))
        with pytest.raises(gdscore.GdscoreError, match="labelled"):
            gdscore.direct_estimate("atc", said(10), reference=gdscore.Outputs(logits=2 * np.eye(6)))

    def test_interval_covers_sampling(self):
        """Confidence of a calibrated model: the interval must hold the population's accuracy as often as it says."""
        rng = np.random.default_rng(0)
        z = 2 * rng.normal(size=(200_000, 4))
        p = gdscore.Outputs(logits=z).confidence
        reference = gdscore.Outputs(logits=z[:5000], labels=(z[:5000] + rng.gumbel(size=(5000, 4))).argmax(1))
        held = []
        for _ in range(100):
            rows = rng.integers(0, 200_000, 300)
            e = gdscore.direct_estimate(
                "confscore", gdscore.Outputs(logits=z[rows]), reference=reference, temperature=False
            )
            held.append(e.low <= p.mean() <= e.high)
        assert np.mean(held) >= 0.88
