"""``gdscore monitor``: accuracy over time, with a history, alarms, notices and pages."""

from __future__ import annotations

import dataclasses
import getpass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gdscore._files import check_readable, check_writable
from gdscore._format import percent
from gdscore.cli.console import Debug, ExitCode, JsonPath, collect_warnings, complain, shared_options, show, show_table
from gdscore.cli.files import column_options, find_targets, write_json
from gdscore.errors import GdscoreError
from gdscore.io import Columns

if TYPE_CHECKING:
    from gdscore.monitor import Monitor
    from gdscore.monitor.settings import Settings

__all__ = ["monitor"]

monitor = typer.Typer(
    no_args_is_help=True, help="Watch the accuracy of models over time: history, alarms, pages.", rich_markup_mode=None
)
Database: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="sqlite:///history.db or postgresql://host/name; else GDSCORE_MONITOR, or gdscore-history.db here.",
    ),
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]
Segment: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Only this segment; '' is all rows.")]
_notice_options = shared_options(
    "notices",
    {
        "webhook": Annotated[
            str | None, typer.Option(metavar="URL", help="Post alarms there, begin and end; also GDSCORE_WEBHOOK.")
        ],
        "run": Annotated[
            str | None,
            typer.Option(
                metavar="COMMAND", help="Run this for alarms, with the notice on its input; also GDSCORE_RUN."
            ),
        ],
        "mail": Annotated[
            str | None,
            typer.Option(
                metavar="ADDRESSES",
                help="Send alarms to a@b,c@d; the server is in GDSCORE_SMTP_HOST, _PORT, _FROM, _USER and _PASSWORD.",
            ),
        ],
        "public_url": Annotated[
            str | None,
            typer.Option(
                metavar="URL", help="Where people see the pages, for links in notices; also GDSCORE_PUBLIC_URL."
            ),
        ],
    },
    dict,
)
_NEEDED = ("alembic", "fastapi", "prometheus_client", "psycopg", "pydantic_settings", "sqlalchemy", "uvicorn")


@monitor.callback()
def _check_installed() -> None:
    """Watch the accuracy of models over time: history, alarms, pages."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise GdscoreError(
            f"Expected {', '.join(missing)} to be installed, but {'it is' if len(missing) == 1 else 'they are'} not: "
            "pip install 'gdscore[monitor]'"
        )


def _open(database: str | None, **options: Any) -> Monitor:
    from gdscore.monitor.settings import Settings

    return _open_with(Settings.read(database=database, **options))


def _open_with(settings: Settings) -> Monitor:
    from gdscore.monitor import Monitor

    return Monitor(settings.database, notify=settings.notifiers(), public_url=settings.public_url)


def _rule(kind: Any, help_text: str, *names: str, metavar: str | None = None) -> Any:
    return Annotated[kind | None, typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel="Rules")]


_OF_CLASS = "of a class: fraud=0.7; repeat it."
_RULES = {
    "false_alarms_per_year": _rule(float, "False alarms of each test over all windows."),
    "min_accuracy": _rule(float, "Alarm below this, each window.", metavar="SHARE"),
    "max_drop": _rule(float, "Alarm this far below the reference.", metavar="SHARE"),
    "min_rows": _rule(int, "A window with fewer rows is not enough data."),
    "max_width": _rule(float, "A window with a wider interval is not enough data.", metavar="SHARE"),
    "labels": _rule(bool, "Alarms of labels.", "--labels/--no-labels"),
    "tracking": _rule(bool, "Estimates rest on earlier labels too.", "--tracking/--no-tracking"),
    "min_recall": _rule(list[str], f"Least recall {_OF_CLASS}", metavar="CLASS=SHARE"),
    "min_precision": _rule(list[str], f"Least precision {_OF_CLASS}", metavar="CLASS=SHARE"),
    "min_f1": _rule(list[str], f"Least F1 {_OF_CLASS}", metavar="CLASS=SHARE"),
    "missing_after": _rule(str, "Alarm after so many window lengths of silence; 'learned' by default.", metavar="N"),
    "max_segments": _rule(int, "Segments that the model may have."),
    "notify_within": _rule(str, "Notices only of windows that ended this lately.", metavar="LENGTH"),
    "recovery": _rule(int, "Windows without the problem that end an alarm."),
    "keep_rows": _rule(
        str, "Keep id, prediction and P(right) of rows so long, for labels by id: 90d.", metavar="LENGTH"
    ),
}
_rule_options = shared_options(
    "changed",
    _RULES,
    lambda options: {name: _rule_value(name, value) for name, value in options.items() if value not in (None, [])},
)


def _rule_value(name: str, value: Any) -> Any:
    """Value of an option of a rule; ``fraud=0.7`` is the least value of a class."""
    if name == "missing_after":
        return _number(name, value) if value != "learned" else value
    if not isinstance(value, list):
        return value
    pairs = [text.rpartition("=") for text in value]
    if not all(sign for _, sign, _ in pairs):
        raise GdscoreError(f"Expected --{name.replace('_', '-')} CLASS=SHARE such as fraud=0.7, but got {value[0]!r}")
    return {of: _number(name, share) for of, _, share in pairs}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise GdscoreError(f"Expected a number as --{name.replace('_', '-')}, but got {text!r}") from None


@monitor.command()
@_rule_options
def register(
    model: Name,
    estimator: Annotated[Path | None, typer.Argument(metavar="ESTIMATOR", help="File of `gdscore fit`.")] = None,
    version: Annotated[
        str | None, typer.Option(help="Version that windows go to from now on; by default the one they go to, or 1.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="LENGTH", help="Length: 6h, 1d (default), week, month, 'month Europe/Paris'."),
    ] = None,
    reference_rows: Annotated[
        int | None, typer.Option(help="Rows of the reference where no estimator tells; 100 by default.")
    ] = None,
    *,
    changed: dict[str, Any],
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Register a model with its estimator and its rules. Rules that are not given stay, also for a new version."""
    history = _open(database)
    kept = history.register(
        model, estimator, version=version, every=every, rules=changed, reference_rows=reference_rows, by=_person()
    )
    show(f"Registered: {model} version {history.version(model)}")
    show(f"Rules: {kept}")


