"""``gdscore label``: which rows to label, and the accuracy with a few labels."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gdscore._files import check_writable
from gdscore._format import percent
from gdscore.cli.console import Debug, HtmlPath, JsonPath, Quiet, examples, one_line_paragraphs, show, show_table
from gdscore.cli.files import (
    IdColumn,
    TargetFiles,
    check_outputs,
    column_arguments,
    column_options,
    load_estimator,
    one_set,
    write_json,
)
from gdscore.errors import GdscoreError
from gdscore.io import Columns

if TYPE_CHECKING:
    from gdscore.labeling import LabelledEstimate, LabelRows
    from gdscore.outputs import Outputs

EstimatorFile = Annotated[str, typer.Argument(metavar="ESTIMATOR", help="File that `gdscore fit` wrote.")]
TargetFile = Annotated[
    str, typer.Argument(metavar="TARGET", help="Outputs: .npz, .parquet, .csv, or a folder that is one target.")
]
TableFile = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Table that `gdscore label choose` wrote, with labels filled in.")
]

_columns = column_options("probabilities", "logits", "features", "prediction", "threshold", "class_names")


label = typer.Typer(
    name="label",
    help="Choose rows to label, and estimate the accuracy with a few labels.",
    no_args_is_help=True,
    epilog=examples(
        "gdscore label choose m.gdscore new.parquet --budget 50 -o todo.csv",
        "gdscore label estimate m.gdscore new.parquet todo.csv",
    ),
)


@_columns
def choose(
    estimator: EstimatorFile,
    target: TargetFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Table to write: todo.csv.")],
    budget: Annotated[int, typer.Option(help="Rows to label.")] = 50,
    design: Annotated[
        Literal["stratified", "random"],
        typer.Option(help="`random` for an interval that may be looked at after every label."),
    ] = "stratified",
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of segments, each of which gets its share.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random draw.")] = 0,
    labels: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Earlier table of the same target: its labels are kept.")
    ] = None,
    show_columns: Annotated[
        str | None,
        typer.Option("--show", metavar="COLUMNS", help="Columns of the file for the person who labels: text,image."),
    ] = None,
    id_column: IdColumn = None,
    *,
    columns: Columns,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw the rows that are worth labelling into a table for a spreadsheet.

    Fill in the column `label` in the order of the column `order`, by number or name of the class; `?` where
    nobody can tell. A larger budget with the same seed begins with the same rows.
    """
    from gdscore import labeling
    from gdscore.io import read_batches

    rows_of = _target(target, columns, id_column, by)
    inputs = [*rows_of.paths, Path(estimator)]
    check_writable(output, inputs=inputs, suffixes=(".csv",))
    earlier = None if labels is None else labeling.read_csv(labels)
    _check_unlabelled(output, labels)
    fitted = load_estimator(estimator)

    def segments() -> Iterator[Any]:
        return (batch.by[str(by)] for batch in read_batches(rows_of.paths, columns=rows_of.columns, progress=False))

    drawn = labeling.choose(
        fitted,
        _opener(rows_of, quiet),
        budget,
        design=design,
        by=None if by is None else segments,
        seed=seed,
    )
    options = [] if by is None else ["--by", by]
    options += [] if show_columns is None else ["--show", show_columns]
    drawn = replace(drawn, options=shlex.join(options))
    shown = {} if show_columns is None else _shown(rows_of, show_columns.split(","), drawn)
    drawn.to_csv(output, None if earlier is None else _kept(drawn, *earlier), shown)
    if not quiet:
        named = column_arguments(rows_of.columns)
        show(
            f"{len(drawn)} of {drawn.n_rows:,} rows, each drawn with probability {drawn.probability:.2g}.\n"
            f"Written: {output}\nNext:    fill in the column `label`, then "
            + shlex.join(["gdscore", "label", "estimate", estimator, target, str(output), *named])
        )


