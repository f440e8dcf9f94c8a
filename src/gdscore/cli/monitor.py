"""``gdscore monitor``: accuracy over time, with a history, alarms, notices and pages."""

from __future__ import annotations

import dataclasses
import getpass
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gdscore._format import percent
from gdscore._paths import check_readable, check_writable
from gdscore.cli.console import Debug, ExitCode, JsonPath, collect_warnings, complain, shared_options, show, show_table
from gdscore.cli.files import column_options, find_targets, write_json
from gdscore.errors import GdscoreError
from gdscore.io import Columns

if TYPE_CHECKING:
    from gdscore.monitor import Email, Monitor
    from gdscore.monitor.auth import Settings

__all__ = ["Mail", "Run", "Webhook", "email", "monitor", "notifiers"]

monitor = typer.Typer(
    no_args_is_help=True, help="Watch the accuracy of models over time: history, alarms, pages.", rich_markup_mode=None
)
Database: TypeAlias = Annotated[
    str,
    typer.Option(
        "--database", metavar="URL", envvar="GDSCORE_MONITOR", help="sqlite:///history.db or postgresql://host/name."
    ),
]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")]
Segment: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Only this segment; '' is all rows.")]
Webhook: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="URL", envvar="GDSCORE_WEBHOOK", show_envvar=True, help="Post alarms there, begin and end."),
]
Run: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="COMMAND", envvar="GDSCORE_RUN", help="Run this for alarms, with the notice on its input."
    ),
]
Mail: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mail",
        metavar="ADDRESSES",
        envvar="GDSCORE_MAIL",
        help="Send alarms to a@b,c@d; the server is in GDSCORE_SMTP_HOST, _PORT, _FROM, _USER and _PASSWORD.",
    ),
]
DEFAULT = "sqlite:///gdscore-history.db"


def _open(database: str, webhook: str | None = None, run: str | None = None, mail: str | None = None) -> Monitor:
    try:
        from gdscore import monitor as module
    except ModuleNotFoundError as error:
        raise GdscoreError(
            f"Expected {error.name} to be installed, but it is not: "
            "pip install fastapi plotly prometheus-client 'psycopg[binary]' sqlalchemy uvicorn"
        ) from error
    return module.Monitor(database, notify=notifiers(webhook, run, mail))


def _rule(kind: Any, help_text: str, *names: str, metavar: str | None = None) -> Any:
    return Annotated[kind | None, typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel="Rules")]


_RULES = {
    "false_alarms_per_year": _rule(float, "False alarms of each test over all windows."),
    "min_accuracy": _rule(float, "Alarm below this, each window.", metavar="SHARE"),
    "max_drop": _rule(float, "Alarm this far below the reference.", metavar="SHARE"),
    "min_rows": _rule(int, "A window with fewer rows is not enough data."),
    "max_width": _rule(float, "A window with a wider interval is not enough data.", metavar="SHARE"),
    "labels": _rule(bool, "Alarms of labels.", "--labels/--no-labels"),
    "recalibrate": _rule(bool, "Labels correct later estimates.", "--recalibrate/--no-recalibrate"),
    "missing_after": _rule(float, "Alarm after so many window lengths of silence."),
    "recovery": _rule(int, "Windows without the problem that end an alarm."),
    "keep_rows": _rule(
        str, "Keep id, prediction and P(right) of rows so long, for labels by id: 90d.", metavar="LENGTH"
    ),
}
_rule_options = shared_options(
    "given", _RULES, lambda given: {name: value for name, value in given.items() if value is not None}
)


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
    given: dict[str, Any],
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Register a model with its estimator and its rules. Rules that are not given stay, also for a new version."""
    history = _open(database)
    found = history.register(
        model, estimator, version=version, every=every, rules=given, reference_rows=reference_rows, by=_person()
    )
    show(f"Registered: {model} version {history.version(model)}")
    show(f"Rules: {found}")


@monitor.command()
@_rule_options
def rules(
    model: Name,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Remove a rule, such as min_accuracy; repeat it for several."),
    ] = None,
    *,
    given: dict[str, Any],
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Print the rules of a model and who changed them, or change some of them."""
    from gdscore.monitor.queries import rules_changes

    history = _open(database)
    changes = dict.fromkeys(remove or ()) | given
    found = history.set_rules(model, changes, by=_person()) if changes else history.rules(model)
    show(f"Rules: {found}")
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
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Let the tests learn again what the windows of a model are like while nothing is wrong."""
    found = _open(database).learn_again(model, since=since, by=_person())
    show(f"Learning from the windows since {found:%Y-%m-%d %H:%M} (UTC)")


def _person() -> str:
    """Name of the person or job that runs the command."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of this number
        return "unknown"
    return name if name.isprintable() and 0 < len(name) <= 200 else "unknown"


