"""COT and COTT: against POT on the m×m problem they were defined with, and their sample."""

from __future__ import annotations

import numpy as np
import ot
import pandas as pd
import pytest

import gdscore
from gdscore.scores import _transport as transport
from gdscore.scores.cot import PUBLISHED_BATCH
from tests.data import batches, forms, made, tied_rows

pytestmark = pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
REFERENCE = made(800, seed=3)


def as_assignment(s, counts):
    """Transport of the rows of S to one-hot vectors, each class repeated ``counts`` times: m×m, cost ½‖·‖₁."""
    vertices = np.repeat(np.eye(s.shape[1]), counts, axis=0)
    cost = 0.5 * np.abs(s[:, None, :] - vertices[None, :, :]).sum(2)
    return ot.emd([], [], cost, numItermax=10**7), cost


def test_equals_the_assignment_problem():
    reference, target = made(400, seed=3), made(400, noise=3.0, seed=4)
    counts = np.bincount(reference.labels, minlength=10)
    plan, cost = as_assignment(target.probabilities.astype(np.float64), counts)
    value = gdscore.score("cot", target, reference=reference)
    assert value == pytest.approx(float((plan * cost).sum()), abs=1e-6)


def test_cott_equals_the_assignment_problem():
    reference, target = made(400, seed=3), made(400, noise=3.0, seed=4)
    counts = np.bincount(reference.labels, minlength=10)
    shares = []
    for out in (reference, target):
        plan, cost = as_assignment(out.probabilities.astype(np.float64), counts)
        shares.append(-(plan * cost).sum(1) * 400)
    errors = round(400 * (1 - reference.accuracy))
    threshold = np.sort(shares[0])[errors]
    value = gdscore.score("cott", target, reference=reference)
    assert value == pytest.approx((shares[1] >= threshold - 1e-9).mean(), abs=1e-9)


def test_reference_itself():
    assert gdscore.score("cott", REFERENCE, reference=REFERENCE) == pytest.approx(REFERENCE.accuracy, abs=1e-9)
    right = gdscore.Outputs(logits=REFERENCE.logits, labels=REFERENCE.predictions)
    assert gdscore.score("cott", right, reference=right) == 1.0
    assert gdscore.score("cot", right, reference=right) == pytest.approx(1 - right.confidence.mean(), abs=1e-5)


def test_cot_and_cott_of_one_set_share_the_solution(monkeypatch):
    made_for = []
    original = transport.solve
    monkeypatch.setattr(transport, "solve", lambda S, *rest: made_for.append(len(S)) or original(S, *rest))
    cot, cott = (gdscore.create_score(name, k=300).fit(REFERENCE) for name in ("cot", "cott"))
    assert len(made_for) == 1  # COTT's threshold
    target = made(500, noise=2.0, seed=4)
    apart = [s.update(target).compute() for s in (cot, cott)]
    assert made_for[1:] == [300]
    assert apart == [gdscore.score(name, target, reference=REFERENCE, k=300) for name in ("cot", "cott")]


