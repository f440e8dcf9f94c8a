"""What leaves the monitor: notices of alarms by webhook, command or e-mail, and estimates as metrics of MLflow.

Requirements met here:

- `send` never raises: it returns why it failed, so that the alarm stays pending and is sent again;
- addresses, passwords and secrets never appear in that reason;
- a command gets the notice on standard input and is run without a shell;
- neither the database nor SQLAlchemy is needed.
"""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gdscore._alarms import check_address, deadline, post_json
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate

__all__ = ["Command", "Delivery", "Email", "Notifier", "Webhook", "log_to_mlflow", "notice"]

TIMEOUT_S = 30.0
MOST_FAILURES = 3
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
    attempts : int
        How often it is tried, with 1, 2, 4 … seconds between.
    """

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    attempts: int = 3
    pause: float = 1.0

    def __post_init__(self) -> None:
        check_address(self.url)

    def send(self, body: dict[str, Any]) -> str | None:
        """Post, and again where that failed."""
        reason = None
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                post_json(self.url, body, secret=self.secret)
            except GdscoreError as error:
                reason = str(error)
            else:
                return None
        return reason


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
            with deadline(TIMEOUT_S) as watch, _mail_server(self.host, self.port, watch) as server:
                if self.tls:
                    server.starttls(context=ssl.create_default_context())  # the default would trust any certificate
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            return f"Expected {self.host} to take the message, but it failed: {type(error).__name__}"
        return None


def _mail_server(host: str, port: int, watch: Callable[[socket.socket], socket.socket]) -> smtplib.SMTP:
    class Watched(smtplib.SMTP):
        def _get_socket(self, *args: Any) -> socket.socket:
            return watch(super()._get_socket(*args))  # type: ignore[misc]

    return Watched(host, port, timeout=TIMEOUT_S)


def _send(to: Notifier, body: dict[str, Any]) -> str | None:
    try:
        return to.send(body)
    except Exception as error:
        # Of somebody's own notifier, or an address that cannot be one; its message may have secrets.
        return f"Expected {type(to).__name__} to send it, but it raised {type(error).__name__}"


Pending: TypeAlias = Callable[[], list[tuple[int, str, dict[str, Any]]]]
"""Alarms of which something has to be told: number, kinds of notices, and the alarm as plain data."""
Told: TypeAlias = Callable[[dict[int, str]], None]


class Delivery:
    """Sends notices of alarms, with a thread for each target, so that a slow target delays no other.

    What begins in a model is one notice and what ends is another, however many segments and rules it has. A target that
    has a notice does not get it again while another target fails. A target that fails MOST_FAILURES times in a row gets
    the other notices when `start` is called again. Threads end with the process: what was not sent stays pending.

    Parameters
    ----------
    pending : callable
        Returns the alarms of which something has to be told, those of a model together.
    mark_told : callable
        Called with the alarms of which all targets know: the kinds of notices by number.
    targets : sequence of Notifier
        What sends them.
    """

    def __init__(self, pending: Pending, mark_told: Told, targets: Sequence[Notifier]) -> None:
        self._pending, self._mark_told, self._targets = pending, mark_told, targets
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        self._again: set[int] = set()
        self._sent: set[tuple[int, str, int]] = set()
        self._problems: list[str] = []

    def start(self) -> None:
        """Begin to send what is pending; a target that is busy looks again when it has finished."""
        with self._lock:
            for place in range(len(self._targets)):
                self._again.add(place)
                if place not in self._threads:
                    thread = threading.Thread(target=self._work, args=(place,), name="gdscore notices", daemon=True)
                    self._threads[place] = thread
                    thread.start()

    def wait(self, seconds: float) -> list[str]:
        """Wait until all targets are idle, at most so long; returns what went wrong since the last call."""
        end = time.monotonic() + seconds
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
        with self._lock:
            problems, self._problems = self._problems, []
        return problems

    def _work(self, place: int) -> None:
        while True:
            with self._lock:
                if place not in self._again:
                    del self._threads[place]
                    return
                self._again.discard(place)
            try:
                self._send_all(place)
            except Exception as error:  # of the database; the next look may succeed
                self._complain(str(error) if isinstance(error, GdscoreError) else type(error).__name__)

    def _send_all(self, place: int) -> None:
        failures = 0
        for model, group in groupby(self._pending(), key=lambda found: found[2]["model"]):
            pending = {number: (kinds, alarm) for number, kinds, alarm in group}
            with self._lock:  # an alarm whose end was told may be open again
                self._sent = {(n, k, p) for n, k, p in self._sent if n not in pending or k in pending[n][0]}
            for kind in ("begin", "end"):  # an end is not told before its beginning
                told = [n for n, (kinds, _) in pending.items() if kind in kinds and (n, kind, place) not in self._sent]
                if not told:
                    continue
                if (reason := _send(self._targets[place], notice([pending[n][1] for n in told], kind))) is not None:
                    self._complain(f"a notice of {model!r} was not delivered: {reason}")
                    failures += 1
                    break
                failures = 0
                with self._lock:
                    self._sent |= {(n, kind, place) for n in told}
            places = range(len(self._targets))
            with self._lock:
                wanted = {n: {(n, k, p) for k in kinds.split() for p in places} for n, (kinds, _) in pending.items()}
                done = [n for n, sent in wanted.items() if sent <= self._sent]
                self._sent -= {item for n in done for item in wanted[n]}
            if done:
                self._mark_told({n: pending[n][0] for n in done})
            if failures >= MOST_FAILURES:
                return

    def _complain(self, problem: str) -> None:
        with self._lock:
            self._problems = [*self._problems[-MOST_PROBLEMS:], problem]


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
