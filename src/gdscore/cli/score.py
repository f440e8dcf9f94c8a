"""``gdscore score``: every score that the files allow; ``gdscore methods``: what each score needs and means."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._files import check_writable
from gdscore.cli.console import (
    Debug,
    ExitCode,
    JsonPath,
    Quiet,
    collect_warnings,
    complain,
    group_messages,
    show,
    show_table,
)
from gdscore.cli.files import (
    Outcome,
    TargetFiles,
    column_options,
    failures,
    find_targets,
    one_set,
    try_each,
    write_json,
)
from gdscore.errors import GdscoreError
from gdscore.io import Columns

if TYPE_CHECKING:
    from gdscore.scores import ScoreTable


@column_options()
def score(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Outputs: .npz, .parquet, .arrow, .csv, or a folder of them.")
    ],
    reference: Annotated[
        str | None, typer.Option(metavar="FILE", help="Reference outputs, labelled if possible: allow more scores.")
    ] = None,
    scores: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these, separated by commas.")] = None,
    *,
    columns: Columns,
    json: JsonPath = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compute all scores that the data allow, in one pass and constant memory.

    Most scores are not accuracies: they order data sets by how well the model does on them.
    `gdscore methods` explains each of them, and `gdscore estimate` gives an accuracy with an interval.
    """
    from gdscore.scores import score_all

    names = None if scores is None else _score_names(scores)
    targets = find_targets(files, columns)
    reference_set = None if reference is None else one_set(reference, columns)
    inputs = [path for item in (*targets, reference_set) if item is not None for path in item.paths]
    check_writable(json, inputs=inputs)
    reference_rows = None if reference_set is None else reference_set.read()

    def compute(target: TargetFiles) -> tuple[ScoreTable, list[str]]:
        with collect_warnings() as warnings:
            table = score_all(target.stream(quiet), reference=reference_rows, scores=names)
        return table, warnings

    outcomes = try_each(targets, compute, debug)
    if json is not None:
        write_json(json, {"targets": [_as_dict(outcome) for outcome in outcomes]})
    if json != "-" and not quiet:
        _show(outcomes)
    if reasons := failures(outcomes):
        failed = [o.name for o in outcomes if o.value is None]
        complain(f"{', '.join(failed[:3])}{' …' if len(failed) > 3 else ''}: {'; '.join(reasons[:3])}")
        raise typer.Exit(ExitCode.FAILED)


def _score_names(text: str) -> list[str]:
    from gdscore.scores import create_score

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise GdscoreError("Expected names of scores separated by commas, but there is none: see `gdscore methods`")
    for name in names:
        create_score(name)
    return names


def _as_dict(outcome: Outcome[tuple[ScoreTable, list[str]]]) -> dict[str, Any]:
    when = outcome.target.when
    named: dict[str, Any] = {"name": outcome.name, "when": when and when.isoformat()}
    if outcome.value is None:
        return {**named, "error": outcome.error}
    table, warnings = outcome.value
    return {**named, "scores": dict(table), "skipped": table.skipped, "warnings": warnings}


def _show(outcomes: Sequence[Outcome[tuple[ScoreTable, list[str]]]]) -> None:
    from gdscore.scores import create_score

    computed = [(outcome.name, *outcome.value) for outcome in outcomes if outcome.value is not None]
    names = list(dict.fromkeys(name for _, table, _ in computed for name in sorted(table)))
    if names:
        direction = {name: "rises" if create_score(name).higher_is_better else "falls" for name in names}
        rows = [
            [name, direction[name], *(f"{table[name]:.6g}" if name in table else "-" for _, table, _ in computed)]
            for name in names
        ]
        show_table(["score", "with accuracy", *(target for target, _, _ in computed)], rows, left=(0, 1))
    for line in group_messages([(target, _skipped(table)) for target, table, _ in computed]):
        show(f"skipped: {line}", style="dim")
    for line in group_messages([(target, warnings) for target, _, warnings in computed]):
        show(f"warning: {line}", style="yellow")


def _skipped(table: ScoreTable) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, why in table.skipped.items():
        names.setdefault(why, []).append(name)
    return [f"{', '.join(skipped)} ({why})" for why, skipped in names.items()]


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
        (one,) = described
        show(f"{name}: needs {_needs(one)}; {_direction(one)} with accuracy\n", style="bold")
        show(one["description"])
    else:
        rows = [(item["name"], _direction(item), _needs(item), item["summary"]) for item in described]
        show_table(["score", "with accuracy", "needs", "what it is"], rows, left=range(4))
        show("One in full: gdscore methods NAME")


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
