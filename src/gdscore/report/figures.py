"""Figures of estimates and of what they rest on, as matplotlib figures for reports, notebooks and papers.

Requirements met here:

- figures are made without pyplot: nothing global is left behind, and no display is needed;
- colours have names, so that the page can swap them for dark screens;
- the same figure gives the same bytes, and ids of several figures never meet.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gdscore._checks import integer
from gdscore.errors import GdscoreError
from gdscore.report.targets import Target, Targets, as_targets, moment, worst_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gdscore.estimator import AccuracyEstimator

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1e22",
    "quiet": "#646b75",
    "line": "#d9dce1",
    "wash": "#f4f5f6",
    "accent": "#b23c17",
    "group0": "#3f6fa3",
    "group1": "#4f9a7c",
    "group2": "#8d6fa8",
    "group3": "#a08a1f",
    "group4": "#7d838d",
}
"""Colours by name; the accent always means the target."""

DARK = {
    "paper": "#15171a",
    "ink": "#e8eaed",
    "quiet": "#9aa1ab",
    "line": "#363b42",
    "wash": "#1f2226",
    "accent": "#f08a62",
    "group0": "#7ea9d8",
    "group1": "#86c4ac",
    "group2": "#b79bd0",
    "group3": "#cbbd66",
    "group4": "#a9afb8",
}

_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼"}
_OTHER = "other"
_CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
"""Groups of the image corruptions, as in ImageNet-C."""
FONT = 11.0


def blank(width: float = 5.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """Figure of so many inches with one set of axes in the style of the report."""
    figure, (axes,) = blank_grid(1, 1, width, height)
    return figure, axes


def blank_grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Figure with axes in rows and columns, which share their scales."""
    with mpl.rc_context({"font.size": FONT}):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT["paper"])
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(grid.flat)
    for axes in panels:
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(color=LIGHT["line"], linewidth=1)
        axes.tick_params(length=0, pad=5, labelsize=FONT, labelcolor=LIGHT["quiet"])
        axes.xaxis.label.set(color=LIGHT["quiet"], size=FONT)
        axes.yaxis.label.set(color=LIGHT["quiet"], size=FONT)
        axes.grid(True, color=LIGHT["line"], linewidth=0.5, alpha=0.7)
        axes.set_axisbelow(True)
    return figure, panels


