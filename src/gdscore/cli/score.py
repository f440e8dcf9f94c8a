"""``gdscore score``: every score that the files allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._paths import check_writable
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
    ClassNames,
    Features,
    Label,
    Logits,
    Outcome,
    Probabilities,
    TargetFiles,
    columns_of,
    failures,
    find_targets,
    one_set,
    try_each,
    write_json,
)
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.scores import ScoreTable

__all__ = ["score"]


def score(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Outputs: .npz, .parquet, .arrow, .csv, or a folder of them.")
    ],
    reference: Annotated[
        str | None, typer.Option(metavar="FILE", help="Reference outputs, labelled if possible: allow more scores.")
    ] = None,
    scores: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these, separated by commas.")] = None,
    probabilities: Probabilities = None,
    logits: Logits = None,
    features: Features = None,
    label: Label = None,
    class_names: ClassNames = None,
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
    columns = columns_of(probabilities, logits, features, label, class_names)
    targets = find_targets(files, columns)
    reference_set = None if reference is None else one_set(reference, columns)
    inputs = [path for item in (*targets, reference_set) if item is not None for path in item.paths]
    check_writable(json, inputs=inputs)
    known = None if reference_set is None else reference_set.read()

    def compute(target: TargetFiles) -> tuple[ScoreTable, list[str]]:
        with collect_warnings() as warnings:
            table = score_all(target.stream(quiet), reference=known, scores=names)
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


def _score_names(given: str) -> list[str]:
    from gdscore.scores import create_score

    names = [name.strip() for name in given.split(",") if name.strip()]
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

    found = [(outcome.name, *outcome.value) for outcome in outcomes if outcome.value is not None]
    names = list(dict.fromkeys(name for _, table, _ in found for name in sorted(table)))
    if names:
        direction = {name: "rises" if create_score(name).higher_is_better else "falls" for name in names}
        rows = [
            [name, direction[name], *(f"{table[name]:.6g}" if name in table else "-" for _, table, _ in found)]
            for name in names
        ]
        show_table(["score", "with accuracy", *(target for target, _, _ in found)], rows, left=(0, 1))
    for line in group_messages([(target, _skipped(table)) for target, table, _ in found]):
        show(f"skipped: {line}", style="dim")
    for line in group_messages([(target, warnings) for target, _, warnings in found]):
        show(f"warning: {line}", style="yellow")


def _skipped(table: ScoreTable) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, why in table.skipped.items():
        names.setdefault(why, []).append(name)
    return [f"{', '.join(skipped)} ({why})" for why, skipped in names.items()]
