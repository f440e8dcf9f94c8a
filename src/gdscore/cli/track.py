"""``gdscore track``: the accuracy of windows from files of outputs and from a table of labels that came later."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gdscore._files import atomic, check_readable, check_writable, path_errors
from gdscore._format import points
from gdscore._windows import Every, as_time, parse_every, time_text, window_end, window_starts
from gdscore.cli.console import Debug, JsonPath, Quiet, collect_warnings, complain, show
from gdscore.cli.files import (
    IdColumn,
    Outcome,
    TargetFiles,
    TimeColumn,
    WindowLength,
    check_outputs,
    column_options,
    find_targets,
    load_estimator,
    write_json,
)
from gdscore.cli.results import Alarms, Estimated, alarm_options, document, end_with, exit_code, show_estimates
from gdscore.errors import GdscoreError, shown
from gdscore.frames import is_missing
from gdscore.io import Columns

if TYPE_CHECKING:
    from gdscore.estimator import Estimate
    from gdscore.tracking import AccuracyTracker
    from gdscore.tracking.rows import WindowRows


@alarm_options
@column_options("probabilities", "logits", "features", "class_names")
def track(
    context: typer.Context,
    estimator: Annotated[str, typer.Argument(metavar="ESTIMATOR", help="File that `gdscore fit` wrote.")],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Outputs: a table or folder, with --time; or a folder of dated files."),
    ],
    labels: Annotated[
        Path,
        typer.Argument(metavar="LABELS", help="Table of labels: columns id, label, known_at; .csv or .parquet."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write the table of windows there: .csv.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw estimates, labels and weights: .svg, .png or .pdf.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the tracker, for `AccuracyTracker.load`: m.track.")
    ] = None,
    json: JsonPath = None,
    level: Annotated[float, typer.Option(help="Share of intervals that are meant to hold.")] = 0.9,
    id_column: IdColumn = None,
    *,
    columns: Columns,
    time: TimeColumn = None,
    every: WindowLength = None,
    alarms: Alarms,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy of windows over time, each from its outputs and the labels that were known at its end.

    LABELS is a table with the columns id (of a row of TARGET), label, and known_at, the time at which the
    label became known. A row may occur again: its newest label counts. Windows are played in order, so that
    the table shows what would have been estimated then, beside the accuracy by the labels that came later.

    Exit codes: 0 fine, 3 alarm (below the floor, or a critical warning), 4 not enough data, 1 a target
    failed, 2 wrong usage.
    """
    from gdscore.tracking import AccuracyTracker

    if every is not None and time is None:
        raise GdscoreError("Expected --time with --every: name the column of times")
    length = parse_every(every or "1d")
    columns = replace(columns, time=time, id=id_column)
    targets = find_targets([target], columns)
    inputs = [Path(estimator), labels, *(path for item in targets for path in item.paths)]
    check_writable(output, inputs=inputs, suffixes=(".csv",))
    check_outputs(inputs, output=output, picture=picture, save=save, json=json)
    fitted = load_estimator(estimator)
    arrivals = read_labels(labels)
    with collect_warnings() as warnings:
        tracker = AccuracyTracker(fitted, level=level)
        played = play(tracker, read_windows(tracker, targets, length, quiet), arrivals)
    truths = [window.known if window.is_complete else None for _, _, window in tracker.items()]
    outcomes = [
        Outcome(TargetFiles(name, (), when.replace(tzinfo=None)), Estimated(estimate, truth))
        for (when, name, estimate), truth in zip(played, truths, strict=True)
    ]
    by_window = alarms.check(outcomes)
    checks = [check for check in by_window if check is not None]
    facts = document({"estimator": estimator, "labels": str(labels)}, outcomes, alarms.rule, checks)
    coverage = tracker.coverage()
    facts |= {"coverage": coverage if coverage == coverage else None, "errors": errors_of(tracker)}
    if output is not None:
        _write_table(tracker, output)
    if picture is not None:
        with atomic(picture) as file:
            tracker.plot().savefig(file, format=picture.suffix[1:].lower())
    if save is not None:
        tracker.save(save)
    if json is not None:
        write_json(json, facts)
    if alarms.webhook and exit_code(checks):
        from gdscore.monitor.notify import post_json

        post_json(alarms.webhook, facts)
    if json != "-" and not quiet:
        printed = [*map(_without_note, outcomes[:-1]), *outcomes[-1:]]
        show_estimates(printed, [check.status if alarms.rule and check else None for check in by_window])
        for line in _summary(tracker):
            show(line)
        for path in filter(None, (output, picture, save, json)):
            show(f"Written: {path}")
    for line in dict.fromkeys(warnings) if not quiet else ():
        complain(f"warning: {line}")
    end_with(checks)


