"""Figures: made without pyplot, showing the numbers they are given."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from datetime import datetime, timedelta

import numpy as np
import pytest
from matplotlib.figure import Figure

import gdscore
from gdscore import report
from gdscore.report.figures import as_svg, group_styles, shift_groups
from tests.report.conftest import made_estimate


def all_figures(estimator, estimate, targets):
    return [
        report.shifted_sets_figure(estimator),
        report.shifted_sets_figure(estimator, estimate),
        report.shifted_sets_figure(estimator, targets, legend=False),
        report.per_class_figure(estimate),
        report.confidence_figure(estimator, estimate),
        report.reliability_figure(estimator),
        report.timeline_figure(targets, min_accuracy=0.7),
        report.interval_figure(targets, min_accuracy=0.7),
        report.interval_figure(estimate),
    ]


def test_every_figure_draws(estimator, estimate, targets, tmp_path):
    for i, figure in enumerate(all_figures(estimator, estimate, targets)):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / f"{i}.png", dpi=40)
        assert (tmp_path / f"{i}.png").stat().st_size > 1000


def test_pyplot_is_left_alone():
    code = "import sys, gdscore.report; print('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_settings_of_the_caller_stay(estimator, estimate):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    as_svg(report.shifted_sets_figure(estimator, estimate), "a", "a")
    assert dict(mpl.rcParams) == before


def points(figure) -> np.ndarray:
    return np.concatenate([line.get_xydata() for line in figure.axes[0].lines if line.get_linestyle() == "None"])


def test_every_shifted_set_is_a_point(large):
    shown = points(report.shifted_sets_figure(large))
    expected = np.column_stack([large.shifted_sets_.predicted, large.shifted_sets_.accuracy])
    np.testing.assert_allclose(shown[np.argsort(shown[:, 1])], expected[np.argsort(expected[:, 1])])


def test_sets_that_were_never_left_out_are_not_shown(large, estimate):
    large.shifted_sets_.predicted[::5] = np.nan
    shown = points(report.shifted_sets_figure(large, estimate))
    assert len(shown) == 400
    assert np.isfinite(shown).all()
    large.shifted_sets_.predicted[:] = np.nan
    report.shifted_sets_figure(large, estimate).draw_without_rendering()


@pytest.mark.parametrize(
    "families",
    [
        gdscore.shifts.corruption_names(),
        [*gdscore.shifts.corruption_names(), "mine", "fog+snow"],
        [f"family {i}" for i in range(40)],
        [f"{kind}-{i}" for kind in ("noise", "scale", "drop", "swap", "typo", "cut") for i in range(4)],
        [f"a{i}+b{i % 7}" for i in range(40)],
        ["x"],
        ["", "_", "-"],
    ],
    ids=len,
)
def test_a_legend_names_at_most_five_groups(families):
    groups = shift_groups(families)
    styles = group_styles(groups)
    assert len(groups) == len(families)
    assert 1 <= len(styles) <= 5
    assert set(styles) == set(groups)
    assert len(set(styles.values())) == len(styles)


def test_corruptions_are_in_the_groups_of_their_modules():
    names = gdscore.shifts.corruption_names()
    groups = dict(zip(names, shift_groups(names), strict=True))
    assert list(dict.fromkeys(groups.values())) == ["noise", "blur", "weather", "digital"]
    assert all(("noise" in name) == (group == "noise") for name, group in groups.items())
    assert all(("blur" in name) == (group == "blur") for name, group in groups.items())


def test_reliability_shows_wilson_intervals(estimator):
    from scipy.stats import norm

    (axes,) = report.reliability_figure(estimator).axes
    seen, z = estimator.reference_confidence_, norm.ppf(0.95)
    n = np.array([rows for rows in seen.rows if rows])
    p = np.array([c for c, rows in zip(seen.correct, seen.rows, strict=True) if rows]) / n
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    ends = np.array([segment[:, 1] for segment in axes.collections[0].get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([middle - half, middle + half]) / (1 + z**2 / n)[:, None])


def test_histograms_are_shares(estimator, estimate):
    (axes,) = report.confidence_figure(estimator, estimate).axes
    for patch in axes.patches:
        np.testing.assert_allclose(patch.get_data().values.sum(), 1)


def test_per_class_shows_the_worst(estimate):
    (axes,) = report.per_class_figure(estimate, most=2).axes
    worst = sorted(estimate.per_class, key=lambda c: c.recall.value)[:2]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [c.recall.value for c in worst])
    assert [t.get_text() for t in axes.get_yticklabels()] == [c.name for c in worst]


def test_critical_points_of_a_series_are_hollow(targets):
    (axes,) = report.timeline_figure(targets).axes
    solid, hollow = (line for line in axes.lines if line.get_marker() == "o")
    assert (len(solid.get_xdata()), len(hollow.get_xdata())) == (11, 1)
    september = next(t for t in targets if t.name == "month 9")
    np.testing.assert_allclose(hollow.get_ydata(), [september.estimate.accuracy])


def test_names_are_no_formulas(estimator, targets):
    odd = [dataclasses.replace(t, name="_$\\frac$") for t in targets[:2]]
    (axes,) = report.interval_figure(odd).axes
    axes.figure.draw_without_rendering()
    assert axes.get_yticklabels()[0].get_text() == "_$\\frac$"
    estimator.shifted_sets_.families = ["_$rain$"] * 15
    (text,) = report.shifted_sets_figure(estimator).legends[0].get_texts()
    assert text.get_text() == "_$rain$"


def test_svg_of_two_figures_share_no_ids(estimator, estimate):
    def svg(name):
        return as_svg(report.shifted_sets_figure(estimator, estimate), name, 'a "<b>"')

    ids = [set(re.findall(r' id="([^"]+)"', svg(name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert 'aria-label="a &quot;&lt;b>&quot;"' in svg("a")
    assert svg("a") == svg("a")


def test_what_is_missing_is_an_error(estimator, estimate, targets):
    with pytest.raises(gdscore.GdscoreError, match="by class"):
        report.per_class_figure(dataclasses.replace(estimate, per_class=[]))
    with pytest.raises(gdscore.GdscoreError, match="confidences"):
        report.confidence_figure(estimator, dataclasses.replace(estimate, confidence=None))
    with pytest.raises(gdscore.GdscoreError, match="at least one target"):
        report.interval_figure([])
    with pytest.raises(gdscore.GdscoreError, match="when"):
        report.timeline_figure([dataclasses.replace(t, when=None) for t in targets])


@pytest.mark.parametrize("days", [1e-5, 1e-3, 0.1, 1.1, 2, 40, 100, 800, 8000])
@pytest.mark.parametrize(("segments", "width"), [(1, 8.4), (4, 4.6)])
def test_time_goes_in_any_steps(days, segments, width):
    times = [datetime(2025, 1, 1) + timedelta(days=days * i) for i in range(3)]
    targets = [
        report.Target("a", made_estimate(), when=t, segment=f"${k}" if segments > 1 else "")
        for t in times
        for k in range(segments)
    ]
    report.timeline_figure(targets, width=width).draw_without_rendering()


def test_segments_have_panels_the_worst_at_last_first(targets):
    named = [
        dataclasses.replace(t, segment=f"country={name}", estimate=made_estimate(accuracy))
        for t in targets
        for name, accuracy in (("de", 0.8), ("fr", 0.5), ("it", 0.9))
    ]
    figure = report.timeline_figure(named)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["country=fr", "country=de", "country=it"]
    four = [*named, *(dataclasses.replace(t, segment="x") for t in targets)]
    assert len(report.timeline_figure(four).axes) == 4
    many = [dataclasses.replace(t, segment=str(i)) for t in targets[:2] for i in range(40)]
    assert len(report.timeline_figure(many).axes) == 12


def test_scatters_are_square_and_truths_are_drawn(estimator, estimate, targets):
    for figure in (report.shifted_sets_figure(estimator, estimate), report.reliability_figure(estimator)):
        (axes,) = figure.axes
        assert axes.get_xlim() == axes.get_ylim()
        assert axes.get_aspect() == 1
    known = [dataclasses.replace(t, truth=0.5 + 0.01 * i) if i % 2 else t for i, t in enumerate(targets)]
    (drawn,) = [line for line in report.timeline_figure(known).axes[0].lines if line.get_marker() == "^"]
    assert sorted(drawn.get_ydata()) == sorted(t.truth for t in known if t.truth is not None)
