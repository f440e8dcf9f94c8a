"""Where ``gdscore monitor`` sends alarms: options of its commands, and secrets from the environment."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.monitor import Email

__all__ = ["Mail", "Run", "Webhook", "email", "notifiers"]

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
