"""``gdscore estimate``: the accuracy on unlabelled files, with intervals, and alarms."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from gdscore._alarms import RuleResult, Status
from gdscore._windows import Every, parse_every, time_text
from gdscore.cli.console import (
    Address,
    ClassMix,
    Debug,
    EngineOption,
    HtmlPath,
    JsonPath,
    OnErrorOption,
    Quiet,
    check_options,
    collect_warnings,
    complain,
    describe_error,
    read_class_mix,
    show,
    show_traceback,
)
from gdscore.cli.files import (
    COLUMNS_PANEL,
    TargetFiles,
    TimeColumn,
    WindowLength,
    check_outputs,
    column_options,
    find_targets,
    load_estimator,
    one_set,
    try_each,
    write_json,
)
from gdscore.cli.results import (
    Alarms,
    alarm_options,
    document,
    end_with,
    estimate_groups,
    estimate_target,
    exit_code,
    print_csv,
    show_estimates,
    try_groups,
    write_html,
)
from gdscore.errors import GdscoreError
from gdscore.io import SUFFIXES, Columns

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.outputs import Outputs


Format: TypeAlias = Literal["table", "csv"]
Method: TypeAlias = Literal["confscore", "doc", "atc", "cot", "cott", "agreescore"]
"""Scores that are estimates of accuracy without a fitted estimator."""


@alarm_options
@column_options()
def estimate(
    context: typer.Context,
    estimator: Annotated[
        str, typer.Argument(metavar="ESTIMATOR", help="File that `gdscore fit` wrote; with --method, a target.")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET", help="Outputs: .npz, .parquet, .arrow, .csv, a folder; dated files are a series."
        ),
    ] = None,
    html: HtmlPath = None,
    model_name: Annotated[str | None, typer.Option(metavar="TEXT", help="Name of the model, for the report.")] = None,
    json: JsonPath = None,
    format: Annotated[
        Format, typer.Option(help="Print a table for people, or a CSV file of windows and segments.")
    ] = "table",
    method: Annotated[
        Method | None, typer.Option(help="Estimate by one score and --reference instead of a fitted estimator.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled outputs on reference data, for --method.")
    ] = None,
    class_mix: ClassMix = None,
    *,
    columns: Columns,
    time: TimeColumn = None,
    every: WindowLength = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of segments: one estimate for each; repeat it for several columns.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = None,
    alarms: Alarms,
    engine: EngineOption = "local",
    address: Address = None,
    on_error: OnErrorOption = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on data without labels, in one pass and constant memory.

    A folder is one target, in parts; where its files or sub folders have dates in their names
    (2026-01-31.parquet, log-2026-01-31T05.npz, day=2026-01-31/part-0.parquet) it is one target for each
    date, in order. Labels in a target are never used to estimate: the table shows the truth beside it.

    Exit codes: 0 fine, 3 alarm (below the floor, or a critical warning), 4 not enough data (few rows or a
    wide interval, and the floor is inside it; or no date to check), 1 a target failed, 2 wrong usage. An
    alarm comes before an error, and an error before code 4.
    """
    rule = alarms.rule
    name, names = _estimator_and_targets([estimator, *(targets or [])], method, reference)
    columns = replace(columns, time=time, by=by or None)
    length = _window_length(time, every, by, method)
    target_files = find_targets(names, columns)
    reference_set = None if reference is None else one_set(reference, columns)
    inputs = [path for item in (*target_files, reference_set) if item is not None for path in item.paths]
    inputs += [] if name is None else [Path(name)]
    check_outputs(inputs, html=html, json=json)
    if json == "-" and format == "csv":
        raise GdscoreError("Expected one of --json - and --format csv, but got both: name a file for the JSON")
    if engine == "ray" and method is not None:
        raise GdscoreError("Expected --engine ray with a fitted estimator, but got --method: leave one of them out")
    fitted = None if name is None else load_estimator(name)
    if class_mix is not None:
        _set_class_mix(fitted, class_mix)
    check_options(engine, address, on_error)
    with collect_warnings() as warnings:
        if fitted is not None:
            groups_of = partial(estimate_groups, fitted, every=length, quiet=quiet, engine=engine, on_error=on_error)
            outcomes = try_groups(groups_of, target_files, debug)
        else:
            estimate_of = _direct(method, reference_set)
            outcomes = try_each(target_files, lambda target: estimate_target(estimate_of, target, quiet), debug)
    by_target = alarms.check(outcomes)
    checks = [check for check in by_target if check is not None]
    if alarms.since and not checks:  # data that no longer come are not fine
        reason = f"nothing was checked, as no target has a date from {time_text(alarms.since)} on"
        checks.append(RuleResult("", Status.NOT_ENOUGH_DATA, reason))
    written: list[str] = []
    if html is not None and any(o.value for o in outcomes):
        command = shlex.join(["gdscore", *_without_secrets(context.obj)])
        failed = _attempt(lambda: write_html(html, fitted, outcomes, rule, model_name, command), debug)
        checks += failed
        written += [] if failed else [str(html)]
    facts = document({"estimator": name, "method": method}, outcomes, rule, checks)
    if json is not None:
        failed = _attempt(lambda: write_json(json, facts), debug)
        checks += failed
        written += [] if failed else [json]
    if alarms.webhook and exit_code(checks):
        from gdscore.monitor.notify import post_json

        checks += _attempt(lambda: post_json(str(alarms.webhook), facts), debug)
    if format == "csv":
        print_csv(outcomes, length if time else None)
    if json != "-" and not quiet and format == "table":
        show_estimates(outcomes, [check.status if rule and check else None for check in by_target])
        for line in dict.fromkeys(warnings):
            show(f"warning: {line}", style="yellow")
        for path in written:
            show(f"Written: {path}")
    elif not quiet:
        for line in dict.fromkeys(warnings):
            complain(f"warning: {line}")
    if old := [o.name for o, check in zip(outcomes, by_target, strict=True) if o.value is None and check is None]:
        complain(f"not estimated, but older than what is checked: {', '.join(old[:3])}{' …' if len(old) > 3 else ''}")
    end_with(checks)