@_columns
def estimate(
    estimator: EstimatorFile,
    target: TargetFile,
    table: TableFile,
    id_column: IdColumn = None,
    *,
    columns: Columns,
    html: HtmlPath = None,
    json: JsonPath = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on a target from labels of some of its rows.

    Rows drawn at random make the interval cover at about its level, whatever has shifted. If they were drawn with
    `--design random`, you may look at it after every label.
    """
    from gdscore import labeling

    rows_of = _target(target, columns, id_column, None)
    check_outputs([*rows_of.paths, Path(estimator), table], html=html, json=json)
    drawn, labels = labeling.read_csv(table)
    fitted, opener = load_estimator(estimator), _opener(rows_of, quiet)
    labelled = labeling.estimate(fitted, opener, drawn, labels)
    by_segment = {} if drawn.segments is None else labeling.estimate_segments(fitted, opener, drawn, labels)
    sequence = labeling.sequence(fitted, opener, drawn, labels) if drawn.design == "random" else None
    if json is not None:
        facts = labelled.to_dict() | {"segments": {name: e.to_dict() for name, e in by_segment.items()}}
        if sequence is not None:
            facts |= {"sequence": {"low": sequence.low.tolist(), "high": sequence.high.tolist()}}
        write_json(json, facts)
    if html is not None:
        from gdscore.report import Target, write_report

        shown = [Target("all rows", labelled), *(Target(str(name), e) for name, e in by_segment.items())]
        write_report(html, None, shown if by_segment else Target(rows_of.name, labelled))
    if json == "-" or quiet:
        return
    lines = [("all rows", labelled), *by_segment.items()]
    interval = f"{percent(labelled.level, short=True)} interval"
    show_table(["target", "rows", "labels", "accuracy", interval, "without labels"], [_cells(*line) for line in lines])
    show(f"accuracy on the reference: {percent(labelled.reference_accuracy)}")
    if sequence is not None:
        show(f"valid at all times: {percent(sequence.low[-1])} to {percent(sequence.high[-1])}")
    for warning in labelled.warnings:
        noted = warning.severity == "info"
        show(f"{'note' if noted else 'warning'}: {warning.message}", style="dim" if noted else "yellow")
    if html is not None:
        show(f"Written: {html}")


@_columns
def status(
    estimator: EstimatorFile,
    target: TargetFile,
    table: TableFile,
    half_width: Annotated[
        float, typer.Option(metavar="SHARE", help="Half of the width that is wanted: 0.05 is ± 5 points.")
    ] = 0.05,
    id_column: IdColumn = None,
    *,
    columns: Columns,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Show how wide the interval is now and how many labels are to go."""
    from gdscore import labeling

    rows_of = _target(target, columns, id_column, None)
    drawn, labels = labeling.read_csv(table)
    fitted, opener = load_estimator(estimator), _opener(rows_of, quiet)
    if not any(text.strip() not in ("", "?") for text in labels):
        unknown = sum(text.strip() == "?" for text in labels)
        show(f"0 of {len(drawn)} rows labelled, {unknown} left out, {len(drawn) - unknown} to go.")
        return
    labelled = labeling.estimate(fitted, opener, drawn, labels)
    more = labelled.more_labels_for(half_width)
    show(
        f"{labelled.labels} of {len(drawn)} rows labelled, {labelled.could_not_tell} left out, "
        f"{labelled.to_label} to go.\n"
        f"Accuracy {percent(labelled.accuracy)}, {percent(labelled.low)} to {percent(labelled.high)}: "
        f"± {50 * (labelled.high - labelled.low):.1f} points."
    )
    wanted = f"± {100 * half_width:g} points"
    if not more:
        show(f"The interval is {wanted} wide or narrower: enough.")
        return
    show(f"Label about {more if more <= 20 else math.ceil(more / 10) * 10} more for {wanted}.")
    if more > labelled.to_label:
        budget = math.ceil((len(drawn) + more - labelled.to_label) / 10) * 10
        show(
            f"The table has {labelled.to_label} rows left: gdscore label choose {shlex.join([estimator, target])} "
            f"--budget {min(budget, drawn.n_rows)} --seed {drawn.seed} --design {drawn.design} "
            + shlex.join(["--labels", str(table), "-o", "MORE.csv", *column_arguments(rows_of.columns)])
            + (f" {drawn.options}" if drawn.options else "")
        )


_COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    choose: (
        "gdscore label choose m.gdscore new.parquet --budget 50 -o todo.csv",
        "gdscore label choose m.gdscore new.parquet --budget 90 --labels todo.csv -o more.csv",
    ),
    estimate: ("gdscore label estimate m.gdscore new.parquet todo.csv",),
    status: ("gdscore label status m.gdscore new.parquet todo.csv --half-width 0.05",),
}
for _command, _examples in _COMMANDS.items():
    label.command(help=one_line_paragraphs(_command.__doc__ or ""), epilog=examples(*_examples))(_command)


