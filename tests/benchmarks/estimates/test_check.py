"""The benchmark of the check network: its tables from the rows that are kept, and the order of rows to label."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

pytest.importorskip("torch")
from benchmarks.estimates import check


def test_tables_of_the_rows_that_are_kept(capsys):
    check.summary(argparse.Namespace(output=check.FOLDER))
    lines = capsys.readouterr().out.splitlines()
    shifted = next(line for line in lines if line.startswith("| pacs, check = copy, shifted |"))
    rows = [row for f in check.FOLDER.glob("pacs.*.copy.csv") for row in check.read_rows(f)]
    own = [r for r in rows if r["set"].endswith("/as-is") and not r["set"].startswith("unshifted")]
    error = 100 * np.mean([abs(float(r["accuracy"]) - float(r["truth"])) for r in own])
    assert f"| {len(own)} | {error:.1f}, " in shifted
    assert any(line.startswith("| pacs, copy, as-is |") for line in lines)


def test_order_without_a_check_is_by_class_and_probability():
    rng = np.random.default_rng(0)
    predicted, right = rng.integers(0, 4, 200), rng.random(200)
    order = check.by_class(predicted, right)
    assert sorted(order.tolist()) == list(range(200))
    classes = list(dict.fromkeys(predicted[order].tolist()))
    assert predicted[order].tolist() == sorted(predicted.tolist(), key=classes.index)
    for turn, k in enumerate(classes):
        assert ((-1) ** turn * np.diff(right[order][predicted[order] == k]) >= 0).all()
