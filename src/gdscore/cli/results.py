"""Estimates of targets as a table, as JSON and as a report, with the truth where a target has labels, and alarms."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore import __version__
from gdscore._alarms import (
    AlarmOn,
    AlarmRule,
    RuleResult,
    Status,
    checked_targets,
    summarize,
    worst_status,
)
from gdscore._format import percent, points
from gdscore._windows import Every, end_of, time_text, window_columns
from gdscore.cli.console import (
    Cell,
    Engine,
    ExitCode,
    OnError,
    complain,
    group_messages,
    shared_options,
    show,
    show_table,
)
from gdscore.cli.files import Outcome, TargetFiles, date_in, failures, try_each
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.outputs import Outputs


@dataclass(frozen=True)
class Estimated:
    """An estimate, and the accuracy by the target's labels where it has any."""

    estimate: Estimate
    truth: float | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Files that could not be read, with the reason, where they are left out on request."""

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.truth is not None and self.estimate.low <= self.truth <= self.estimate.high

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the JSON has it."""
        plain = self.estimate.to_dict()
        if self.truth is not None:
            error = self.estimate.accuracy - self.truth
            plain["truth"] = {"accuracy": self.truth, "error": error, "interval_held": self.held}
        if self.left_out:
            plain["left_out"] = dict(self.left_out)
        return plain


def estimate_target(
    estimate_of: Callable[[Iterator[Outputs]], Estimate], target: TargetFiles, quiet: bool
) -> Estimated:
    """Estimate one target from its outputs without their labels; these are only counted."""
    rows = correct = 0

    def unlabelled(stream: Iterator[Outputs]) -> Iterator[Outputs]:
        nonlocal rows, correct
        for batch in stream:
            if "labels" in batch.has:
                rows += len(batch)
                correct += int(batch.correct.sum())
            yield batch.only(batch.has - {"labels"})

    estimated = estimate_of(unlabelled(target.stream(quiet)))
    return Estimated(estimated, correct / rows if rows else None)


def estimate_groups(
    estimator: AccuracyEstimator,
    target: TargetFiles,
    prefix: str,
    *,
    every: Every,
    quiet: bool,
    engine: Engine,
    on_error: OnError | None,
) -> list[tuple[TargetFiles, Estimated]]:
    """Estimate each window and segment of a target: windows in order, the worst segment first. Labels are counted."""
    left_out: Mapping[str, str] = {}
    if target.problem is not None:
        raise target.problem
    if engine == "ray":
        from gdscore.distributed.estimating import state_of_files

        state, left_out = state_of_files(
            estimator,
            target.paths,
            columns=target.columns,
            every=every,
            on_error=on_error or "raise",
            progress=False if quiet else None,
        )
    else:
        state = estimator.state()
        for batch in target.batches(quiet):
            state.update(batch.outputs, window_columns(batch.time, batch.by, every) or None)
    estimates, truth = estimator.estimate(state), state.truth()
    if state.segments is None:
        return [(target, Estimated(estimates, truth[None].accuracy, left_out))]
    by = target.columns.by
    names = [by] if isinstance(by, str) else list(by or ())
    groups = [
        (_group(target, prefix, key, names), Estimated(e, truth[key].accuracy, left_out))
        for key, e in estimates.items()
    ]
    return sorted(groups, key=lambda item: (item[0].when or datetime.min, item[1].estimate.accuracy, item[0].name))


def try_groups(
    groups_of: Callable[..., list[tuple[TargetFiles, Estimated]]], targets: Sequence[TargetFiles], debug: bool
) -> list[Outcome[Estimated]]:
    """Estimate the groups of every target; one that fails has one outcome."""
    several = len(targets) > 1
    nested = try_each(targets, lambda target: groups_of(target, target.name if several else ""), debug)
    return [
        outcome
        for item in nested
        for outcome in (
            [Outcome(item.target, None, item.error)]
            if item.value is None
            else [Outcome(group, value) for group, value in item.value]
        )
    ]


def _group(target: TargetFiles, prefix: str, key: Any, by: Sequence[str]) -> TargetFiles:
    """Window and segment of a target, as a target of its own; ``key`` is of the columns of `window_columns`."""
    timed = target.columns.time is not None
    values = list(key) if timed + len(by) > 1 else [key]
    when = values.pop(0) if timed else None
    segment = ", ".join(f"{name}={value}" for name, value in zip(by, values, strict=True))
    names = [prefix, "" if when is None else time_text(when), segment]
    return replace(target, name=" ".join(filter(None, names)), when=when, segment=segment)


