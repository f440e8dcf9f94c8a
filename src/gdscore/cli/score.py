"""``gdscore score``: every score that the files allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gdscore.cli.console import cautions, once, results
from gdscore.cli.options import Debug, JsonPath, Quiet
from gdscore.cli.targets import Data, about, find_targets, one_set
from gdscore.cli.writing import check_writable, write_json

if TYPE_CHECKING:
    from gdscore.scores import ScoreTable

__all__ = ["score"]


def score(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Outputs: .npz, .parquet, or a folder of them.")],
    reference: Annotated[
        str | None, typer.Option(metavar="FILE", help="Validation outputs, labelled if possible: allows more scores.")
    ] = None,
    scores: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these, separated by commas.")] = None,
    json: JsonPath = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compute all scores that the data allow, in one pass and constant memory.

    Most scores are not accuracies: they order data sets by how well the model does on them.
    `gdscore methods` says what each one means, `gdscore estimate` makes an accuracy of them.
    """
    from gdscore.scores import create_score, score_all

    names = None if scores is None else [name.strip() for name in scores.split(",") if name.strip()]
    for name in names or ():
        create_score(name)
    targets = find_targets(files)
    labelled = None if reference is None else one_set(reference)
    sets = targets if labelled is None else [*targets, labelled]
    check_writable(json, inputs=[path for data in sets for path in data.paths])
    streams = [data.stream(quiet) for data in targets]
    found: list[tuple[Data, ScoreTable, list[str]]] = []
    for data, stream in zip(targets, streams, strict=True):
        with cautions() as said, about(data):
            table = score_all(stream, reference=None if labelled is None else labelled.stream(quiet=True), scores=names)
        found.append((data, table, said))
    if json is not None:
        write_json(json, {"targets": [_as_dict(*item) for item in found]})
    if json != "-" and not quiet:
        _show(found)


def _as_dict(data: Data, table: ScoreTable, said: list[str]) -> dict[str, object]:
    return {
        "name": data.name,
        "when": data.when and data.when.isoformat(),
        "scores": dict(table),
        "skipped": table.skipped,
        "warnings": said,
    }


def _show(found: list[tuple[Data, ScoreTable, list[str]]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gdscore.scores import create_score

    console = results()
    names = list(dict.fromkeys(name for _, table, _ in found for name in sorted(table)))
    shown = Table("score", "")
    for data, _, _ in found:
        shown.add_column(escape(data.name), justify="right", overflow="fold")
    for name in names:
        arrow = "↑" if create_score(name).higher_is_better else "↓"
        shown.add_row(name, arrow, *(f"{table[name]:.6g}" if name in table else "-" for _, table, _ in found))
    if names:
        console.print(shown)
        console.print("↑ rises, ↓ falls with accuracy")
    for line in once([(data.name, _reasons(table)) for data, table, _ in found]):
        console.print(f"skipped: {line}", style="dim", markup=False)
    for line in once([(data.name, said) for data, _, said in found]):
        console.print(f"careful: {line}", style="yellow", markup=False)


def _reasons(table: ScoreTable) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, why in table.skipped.items():
        names.setdefault(why, []).append(name)
    return [f"{', '.join(skipped)} ({why})" for why, skipped in names.items()]
