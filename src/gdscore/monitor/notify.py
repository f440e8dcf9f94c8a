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
import ssl
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gdscore._alarms import check_address, post_json
from gdscore.errors import GdscoreError, GdscoreWarning

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate

__all__ = ["Command", "Email", "Notifier", "Webhook", "deliver_notices", "log_to_mlflow", "notice"]

TIMEOUT_S = 30.0
MOST_FAILURES = 3


class Notifier(Protocol):
    """Anything that sends notices of alarms."""

    def send(self, body: dict[str, Any]) -> str | None:
        """Send a notice; returns why it failed, or None."""
        ...


def notice(alarm: dict[str, Any], kind: str) -> dict[str, Any]:
    """Body of a notice: the alarm, whether it begins or ends, and one line for people."""
    ended = "withdrawn" if alarm["withdrawn"] else "ended"
    text = alarm["message"] if kind == "begin" else f"{ended}: {alarm['message']}"
    return {"event": f"alarm.{kind}", "text": text, "alarm": alarm}


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
        message.set_content(f"{body['text']}\n\n{json.dumps(body['alarm'], indent=2)}\n")
        try:
            with smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S) as server:
                if self.tls:
                    server.starttls(context=ssl.create_default_context())  # the default would trust any certificate
                if self.user is not None:
                    server.login(self.user, self.password or "")
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            return f"Expected {self.host} to take the message, but it failed: {type(error).__name__}"
        return None


def _send(to: Notifier, body: dict[str, Any]) -> str | None:
    try:
        return to.send(body)
    except Exception as error:
        # Of somebody's own notifier, or an address that cannot be one; its message may have secrets.
        return f"Expected {type(to).__name__} to send it, but it raised {type(error).__name__}"


def deliver_notices(
    pending_notices: Iterable[tuple[int, str, dict[str, Any]]],
    mark_told: Callable[[int, str], None],
    targets: Sequence[Notifier],
    sent: set[tuple[int, str, int]],
) -> None:
    """Send notices of alarms; ``mark_told`` is called for each alarm of which all targets know.

    ``sent`` keeps what one target has got (alarm, kind of notice, number of the target) while another fails, so that
    it does not get the same notice at every look. A target that fails MOST_FAILURES times in a row gets the other
    notices at the next look: each failure may take half a minute.
    """
    failures = [0] * len(targets)
    for number, pending, alarm in pending_notices:
        failed, known = False, {item for item in sent if item[0] == number}
        if any(kind not in pending.split() for _, kind, _ in known):  # an alarm whose end was told is open again
            sent -= known
        for place, to in enumerate(targets):
            for kind in pending.split():
                if (number, kind, place) in sent:
                    continue
                if failures[place] >= MOST_FAILURES:
                    failed = True
                    break
                if (reason := _send(to, notice(alarm, kind))) is not None:
                    failed = True
                    failures[place] += 1
                    message = f"the notice of alarm {number} was not delivered: {reason}"
                    warnings.warn(message, GdscoreWarning, stacklevel=3)
                    break  # an end is not told before its beginning
                failures[place] = 0
                sent.add((number, kind, place))
        if not failed:
            mark_told(number, pending)
            sent -= {item for item in sent if item[0] == number}


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
