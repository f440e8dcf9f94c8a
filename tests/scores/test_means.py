"""Scores that are means over rows, against direct formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.special
import scipy.stats

import gdscore
from tests.data import made

OUT = made(3000, noise=2.0)
S = scipy.special.softmax(OUT.arrays["logits"].astype(np.float64), axis=1)
X = OUT.arrays["features"].astype(np.float64)


def value(name, out=OUT, **options):
    return gdscore.score(name, out, **options)


def test_confscore():
    assert value("confscore") == pytest.approx(S.max(1).mean(), rel=1e-6)


def test_entropy():
    assert value("entropy") == pytest.approx(scipy.stats.entropy(S, axis=1).mean(), rel=1e-6)


def test_agreescore():
    differ = OUT.arrays["logits"].argmax(1) != OUT.arrays["peer_logits"].argmax(1)
    assert value("agreescore") == differ.mean() > 0
    same = gdscore.Outputs(logits=OUT.logits, peer_logits=OUT.logits)
    assert value("agreescore", same) == 0


@pytest.mark.parametrize(
    ("name", "options", "other"), [("selfscore", {}, "batch_logits"), ("agreescore", {"soft": True}, "peer_logits")]
)
def test_soft_disagreement(name, options, other):
    again = scipy.special.softmax(OUT.arrays[other].astype(float), axis=1)
    expected = [scipy.spatial.distance.cityblock(a, b) / 2 for a, b in zip(S, again, strict=True)]
    assert value(name, **options) == pytest.approx(np.mean(expected), rel=1e-5)
    same = gdscore.Outputs(logits=OUT.logits, **{other: OUT.logits})
    assert value(name, same, **options) == 0


def test_gradnorm():
    expected = (np.abs(X).sum(1) * np.abs(S - 1 / S.shape[1]).sum(1)).mean()
    assert value("gradnorm") == pytest.approx(expected, rel=1e-6)


def test_gradnorm_is_gdscore_of_single_rows_with_uniform_labels():
    same = value("gdscore", p=1, label_rule="uniform", batch_size=1)
    assert value("gradnorm") == pytest.approx(same, rel=1e-6)


def test_rotation():
    errors = OUT.arrays["rotation_logits"].argmax(2) != np.arange(4)
    assert value("rotation") == pytest.approx(errors.mean(), rel=1e-6)


class TestDoC:
    def test_formula(self):
        reference = made(1000, seed=3)
        p = scipy.special.softmax(reference.arrays["logits"].astype(np.float64), axis=1)
        expected = reference.accuracy - (p.max(1).mean() - S.max(1).mean())
        assert value("doc", reference=reference) == pytest.approx(expected, rel=1e-6)

    def test_reference_itself(self):
        reference = made(1000, seed=3)
        assert value("doc", reference, reference=reference) == pytest.approx(reference.accuracy, abs=1e-12)


def test_probabilities_will_do():
    assert value("confscore", gdscore.Outputs(probabilities=S)) == pytest.approx(S.max(1).mean(), rel=1e-12)