def _estimator_and_targets(
    files: Sequence[str], method: Method | None, reference: str | None
) -> tuple[str | None, Sequence[str]]:
    if method is not None:
        if reference is None:
            raise GdscoreError(f"Expected --reference with --method {method}: give labelled outputs")
        return None, files
    if reference is not None:
        raise GdscoreError("Expected --reference only with --method: an estimator has its reference in it")
    name, *targets = files
    if not targets:
        raise GdscoreError("Expected an estimator and targets, but there is one name only: gdscore estimate M TARGET")
    if name.lower().endswith(SUFFIXES) and any(target.lower().endswith(".gdscore") for target in targets):
        raise GdscoreError(f"Expected the estimator before the targets, but {name!r} is first: swap them")
    return name, targets


def _set_class_mix(fitted: AccuracyEstimator | None, text: str) -> None:
    from gdscore.estimator.class_mix import known_mix

    if fitted is None:
        raise GdscoreError("Expected --class-mix with a fitted estimator, but got --method: leave one of them out")
    mix = read_class_mix(text)
    known_mix(mix, fitted.n_classes_, fitted.class_names_)
    fitted.set_params(class_mix=mix)


def _direct(method: Method | None, reference: TargetFiles | None) -> Callable[[Iterator[Outputs]], Estimate]:
    from gdscore.estimator import direct_estimate

    assert method is not None
    assert reference is not None
    return partial(direct_estimate, method, reference=reference.read_labelled())


def _window_length(time: str | None, every: str | None, by: Sequence[str] | None, method: Method | None) -> Every:
    if (time or by) and method is not None:
        raise GdscoreError(
            "Expected --time and --by with a fitted estimator, but got --method: fit one, or leave it out"
        )
    if every is not None and time is None:
        raise GdscoreError("Expected --time with --every: name the column of times")
    return parse_every(every or "1d")


def _attempt(action: Callable[[], None], debug: bool) -> list[RuleResult]:
    """Do something whose failure must not hide an alarm: it becomes one more check."""
    try:
        action()
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            show_traceback()
        return [RuleResult("", Status.ERROR, describe_error(error)[0])]
    return []


def _without_secrets(args: Sequence[str]) -> list[str]:
    """Command line without the address of the webhook, which often holds a secret."""
    return [
        "…" if before == "--webhook" else "--webhook=…" if arg.startswith("--webhook=") else arg
        for before, arg in zip(["", *args], args, strict=False)
    ]
