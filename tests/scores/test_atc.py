from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from gdscore.scores.atc import error_threshold
from tests.data import made

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
