"""Rows of the benchmark of estimates, and the comparison of constants, on a small job."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import gdscore
from benchmarks.estimates import constants
from benchmarks.estimates.constants import COORDINATES, Coordinates, changed, export, read_export
from benchmarks.estimates.run import VARIANTS, estimated, small_job, tabular_job
from gdscore.estimator.settings import SETTINGS


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return export(small_job(), "cpu", folder)


def test_rows_of_the_benchmark():
    found = tabular_job(small_job(), "cpu")
    rows = list(estimated(found, 0, VARIANTS["image"]))
    keys = [(r["target"], r["variant"], r["estimator"], r.get("class", "")) for r in rows]
    assert len(set(keys)) == len(keys)
    assert {r["target"] for r in rows} == set(found.targets)
    target = found.targets["moved"]
    truths = {(r["estimator"], r.get("class")): float(r["truth"]) for r in rows if r["variant"] == "as-is"}
    assert truths["unknown", None] == pytest.approx(target.accuracy, abs=1e-5)
    for k in range(3):
        truly, predicted = target.labels == k, target.predictions == k
        assert truths["recall", k] == pytest.approx(predicted[truly].mean(), abs=1e-4)
        assert truths["precision", k] == pytest.approx(truly[predicted].mean(), abs=1e-4)
    assert all(float(r["low"]) <= float(r["accuracy"]) <= float(r["high"]) for r in rows if r["low"])


def test_an_export_gives_the_same_estimates(exported):
    reference, sets, targets = read_export(exported)
    before = tabular_job(small_job(), "cpu")
    after = gdscore.AccuracyEstimator().fit(reference, shifted_sets=sets, progress=False)
    expected = before.estimator.estimate(before.targets["moved"])
    assert after.estimate(targets["moved"]).accuracy == pytest.approx(expected.accuracy, abs=2e-3)
    assert len(sets) == len(before.estimator.shifted_sets_.families)


def test_few_coordinates_keep_distances_to_centres():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 500)
    x = rng.normal(size=(4, 80))[labels] * 3 + rng.normal(size=(500, 80))
    outputs = gdscore.Outputs(logits=np.eye(4)[labels] * 5, features=x, labels=labels)
    z = Coordinates(outputs)(outputs)
    assert z.shape == (500, COORDINATES + 1)
    for k in range(4):
        wide, narrow = (np.square(v - v[labels == k].mean(axis=0)).sum(axis=1) for v in (x, z))
        np.testing.assert_allclose(narrow, wide, rtol=0.15)


def test_alternatives_are_compared_and_put_back(exported, tmp_path, monkeypatch):
    before = vars(SETTINGS).copy()
    monkeypatch.setattr(constants, "ALTERNATIVES", {"floor": (0.2,)})
    constants.compare([exported], 1, tmp_path / "choosing.csv")
    constants.few([exported], 1, tmp_path / "few.csv")
    assert vars(SETTINGS) == before
    with (tmp_path / "choosing.csv").open(newline="") as opened:
        rows = {(r["setting"], r["case"]): r for r in csv.DictReader(opened)}
    now, wide = rows["present", "shifted"], rows["floor", "shifted"]
    assert now["error"] == wide["error"]
    assert float(now["width"]) < float(wide["width"])
    assert (tmp_path / "few.csv").read_text().startswith("setting,value,data,case")


def test_constants_that_are_compared_are_there():
    for name, values in (constants.ALTERNATIVES).items():
        assert getattr(SETTINGS, name) not in values


@pytest.mark.parametrize("name", ["floor", "penalty"])
def test_an_error_puts_a_constant_back(name):
    before = getattr(SETTINGS, name)
    with pytest.raises(ZeroDivisionError), changed(name, 7.0):
        assert getattr(SETTINGS, name) == 7.0
        raise ZeroDivisionError
    assert getattr(SETTINGS, name) == before
