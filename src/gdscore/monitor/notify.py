"""What leaves the monitor: notices of alarms by webhook, command or e-mail, and estimates as metrics of MLflow.

Requirements met here:

- `send` never raises: it returns why it failed, so that the alarm stays pending and is sent again;
- addresses, passwords and secrets never appear in that reason: of an address to post to only the host is named;
- what is posted or mailed has one time limit for all of it, however slowly the other side answers;
- a command gets the notice on standard input and is run without a shell;
- neither the database nor SQLAlchemy is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import smtplib
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, is_dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.monitor.alarms import Outbox

T = TypeVar("T")
TIMEOUT_S = 30.0
POST_TIMEOUT_S = 10.0
LEASE_S = 60.0
"""Seconds for which a process sends to a target alone; each notice begins them anew."""
LONGEST_WAIT_S = 60.0
"""A notice that is due later is left to the next look."""
MOST_PROBLEMS = 100
MOST_ALARMS, NAMED = 100, 10
"""Alarms that a notice has as data, and segments that its text names; it counts the others."""


class Notifier(Protocol):
    """Anything that sends notices of alarms."""

    def send(self, body: dict[str, Any]) -> str | None:
        """Send a notice; returns why it failed, or None."""
        ...


def notice(alarms: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Body of a notice: alarms of a model that begin or end together, how many, and one line for people."""
    first, ended = alarms[0], ("ended", "withdrawn")
    text = first["message"] if kind == "begin" else f"{ended[first['withdrawn']]}: {first['message']} ({first['text']})"
    others: dict[str, list[str]] = {}
    for alarm in alarms[1:]:
        same = kind == "begin" or alarm["withdrawn"] == first["withdrawn"]
        rule = alarm["rule"] if same else f"{alarm['rule']}, {ended[alarm['withdrawn']]}"
        others.setdefault(rule, []).append(alarm["segment"] or "all rows")
    if others:
        text += f"; and {len(alarms) - 1} {'alarms' if len(alarms) > 2 else 'alarm'} more: "
        text += ", ".join(f"{rule} ({_listed(segments)})" for rule, segments in others.items())
    if "link" in first:
        text += f" – {first['link']}"
    return {"event": f"alarm.{kind}", "text": text, "count": len(alarms), "alarms": list(alarms[:MOST_ALARMS])}


def _listed(segments: list[str]) -> str:
    more = f" and {len(segments) - NAMED} more" if len(segments) > NAMED else ""
    return ", ".join(segments[:NAMED]) + more


@dataclass(frozen=True)
class Webhook:
    """Post of the notice as JSON.

    Attributes
    ----------
    url : str
        Address with http or https; redirects are not followed.
    secret : str, optional
        Signs the body: the header ``X-Gdscore-Signature`` is ``sha256=`` and the HMAC-SHA256 in hexadecimal digits.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_address(self.url)

    def send(self, body: dict[str, Any]) -> str | None:
        """Post."""
        try:
            post_json(self.url, body, secret=self.secret)
        except GdscoreError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class Command:
    """A command that is run with the notice as JSON on its standard input."""

    args: Sequence[str]

    def send(self, body: dict[str, Any]) -> str | None:
        """Run the command and wait for its end."""
        try:
            done = subprocess.run(
                list(self.args), input=json.dumps(body).encode(), timeout=TIMEOUT_S, capture_output=True, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"Expected to run {self.args[0]!r}, but it failed: {type(error).__name__}"
        return (
            None
            if done.returncode == 0
            else f"Expected {self.args[0]!r} to succeed, but it ended with {done.returncode}"
        )


@dataclass(frozen=True)
class Email:
    """An e-mail by SMTP.

    Attributes
    ----------
    host, port : str, int
        Server.
    sender, to : str, sequence of str
        Addresses.
    user, password : str, optional
        Where the server asks for them; only with ``tls``.
    tls : bool
        Whether the connection is encrypted with STARTTLS.
    """

    host: str
    sender: str
    to: Sequence[str]
    port: int = 587
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: bool = True

    def __post_init__(self) -> None:
        if self.password is not None and not self.tls:
            raise GdscoreError("Expected tls=True with a password, as it would be sent in the clear")

    def send(self, body: dict[str, Any]) -> str | None:
        """Send one message to all addresses."""
        message = EmailMessage()
        message["Subject"] = " ".join(f"[gdscore] {body['text']}".split())[:180]
        message["From"], message["To"] = self.sender, ", ".join(self.to)
        message.set_content(f"{body['text']}\n\n{json.dumps(body['alarms'], indent=2)}\n")
        try:
            _within(TIMEOUT_S, lambda: self._deliver(message))
        except (OSError, smtplib.SMTPException) as error:
            return f"Expected {self.host} to take the message, but it failed: {type(error).__name__}"
        return None

    def _deliver(self, message: EmailMessage) -> None:
        with smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S) as server:
            if self.tls:
                server.starttls(context=ssl.create_default_context())  # the default would trust any certificate
            if self.user is not None:
                server.login(self.user, self.password or "")
            server.send_message(message)


# -- posts ----------------------------------------------------------------------------------------------------


def check_address(url: str) -> None:
    """Refuse what is not an http or https address."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise GdscoreError(
            "Expected an address to post to such as https://example.org/alarm, but this is no such address"
        )


