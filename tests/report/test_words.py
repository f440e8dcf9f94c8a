"""Verdicts and sentences."""

from __future__ import annotations

import dataclasses

import pytest

import gdscore
from gdscore.report import Target, verdict
from gdscore.report.words import score_rows, score_sentence


@pytest.mark.parametrize(
    ("low", "accuracy", "high", "start"),
    [
        (0.80, 0.85, 0.9, "Above the threshold of 80%, and so is the whole interval."),
        (0.79, 0.80, 0.9, "Probably above the threshold of 80%: the estimate is, but the interval reaches below it."),
        (0.70, 0.79, 0.8, "Probably below the threshold of 80%: the estimate is, but the interval reaches above it."),
        (0.60, 0.70, 0.79, "Below the threshold of 80%, and so is the whole interval."),
    ],
)
def test_verdict(low, accuracy, high, start):
    assert verdict(gdscore.Estimate(accuracy, low, high, level=0.9, n=9, reference_accuracy=1.0), 0.8) == start


@pytest.mark.parametrize("name", gdscore.list_scores())
def test_every_score_says_how_it_goes_with_accuracy(name):
    text = score_sentence(name)
    assert text.endswith(".")
    assert "\n" not in text
    higher = gdscore.create_score(name).higher_is_better
    assert (("ises with accuracy" in text) or ("an accuracy" in text)) == higher
    assert (("alls with accuracy" in text) or ("an error rate" in text)) == (not higher)


def test_alone_is_what_each_score_would_say(estimate, estimator):
    rows = score_rows(estimator, [Target("a", estimate), Target("b", dataclasses.replace(estimate, scores={}))])
    assert {r.name: r.alone[0] for r in rows} == estimator.judge_.opinions(estimate.scores, estimate.n)
    assert [r.alone[1] for r in rows] == [None] * len(rows)
    assert all(r.seen[0] < r.seen[1] for r in rows)