def print_csv(outcomes: Sequence[Outcome[Estimated]], every: Every | None) -> None:
    """Print the columns of `Estimates.to_frame` behind the name of the target; targets that failed have no line."""
    from gdscore.estimator.estimate import columns_of_rows

    estimated = [(o.target, o.value) for o in outcomes if o.value is not None]
    rows = [
        (t.when, None if t.when is None or every is None else end_of(t.when, every), t.segment, v.estimate, v.truth)
        for t, v in estimated
    ]
    lines = csv.writer(sys.stdout, lineterminator="\n")
    # One by one, as the columns of several are in order of time.
    for number, ((target, _), row) in enumerate(zip(estimated, rows, strict=True)):
        columns = columns_of_rows([row])
        if not number:
            lines.writerow(["target", *columns])
        values = [value.isoformat() if isinstance(value, datetime) else value for (value,) in columns.values()]
        lines.writerow([target.name, *values])


def exit_code(checks: Sequence[RuleResult]) -> ExitCode:
    """Code of the most important status."""
    codes = (ExitCode.ALARM, ExitCode.FAILED, ExitCode.NOT_ENOUGH_DATA, ExitCode.DONE)
    return dict(zip(Status, codes, strict=True))[worst_status(checks)]


def document(
    origin: dict[str, str | None],
    outcomes: Sequence[Outcome[Estimated]],
    rule: AlarmRule | None,
    checks: Sequence[RuleResult],
) -> dict[str, Any]:
    """Everything that is known, as plain data."""
    names = {status: [c.name for c in checks if c.status is status and c.name] for status in Status}
    return {
        "gdscore": __version__,
        **origin,
        "status": worst_status(checks).value,
        "reason": summarize(checks),
        "exit_code": int(exit_code(checks)),
        "rule": rule and asdict(rule),
        "checked": [c.name for c in checks if c.name] if rule else [],
        "alarms": names[Status.ALARM],
        "not_enough_data": names[Status.NOT_ENOUGH_DATA],
        "not_estimated": [o.name for o in outcomes if o.value is None],
        "targets": [
            {"name": o.name, "when": o.target.when and o.target.when.isoformat()}
            | ({"segment": o.target.segment} if o.target.segment else {})
            | ({"error": o.error} if o.value is None else o.value.to_dict())
            for o in outcomes
        ],
    }


def show_estimates(outcomes: Sequence[Outcome[Estimated]], statuses: Sequence[Status | None]) -> None:
    """Print a table, and below it why targets failed and the warnings; ``statuses`` are those of checked targets."""
    estimated = [(o.name, o.value) for o in outcomes if o.value is not None]
    dates = [time_text(o.target.when) if o.target.when else "" for o in outcomes]
    dated = all(dates) and any(o.name != date for o, date in zip(outcomes, dates, strict=True))
    labelled = any(value.truth is not None for _, value in estimated)
    with_status = any(statuses)
    levels = " / ".join(sorted({percent(value.estimate.level, short=True) for _, value in estimated}))
    warned = any(_codes(value) for _, value in estimated)
    columns = ["target", *(["date"] if dated else []), "rows", "accuracy", f"{levels} interval".strip()]
    columns += ["truth", "error", "interval"] if labelled else []
    columns += ["status"] if with_status else []
    columns += ["warnings"] if warned else []
    rows: list[list[Cell]] = []
    for outcome, date, status in zip(outcomes, dates, statuses, strict=True):
        cells: list[Cell] = [outcome.name, *([date] if dated else []), *_numbers(outcome.value)]
        cells += _truth(outcome.value) if labelled else []
        if with_status:
            text = "" if status is None else status.value
            cells.append((text, "green" if status is Status.FINE else "bold red"))
        rows.append([*cells, *([(_codes(outcome.value), "yellow")] if warned else [])])
    show_table(columns, rows, left=(0, *([len(columns) - 1] if warned else [])))
    for accuracy in sorted({value.estimate.reference_accuracy for _, value in estimated}):
        show(f"accuracy on the reference: {percent(accuracy)}")
    for error in sorted({e for _, value in estimated if (e := value.estimate.left_out_error) is not None}):
        show(f"shifts left out of the fit were missed by {points(error)} on average")
    for line in failures(outcomes):
        show(f"not estimated: {line}", style="red")
    for why in dict.fromkeys(why for _, value in estimated for why in value.left_out.values()):
        show(f"left out: {why}", style="yellow")
    for label, style in (("warning", "yellow"), ("note", "dim")):
        messages = [
            (name, [w.message for w in value.estimate.warnings if (w.severity == "info") == (label == "note")])
            for name, value in estimated
        ]
        for line in group_messages(messages):
            show(f"{label}: {line}", style=style)


def _numbers(value: Estimated | None) -> list[Cell]:
    if value is None:
        return ["", ("not estimated", "bold red"), ""]
    e = value.estimate
    return [f"{e.n_rows:,}", (percent(e.accuracy), "bold"), f"{percent(e.low)} to {percent(e.high)}"]


