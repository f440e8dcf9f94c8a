from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from gdscore.scores.atc import error_threshold
from tests.data import forms, made, tied_rows

REFERENCE = made(1013, noise=2.0, seed=3)


@pytest.mark.parametrize("score", ["entropy", "confidence"])
def test_reference_itself_gives_the_reference_accuracy(score):
    assert gdscore.score("atc", REFERENCE, reference=REFERENCE, score=score) == pytest.approx(
        REFERENCE.accuracy, abs=1e-12
    )
    shuffled = REFERENCE[np.random.default_rng(0).permutation(len(REFERENCE))]
    assert gdscore.score("atc", shuffled, reference=REFERENCE, score=score) == pytest.approx(
        REFERENCE.accuracy, abs=1e-12
    )


@pytest.mark.parametrize("score", ["entropy", "confidence"])
@pytest.mark.parametrize("correct", [True, False])
def test_reference_without_or_with_only_errors(score, correct):
    wrong = (REFERENCE.predictions + (0 if correct else 1)) % 10
    reference = gdscore.Outputs(logits=REFERENCE.logits, labels=wrong)
    assert gdscore.score("atc", reference, reference=reference, score=score) == float(correct)


@pytest.mark.parametrize("score", ["entropy", "confidence"])
def test_definition_on_a_target(score):
    target = made(500, noise=3.0, seed=4)
    s = {"entropy": lambda o: -o.entropy, "confidence": lambda o: o.confidence}[score]
    errors = round((1 - REFERENCE.accuracy) * len(REFERENCE))
    threshold = np.sort(s(REFERENCE))[errors]
    assert gdscore.score("atc", target, reference=REFERENCE, score=score) == (s(target) >= threshold).mean()


def test_saturated_confidences_are_told_apart():
    z = np.zeros((4, 2), dtype=np.float32)
    z[:, 0] = [20, 30, 40, 50]
    reference = gdscore.Outputs(logits=z, labels=np.array([1, 1, 0, 0]))
    assert (reference.confidence == 1).all()
    for score in ("entropy", "confidence"):
        assert gdscore.score("atc", reference, reference=reference, score=score) == 0.5


class TestTies:
    """The precision, the library and the form of reference and target change nothing where rows are tied."""

    @pytest.mark.parametrize("score", ["entropy", "confidence"])
    @pytest.mark.parametrize("half", [np.float16, "bfloat16"])
    def test_two_kinds_of_rows(self, score, half):
        p = np.where(np.arange(1000) % 5 == 0, 0.5, 0.85)
        rows, labels = np.stack([p, 1 - p], axis=1), (p == 0.5).astype(int)
        reference = gdscore.Outputs(probabilities=rows, labels=labels)
        halves = torch.tensor(rows).bfloat16() if half == "bfloat16" else rows.astype(half)
        for target in [*forms(rows).values(), gdscore.Outputs(probabilities=halves)]:
            assert gdscore.score("atc", target, reference=reference, score=score) == 0.8

    @pytest.mark.parametrize("score", ["entropy", "confidence"])
    @pytest.mark.parametrize("seed", range(8))
    def test_few_kinds_of_rows(self, score, seed):
        known, labels, new = tied_rows(seed)
        references = [gdscore.Outputs(**out.arrays, labels=labels) for out in forms(known).values()]
        scores = [gdscore.create_score("atc", score=score).fit(reference) for reference in references]
        assert len({s.reset().update(out).compute() for s in scores for out in forms(new).values()}) == 1
        direct = [gdscore.direct_estimate("atc", out, reference=references[0]) for out in forms(new).values()]
        assert len({estimate.accuracy for estimate in direct}) == 1

    def test_a_perfect_reference_in_another_precision(self):
        rows = np.full((50, 2), [0.3, 0.7])
        reference = gdscore.Outputs(probabilities=rows, labels=np.ones(50, dtype=int))
        for target in [*forms(rows).values(), gdscore.Outputs(probabilities=torch.tensor(rows).bfloat16())]:
            assert gdscore.score("atc", target, reference=reference) == 1.0

    def test_scores_apart_by_rounding_are_one(self):
        scores = -np.array([0.5] * 10 + [0.3] * 20)
        shaken = scores * (1 + 1e-7 * np.random.default_rng(0).normal(size=30))
        for error in np.arange(31) / 30:
            assert error_threshold(shaken, error) == pytest.approx(error_threshold(scores, error), rel=1e-6)

    def test_a_continuum_is_not_a_tie(self):
        scores = -0.5 + 1e-9 * np.arange(100_000)
        for error in (0.1, 0.25, 0.9):
            assert (scores < error_threshold(scores, error)).mean() == pytest.approx(error, abs=1e-9)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.floats(0, 1))
def test_threshold_comes_closest(values, error):
    scores = np.array(values, dtype=float)
    t = error_threshold(scores, error)
    achieved = abs((scores < t).mean() - error)
    best = min(abs((scores < c).mean() - error) for c in [*scores, np.inf])
    assert achieved == pytest.approx(best, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=10), st.floats(0, 1))
def test_weights_are_repetitions(pairs, error):
    scores, weights = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    repeated = error_threshold(np.repeat(scores, weights.astype(int)), error)
    assert error_threshold(scores, error, weights) == repeated


class TestPublishedVariant:
    """methods.md: an off-by-one adds 1/n; a perfect reference makes the estimate by entropy 0 %; no temperature."""

    def released(self, reference, target, score):
        kind = {"entropy": lambda o: -np.asarray(o.entropy), "confidence": lambda o: np.asarray(o.confidence)}[score]
        order = np.argsort(kind(reference))
        scores, correct = kind(reference)[order], np.asarray(reference.correct)[order]
        wrong, dropped = int((~correct).sum()), 0
        best, threshold = wrong, 0.0
        for value, right in zip(scores, correct, strict=True):
            if right:
                dropped += 1
            else:
                wrong -= 1
            if abs(wrong - dropped) < best:
                best, threshold = abs(wrong - dropped), value
        return float((kind(target) >= threshold).mean())

    @pytest.mark.parametrize("score", ["entropy", "confidence"])
    def test_one_row_too_many(self, score):
        published = gdscore.score("atc", REFERENCE, reference=REFERENCE, score=score, variant="published")
        assert published == pytest.approx(REFERENCE.accuracy + 1 / len(REFERENCE))
        target = made(500, noise=3.0, seed=4)
        published = gdscore.score("atc", target, reference=REFERENCE, score=score, variant="published")
        assert published == self.released(REFERENCE, target, score)

    @pytest.mark.parametrize(("score", "expected"), [("entropy", 0.0), ("confidence", 1.0)])
    def test_perfect_reference(self, score, expected):
        reference = gdscore.Outputs(logits=REFERENCE.logits, labels=REFERENCE.predictions)
        assert gdscore.score("atc", reference, reference=reference, score=score, variant="published") == expected
        assert self.released(reference, reference, score) == expected

    def test_temperature_is_not_applied(self):
        reference = made(500, noise=2.0, seed=6).with_temperature(0.5)
        temperature = gdscore.fit_temperature(reference)
        assert temperature != pytest.approx(1.0, abs=0.05)
        target = made(500, noise=3.0, seed=4).with_temperature(0.5)
        scaled = gdscore.score(
            "atc", target.with_temperature(temperature), reference=reference.with_temperature(temperature)
        )
        published = gdscore.score("atc", target, reference=reference, variant="published")
        assert published == self.released(reference, target, "entropy") != scaled