def post_json(url: str, value: Any, *, secret: str | None = None) -> None:
    """Post a value as JSON; anything but a 2xx answer within `POST_TIMEOUT_S` seconds is an error.

    Redirects are not followed. ``secret`` signs the body as `Webhook` says.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    check_address(url)
    host = urlsplit(url).hostname
    body = json.dumps(value, allow_nan=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "gdscore"}
    if secret is not None:
        headers["X-Gdscore-Signature"] = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    request, opener = Request(url, body, headers), build_opener(NoRedirect)
    try:
        _within(POST_TIMEOUT_S, lambda: opener.open(request, timeout=POST_TIMEOUT_S).close())
    except HTTPError as error:
        error.close()
        raise GdscoreError(
            f"Expected {host} to accept the post, but it answered {error.code} {error.reason}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            reason = f"it did not answer within {POST_TIMEOUT_S:g} seconds"
        raise GdscoreError(f"Expected to post to {host}, but it failed: {reason}") from error


def _within(seconds: float, action: Callable[[], T]) -> T:
    """Result of an action, or TimeoutError where it takes longer: the time limit of a socket is one for each byte.

    What takes longer is left to a thread that does not keep the process from ending.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(action())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(seconds)


def _send(to: Notifier, body: dict[str, Any]) -> str | None:
    try:
        return to.send(body)
    except Exception as error:
        # Of somebody's own notifier, or an address that cannot be one; its message may have secrets.
        return f"Expected {type(to).__name__} to send it, but it raised {type(error).__name__}"


class Due(NamedTuple):
    """Notices of one model and kind that a target is to get as one: their numbers, and the alarms as plain data."""

    kind: str
    numbers: list[int]
    alarms: list[dict[str, Any]]


