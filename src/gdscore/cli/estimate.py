"""``gdscore estimate``: the accuracy on unlabelled files, with intervals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdscore import __version__
from gdscore.cli.console import cautions, results
from gdscore.cli.guard import BELOW, UNUSABLE, complain
from gdscore.cli.options import Debug, JsonPath, Quiet
from gdscore.cli.outcome_table import show
from gdscore.cli.outcomes import AlarmOn, Outcome, Threshold, outcomes_of, summary
from gdscore.cli.targets import about, find_targets
from gdscore.cli.writing import check_apart, check_writable, write_json
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator
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
    alarm_on: Annotated[
        AlarmOn | None,
        typer.Option(
            help="What --min-accuracy is compared with: the estimate (default); `high`, when the whole interval is "
            "below; `low`, when the interval reaches below.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on data without labels, in one pass and constant memory.

    A folder is one target, in parts; where its files or sub folders have dates in their names
    (2026-01-31.parquet, log-2026-01-31T05.npz, day=2026-01-31/part-0.parquet) it is one target for each
    date, in order. Of several targets, those that cannot be estimated are listed with the reason, and
    the exit code is 2 unless an estimate is below --min-accuracy.
    """
    from gdscore.estimator import AccuracyEstimator

    found = find_targets(targets)
    inputs = [estimator, *(path for data in found for path in data.paths)]
    check_writable(json, inputs=inputs)
    check_writable(html, inputs=inputs)
    check_apart(json, html, "--html and --json")
    threshold = _threshold(min_accuracy, alarm_on)
    fitted = AccuracyEstimator.load(estimator)
    outcomes = outcomes_of(fitted, found, quiet)
    failed = [o.data.name for o in outcomes if o.estimate is None]
    below = [o.data.name for o in outcomes if threshold and o.estimate is not None and threshold.missed_by(o.estimate)]
    if html is not None and len(failed) < len(outcomes):
        _write_report(html, fitted, outcomes, min_accuracy, shlex.join(["gdscore", *context.obj]), quiet)
    if json is not None:
        facts = {
            "gdscore": __version__,
            "estimator": str(estimator),
            "reference_accuracy": fitted.reference_accuracy_,
            "min_accuracy": min_accuracy,
            "alarm_on": threshold and threshold.on.value,
            "below": below,
            "not_estimated": failed,
        }
        write_json(json, {**facts, "targets": [o.to_dict() for o in outcomes]})
    if json != "-" and not quiet:
        show(outcomes, threshold)
        for path in (html if len(failed) < len(outcomes) else None, json):
            if path is not None:
                results().print(f"Written: {path}", markup=False)
    if failed:
        complain(summary(outcomes, html is not None))
    if below or failed:
        raise typer.Exit(BELOW if below else UNUSABLE)


def _threshold(min_accuracy: float | None, alarm_on: AlarmOn | None) -> Threshold | None:
    if min_accuracy is None:
        if alarm_on is not None:
            raise GdscoreError("Expected --min-accuracy with --alarm-on, but there is none: give the threshold too")
        return None
    if not 0 <= min_accuracy <= 1:
        raise GdscoreError(
            f"Expected --min-accuracy to be a share from 0 to 1, but got {min_accuracy:g}: for 80 % give 0.8"
        )
    return Threshold(min_accuracy, alarm_on or AlarmOn.ESTIMATE)


def _write_report(
    path: Path,
    fitted: AccuracyEstimator,
    outcomes: list[Outcome],
    min_accuracy: float | None,
    command: str,
    quiet: bool,
) -> None:
    from gdscore.report import Target, write_report

    listed = []
    for outcome in outcomes:
        if outcome.estimate is None:
            continue
        data = outcome.data
        with cautions(), about(data):
            # The estimator computes its own few scores; the report shows all, which takes a second pass.
            beside = _beside(fitted, data.stream(quiet))
        listed.append(Target(data.name, outcome.estimate, scores=beside, when=data.when))
    write_report(
        path,
        fitted,
        listed,
        min_accuracy=min_accuracy,
        made_by={"command": command},
        not_estimated={o.data.name: o.error for o in outcomes if o.estimate is None},
    )


def _beside(fitted: AccuracyEstimator, stream: Iterator[Outputs]) -> ScoreTable:
    """All scores that can be had without the reference's rows; of the others nothing is said, as nobody can help it."""
    import numpy as np

    from gdscore.scores import ScoreTable, create_score, score_all

    values = dict(score_all(stream))
    if "confscore" in values:
        # The estimator keeps the sums that DoC learns from its reference.
        seen, doc = fitted.reference_confidence_, create_score("doc")
        sums = {"rows": seen.rows, "total": seen.confidence, "correct": seen.correct or []}
        doc.learn({name: np.sum(parts) for name, parts in sums.items()})
        values["doc"] = doc.finish({"total": np.float64(values["confscore"]), "rows": np.float64(1)})
    return ScoreTable(values, {})