class TestSample:
    def test_is_a_function_of_the_set_of_rows(self):
        out = made(3000, noise=2.0)
        whole = gdscore.create_score("cot", k=400).fit(REFERENCE).update(out)
        shuffled = out[np.random.default_rng(0).permutation(3000)]
        parts = [gdscore.create_score("cot", k=400).fit(REFERENCE).update(p) for p in batches(shuffled, 700)]
        merged = parts[0]
        for part in parts[1:]:
            merged.merge(part)
        a, b = whole.statistics(), merged.statistics()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        assert whole.compute() == merged.compute()

    def test_keeps_the_rows_of_smallest_hash(self):
        out = made(2500)
        kept = gdscore.create_score("cot", k=100).fit(REFERENCE).update(out).statistics()
        high, low = (k.view(np.uint32).astype(np.uint64) for k in out.row_keys())
        smallest = np.argsort((high << np.uint64(32)) | low)[:100]
        np.testing.assert_array_equal(kept["rows"], out.probabilities[smallest])

    def test_exact_below_k_and_stated_error_above(self):
        out = made(20_000, noise=2.0)
        full = gdscore.create_score("cot", k=20_000).fit(REFERENCE).update(out)
        assert full.sampling_error == 0.0
        exact = full.compute()
        misses = []
        for seed in range(20):
            named = gdscore.Outputs(logits=out.logits, ids=np.arange(20_000) + 10**6 * seed)
            sampled = gdscore.create_score("cot", k=500).fit(REFERENCE).update(named)
            assert sampled.sampling_error == pytest.approx(np.sqrt(np.log(40) / 1000))
            misses.append(abs(sampled.compute() - exact))
        assert 0 < np.mean(misses) < 0.02
        assert max(misses) <= sampled.sampling_error

    def test_few_distinct_rows_are_exact_however_many_there_are(self):
        rng = np.random.default_rng(0)
        distinct = rng.dirichlet(np.ones(10), size=30)
        rows = distinct[rng.choice(30, size=5000, p=rng.dirichlet(np.ones(30)))]
        out = gdscore.Outputs(probabilities=rows)
        small = gdscore.create_score("cot", k=30).fit(REFERENCE).update(out)
        assert small.sampling_error == 0.0
        assert small.compute() == pytest.approx(gdscore.score("cot", out, reference=REFERENCE), abs=1e-9)

    def test_memory_does_not_grow_with_rows(self):
        score = gdscore.create_score("cot", k=1000).fit(REFERENCE)
        for seed in range(12):
            score.update(made(2000, seed=seed, keep=("logits",)))
            held = sum(len(s["counts"]) for s in score._samples())
            assert held <= 2 * 1000 + 1024


class TestTies:
    """The precision, the library and the form of reference and target change nothing where rows are tied."""

    @pytest.mark.parametrize("seed", range(12))
    def test_few_kinds_of_rows(self, seed):
        known, labels, new = tied_rows(seed)
        references = [gdscore.Outputs(**out.arrays, labels=labels) for out in forms(known).values()]
        scores = [gdscore.create_score("cott").fit(reference) for reference in references]
        values = [s.reset().update(out).compute() for s in scores for out in forms(new).values()]
        assert values == pytest.approx([values[0]] * len(values), abs=1e-12)

    def test_plans_of_equal_cost(self):
        """Class 1 is short of rows: sending it one kind of row or the other costs the same 0.3."""
        rows = np.repeat([[0.6, 0.3, 0.1], [0.5, 0.2, 0.3], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], 50, axis=0)
        labels = np.repeat([0, 1, 2, 1], 50)
        scores = [
            gdscore.create_score("cott").fit(gdscore.Outputs(**out.arrays, labels=labels))
            for out in forms(rows).values()
        ]
        target = rows[np.arange(200) % 160]
        shaken = np.log(target) * (1 + 1e-15 * np.random.default_rng(0).normal(size=target.shape))
        targets = [*forms(target).values(), gdscore.Outputs(logits=shaken)]
        values = [s.reset().update(out).compute() for s in scores for out in targets]
        assert values == pytest.approx([values[0]] * len(values), abs=1e-12)

    @pytest.mark.parametrize("name", ["atc", "cott"])
    @pytest.mark.parametrize("case", ["continuous", *range(3, 11)])
    def test_the_last_digit_moves_no_row(self, name, case):
        """Another processor, thread count, batch size or order rounds otherwise, also between rows that are equal."""
        if case == "continuous":
            known, new = (np.asarray(made(700, noise=level, seed=3).logits) for level in (1.0, 2.0))
            labels = np.asarray(made(700, seed=3).labels)
        else:
            known, labels, new = tied_rows(case)
            # Not rows whose largest outputs tie: rounding decides what is predicted there, not what the score is.
            known, labels, new = (
                rows[np.diff(np.sort(tied, axis=1))[:, -1] > 1e-6]
                for rows, tied in ((known, known), (labels, known), (new, new))
            )
            known, new = np.log(known), np.log(new)
        rng = np.random.default_rng(0)
        n_rows = set()
        for dtype in (np.float64, np.float32):
            for noise, size in ((0.0, len(new)), (1e-15, len(new)), (1e-7, 37)):
                shuffled = rng.permutation(len(known))
                reference, target = (
                    logits[order].astype(np.float64) * (1 + noise * rng.normal(size=logits.shape))
                    for logits, order in ((known, shuffled), (new, rng.permutation(len(new))))
                )
                reference = gdscore.Outputs(logits=reference.astype(dtype), labels=labels[shuffled])
                score = gdscore.create_score(name).fit(batches(reference, size))
                for batch in batches(gdscore.Outputs(logits=target.astype(dtype)), size):
                    score.update(batch)
                n_rows.add(round(score.compute() * len(new), 6))
                itself = gdscore.score(name, reference, reference=reference)
                if case == "continuous":
                    assert itself == pytest.approx(reference.accuracy, abs=1e-12)
        assert len(n_rows) == 1

    def test_text_and_float32_files(self, tmp_path):
        known, labels, new = tied_rows(3)
        columns = [f"prob_{k}" for k in range(known.shape[1])]
        pd.DataFrame(known, columns=columns).assign(label=labels).to_csv(tmp_path / "reference.csv", index=False)
        pd.DataFrame(new, columns=columns).to_csv(tmp_path / "target.csv", index=False)
        pd.DataFrame(new.astype(np.float32), columns=columns).to_parquet(tmp_path / "target.parquet")
        named = gdscore.io.Columns(probabilities="prob_*", label="label")
        reference = list(gdscore.io.read_outputs(tmp_path / "reference.csv", columns=named))
        named = gdscore.io.Columns(probabilities="prob_*")
        for name in ("atc", "cott"):
            text, binary = (
                gdscore.score(
                    name, gdscore.io.read_outputs(tmp_path / f"target.{kind}", columns=named), reference=reference
                )
                for kind in ("csv", "parquet")
            )
            assert text == pytest.approx(binary, abs=1e-12)


