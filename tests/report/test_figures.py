"""Figures: made without pyplot, showing what they say."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from datetime import datetime, timedelta

import numpy as np
import pytest
from matplotlib.figure import Figure

import gdscore
from gdscore import report
from gdscore.report.calibrating import chosen_score, left_out
from gdscore.report.confidences import reference_error
from gdscore.report.style import as_svg


def all_figures(estimator, estimate, targets):
    return [
        report.calibration_figure(estimator),
        report.calibration_figure(estimator, estimate),
        report.calibration_figure(estimator, targets, "nuclear"),
        report.calibration_figure(estimator, targets * 4, legend=False),
        report.prediction_figure(estimator, estimate),
        report.per_class_figure(estimate),
        report.confidence_figure(estimator, estimate),
        report.reliability_figure(estimator),
        report.timeline_figure(targets, min_accuracy=0.7),
        report.interval_figure(targets, min_accuracy=0.7),
        report.interval_figure(estimate),
    ]


def test_every_figure_is_one_and_draws(estimator, estimate, targets, tmp_path):
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
    as_svg(report.calibration_figure(estimator, estimate), "a", "a")
    assert dict(mpl.rcParams) == before


def test_calibration_shows_every_set_and_the_target(estimator, estimate):
    seen = estimator.calibration_
    (axes,) = report.calibration_figure(estimator, estimate, "cott").axes
    points = [line.get_xydata() for line in axes.lines]
    *families, mark = points
    assert sum(map(len, families)) == len(seen.families)
    shown = np.concatenate(families)
    np.testing.assert_allclose(np.sort(shown[:, 0]), np.sort(seen.scores["cott"]))
    np.testing.assert_allclose(mark, [[estimate.scores["cott"], estimate.accuracy]])
    (interval,) = axes.collections[0].get_segments()
    np.testing.assert_allclose(interval[:, 1], [estimate.low, estimate.high])


def test_the_score_that_orders_best_is_chosen(large):
    worse = large.calibration_
    noise = np.random.default_rng(0).normal(size=500)
    scores = {"cott": noise, "nuclear": -worse.accuracy, "frechet": worse.accuracy + noise}
    large.judge_.table = dataclasses.replace(worse, scores=scores)
    assert chosen_score(large) == "nuclear"


def test_compositions_are_one_kind(large):
    seen = large.calibration_
    families = [f"a{i}+b{i % 7}" if i % 2 else "fog" for i in range(500)]
    large.judge_.table = dataclasses.replace(seen, families=families)
    figure = report.calibration_figure(large)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["fog", "compositions"]
    assert sorted(len(line.get_xdata()) for line in figure.axes[0].lines) == [250, 250]
    found = left_out(large)
    assert (found.sets, found.compositions, found.families, found.rows) == (500, 250, 250 + 7 + 1, 1000)


def test_left_out_matches_scipy(large):
    from scipy.stats import pearsonr, spearmanr

    seen, found = large.calibration_, left_out(large)
    assert found.sets == 500
    assert found.families == 40
    np.testing.assert_allclose(found.error, np.abs(seen.predicted - seen.accuracy).mean())
    np.testing.assert_allclose(found.spearman, spearmanr(seen.predicted, seen.accuracy)[0])
    np.testing.assert_allclose(found.r2, pearsonr(seen.predicted, seen.accuracy)[0] ** 2)
    large.judge_.table = dataclasses.replace(seen, predicted=np.full(500, 0.5))
    assert left_out(large).spearman is None


def without(large, never):
    """The estimator as if these sets had never been left out."""
    seen = large.calibration_
    large.judge_.table = dataclasses.replace(seen, predicted=np.where(never, np.nan, seen.predicted))
    return large.calibration_


def test_sets_that_were_never_left_out_do_not_count(large, estimate):
    seen = without(large, np.arange(500) % 5 == 0)
    of, found = np.isfinite(seen.predicted), left_out(large)
    assert (found.sets, found.judged, found.families) == (500, 400, 40)
    np.testing.assert_allclose(found.error, np.abs(seen.predicted - seen.accuracy)[of].mean())
    (axes,) = report.prediction_figure(large, estimate).axes
    shown = np.concatenate([line.get_xydata() for line in axes.lines if line.get_linestyle() == "None"])
    assert np.isfinite(shown).all()
    assert len(shown) == 400


def test_no_set_was_ever_left_out(large, estimate):
    without(large, True)
    found = left_out(large)
    assert (found.judged, found.error, found.spearman, found.r2) == (0, None, None, None)
    report.prediction_figure(large, estimate).draw_without_rendering()


def test_calibration_error_is_that_of_the_reference(estimator, reference):
    np.testing.assert_allclose(reference_error(estimator), gdscore.calibration_error(reference, bins=20), atol=1e-6)


def test_histograms_are_shares(estimator, estimate):
    (axes,) = report.confidence_figure(estimator, estimate).axes
    for patch in axes.patches:
        np.testing.assert_allclose(patch.get_data().values.sum(), 1)


def test_per_class_shows_the_worst(estimate):
    (axes,) = report.per_class_figure(estimate, most=2).axes
    worst = sorted(estimate.per_class, key=lambda c: c.recall)[:2]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [c.recall for c in worst])
    assert [t.get_text() for t in axes.get_yticklabels()] == [f"class {c.label}" for c in worst]


def test_names_are_no_formulas(estimator, targets):
    odd = [dataclasses.replace(t, name="_$\\frac$") for t in targets[:2]]
    (axes,) = report.interval_figure(odd).axes
    axes.figure.draw_without_rendering()
    assert axes.get_yticklabels()[0].get_text() == "_$\\frac$"
    legend = report.calibration_figure(estimator).legends[0]
    assert "_$rain$" in [t.get_text() for t in legend.get_texts()]


def test_svg_of_two_figures_share_no_ids(estimator, estimate):
    import re

    first, second = (as_svg(report.calibration_figure(estimator, estimate), name, 'a "<b>"') for name in ("a", "b"))
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert 'aria-label="a &quot;&lt;b>&quot;"' in first
    assert first == as_svg(report.calibration_figure(estimator, estimate), "a", 'a "<b>"')


def test_wide_ranges_are_logarithmic(large, estimate):
    seen = large.calibration_
    for power in (3, 9):
        large.judge_.table = dataclasses.replace(seen, scores={"cott": 10 ** (power * seen.accuracy)})
        figure = report.calibration_figure(large, score="cott")
        assert figure.axes[0].get_xscale() == "log"
        figure.draw_without_rendering()


def test_what_is_missing_is_said(estimator, estimate, targets):
    with pytest.raises(gdscore.GdscoreError, match="nearest|nuclear"):
        report.calibration_figure(estimator, estimate, "nucler")
    with pytest.raises(gdscore.GdscoreError, match="hold the score"):
        report.calibration_figure(estimator, dataclasses.replace(estimate, scores={}), "cott")
    with pytest.raises(gdscore.GdscoreError, match="by class"):
        report.per_class_figure(dataclasses.replace(estimate, per_class=[]))
    with pytest.raises(gdscore.GdscoreError, match="confidences"):
        report.confidence_figure(estimator, dataclasses.replace(estimate, confidence=None))
    with pytest.raises(gdscore.GdscoreError, match="at least one target"):
        report.interval_figure([])
    with pytest.raises(gdscore.GdscoreError, match="when"):
        report.timeline_figure([dataclasses.replace(t, when=None) for t in targets])


@pytest.mark.parametrize("days", [1e-5, 1e-3, 0.1, 2, 40, 100, 800, 8000])
def test_time_goes_in_any_steps(estimate, days):
    times = [datetime(2025, 1, 1) + timedelta(days=days * i) for i in range(3)]
    for width in (8.4, 4.6):
        report.timeline_figure(
            [report.Target("a", estimate, when=t) for t in times], width=width
        ).draw_without_rendering()
