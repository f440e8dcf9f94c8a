from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore.estimator.describe import Describer
from gdscore.estimator.sizes import COPY, Drawn, SizeEffect

CENTRES = np.random.default_rng(7).normal(size=(10, 16)) * 1.2


def said(rows, seed, turn=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, rows)
    x = CENTRES[y] + rng.normal(size=(rows, 16))
    x = (1 - turn) * x + turn * np.roll(x, 1, axis=1)
    return gdscore.Outputs(logits=x @ CENTRES.T - 0.5 * np.square(CENTRES).sum(1), features=x, labels=y)


def test_copies_of_the_reference_are_as_they_are():
    effect = SizeEffect(frechet=300.0, cot=8.0, cot_floor=0.1, reference_rows=2000)
    freed = effect.freed({"frechet": 5.0, "cot": 0.3, "nuclear": 0.8}, COPY)
    assert freed == {"frechet": pytest.approx(5.15), "cot": 0.3, "nuclear": 0.8}


def test_what_sampling_adds_is_taken_out():
    effect = SizeEffect(frechet=300.0, cot=8.0, cot_floor=0.1, reference_rows=2000)
    assert effect.fresh(500) == Drawn(1 / 500, 1 / 2000)
    freed = effect.freed({"frechet": 5.0, "cot": 0.3}, effect.fresh(500))
    assert freed["frechet"] == pytest.approx(5.0 - 300 / 500 - 300 / 2000 + 300 / 2000)
    assert freed["cot"] == pytest.approx(0.1 + np.sqrt(0.2**2 - (8 / 500 + 8 / 2000) ** 2))
    assert effect.freed({"cot": 0.101}, effect.fresh(10))["cot"] == 0.1
    assert effect.freed({"cot": 0.05}, effect.fresh(10))["cot"] == 0.05


@pytest.mark.parametrize("turn", [0.0, 0.3, 0.6])
def test_cot_of_few_rows_is_that_of_many(turn):
    """What sampling adds is largest where nothing is shifted; measured there, it fits the others too."""
    reference = said(2000, 1)
    temperature = gdscore.fit_temperature(reference)
    describer = Describer({"cot": {"k": 4000}}, reference, temperature)
    effect = describer.sizes(reference)

    def freed(rows, seed):
        return effect.freed(describer.describe(said(rows, seed, turn)).scores, effect.fresh(rows))["cot"]

    few, many = np.mean([freed(300, 100 + i) for i in range(12)]), freed(20_000, 50)
    raw = np.mean([describer.describe(said(300, 100 + i, turn)).scores["cot"] for i in range(12)])
    assert abs(few - many) < max(0.5 * abs(raw - many), 0.012)


@pytest.mark.parametrize(("rows", "tolerance"), [(300, 0.04), (1000, 0.02), (5000, 0.02)])
def test_unshifted_data_of_any_size(rows, tolerance):
    """What is measured on the reference holds for fresh rows: the estimate does not hang on their number."""
    reference = said(2000, 1)
    w, b = CENTRES.T, -0.5 * np.square(CENTRES).sum(1)
    est = gdscore.AccuracyEstimator().fit(reference, head=(w, b))
    found = [est.estimate(said(rows, 100 + i).only({"logits", "features"})).accuracy for i in range(8)]
    assert np.mean(found) == pytest.approx(said(50_000, 9).accuracy, abs=tolerance)