@monitor.command()
@column_options()
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
    replace: Annotated[bool, typer.Option(help="Replace windows that are there with other numbers.")] = False,
    webhook: Webhook = None,
    run: Run = None,
    mail: Mail = None,
    database: Database = DEFAULT,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy of windows and keep it.

    Ends with code 3 where the model has an open alarm, else with 1 where a target was not added.
    """
    from gdscore.monitor.queries import list_alarms
    from gdscore.monitor.store import check_known

    check_writable(json)
    history = _open(database, webhook, run, mail)
    columns = dataclasses.replace(columns, time=time, by=by or None)
    with history.reading() as session:
        check_known(session, model)
    found = find_targets(targets, columns)
    if at is not None and time is not None:
        raise GdscoreError("Expected --at or --time, but got both: --at is one time for all rows, --time their column")
    if at is not None and len(found) > 1:
        raise GdscoreError(f"Expected one target with --at, but got {len(found)}: give one at a time, or a pattern")
    for target in found:
        if at is None and time is None and target.when is None:
            raise GdscoreError(f"Expected a time for {target.name!r}: give --at, --time, or a date in its name")
    added: list[dict[str, Any]] = []
    failed = False
    with collect_warnings() as told:
        for target in found:
            when = None if time else at or target.when
            try:
                added += history.add(model, target.batches(quiet=False), when, replace=replace)
            except GdscoreError as error:
                failed = True
                complain(f"{target.name} was not added: {error}")
        history.deliver()
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
    database: Database = DEFAULT,
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
    from gdscore.monitor.row_labels import read_row_labels

    ids, found = read_row_labels(check_readable(file))
    counted = _open(database).add_row_labels(model, ids, found, time=at)
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
    database: Database = DEFAULT,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """List windows with their estimates."""
    from gdscore.monitor.queries import list_windows
    from gdscore.monitor.store import check_known

    check_writable(json)
    with _open(database).reading() as session:
        check_known(session, model)
        _show_windows(list_windows(session, model, segment, since=since, limit=None), json)


@monitor.command()
def alarms(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this model.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also alarms that have ended.")] = False,
    webhook: Webhook = None,
    run: Run = None,
    mail: Mail = None,
    database: Database = DEFAULT,
    json: JsonPath = None,
    debug: Debug = False,
) -> None:
    """Look for missing windows and list alarms; ends with code 3 where one is open."""
    from gdscore.monitor.queries import list_alarms
    from gdscore.monitor.store import check_known

    check_writable(json)
    history = _open(database, webhook, run, mail)
    with collect_warnings() as told:
        history.check()
    for line in told:
        complain(line)
    with history.reading() as session:
        check_known(session, model)
        found = list_alarms(session, model, open_only=not everything, limit=None)
    if json is not None:
        write_json(json, found)
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
                for a in found
            ],
            left=(1, 2, 5),
        )
    if any(a["ended"] is None for a in found):
        raise typer.Exit(ExitCode.ALARM)


@monitor.command()
def acknowledge(
    alarms: Annotated[
        list[int],
        typer.Argument(metavar="ID", help="Ids of alarms, as in `gdscore monitor alarms` and notices."),
    ],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who has seen them; by default your login.")] = None,
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Note that somebody has seen alarms, so that others know. The alarm stays open until its problem has ended.

    Where somebody has acknowledged an alarm before, that name stays.
    """
    history = _open(database)
    for found in history.acknowledge_all(alarms, by or _person()):
        show(f"{found['id']}: {found['message']}; {found['text']}")