def _target(item: str, columns: Any, id_column: str | None, by: str | None) -> TargetFiles:
    return one_set(item, replace(columns, id=id_column, by=by))


def _opener(target: TargetFiles, quiet: bool) -> Callable[[], Iterator[Outputs]]:
    """Function that opens the target without its labels, which are never used."""

    def opened() -> Iterator[Outputs]:
        return (batch.only(batch.has - {"labels"}) for batch in target.stream(quiet))

    return opened


def _shown(target: TargetFiles, names: list[str], drawn: LabelRows) -> dict[str, list[Any]]:
    """Values of further columns of the drawn rows, in the order of these."""
    from gdscore.io import read_batches

    values_of: dict[str, dict[int, Any]] = {name: {} for name in names}
    start, wanted = 0, set(drawn.rows.tolist())
    for batch in read_batches(target.paths, columns=replace(target.columns, by=names), progress=False):
        inside = [row for row in range(start, start + len(batch.outputs)) if row in wanted]
        for name in names:
            values_of[name] |= {row: batch.by[name][row - start] for row in inside}
        start += len(batch.outputs)
    return {name: [values[row] for row in drawn.rows.tolist()] for name, values in values_of.items()}


def _check_unlabelled(output: Path, kept: Path | None) -> None:
    """Refuse to write over a table in which somebody has filled in labels."""
    from gdscore.labeling import read_csv

    if not output.exists() or (kept is not None and output.samefile(kept)):
        return
    try:
        _, labels = read_csv(output)
    except GdscoreError:  # a file of another kind
        return
    filled = sum(bool(text.strip()) for text in labels)
    if filled:
        raise GdscoreError(
            f"Expected to write a new table, but {str(output)!r} has {filled} labels: keep them with "
            f"--labels {output}, or name another file"
        )


def _kept(drawn: LabelRows, earlier: LabelRows, labels: list[str]) -> list[str]:
    """Labels of an earlier table for the rows that are drawn again."""
    if earlier.fingerprint != drawn.fingerprint:
        raise GdscoreError("Expected an earlier table of the same target, but it is of another one")
    label_of_row = dict(zip(earlier.rows.tolist(), labels, strict=True))
    lost = [row for row, text in label_of_row.items() if text and row not in set(drawn.rows.tolist())]
    if lost:
        raise GdscoreError(
            f"Expected the earlier table's rows to be drawn again, but {len(lost)} labelled ones are not: use its "
            f"--seed {earlier.seed}, --design {earlier.design}, its segments, and at least its --budget {len(earlier)}"
        )
    return [label_of_row.get(row, "") for row in drawn.rows.tolist()]


def _cells(name: str, e: LabelledEstimate) -> list[str]:
    free = "" if e.label_free is None else percent(e.label_free.value)
    return [name, f"{e.n_rows:,}", str(e.labels), percent(e.accuracy), f"{percent(e.low)} to {percent(e.high)}", free]