def _truth(value: Estimated | None) -> list[Cell]:
    if value is None or value.truth is None:
        return ["", "", ""]
    points = 100 * (value.estimate.accuracy - value.truth)
    return [percent(value.truth), f"{points:+.1f}", ("held", "green") if value.held else ("missed", "red")]


def _codes(value: Estimated | None) -> str:
    return "" if value is None else ", ".join(w.code for w in value.estimate.warnings if w.severity != "info")


def write_html(
    path: Path,
    estimator: AccuracyEstimator | None,
    outcomes: Sequence[Outcome[Estimated]],
    rule: AlarmRule | None,
    model_name: str | None,
    command: str,
) -> None:
    """Write the report on all that was estimated."""
    from gdscore.report import Target, write_report

    estimated = [(o.target, o.value) for o in outcomes if o.value is not None]
    write_report(
        path,
        estimator,
        [
            Target(target.name, value.estimate, when=target.when, truth=value.truth, segment=target.segment)
            for target, value in estimated
        ],
        model_name=model_name,
        min_accuracy=None if rule is None else rule.floor(estimated[0][1].estimate),
        made_by={"command": command},
        not_estimated={o.name: o.error for o in outcomes if o.value is None},
    )


@dataclass(frozen=True)
class Alarms:
    """What the options ask of alarms: a rule, if any, the targets that are checked, and an address to post to."""

    rule: AlarmRule | None
    last: int | None
    since: datetime | None
    webhook: str | None

    def check(self, outcomes: Sequence[Outcome[Estimated]]) -> list[RuleResult | None]:
        """Status of each target, by the rule or whether it could be estimated; None where it is not checked."""
        times = [outcome.target.when for outcome in outcomes]
        checked = checked_targets(times, last=self.last, since=self.since) if self.rule else [True] * len(outcomes)
        checks: list[RuleResult | None] = []
        for outcome, chosen in zip(outcomes, checked, strict=True):
            check = RuleResult(outcome.name, Status.FINE)
            if outcome.value is None:
                check = RuleResult(outcome.name, Status.ERROR, f"{outcome.name}: {outcome.error}")
            elif self.rule is not None:
                check = self.rule.check_all(outcome.name, outcome.value.estimate)
            checks.append(check if chosen else None)
        return checks


_ALARM_OPTIONS = {
    "min_accuracy": Annotated[
        float | None, typer.Option(metavar="SHARE", help="Alarm, exit code 3, below this accuracy: 0.8 is 80 %.")
    ],
    "max_drop": Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Alarm where the accuracy is this far below the reference's: 0.05 is 5 points."
        ),
    ],
    "alarm_on": Annotated[
        AlarmOn | None,
        typer.Option(help="What is compared: the estimate (default), or the low or high end of its interval."),
    ],
    "last": Annotated[
        int | None,
        typer.Option(metavar="N", help="Check the N newest dates for an alarm; by default the newest."),
    ],
    "since": Annotated[str | None, typer.Option(metavar="DATE", help="Check all dates from this one on: 2026-01-31.")],
    "webhook": Annotated[
        str | None, typer.Option(metavar="URL", help="Post the JSON there unless all is fine (exit codes 1, 3 and 4).")
    ],
}


def _alarms(options: dict[str, Any]) -> Alarms:
    min_accuracy, max_drop, last, text = options["min_accuracy"], options["max_drop"], options["last"], options["since"]
    since = None if text is None else date_in(text)
    if since is None and text is not None:
        raise GdscoreError(f"Expected --since to be a date such as 2026-01-31, but got {text!r}")
    rule = None
    if min_accuracy is not None or max_drop is not None:
        for name, share in (("--min-accuracy", min_accuracy), ("--max-drop", max_drop)):
            if share is not None and not 0 <= share <= 1:
                raise GdscoreError(f"Expected {name} to be a share from 0 to 1, but got {share:g}: 0.8 is 80 %")
        checked_targets([], last=last, since=since)  # refuses both
        rule = AlarmRule(min_accuracy, max_drop, options["alarm_on"] or AlarmOn.ESTIMATE)
    for name in ("alarm_on", "last", "since") if rule is None else ():
        if options[name] is not None:
            raise GdscoreError(
                f"Expected --min-accuracy or --max-drop with --{name.replace('_', '-')}, but there is neither"
            )
    if options["webhook"] is not None:
        from gdscore.monitor.notify import check_address

        check_address(options["webhook"])
    return Alarms(rule, last, since, options["webhook"])


alarm_options = shared_options("alarms", _ALARM_OPTIONS, _alarms)
"""Gives a command the options of alarms, which it gets as one argument, ``alarms``."""


def end_with(checks: Sequence[RuleResult]) -> None:
    """Print what is not fine, and end the command with its exit code."""
    for status in Status:
        if line := summarize([check for check in checks if check.status is status]):
            complain(line)
    if code := exit_code(checks):
        raise typer.Exit(code)