class Delivery:
    """Sends the notices of a history, with a thread for each target, so that a slow target delays no other.

    What begins in a model is one notice and what ends is another, however many segments and rules it has. Of several
    processes one sends to a target at a time. A notice that failed is tried again after a while, by any of them; what
    was not sent stays in the history.
    """

    def __init__(self, outbox: Outbox, targets: Sequence[Notifier]) -> None:
        self._outbox, self._targets = outbox, targets
        self._sender = secrets.token_hex(8)
        self._numbers: dict[int, int] = {}
        self._lock = threading.Lock()
        self._sending = [threading.Lock() for _ in targets]
        self._threads: dict[int, threading.Thread] = {}
        self._again = [threading.Event() for _ in targets]
        self._problems: list[str] = []
        self._stopped = threading.Event()
        if targets:
            digests = [_digest(target) for target in targets]
            numbers = outbox.register_targets({d: shown_target(t) for d, t in zip(digests, targets, strict=True)})
            self._numbers = {place: numbers[digest] for place, digest in enumerate(digests)}

    def start(self) -> None:
        """Send what is due, in the background, also what is due again within a minute."""
        with self._lock:
            for place in range(0 if self._stopped.is_set() else len(self._targets)):
                self._again[place].set()
                if place not in self._threads:
                    thread = threading.Thread(target=self._work, args=(place,), name="gdscore notices", daemon=True)
                    self._threads[place] = thread
                    thread.start()

    def deliver(self, seconds: float) -> list[str]:
        """Send what is due now, each at most once, and wait at most so long; returns what went wrong."""
        threads = [
            threading.Thread(target=self._send_due, args=(place,), name="gdscore notices", daemon=True)
            for place in range(len(self._targets))
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
        return self.problems()

    def problems(self) -> list[str]:
        """What went wrong since the last call."""
        with self._lock:
            problems, self._problems = self._problems, []
        return problems

    def stop(self, seconds: float) -> bool:
        """Begin to send nothing more, and wait for what is being sent, at most so long; whether all has ended."""
        self._stopped.set()
        with self._lock:
            threads = list(self._threads.values())
        for again in self._again:
            again.set()
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in threads)

    def _work(self, place: int) -> None:
        try:
            while True:
                self._again[place].clear()
                waits = None if self._stopped.is_set() else self._send_due(place)
                if waits is not None and waits < LONGEST_WAIT_S and not self._again[place].is_set():
                    self._again[place].wait(max(waits, 0.05))
                    continue
                with self._lock:
                    if self._stopped.is_set() or not self._again[place].is_set():
                        del self._threads[place]
                        return
        finally:
            with self._lock:
                last = self._stopped.is_set() and not self._threads
            if last:  # of a history that is closed already
                self._outbox.disconnect()

    def _send_due(self, place: int) -> float | None:
        """Send what is due to a target; returns the seconds until more is due."""
        number = self._numbers[place]
        with self._sending[place]:
            try:
                if not self._outbox.lease(number, self._sender, LEASE_S):
                    return None  # another process sends, and goes on with what is due later
                try:
                    while not self._stopped.is_set() and (due := self._outbox.due(number)) is not None:
                        self._send(place, number, due)
                        if not self._outbox.lease(number, self._sender, LEASE_S):
                            return None
                    return self._outbox.seconds_to_next(number)
                finally:
                    self._outbox.lease(number, self._sender, 0)
            except Exception as error:  # of the database; the next look may succeed
                self._complain(str(error) if isinstance(error, GdscoreError) else type(error).__name__)
                return None

    def _send(self, place: int, number: int, due: Due) -> None:
        self._outbox.note_attempt(due)
        reason = _send(self._targets[place], notice(due.alarms, due.kind))
        if reason is not None:
            self._complain(f"a notice of {due.alarms[0]['model']!r} was not delivered: {reason}")
        self._outbox.note_result(number, due, reason)

    def _complain(self, problem: str) -> None:
        with self._lock:
            self._problems = [*self._problems[-MOST_PROBLEMS:], problem]


def _digest(target: Notifier) -> str:
    """What tells a target from others, without its address, which is often a secret."""
    names: list[str] = [f.name for f in fields(target)] if is_dataclass(target) else []
    address = {name: getattr(target, name) for name in names if name not in ("secret", "user", "password")}
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    return hashlib.sha256(json.dumps([kind, address], sort_keys=True, default=str).encode()).hexdigest()


def shown_target(target: Notifier) -> str:
    """Name of a target for people: of an address only the host, as the rest is often a secret."""
    if isinstance(target, Webhook):
        return f"webhook {urlsplit(target.url).hostname}"
    if isinstance(target, Command):
        return f"command {Path(str(target.args[0])).name}"
    return f"mail by {target.host}" if isinstance(target, Email) else type(target).__name__


def log_to_mlflow(
    estimate: Estimate,
    *,
    estimator: AccuracyEstimator | None = None,
    name: str = "target",
    step: int | None = None,
    prefix: str = "gdscore",
    report: bool = True,
) -> None:
    """Log an estimate to the active MLflow run: metrics, warnings as a tag, the HTML report as an artifact.

    Parameters
    ----------
    estimate : Estimate
        What to log.
    estimator : AccuracyEstimator, optional
        The estimator that made it, for the figures of the report.
    name : str
        Name of the target in the report.
    step : int, optional
        Step of the metrics, such as the day.
    prefix : str
        Metrics are ``<prefix>.accuracy``, ``.low``, ``.high``, ``.rows``, ``.reference_accuracy`` and the scores.
    report : bool
        Whether the report is logged as ``<prefix>/<name>.html``.
    """
    try:
        import mlflow
    except ImportError as error:
        raise GdscoreError("Expected mlflow to be installed, but it is not: pip install 'gdscore[mlflow]'") from error
    numbers = {
        "accuracy": estimate.accuracy,
        "low": estimate.low,
        "high": estimate.high,
        "rows": float(estimate.n_rows),
        "reference_accuracy": estimate.reference_accuracy,
        **{f"score.{score}": value for score, value in estimate.scores.items()},
    }
    mlflow.log_metrics({f"{prefix}.{key}": value for key, value in numbers.items()}, step=step)
    mlflow.set_tag(f"{prefix}.warnings", ", ".join(w.code for w in estimate.warnings) or "none")
    if report:
        from gdscore.report import Target, write_report

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)}.html"
            write_report(path, estimator, [Target(name, estimate)])
            mlflow.log_artifact(str(path), prefix)
