"""How figures look, and how they get into a page.

Requirements met here:

- figures are made without pyplot: nothing global is left behind, and no display is needed;
- colours have names, so that the page can swap them for dark screens;
- the same figure gives the same bytes, and ids of several figures never meet.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DARK", "FONT", "LIGHT", "as_svg", "blank", "family_styles", "kinds_of", "log_axis", "percent_axis"]

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1e22",
    "quiet": "#646b75",
    "line": "#d9dce1",
    "wash": "#f4f5f6",
    "accent": "#b23c17",
    "family0": "#3f6fa3",
    "family1": "#5d9c83",
    "family2": "#8d6fa8",
    "family3": "#a89a3c",
    "family4": "#4aa0b5",
    "family5": "#8a8f98",
}
"""Colours by name; the accent always means the target."""

DARK = {
    "paper": "#15171a",
    "ink": "#e8eaed",
    "quiet": "#9aa1ab",
    "line": "#363b42",
    "wash": "#1f2226",
    "accent": "#f08a62",
    "family0": "#7ea9d8",
    "family1": "#86c4ac",
    "family2": "#b79bd0",
    "family3": "#cbbd66",
    "family4": "#7cc6d8",
    "family5": "#a9afb8",
}

_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼"}
_FAMILY_COLOURS = [name for name in LIGHT if name.startswith("family")]
_COMPOSED = "compositions"
FONT = 11.0


def blank(width: float = 5.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """Figure of so many inches with one set of axes in the style of the report."""
    with mpl.rc_context({"font.size": FONT}):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT["paper"])
        axes = figure.add_subplot(facecolor="none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=LIGHT["line"], linewidth=1)
    axes.tick_params(length=0, pad=5, labelsize=FONT, labelcolor=LIGHT["quiet"])
    axes.xaxis.label.set(color=LIGHT["quiet"], size=FONT)
    axes.yaxis.label.set(color=LIGHT["quiet"], size=FONT)
    axes.grid(True, color=LIGHT["line"], linewidth=0.5, alpha=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def percent_axis(axes: Axes, which: str) -> None:
    """Write the numbers of one axis, x or y, as percentages."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g}%"))


def log_axis(axes: Axes, span: float) -> None:
    """Make the x axis logarithmic, for values whose largest is ``span`` times the smallest."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 1000 else (1.0,), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def kinds_of(families: list[str]) -> list[str]:
    """Families as a legend names them: compositions, of which there may be a hundred, go by one name.

    Examples
    --------
    >>> kinds_of(["fog", "fog+pixelate"])
    ['fog', 'compositions']
    """
    return [_COMPOSED if "+" in family else family for family in families]


def family_styles(families: list[str]) -> dict[str, tuple[str, str, str]]:
    """For each kind the name of its colour, its marker in a figure, and the same shape as a character."""
    shapes = list(_MARKERS.items())
    return {
        kind: (_FAMILY_COLOURS[i % len(_FAMILY_COLOURS)], *shapes[(i // len(_FAMILY_COLOURS)) % len(shapes)])
        for i, kind in enumerate(sorted(dict.fromkeys(kinds_of(families)), key=lambda kind: kind == _COMPOSED))
    }


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
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)  # would hold for the whole page
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
