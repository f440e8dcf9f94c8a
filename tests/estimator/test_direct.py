"""Estimates by one score alone."""

from __future__ import annotations

import numpy as np
import pytest

import gdscore
from tests.data import made

from .data import outputs

REFERENCE, TARGET = made(1500, seed=1), made(1000, seed=2, noise=1.6)


@pytest.mark.parametrize("temperature", [True, False])
@pytest.mark.parametrize("name", ["confscore", "doc", "atc", "cot", "cott", "agreescore"])
def test_the_score_is_the_accuracy(name, temperature):
    divisor = gdscore.fit_temperature(REFERENCE) if temperature else 1.0
    out, reference = TARGET.with_temperature(divisor), REFERENCE.with_temperature(divisor)
    value = gdscore.score(name, out, reference=reference)
    expected = 1 - value if name in ("cot", "agreescore") else value
    e = gdscore.direct_estimate(name, TARGET, reference=REFERENCE, temperature=temperature)
    assert e.accuracy == pytest.approx(expected, abs=1e-9)
    assert e.scores == {name: pytest.approx(value)}
    assert 0 <= e.low < e.accuracy < e.high <= 1
    assert (e.n_rows, e.reference_accuracy, e.level) == (1000, REFERENCE.accuracy, 0.9)
    assert [w.code for w in e.warnings] == ["sampling_only"]


@pytest.mark.parametrize("name", ["confscore", "doc", "atc", "cot", "cott"])
def test_streams(name):
    e, streamed = (
        gdscore.direct_estimate(name, t, reference=REFERENCE)
        for t in (TARGET, (TARGET[i : i + 128] for i in range(0, 1000, 128)))
    )
    assert streamed.accuracy == pytest.approx(e.accuracy, abs=1e-6)


@pytest.mark.parametrize("name", ["confscore", "doc", "atc", "cot", "cott"])
def test_a_reference_that_is_a_stream(name):
    parts = (REFERENCE[i : i + 128] for i in range(0, 1500, 128))
    streamed = gdscore.direct_estimate(name, TARGET, reference=parts)
    assert streamed == gdscore.direct_estimate(name, TARGET, reference=REFERENCE)


def test_confidence_is_the_mean_largest_probability():
    e = gdscore.direct_estimate("confscore", TARGET, reference=REFERENCE, temperature=False)
    assert e.accuracy == pytest.approx(np.asarray(TARGET.confidence, dtype=float).mean(), abs=1e-6)


def test_level():
    widths = [gdscore.direct_estimate("atc", TARGET, reference=REFERENCE, level=v) for v in (0.5, 0.9, 0.99)]
    assert [e.high - e.low for e in widths] == sorted(e.high - e.low for e in widths)


@pytest.mark.parametrize(
    ("name", "target", "options", "message"),
    [
        ("entropy", TARGET, {}, "name"),
        (None, TARGET, {}, "name"),
        ("atc", TARGET, {"level": 0}, "level"),
        ("atc", TARGET, {"level": 1}, "at most 0.999"),
        ("atc", TARGET, {"temperature": 2.0}, "`temperature` to be True or False"),
        ("atc", TARGET, {"reference": outputs(5).only({"logits"})}, "labels"),
        ("atc", TARGET, {"reference": None}, "reference"),
        ("atc", None, {}, "outputs"),
        ("atc", [], {}, "empty"),
        ("atc", outputs(50), {}, "classes"),
        ("confscore", outputs(50), {}, "classes as in the reference"),
        ("confscore", TARGET.only({"features"}), {}, "`logits`"),
        ("atc", TARGET, {"reference": iter(())}, "empty"),
        ("agreescore", TARGET.only({"logits"}), {}, "peer_logits"),
    ],
)
def test_bad_arguments(name, target, options, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        gdscore.direct_estimate(name, target, **{"reference": REFERENCE, **options})