@monitor.command()
@_rule_options
def rules(
    model: Name,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Remove a rule, such as min_accuracy; repeat it for several."),
    ] = None,
    segment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Change the rules that this segment has of its own.")
    ] = None,
    *,
    changed: dict[str, Any],
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Print the rules of a model and who changed them, or change some of them."""
    from gdscore.monitor.queries import rules_changes

    history = _open(database)
    changes = dict.fromkeys(remove or ()) | changed
    if segment is not None and changes:
        before = dict(history.rules(model).segments.get(segment, {}))
        mine = {name: value for name, value in (before | changes).items() if value is not None}
        changes = {"segments": {segment: mine}}
    kept = history.set_rules(model, changes, by=_person()) if changes else history.rules(model)
    show(f"Rules: {kept}")
    with history.reading() as session:
        for change in rules_changes(session, model):
            values = ", ".join(f"{name} {value}" for name, value in change["rules"].items())
            show(f"{change['at'][:16]} {change['by']} (version {change['version']}): {values}")


@monitor.command()
def learn(
    model: Name,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the first window to learn from; else the next one.")
    ] = None,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Let the tests learn again what the windows of a model are like while nothing is wrong."""
    since_when = _open(database).learn_again(model, since=since, by=_person())
    show(f"Learning from the windows since {since_when:%Y-%m-%d %H:%M} (UTC)")


def _person() -> str:
    """Name of the person or job that runs the command."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of this number
        return "unknown"
    return name if name.isprintable() and 0 < len(name) <= 200 else "unknown"


@monitor.command()
@column_options()
@_notice_options
def add(
    model: Name,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help="Outputs: files or folders.")],
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the window; else the date in the name, or --time.")
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the times of rows.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of segments, each value is one; repeat it for several columns."),
    ] = None,
    *,
    columns: Columns,
    notices: dict[str, Any],
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of ids, for --keep-rows.")] = None,
    replace: Annotated[bool, typer.Option(help="Replace windows that are there with other numbers.")] = False,
    database: Database = None,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy of windows and keep it.

    Ends with code 3 where the model has an open alarm, else with 1 where a target was not added.
    """
    from gdscore.monitor.queries import find_model, list_alarms

    check_writable(json)
    history = _open(database, **notices)
    columns = dataclasses.replace(columns, time=time, by=by or None, id=id)
    with history.reading() as session:
        find_model(session, model)
    dated = find_targets(targets, columns)
    if at is not None and time is not None:
        raise GdscoreError("Expected --at or --time, but got both: --at is one time for all rows, --time their column")
    if at is not None and len(dated) > 1:
        raise GdscoreError(f"Expected one target with --at, but got {len(dated)}: give one at a time, or a pattern")
    for target in dated:
        if at is None and time is None and target.when is None:
            raise GdscoreError(f"Expected a time for {target.name!r}: give --at, --time, or a date in its name")
    added: list[dict[str, Any]] = []
    failed: dict[str, list[str]] = {}  # names of targets by what is wrong with them
    with collect_warnings() as told:
        for target in dated:
            when = None if time else at or target.when
            try:
                added += history.add(model, target.batches(quiet=False), when, replace=replace)
            except GdscoreError as error:
                failed.setdefault(str(error).replace(target.name, "…"), []).append(target.name)
        history.deliver()
    for problem, (first, *others) in failed.items():
        who = f"{first} and {len(others)} more were" if others else f"{first} was"
        complain(f"{who} not added: {problem.replace('…', first)}")
    _show_windows(added, json)
    for line in told:
        complain(line)
    with history.reading() as session:
        open_alarms = list_alarms(session, model, open_only=True, limit=None)
    for alarm in open_alarms:
        complain(f"alarm: {alarm['message']}")
    if open_alarms or failed:
        raise typer.Exit(ExitCode.ALARM if open_alarms else ExitCode.FAILED)