class Arrival(NamedTuple):
    """A label, and when it became known."""

    known_at: datetime
    row: str
    label: str


def read_labels(path: Path) -> list[Arrival]:
    """Labels of a table in the order in which they became known."""
    rows = _parquet_rows(path) if path.suffix.lower() in (".parquet", ".pq") else _csv_rows(path)
    arrivals = []
    for line, row in enumerate(rows, start=2):
        row_id, label, known_at = (row[name] for name in ("id", "label", "known_at"))
        if row_id in (None, "") or known_at in (None, ""):
            raise GdscoreError(f"Expected an id and a time in line {line} of {str(path)!r}, but one of them is empty")
        try:
            when = as_time(known_at)
        except GdscoreError:
            raise GdscoreError(
                f"Expected `known_at` of line {line} of {str(path)!r} to be a time such as 2026-01-31T05:00, but got "
                f"{shown(known_at)}"
            ) from None
        arrivals.append(Arrival(when, str(row_id), "" if is_missing(label) else str(label)))
    if not arrivals:
        raise GdscoreError(f"Expected labels in {str(path)!r}, but there are none")
    return sorted(arrivals, key=lambda arrival: arrival.known_at)


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    checked = check_readable(path)
    with path_errors(path), checked.open(newline="", encoding="utf-8-sig") as file:
        try:
            lines = csv.DictReader(file, strict=True)
            _check_names(lines.fieldnames or (), path)
            for number, row in enumerate(lines, start=2):
                if None in row or None in row.values():
                    raise GdscoreError(
                        f"Expected {len(lines.fieldnames or ())} values in line {number} of {str(path)!r}, but got "
                        "another number"
                    )
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise GdscoreError(f"Expected a CSV file in UTF-8, but {str(path)!r} is not: {error}") from error


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow import ArrowException, parquet

    checked = check_readable(path)
    with path_errors(path):
        try:
            table = parquet.ParquetFile(checked)
            _check_names(table.schema_arrow.names, path)
            for batch in table.iter_batches(columns=["id", "label", "known_at"]):
                yield from batch.to_pylist()
        except ArrowException as error:
            raise GdscoreError(f"Expected a Parquet file, but {str(path)!r} cannot be read: {error}") from error


def _check_names(names: Sequence[str], path: Path) -> None:
    if missing := [name for name in ("id", "label", "known_at") if name not in names]:
        raise GdscoreError(
            f"Expected the columns id, label and known_at in {str(path)!r}, but there is no "
            f"{' and no '.join(missing)}: it has {', '.join(map(repr, names)) or 'none'}"
        )


@dataclass
class ReadWindow:
    """A window that was read: its rows, their ids in order, its name, and its end where that is known."""

    rows: WindowRows
    ids: list[str]
    name: str
    end: datetime | None


def read_windows(
    tracker: AccuracyTracker, targets: Sequence[TargetFiles], every: Every, quiet: bool
) -> dict[datetime, ReadWindow]:
    """Windows in order of time, in one pass over the files; of each row its id and its predicted class are kept."""
    import numpy as np

    from gdscore import _arrays as arrays

    windows: dict[datetime, ReadWindow] = {}
    for target in targets:
        for batch in target.batches(quiet):
            outputs = batch.outputs.only(batch.outputs.has - {"labels"})
            if "ids" not in outputs.has:
                raise GdscoreError(
                    f"Expected an id for each row of {target.name!r}, by which labels are found, but there is none: "
                    "name the column with --id"
                )
            if batch.time is None and target.when is None:
                raise GdscoreError(
                    f"Expected times, but {target.name!r} has none: name the column with --time, or give a folder of "
                    "files with dates in their names"
                )
            timed = batch.time is not None
            starts = window_starts(batch.time, every) if timed else np.full(len(outputs), target.when, dtype=object)
            ids = arrays.to_numpy(outputs.ids).astype(str)
            for start in dict.fromkeys(starts.tolist()):
                (chosen,) = np.nonzero(starts == start)
                when = as_time(start)
                if when not in windows:
                    name = time_text(when.replace(tzinfo=None) if every.zone == "UTC" else start)
                    windows[when] = ReadWindow(tracker.state(), [], name, window_end(when, every) if timed else None)
                windows[when].rows.update(outputs if len(chosen) == len(outputs) else outputs[chosen])
                windows[when].ids += ids[chosen].tolist()
    return dict(sorted(windows.items()))


