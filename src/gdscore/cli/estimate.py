"""``gdscore estimate``: the accuracy on unlabelled files, with intervals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore.cli.console import cautions, once, percent, results
from gdscore.cli.guard import BELOW
from gdscore.cli.options import Debug, JsonPath, Quiet
from gdscore.cli.targets import Data, about, find_targets, in_words
from gdscore.cli.writing import check_writable, write_json
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.outputs import Outputs
    from gdscore.scores import ScoreTable

__all__ = ["estimate"]


def estimate(
    context: typer.Context,
    estimator: Annotated[Path, typer.Argument(metavar="ESTIMATOR", help="File that `gdscore fit` wrote.")],
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET", help="Unlabelled outputs: .npz, .parquet, a folder; dated files make a time series."
        ),
    ],
    html: Annotated[Path | None, typer.Option(metavar="PATH", help="Write a report, one file to open or send.")] = None,
    json: JsonPath = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="End with exit code 3 where an estimate is below: 0.8 is 80 %."),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on data without labels, in one pass and constant memory.

    A folder is one target, in parts; where its Parquet files or sub folders have dates in their names
    (2026-01-31.parquet, log-2026-01-31T05.parquet, day=2026-01-31/part-0.parquet) it is one target for
    each date, in order.
    """
    from gdscore.estimator import AccuracyEstimator

    inputs: list[str | Path] = [estimator, *targets]
    check_writable(json, inputs=inputs)
    check_writable(html, inputs=inputs)
    if html is not None and json is not None and Path(json).resolve() == html.resolve():
        raise GdscoreError(f"Expected different files for --html and --json, but both are {json!r}: name another")
    if min_accuracy is not None and not 0 <= min_accuracy <= 1:
        raise GdscoreError(
            f"Expected --min-accuracy to be a share from 0 to 1, but got {min_accuracy:g}: for 80 % give 0.8"
        )
    fitted = AccuracyEstimator.load(estimator)
    found = find_targets(targets)
    streams = [data.stream(quiet) for data in found]
    estimates: list[Estimate] = []
    for data, stream in zip(found, streams, strict=True):
        with about(data):
            estimates.append(fitted.estimate(stream))
    below = [
        d.name for d, e in zip(found, estimates, strict=True) if min_accuracy is not None and e.accuracy < min_accuracy
    ]
    if html is not None:
        _write_report(html, fitted, found, estimates, min_accuracy, shlex.join(["gdscore", *context.obj]), quiet)
    if json is not None:
        write_json(json, _as_dict(estimator, fitted, found, estimates, min_accuracy, below))
    if json != "-" and not quiet:
        _show(found, estimates, min_accuracy)
        for path in (html, json):
            if path is not None:
                results().print(f"Written: {path}", markup=False)
    if below:
        raise typer.Exit(BELOW)


def _as_dict(
    path: Path,
    fitted: AccuracyEstimator,
    found: list[Data],
    estimates: list[Estimate],
    min_accuracy: float | None,
    below: list[str],
) -> dict[str, Any]:
    from gdscore import __version__

    return {
        "gdscore": __version__,
        "estimator": str(path),
        "reference_accuracy": fitted.reference_accuracy_,
        "min_accuracy": min_accuracy,
        "below": below,
        "targets": [
            {"name": data.name, "when": data.when and data.when.isoformat(), **e.to_dict()}
            for data, e in zip(found, estimates, strict=True)
        ],
    }


def _write_report(
    path: Path,
    fitted: AccuracyEstimator,
    found: list[Data],
    estimates: list[Estimate],
    min_accuracy: float | None,
    command: str,
    quiet: bool,
) -> None:
    from gdscore.report import Target, write_report

    listed = []
    for data, e in zip(found, estimates, strict=True):
        with cautions(), about(data):
            # The estimator computes its own few scores; the report shows all, which takes a second pass.
            listed.append(Target(data.name, e, scores=_beside(fitted, data.stream(quiet)), when=data.when))
    write_report(path, fitted, listed, min_accuracy=min_accuracy, made_by={"command": command})


def _beside(fitted: AccuracyEstimator, stream: Iterator[Outputs]) -> ScoreTable:
    """All scores that can be had without the reference's rows; of the others nothing is said, as nobody can help it."""
    from gdscore.scores import ScoreTable, score_all

    values = dict(score_all(stream))
    if "confscore" in values:
        seen = fitted.reference_confidence_
        usual = sum(seen.confidence) / sum(seen.rows)
        values["doc"] = fitted.reference_accuracy_ - (usual - values["confscore"])
    return ScoreTable(values, {})


def _show(found: list[Data], estimates: list[Estimate], min_accuracy: float | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = results()
    levels = sorted({e.level for e in estimates})
    table = Table("target")
    dated = all(data.when for data in found) and any(data.name != in_words(data.when) for data in found if data.when)
    if dated:
        table.add_column("date")
    for title in ("rows", "accuracy", f"{' / '.join(f'{level:.0%}' for level in levels)} interval", "reference"):
        table.add_column(title, justify="right")
    if min_accuracy is not None:
        table.add_column(f"at least {percent(min_accuracy)}?")
    for data, e in zip(found, estimates, strict=True):
        cells = [escape(data.name), *([in_words(data.when)] if dated and data.when else []), f"{e.n:,}"]
        cells += [
            f"[bold]{percent(e.accuracy)}[/]",
            f"{percent(e.low)} to {percent(e.high)}",
            percent(e.source_accuracy),
        ]
        if min_accuracy is not None:
            cells.append("[green]yes[/]" if e.accuracy >= min_accuracy else "[bold red]below[/]")
        table.add_row(*cells)
    console.print(table)
    if len(estimates) == 1 and estimates[0].lookalikes:
        alike = [f"{a.family.replace('+', ' + ')} ({percent(a.accuracy)})" for a in estimates[0].lookalikes[:3]]
        console.print(f"Most like these calibration sets, and the accuracy there: {', '.join(alike)}", markup=False)
    for line in once([(data.name, e.warnings) for data, e in zip(found, estimates, strict=True)]):
        console.print(f"careful: {line}", style="yellow", markup=False)
