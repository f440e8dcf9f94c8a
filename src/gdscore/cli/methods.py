"""``gdscore methods``: what each score needs and means, from its class."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from gdscore.cli.console import results
from gdscore.cli.options import Debug, JsonPath
from gdscore.cli.writing import check_writable, write_json

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
    described = [_described(n) for n in ([name] if name else list_scores())]
    if json is not None:
        write_json(json, described)
    elif name:
        _show_one(described[0])
    else:
        _show_all(described)


def _described(name: str) -> dict[str, Any]:
    from gdscore.scores import create_score

    made = create_score(name)
    text = inspect.getdoc(type(made)) or ""
    return {
        "name": name,
        "needs": sorted(made.needs),
        "higher_is_better": made.higher_is_better,
        "options": made.options,
        "summary": text.partition("\n")[0],
        "description": text,
    }


def _needs(described: dict[str, Any]) -> str:
    words = [need for need in described["needs"] if not need.startswith("reference")]
    if "reference_labels" in described["needs"]:
        words.append("labelled --reference")
    elif "reference" in described["needs"]:
        words.append("--reference")
    return ", ".join(words)


def _show_one(described: dict[str, Any]) -> None:
    console = results()
    direction = "rises" if described["higher_is_better"] else "falls"
    console.print(f"[bold]{described['name']}[/]: needs {_needs(described)}; {direction} with accuracy\n")
    console.print(described["description"], markup=False)


def _show_all(listed: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = results()
    table = Table("score", "", "needs", "what it is")
    for described in listed:
        arrow = "↑" if described["higher_is_better"] else "↓"
        table.add_row(described["name"], arrow, _needs(described), escape(described["summary"]))
    console.print(table)
    console.print("↑ rises, ↓ falls with accuracy. One in full: gdscore methods NAME")
