"""Notices of alarms: a webhook, a command, an e-mail.

Requirements met here:

- `send` never raises: it returns why it failed, so that the alarm stays pending and is sent again;
- addresses, passwords and secrets never appear in that reason;
- a command gets the notice on standard input and is run without a shell.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Protocol, TypeAlias

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gdscore._alarms import check_address, post_json
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.monitor.records import alarm_dict
from gdscore.monitor.schema import Alarm, Model

__all__ = ["Command", "Email", "Notifier", "Webhook", "deliver_notices", "notice"]

TIMEOUT_S = 30.0
MOST_FAILURES = 3
Opener: TypeAlias = Callable[[], AbstractContextManager[Session]]


class Notifier(Protocol):
    """Anything that sends notices of alarms."""

    def send(self, body: dict[str, Any]) -> str | None:
        """Send a notice; returns why it failed, or None."""
        ...


def notice(alarm: dict[str, Any], kind: str) -> dict[str, Any]:
    """Body of a notice: the alarm, whether it begins or ends, and one line for people."""
    over = "withdrawn" if alarm["withdrawn"] else "over"
    text = alarm["message"] if kind == "begin" else f"{over}: {alarm['message']}"
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
    reading: Opener, writing: Opener, targets: Sequence[Notifier], sent: set[tuple[int, str, int]]
) -> None:
    """Send the pending notices of all alarms; no transaction is open while one is sent.

    ``sent`` keeps what one target has got (alarm, kind of notice, number of the target) while another fails, so that
    it does not get the same notice at every look. A target that fails MOST_FAILURES times in a row gets the other
    notices at the next look: each failure may take half a minute.
    """
    failures = [0] * len(targets)
    with reading() as session:
        rows = session.execute(select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.pending != ""))
        found = [(alarm.id, alarm.pending, alarm_dict(alarm, model)) for alarm, model in rows]
    for number, pending, alarm in found:
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
            with writing() as session:
                session.execute(update(Alarm).where(Alarm.id == number, Alarm.pending == pending).values(pending=""))
            sent -= {item for item in sent if item[0] == number}