def play(
    tracker: AccuracyTracker, windows: Mapping[datetime, ReadWindow], arrivals: Sequence[Arrival]
) -> list[tuple[datetime, str, Estimate]]:
    """Estimate windows in order, each with the labels that were known at its end, and then take in all other labels.

    A window whose end is not known ends where the next one begins.
    """
    places = _places(windows)
    strangers = {arrival.row for arrival in arrivals} - places.keys()
    if strangers:
        raise GdscoreError(
            f"Expected labels of rows of the target, but {len(strangers):,} rows with labels are not there, such as "
            f"{shown(min(strangers))}: give all outputs that have labels"
        )
    known_at, starts, taken = [arrival.known_at for arrival in arrivals], list(windows), 0
    waiting: dict[datetime, dict[int, str]] = {}  # labels that are known of windows that are not estimated yet
    estimates = []
    for number, (when, window) in enumerate(windows.items()):
        end = window.end or (starts[number + 1] if number + 1 < len(starts) else None)
        due = len(arrivals) if end is None else bisect_right(known_at, end)
        _sort_in(waiting, arrivals[taken:due], places)
        taken = due
        for earlier in [w for w in waiting if w < when]:
            _add(tracker, earlier, waiting.pop(earlier))
        estimates.append((when, window.name, tracker.estimate(window.rows, time=when.replace(tzinfo=None))))
    _sort_in(waiting, arrivals[taken:], places)
    for when, labels in waiting.items():
        _add(tracker, when, labels)
    return estimates


def _places(windows: Mapping[datetime, ReadWindow]) -> dict[str, tuple[datetime, int]]:
    """Window and row of each id."""
    places: dict[str, tuple[datetime, int]] = {}
    for when, window in windows.items():
        for row, row_id in enumerate(window.ids):
            if row_id in places:
                both = {windows[places[row_id][0]].name: None, window.name: None}
                raise GdscoreError(
                    f"Expected ids that name one row each, but {shown(row_id)} names two ({', '.join(both)})"
                )
            places[row_id] = when, row
    return places


def _sort_in(
    waiting: dict[datetime, dict[int, str]], arrivals: Sequence[Arrival], places: Mapping[str, tuple[datetime, int]]
) -> None:
    for arrival in arrivals:
        when, row = places[arrival.row]
        waiting.setdefault(when, {})[row] = arrival.label


def _add(tracker: AccuracyTracker, when: datetime, labels: Mapping[int, str]) -> None:
    tracker.add_labels(when.replace(tzinfo=None), list(labels.values()), rows=list(labels))


def errors_of(tracker: AccuracyTracker) -> dict[str, Any]:
    """Mean absolute error of each way of answering, over windows whose labels are all known."""
    complete = [w for *_, w in tracker.items() if w.is_complete and w.accuracy is not None and w.last_known is not None]
    names = {"tracked": "accuracy", "label_free": "label_free", "unchanged": "unchanged", "last_known": "last_known"}
    errors = {
        name: sum(abs(getattr(w, attribute) - (w.known or 0.0)) for w in complete) / len(complete)
        for name, attribute in names.items()
        if complete
    }
    return {"windows": len(complete), **errors}


def _without_note(outcome: Outcome[Estimated]) -> Outcome[Estimated]:
    """Without the note which labels an estimate rests on, of which there is one for each window."""
    assert outcome.value is not None
    estimate = outcome.value.estimate
    others = [warning for warning in estimate.warnings if warning.code != "tracked"]
    return replace(outcome, value=replace(outcome.value, estimate=replace(estimate, warnings=others)))


def _summary(tracker: AccuracyTracker) -> Iterator[str]:
    errors = errors_of(tracker)
    count = errors.pop("windows")
    if count:
        words = {"label_free": "without labels", "last_known": "last known accuracy"}
        told = ", ".join(f"{words.get(name, name)} {points(error)}" for name, error in errors.items())
        yield f"mean error of {count} windows whose labels are all known: {told}"
    if (coverage := tracker.coverage()) == coverage:
        yield f"intervals that held so far: {coverage:.0%}"


def _write_table(tracker: AccuracyTracker, path: Path) -> None:
    table = tracker.windows("pyarrow").to_pydict()
    with atomic(path, "w") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(table)
        for row in zip(*table.values(), strict=True):
            lines.writerow([value.isoformat() if isinstance(value, datetime) else value for value in row])