class TestPublishedVariant:
    """methods.md: above 10,000 rows, batches of 10,000 drawn with replacement; and whole rows for the class mix."""

    def test_below_the_limit_the_mix_is_rounded_to_rows(self):
        target = made(333, noise=2.0, seed=4)
        score = gdscore.create_score("cot", variant="published").fit(REFERENCE).update(target)
        share = np.bincount(REFERENCE.labels, minlength=10) / len(REFERENCE)
        rng = np.random.default_rng(0)
        counts = np.floor(share * 333).astype(int)
        counts += rng.multinomial(333 - counts.sum(), share)
        plan, cost = as_assignment(target.probabilities.astype(np.float64), counts)
        assert score.compute() == pytest.approx(float((plan * cost).sum()), abs=1e-6)

    def test_above_the_limit_rows_are_drawn_with_replacement(self):
        target = made(PUBLISHED_BATCH + 500, noise=2.0, seed=4)
        exact = gdscore.score("cot", target, reference=REFERENCE, k=20_000)
        drawn = [gdscore.score("cot", target, reference=REFERENCE, variant="published", seed=s) for s in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert drawn[0] != pytest.approx(exact, abs=1e-6)
        assert drawn[0] == pytest.approx(exact, abs=0.02)

    def test_cott_is_one_row_off(self):
        target = made(400, noise=3.0, seed=4)
        reference = made(400, seed=3)
        counts = np.bincount(reference.labels, minlength=10)
        scores = []
        for out in (reference, target):
            plan, cost = as_assignment(out.probabilities.astype(np.float64), counts)
            scores.append(-(plan * cost).sum(1) * 400)
        errors = round(400 * (1 - reference.accuracy))
        threshold = np.sort(scores[0])[errors - 1]
        released = 1 - (scores[1] < threshold - 1e-9).mean()
        assert gdscore.score("cott", target, reference=reference, variant="published") == pytest.approx(
            released, abs=1e-9
        )
        own = gdscore.score("cott", reference, reference=reference, variant="published")
        assert own == pytest.approx(reference.accuracy + 1 / 400, abs=1e-9)
