"""How figures look, and how they get into a page.

Requirements met here:

- figures are made without pyplot: nothing global is left behind, and no display is needed;
- colours have names, so that the page can swap them for dark screens;
- the same figure gives the same bytes, and ids of several figures never meet.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DARK", "FONT", "LIGHT", "as_svg", "blank", "blank_grid", "group_styles", "percent_axis", "shift_groups"]

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
    known = {name: group for group, names in _CORRUPTIONS.items() for name in names}
    if any(family in known for family in families):
        return [known.get(family, _OTHER) for family in families]
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
    """SVG element to put into HTML: no size of its own, text as text, colours by name.

    Parameters
    ----------
    figure : Figure
        Made by `blank`.
    name : str
        Of the figure in its page; ids are made of it.
    title : str
        What it shows, for those who cannot see it.
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