@monitor.command()
def labels(
    model: Name,
    at: Annotated[str | None, typer.Argument(metavar="TIME", help="Start of the window.")] = None,
    correct: Annotated[int | None, typer.Argument(help="Rows that were predicted right.")] = None,
    rows: Annotated[int | None, typer.Argument(help="Rows whose labels are known.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Columns id and label, of rows that are kept (--keep-rows).")
    ] = None,
    segment: Annotated[str, typer.Option(metavar="NAME", help="Segment of the window.")] = "",
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Add labels that came later: of a window as counts, or of rows by id."""
    if file is None:
        if at is None or correct is None or rows is None:
            raise GdscoreError("Expected TIME, CORRECT and ROWS, or --file with labels by id, but some are missing")
        _open(database).add_labels(model, at, correct=correct, rows=rows, segment=segment)
        return
    if correct is not None or segment:
        raise GdscoreError("Expected --file without counts and segments: the rows tell where they belong")
    from gdscore.monitor.labels import read_row_labels

    ids, classes = read_row_labels(check_readable(file))
    counted = _open(database).add_row_labels(model, ids, classes, time=at)
    show(", ".join(f"{counted[key]:,} {key}" for key in ("added", "replaced", "same", "unknown")))
    show_table(
        ("version", "start", "segment", "labels", "rows", "accuracy"),
        [
            (
                w["version"],
                w["start"][:16],
                w["segment"],
                f"{w['labelled']:,}",
                f"{w['rows']:,}",
                percent(w["accuracy"]),
            )
            for w in counted["windows"]
        ],
        left=(0, 1, 2),
    )


@monitor.command()
def windows(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this model.")] = None,
    segment: Segment = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time on.")] = None,
    database: Database = None,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """List windows with their estimates."""
    from gdscore.monitor.queries import list_windows

    check_writable(json)
    with _open(database).reading() as session:
        _show_windows(list_windows(session, model, segment, since=since, limit=None), json)


@monitor.command()
@_notice_options
def alarms(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this model.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also alarms that have ended.")] = False,
    *,
    notices: dict[str, Any],
    database: Database = None,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """Look for missing windows and list alarms; ends with code 3 where one is open."""
    from gdscore.monitor.queries import list_alarms

    check_writable(json)
    history = _open(database, **notices)
    with collect_warnings() as told:
        history.check()
    for line in told:
        complain(line)
    with history.reading() as session:
        listed = list_alarms(session, model, open_only=not everything, limit=None)
    if json is not None:
        write_json(json, listed)
    if json != "-":
        show_table(
            ("id", "model", "segment", "began", "ended", "what"),
            [
                (
                    str(a["id"]),
                    a["model"],
                    a["segment"],
                    a["began"][:16],
                    (a["ended"] or "open")[:16],
                    f"{a['message']}; {a['text']}",
                )
                for a in listed
            ],
            left=(1, 2, 5),
        )
    if any(a["ended"] is None for a in listed):
        raise typer.Exit(ExitCode.ALARM)


@monitor.command()
def acknowledge(
    alarms: Annotated[
        list[int],
        typer.Argument(metavar="ID", help="Ids of alarms, as in `gdscore monitor alarms` and notices."),
    ],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who has seen them; by default your login.")] = None,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Note that somebody has seen alarms, so that others know. The alarm stays open until its problem has ended.

    Where somebody has acknowledged an alarm before, that name stays.
    """
    history = _open(database)
    for alarm in history.acknowledge_all(alarms, by or _person()):
        show(f"{alarm['id']}: {alarm['message']}; {alarm['text']}")


@monitor.command()
def snooze(
    alarm: Annotated[int, typer.Argument(metavar="ID", help="Id of the alarm.")],
    until: Annotated[
        str, typer.Argument(metavar="TIME", help="Until then it is silent for Prometheus; 'now' ends it.")
    ],
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Silence an alarm for Prometheus until a time."""
    snoozed = _open(database).snooze(alarm, None if until == "now" else until)
    silent = f"silent until {snoozed['snoozed_until']}" if snoozed["snoozed_until"] else "not silent"
    show(f"{snoozed['id']}: {silent}")


@monitor.command()
def retire(model: Name, database: Database = None, debug: Debug = False) -> None:
    """Stop watching a model: its alarms end, its history stays. `register` starts watching again."""
    _open(database).retire(model)


@monitor.command()
def delete(
    model: Name,
    window: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only this window, as in `windows --json`; alarms are computed anew."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Delete a model with all of its versions, windows and alarms, or one window."""
    history = _open(database)
    if not yes:
        typer.confirm(f"Delete {'window ' + str(window) + ' of ' if window else 'all of '}{model}?", abort=True)
    if window is not None:
        history.delete_window(window, model=model)
        return
    show(f"Deleted: {model}, {history.delete_model(model)} versions")


@monitor.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file.")],
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Copy a history in SQLite into a new file, also while the service runs; copying the file loses windows."""
    _open(database).back_up(file)
    show(f"Written: {file}")


@monitor.command()
def token(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    role: Annotated[str, typer.Option(help="read or write.")] = "read",
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Only for this model.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="LENGTH", help="Until when: 90d from now.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Make the token of this name useless.")] = False,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Make a token of the service and print it: it is not shown again."""
    from gdscore.monitor.auth import create_token, revoke_token

    history = _open(database)
    if revoke:
        revoke_token(history, name)
    else:
        show(create_token(history, name, role, model=model, expires=expires))


@monitor.command()
def tokens(database: Database = None, debug: Debug = False) -> None:
    """List tokens: names, roles, models, and when they expire."""
    from gdscore.monitor.auth import list_tokens

    show_table(
        ("name", "role", "model", "created", "expires"),
        [
            (t["name"], t["role"], t["model"] or "all", t["created_at"][:16], (t["expires_at"] or "never")[:16])
            for t in list_tokens(_open(database))
        ],
        left=(0, 1, 2),
    )


@monitor.command()
@_notice_options
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen at; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen at; 8600 by default.")] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Ask for no token; only this machine is answered.")
    ] = False,
    *,
    notices: dict[str, Any],
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy in front speaks TLS: the cookie is sent over TLS only.")
    ] = False,
    keep: Annotated[str | None, typer.Option(metavar="LENGTH", help="Delete windows older than this: 400d.")] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write each request to standard error, one JSON object a line.")
    ] = False,
    max_body: Annotated[int | None, typer.Option(help="Largest body in bytes.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Most rows of a body.")] = None,
    check_seconds: Annotated[float | None, typer.Option(help="Pause between looks for missing windows.")] = None,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Serve the pages, the JSON API and the metrics for Prometheus.

    Every option is an environment variable too: GDSCORE_ and its name, such as GDSCORE_MAX_BODY.
    """
    from gdscore.monitor.app import serve_app
    from gdscore.monitor.settings import Settings

    settings = Settings.read(
        database=database,
        host=host,
        port=port,
        auth=False if no_auth else None,
        behind_tls=behind_tls or None,
        keep=keep,
        access_log=access_log or None,
        max_body=max_body,
        max_rows=max_rows,
        check_seconds=check_seconds,
        **notices,
    )
    serve_app(_open_with(settings), settings, show)


@monitor.command()
def demo(
    file: Annotated[Path, typer.Option(metavar="PATH", help="Database file.")] = Path("gdscore-demo.db"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at.")] = 8600,
    only_fill: Annotated[bool, typer.Option("--only-fill", help="Fill the database and end.")] = False,
    debug: Debug = False,
) -> None:
    """Serve sixty days of digits: a slow shift, a sudden one, another class mix, labels two weeks late."""
    from gdscore.monitor.app import serve_app
    from gdscore.monitor.settings import Settings

    there = file.exists()
    settings = Settings.read(database=f"sqlite:///{file}", host="127.0.0.1", port=port, auth=False)
    history = _open_with(settings)
    if not there:
        from gdscore.demo.monitored import fill_demo

        show(f"Filling {file} …")
        fill_demo(history, file.parent)
        show("Beside it: outputs of the newest window of each model (.npz) and its labels (.csv)")
    if not only_fill:
        serve_app(history, settings, show)


def _show_windows(windows: list[dict[str, Any]], json: str | None) -> None:
    if json is not None:
        write_json(json, windows)
    if json != "-":
        show_table(
            ("model", "segment", "start", "estimate", "interval", "labels", "rows"),
            [
                (
                    w["model"],
                    w["segment"],
                    f"{w['start'][:16]} (so far)" if w["so_far"] else w["start"][:16],
                    percent(w["accuracy"]),
                    f"{percent(w['low'])} to {percent(w['high'])}",
                    "" if w["truth"] is None else percent(w["truth"]),
                    f"{w['rows']:,}",
                )
                for w in windows
            ],
            left=(0, 1),
        )
