from __future__ import annotations

import numpy as np
import pytest

from gdscore.estimator.interval import LeftOut
from gdscore.estimator.regress import Line, Nearest
from gdscore.shifts.sets import parts_of


@pytest.mark.parametrize("level", [0.8, 0.9])
@pytest.mark.parametrize("kind", [Line, Nearest])
def test_intervals_cover_families_not_seen(level, kind):
    """Families with offsets of their own: the interval must hold on new ones, which plain residuals would not."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(40):
        offsets = rng.normal(size=21)
        family = np.repeat(np.arange(21), 8)
        x = rng.normal(size=(168, 2))
        y = x @ [1.0, 0.5] + offsets[family] + 0.1 * rng.normal(size=168)
        seen = family < 20
        fit = kind(x[seen], y[seen])
        left_out = LeftOut.make(fit, [str(f) for f in family[seen]])
        for row, value in zip(x[~seen], y[~seen], strict=True):
            low, high = left_out.bounds(fit, row, level)
            held.append(low <= value <= high)
    assert level - 0.06 < np.mean(held) <= 1.0


def test_every_family_weighs_the_same():
    x = np.random.default_rng(0).normal(size=(110, 1)) * 1e-6
    y = np.concatenate([np.zeros(100), np.full(5, 3.0), np.full(5, -3.0)])
    fit = Line(x, y)
    left_out = LeftOut.make(fit, ["a"] * 100 + ["b"] * 5 + ["c"] * 5)
    low, high = left_out.bounds(fit, np.zeros(1), 0.74)
    assert low < -2
    assert high > 2
    assert left_out.n_kinds == 3
    assert left_out.reachable_level == 0.75


def test_families_that_share_a_part_are_left_out_together():
    families = ["fog", "blur", "fog+blur", "noise", "noise+fog"]
    left_out = LeftOut.make(Line(np.arange(5.0)[:, None], np.array([0.0, 1.0, 5.0, 3.0, 9.0])), families)
    kept = [[families[i] for i in np.flatnonzero(keep)] for keep in left_out.keep]
    # Two sets at least are needed to learn from: "fog+blur" and "noise+fog" leave one each.
    assert sorted(kept) == [["blur", "noise"], ["fog", "blur", "fog+blur"], ["fog", "noise", "noise+fog"]]
    assert np.isnan(left_out.predicted).tolist() == [False, False, True, False, True]
    assert left_out.n_kinds == 3


def test_parts():
    assert parts_of("fog+blur") == {"fog", "blur"}
    assert parts_of("c++") == {"c"}
    assert parts_of("+") == {"+"}


def test_no_more_than_the_families_that_could_be_left_out():
    families = ["a"] * 4 + ["b"] * 4 + ["c+d+e+f+g"] * 4
    x = np.random.default_rng(0).normal(size=(12, 1))
    assert LeftOut.make(Line(x, x[:, 0]), families).reachable_level == 3 / 4


def test_predictions_without_the_family():
    x = np.arange(6.0)[:, None]
    y = np.array([0.0, 1.0, 2.0, 13.0, 14.0, 15.0])
    left_out = LeftOut.make(Line(x, y), ["a"] * 3 + ["b"] * 3)
    np.testing.assert_allclose(left_out.predicted, [10, 11, 12, 3, 4, 5], atol=1e-9)
    np.testing.assert_allclose(np.concatenate(left_out.residuals), 10)


def test_kinds_that_only_come_together_are_one():
    x = np.random.default_rng(1).normal(size=(8, 1))
    left_out = LeftOut.make(Line(x, x[:, 0]), ["a+b"] * 4 + ["c"] * 4)
    assert left_out.n_kinds == 2


def test_sets_made_of_outputs_teach_but_are_no_kind_of_shift():
    """Another mix of classes, badly taken for a shift, must not widen the interval for shifts."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 1))
    y = x[:, 0] + 0.05 * rng.normal(size=60)
    shifts = [f"kind{i // 5}" for i in range(50)]
    y[50:] += 5
    without = LeftOut.make(Line(x, y), [*shifts, *["resampled-class"] * 5, *["head-noise"] * 5])
    assert without.n_kinds == 10
    assert max(map(np.max, without.residuals)) < 2.5
    assert not np.isnan(without.predicted).any()
    # Where there is nothing else, they are all there is.
    alone = LeftOut.make(Line(x, y), ["fog"] * 50 + ["resampled-class"] * 5 + ["head-noise"] * 5)
    assert alone.n_kinds == 3


def test_a_composition_counts_for_each_of_its_parts():
    families = ["fog", "blur", "noise", "snow", "fog+blur"]
    left_out = LeftOut.make(Line(np.arange(5.0)[:, None], np.array([0.0, 1.0, 2.0, 3.0, 9.0])), families)
    kinds = sorted({"fog", "blur", "noise", "snow"})
    counts = dict(zip(kinds, map(len, left_out.residuals), strict=True))
    assert counts == {"blur": 2, "fog": 2, "noise": 1, "snow": 1}
    together = left_out.residuals[kinds.index("fog")].max()
    assert together == pytest.approx(9 - 4)  # predicted by the line through noise and snow alone