@monitor.command()
def token(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    role: Annotated[str, typer.Option(help="read or write.")] = "read",
    revoke: Annotated[bool, typer.Option("--revoke", help="Make the token of this name useless.")] = False,
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Make a token of the service and print it: it is not shown again."""
    from gdscore.monitor.auth import create_token, revoke_token

    history = _open(database)
    if revoke:
        revoke_token(history, name)
    else:
        show(create_token(history, name, role))


@monitor.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at.")] = 8600,
    require_token: Annotated[bool, typer.Option(help="Ask for a token on this machine too.")] = False,
    behind_tls: Annotated[
        bool, typer.Option(help="A proxy in front speaks TLS: the cookie is sent over TLS only.")
    ] = False,
    keep: Annotated[str | None, typer.Option(metavar="LENGTH", help="Delete windows older than this: 400d.")] = None,
    access_log: Annotated[
        bool, typer.Option(help="Write each request to standard error, one JSON object a line.")
    ] = False,
    webhook: Webhook = None,
    run: Run = None,
    mail: Mail = None,
    database: Database = DEFAULT,
    debug: Debug = False,
) -> None:
    """Serve the pages, the JSON API and the metrics for Prometheus."""
    from gdscore.monitor.auth import Settings

    settings = Settings(require_token=require_token, behind_tls=behind_tls, keep=keep, access_log=access_log)
    _serve(_open(database, webhook, run, mail), host, port, settings)


@monitor.command()
def demo(
    file: Annotated[Path, typer.Option(metavar="PATH", help="Database file.")] = Path("gdscore-demo.db"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at.")] = 8600,
    only_fill: Annotated[bool, typer.Option("--only-fill", help="Fill the database and end.")] = False,
    debug: Debug = False,
) -> None:
    """Serve sixty days of digits: a slow shift, a sudden one, another class mix, labels two weeks late."""
    there = file.exists()
    history = _open(f"sqlite:///{file}")
    if not there:
        from gdscore.monitor.demo import fill_demo

        show(f"Filling {file} …")
        fill_demo(history)
    if not only_fill:
        _serve(history, "127.0.0.1", port)


def _serve(history: Monitor, host: str, port: int, settings: Settings | None = None) -> None:
    import logging
    import socket
    import sys

    import uvicorn

    from gdscore.monitor.app import create_app
    from gdscore.monitor.auth import LimitedProtocol

    # A thread that waits for the database has its turn sooner beside others that compute.
    sys.setswitchinterval(5e-4)
    app = create_app(history, settings)
    if settings is not None and settings.access_log:
        lines = logging.getLogger("gdscore.monitor.access")
        lines.addHandler(logging.StreamHandler())
        lines.setLevel(logging.INFO)
        lines.propagate = False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise GdscoreError(f"Expected to listen at {host}, port {port}, but the system refused: {reason}") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers on a kept connection are not held back
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    show(f"Serving at http://{shown}:{listener.getsockname()[1]}")
    # Forwarded addresses are not trusted, as a request from a proxy must not count as one of this machine.
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _show_windows(found: list[dict[str, Any]], json: str | None) -> None:
    if json is not None:
        write_json(json, found)
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
                for w in found
            ],
            left=(0, 1),
        )


def notifiers(webhook: str | None, run: str | None, mail: str | None) -> list[Any]:
    """What sends the alarms, for the options that are given."""
    from gdscore import monitor

    found: list[Any] = []
    if webhook:
        # Secrets are not options, as others see the options of a process.
        found.append(monitor.Webhook(webhook, os.environ.get("GDSCORE_WEBHOOK_SECRET")))
    if run:
        found.append(monitor.Command(_arguments(run)))
    if mail:
        found.append(email(mail.split(",")))
    return found


def _arguments(command: str) -> list[str]:
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise GdscoreError(f"Expected --run to be a command, but got {command!r}: {error}") from None
    if not found:
        raise GdscoreError(f"Expected --run to be a command, but got {command!r}")
    return found


def email(to: list[str]) -> Email:
    """Alarms by mail to these addresses; the server is taken from the environment."""
    from gdscore.monitor import Email

    settings = {name: os.environ.get(f"GDSCORE_SMTP_{name}") for name in ("HOST", "PORT", "FROM", "USER", "PASSWORD")}
    if not settings["HOST"] or not settings["FROM"]:
        raise GdscoreError("Expected the environment variables GDSCORE_SMTP_HOST and GDSCORE_SMTP_FROM with --mail")
    port = settings["PORT"] or "587"
    if not port.isdecimal():
        raise GdscoreError(f"Expected GDSCORE_SMTP_PORT to be a number, but got {port[:20]!r}")
    tls = int(port) != 25  # port 25 is that of a server on this machine or network, without encryption
    return Email(
        settings["HOST"],
        settings["FROM"],
        [address.strip() for address in to],
        port=int(port),
        user=settings["USER"],
        password=settings["PASSWORD"],
        tls=tls,
    )