def percent_axis(axes: Axes, which: str) -> None:
    """Write the numbers of one axis, x or y, as percentages."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g}%"))


def shift_groups(families: list[str]) -> list[str]:
    """Group of each shift family for a legend: at most five, whatever the number of families.

    Image corruptions are noise, blur, weather and digital. Other families go by their names where these are few, and
    otherwise by what stands before the first ``-``, ``_``, ``:`` or space. Compositions (``a+b``) are others.

    Examples
    --------
    >>> shift_groups(["fog", "gaussian_noise", "fog+pixelate"])
    ['weather', 'noise', 'other']
    >>> shift_groups(["typos", "short"])
    ['typos', 'short']
    """
    group_of = {name: group for group, names in _CORRUPTIONS.items() for name in names}
    if any(family in group_of for family in families):
        return [group_of.get(family, _OTHER) for family in families]
    if len(set(families)) <= len(_MARKERS):
        return list(families)
    prefixes = [_OTHER if "+" in family else re.split(r"[-_: ]", family)[0] or family for family in families]
    common = [name for name, _ in Counter(prefixes).most_common() if name != _OTHER][: len(_MARKERS) - 1]
    return [prefix if prefix in common else _OTHER for prefix in prefixes]


def group_styles(groups: list[str]) -> dict[str, tuple[str, str, str]]:
    """For each group the name of its colour, its marker in a figure, and the same shape as a character."""
    order = [*_CORRUPTIONS, *dict.fromkeys(groups), _OTHER]
    present = sorted(set(groups), key=lambda group: (group == _OTHER, order.index(group)))
    shapes = list(_MARKERS.items())
    return {group: (f"group{i % 5}", *shapes[i % len(shapes)]) for i, group in enumerate(present)}


def as_svg(figure: Figure, name: str, title: str) -> str:
    """SVG element of a figure of `blank` to put into HTML: no size of its own, text as text, colours by name.

    Ids are made of ``name``, which is the figure's in its page; ``title`` is for those who cannot see it.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)  # would apply to the page
    text = re.sub(r"<[^>]*>", lambda tag: _slim(tag[0]), text)
    used = set(re.findall(r"#([\w-]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
    for colour, value in LIGHT.items():
        text = text.replace(value, f"var(--{colour})")
    text = re.sub(r">\s+<", "><", text)
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _slim(tag: str) -> str:
    """Tag without what a page does not need: namespaces, sizes, fonts, digits nobody can see."""
    if tag.startswith("<svg"):
        tag = re.sub(r' (xmlns(:xlink)?|width|height|version)="[^"]*"', "", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag.replace("xlink:href", "href"))
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    return re.sub(r"\s+", " ", tag).replace(": ", ":").replace("; ", ";")


PANELS = 12
"""Segments that are drawn; more of them would be too small to read."""


def shifted_sets_figure(estimator: AccuracyEstimator, targets: Targets = (), *, legend: bool = True) -> Figure:
    """Estimated against true accuracy of the shifted sets, each estimated with its family left out.

    The nearer to the diagonal, the better the fitted estimator does on shifts it has not seen. Estimates of targets are
    marked, the interval of a single one is a band. Sets whose family could not be left out are not shown. The legend
    names the groups of shifts, at most five.
    """
    seen = estimator.shifted_sets_
    predicted, accuracy = np.asarray(seen.predicted), np.asarray(seen.accuracy)
    groups = shift_groups(list(seen.families))
    styles = group_styles(groups)
    figure, axes = blank(5.0, 5.0)
    marked = as_targets(targets)
    if len(marked) == 1:
        e = marked[0].estimate
        axes.axvspan(e.low, e.high, color=LIGHT["accent"], alpha=0.1, linewidth=0)
    for target in marked:
        axes.axvline(target.estimate.accuracy, color=LIGHT["accent"], linewidth=1.5 if len(marked) == 1 else 0.6)
    estimable = np.isfinite(predicted)
    shown = np.concatenate([predicted[estimable], accuracy, [e.accuracy for e in (t.estimate for t in marked)]])
    _square(axes, max(float(shown.min()) - 0.03, 0.0), min(float(shown.max()) + 0.03, 1.0))
    for group, (colour, marker, _) in styles.items():
        in_group = (np.asarray(groups) == group) & estimable
        axes.plot(
            predicted[in_group], accuracy[in_group], marker, color=LIGHT[colour], markersize=4.5, markeredgewidth=0,
            alpha=0.75, zorder=3,
        )  # fmt: skip
    axes.set_xlabel("estimated with the set’s family left out")
    axes.set_ylabel("true accuracy of shifted sets")
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    if legend:
        _legend(figure, styles)
    return figure


def reliability_figure(estimator: AccuracyEstimator) -> Figure:
    """Accuracy against confidence on the reference, by bins, with its sampling error; larger dots hold more rows."""
    from scipy.stats import binomtest

    seen = estimator.reference_confidence_
    rows = np.asarray(seen.rows)
    filled = rows > 0
    correct = np.asarray(seen.correct)[filled]
    confidence, share = np.asarray(seen.confidence)[filled] / rows[filled], correct / rows[filled]
    figure, axes = blank(5.0, 5.0)
    _square(axes, 0.0, 1.0)
    ends = [
        binomtest(round(k), round(n)).proportion_ci(estimator.level, method="wilson")
        for k, n in zip(correct, rows[filled], strict=True)
    ]
    low, high = np.array([(end.low, end.high) for end in ends]).T
    axes.vlines(confidence, low, high, color=LIGHT["quiet"], linewidth=1)
    axes.scatter(confidence, share, s=12 + 160 * rows[filled] / rows.max(), color=LIGHT["ink"], linewidth=0, zorder=3)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy on the reference")
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    return figure


def confidence_figure(estimator: AccuracyEstimator, targets: Targets) -> Figure:
    """Share of rows by confidence, of the reference of a fitted estimator and of one target."""
    (target,) = as_targets(targets)
    if target.estimate.confidence is None:
        raise GdscoreError(f"Expected the estimate of {target.name!r} to hold confidences, but it does not")
    figure, axes = blank()
    histograms = (estimator.reference_confidence_, target.estimate.confidence)
    shares = [np.asarray(histogram.rows) / np.sum(histogram.rows) for histogram in histograms]
    edges = estimator.reference_confidence_.edges
    axes.stairs(shares[0], edges, fill=True, color=LIGHT["quiet"], alpha=0.3, linewidth=0, label="reference")
    axes.stairs(shares[1], edges, color=LIGHT["accent"], linewidth=1.8, label="target")
    axes.set_xlabel("confidence")
    axes.set_ylabel("share of rows")
    axes.grid(False, axis="x")
    axes.set_xlim(0, 1)
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    axes.legend(loc="upper left", frameon=False, fontsize=FONT, labelcolor=LIGHT["ink"])
    return figure


def per_class_figure(target: Targets, most: int = 20) -> Figure:
    """Estimated recall of each class, with its interval where it has one, the worst first and at most so many."""
    (shown,) = as_targets(target)
    classes = worst_first(shown.estimate)[: integer("most", most, least=1)]
    if not classes:
        raise GdscoreError(f"Expected the estimate of {shown.name!r} to have estimates by class, but it has none")
    recalls = [c.recall for c in classes]
    intervals = [(r.value if r.low is None else r.low, r.value, r.value if r.high is None else r.high) for r in recalls]
    figure, axes = _intervals(intervals, [c.name for c in classes])
    axes.set_xlabel("estimated recall")
    return figure


def interval_figure(targets: Targets, *, min_accuracy: float | None = None) -> Figure:
    """Estimate and interval of each target, from the top, against the reference and the threshold ``min_accuracy``."""
    shown = _some(as_targets(targets))
    intervals = [(t.estimate.low, t.estimate.accuracy, t.estimate.high) for t in shown]
    figure, axes = _intervals(intervals, [t.name for t in shown])
    axes.set_xlabel("estimated accuracy")
    axes.axvline(shown[0].estimate.reference_accuracy, color=LIGHT["quiet"], linewidth=1.2, dashes=(4, 3), zorder=1)
    if min_accuracy is not None:
        axes.axvline(min_accuracy, color=LIGHT["ink"], linewidth=1.2, zorder=1)
    return figure


def timeline_figure(targets: Sequence[Target], *, min_accuracy: float | None = None, width: float = 9.4) -> Figure:
    """Estimates over time with the band of their intervals, the reference accuracy (dashed) and the threshold.

    Points of estimates with a critical warning are hollow, triangles are the truth where it is known. Segments have a
    small panel each, those that are worst at last first, at most 12. Every target has its time, `when`; the threshold
    is ``min_accuracy``, and ``width`` in inches.
    """
    series: dict[str, list[Target]] = {}
    for target in sorted(_some(as_targets(targets)), key=moment):
        series.setdefault(target.segment, []).append(target)
    if len(series) == 1:
        figure, axes = blank(width, 2.9)
        _draw_series(axes, next(iter(series.values())), min_accuracy, (3, 7))
        axes.set_ylabel("estimated accuracy")
        return figure
    shown = sorted(series.items(), key=lambda item: item[1][-1].estimate.accuracy)[:PANELS]
    columns = 3 if width > 6 else 1
    rows = math.ceil(len(shown) / columns)
    figure, panels = blank_grid(rows, min(columns, len(shown)), width, 1.9 * rows)
    for axes, (segment, members) in zip(panels, shown, strict=False):
        _draw_series(axes, members, min_accuracy, (1, 4))
        axes.set_title(segment, color=LIGHT["ink"], size=FONT, loc="left", parse_math=False)
    for axes in panels[len(shown) :]:
        axes.remove()
    for axes in panels[max(0, len(shown) - columns) : len(shown)]:  # the lowest of each column has the dates
        axes.tick_params(labelbottom=True)
    return figure


def _draw_series(axes: Axes, shown: list[Target], min_accuracy: float | None, ticks: tuple[int, int]) -> None:
    times = np.array([moment(t).replace(tzinfo=None) for t in shown], dtype="datetime64[us]")
    low, middle, high = np.array([(t.estimate.low, t.estimate.accuracy, t.estimate.high) for t in shown]).T
    critical = np.array([any(w.severity == "critical" for w in t.estimate.warnings) for t in shown])
    accent, paper = LIGHT["accent"], LIGHT["paper"]
    axes.fill_between(times, low, high, color=accent, alpha=0.12, linewidth=0)
    axes.vlines(times, low, high, color=accent, alpha=0.45, linewidth=1)
    axes.plot(times, middle, color=accent, linewidth=1.6)
    axes.plot(times[~critical], middle[~critical], "o", color=accent, markersize=5, markeredgecolor=paper)
    axes.plot(times[critical], middle[critical], "o", color=paper, markersize=6, markeredgecolor=accent)
    truth = np.array([np.nan if t.truth is None else t.truth for t in shown])
    labelled = np.isfinite(truth)
    axes.plot(times[labelled], truth[labelled], "^", color=LIGHT["ink"], markersize=7, markeredgecolor=paper, zorder=4)
    axes.axhline(shown[0].estimate.reference_accuracy, color=LIGHT["quiet"], linewidth=1.2, dashes=(4, 3), zorder=1)
    if min_accuracy is not None:
        axes.axhline(min_accuracy, color=LIGHT["ink"], linewidth=1.2, zorder=1)
    locator = AutoDateLocator(minticks=ticks[0], maxticks=ticks[1])  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set(color=LIGHT["quiet"], size=FONT)
    axes.grid(False, axis="x")
    percent_axis(axes, "y")


def _square(axes: Axes, low: float, high: float) -> None:
    """Give both axes one scale, with the diagonal on which they are equal; points at its ends are not cut."""
    edge = 0.02 * (high - low)
    axes.set(xlim=(low - edge, high + edge), ylim=(low - edge, high + edge), aspect="equal")
    axes.yaxis.set_major_locator(axes.xaxis.get_major_locator())
    axes.plot([low, high], [low, high], color=LIGHT["quiet"], linewidth=1, dashes=(4, 3))


def _some(targets: list[Target]) -> list[Target]:
    if not targets:
        raise GdscoreError("Expected at least one target, but there is none")
    return targets


def _intervals(intervals: list[tuple[float, float, float]], names: list[str]) -> tuple[Figure, Axes]:
    figure, axes = blank(5.0, 0.8 + 0.26 * len(names))
    low, middle, high = np.array(intervals).T
    places = np.arange(len(names))
    axes.hlines(places, low, high, color=LIGHT["accent"], alpha=0.4, linewidth=5)
    axes.plot(middle, places, "o", color=LIGHT["accent"], markersize=6, markeredgecolor=LIGHT["paper"])
    axes.set_yticks(places, names, parse_math=False, color=LIGHT["ink"])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.grid(False, axis="y")
    percent_axis(axes, "x")
    return figure, axes


def _legend(figure: Figure, styles: dict[str, tuple[str, str, str]]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", marker=m, color=LIGHT[c], markersize=4.5) for c, m, _ in styles.values()]
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.25)
    drawn = figure.legend(
        handles, ["x"] * len(handles), loc="outside lower center", ncols=len(handles), fontsize=8.5, frameon=False,
        handletextpad=0.1, labelcolor=LIGHT["quiet"],
    )  # fmt: skip
    # Written afterwards, as a legend leaves out names that begin with an underscore and sets $…$ as formulas.
    for text, group in zip(drawn.get_texts(), styles, strict=True):
        text.set_parse_math(False)
        text.set_text(group)
