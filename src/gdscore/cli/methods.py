"""``gdscore methods``: what each score needs and means, from its class."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

import typer

from gdscore._paths import check_writable
from gdscore.cli.console import Debug, JsonPath, show, show_table
from gdscore.cli.files import write_json

__all__ = ["methods"]


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A score: its formula, options and an example.")
    ] = None,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """Show what each score needs and means."""
    from gdscore.scores import list_scores

    check_writable(json)
    described = [_describe(n) for n in ([name] if name is not None else list_scores())]
    if json is not None:
        write_json(json, described)
    elif name is not None:
        _show_one(described[0])
    else:
        _show_all(described)


def _describe(name: str) -> dict[str, Any]:
    from gdscore.scores import create_score

    made = create_score(name)
    text, formula = inspect.getdoc(type(made)) or "", getattr(type(made), "formula", None)
    return {
        "name": name,
        "needs": sorted(made.needs),
        "higher_is_better": made.higher_is_better,
        "options": made.options,
        "summary": text.partition("\n")[0],
        "formula": formula,
        "description": _without_markup(text, formula),
    }


def _without_markup(text: str, formula: str | None = None) -> str:
    r"""Text of a docstring for a terminal: the formula instead of the first block of mathematics, and no markup.

    Examples
    --------
    >>> print(_without_markup("Mean :math:`c`:\n\n.. math::\n    \\bar c\n\nover rows, with ``p``.", "mean(c)"))
    Mean c:
    <BLANKLINE>
        mean(c)
    <BLANKLINE>
    over rows, with p.
    """
    formulas = iter([formula] if formula else [])

    def replaced(match: re.Match[str]) -> str:
        shown = next(formulas, None) if match[2] == "math" else None
        return f"{match[1]}    {shown}\n\n" if shown else ""

    text = re.sub(r"^( *)\.\. ([\w-]+)::.*\n(?:\1 +.*\n|[ \t]*\n)*", replaced, f"{text}\n", flags=re.MULTILINE)
    text = re.sub(r":[\w:]+:`([^`]*)`", r"\1", text)
    text = re.sub(r"``([^`]*)``", r"\1", text).strip()
    return "\n\n    ".join([text, *formulas])


def _needs(described: dict[str, Any]) -> str:
    words = [need for need in described["needs"] if not need.startswith("reference")]
    if "reference_labels" in described["needs"]:
        words.append("labelled --reference")
    elif "reference" in described["needs"]:
        words.append("--reference")
    return ", ".join(words)


def _direction(described: dict[str, Any]) -> str:
    return "rises" if described["higher_is_better"] else "falls"


def _show_one(described: dict[str, Any]) -> None:
    show(f"{described['name']}: needs {_needs(described)}; {_direction(described)} with accuracy\n", style="bold")
    show(described["description"])


def _show_all(listed: list[dict[str, Any]]) -> None:
    rows = [(item["name"], _direction(item), _needs(item), item["summary"]) for item in listed]
    show_table(["score", "with accuracy", "needs", "what it is"], rows, left=range(4))
    show("One in full: gdscore methods NAME")
