"""Every option of the service, from arguments and from the environment; secrets come from the environment only."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, Field, SecretStr, StringConstraints, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gdscore._windows import parse_every
from gdscore.errors import GdscoreError, shown
from gdscore.monitor.notify import Command, Email, Notifier, Webhook, check_address

DATABASE = "sqlite:///gdscore-history.db"
_Text = Annotated[str, StringConstraints(min_length=1)]


class Settings(BaseSettings):
    """Settings of the service, each also as an environment variable ``GDSCORE_`` and its name in capitals.

    Attributes
    ----------
    database : str
        ``sqlite:///history.db`` or ``postgresql://host/name``; the variable is ``GDSCORE_MONITOR``.
    host, port : str, int
        Where to listen.
    public_url : str, optional
        Address under which people see the pages: notices have links to their alarms.
    auth : bool
        Whether requests need a token. Without, only requests of this machine are answered.
    behind_tls : bool
        Whether a proxy in front of the service speaks TLS, so that browsers send the cookie over TLS only.
    keep : str, optional
        How long windows are kept, such as ``400d``; for ever by default.
    check_seconds : float
        Pause between two looks for missing windows and for notices that are due.
    access_log : bool
        Whether each request is logged, as one JSON object a line, by the logger ``gdscore.monitor.access``.
    max_body, max_rows : int
        Largest body with outputs or an estimator, in bytes, and most rows of it, so that a small file cannot keep the
        server busy for hours.
    max_connections : int
        Connections at the same time; further ones are answered 503.
    request_seconds : float
        Time for a request to arrive; a large body has as much again for each 1.25 MiB.
    webhook, run, mail : str, optional
        Where notices go: an address, a command, addresses of e-mail separated by commas.
    webhook_secret, smtp_host, smtp_port, smtp_from, smtp_user, smtp_password
        What these need.

    Examples
    --------
    >>> Settings.read(keep="400d", port=9000).port
    9000
    """

    model_config = SettingsConfigDict(
        env_prefix="GDSCORE_", env_ignore_empty=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True
    )
    database: _Text = Field(default=DATABASE, validation_alias=AliasChoices("database", "GDSCORE_MONITOR"))
    host: _Text = "127.0.0.1"
    port: int = Field(default=8600, ge=0, le=65535)
    public_url: str | None = None
    auth: bool = True
    behind_tls: bool = False
    keep: str | None = None
    check_seconds: float = Field(default=60.0, gt=0)
    access_log: bool = False
    max_body: int = Field(default=256 << 20, ge=1)
    max_rows: int = Field(default=5_000_000, ge=1)
    max_connections: int = Field(default=500, ge=1)
    request_seconds: float = Field(default=20.0, gt=0)
    webhook: str | None = None
    webhook_secret: SecretStr | None = None
    run: str | None = None
    mail: Annotated[list[str] | None, NoDecode] = None
    smtp_host: str | None = None
    smtp_port: int = Field(default=587, ge=1, le=65535)
    smtp_from: str | None = None
    smtp_user: str | None = None
    smtp_password: SecretStr | None = None

    @field_validator("keep")
    @classmethod
    def _is_length(cls, value: str | None) -> str | None:
        return None if value is None else str(parse_every(value))

    @field_validator("public_url", "webhook")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            check_address(value)
        return value

    @field_validator("mail", mode="before")
    @classmethod
    def _are_addresses(cls, value: Any) -> Any:
        return [address.strip() for address in value.split(",")] if isinstance(value, str) else value

    @classmethod
    def read(cls, **arguments: Any) -> Settings:
        """Settings of these arguments and of the environment; what is None is not given."""
        try:
            return cls(**{name: value for name, value in arguments.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            name = str(first["loc"][0]) if first["loc"] else "settings"
            variable = name if name.startswith("GDSCORE") else f"GDSCORE_{name.upper()}"
            reason = str(first.get("ctx", {}).get("error", first["msg"]))
            raise GdscoreError(
                f"Expected another value of --{name.replace('_', '-')} or {variable}: {reason}"
            ) from None

    def notifiers(self) -> list[Notifier]:
        """What sends notices."""
        targets: list[Notifier] = []
        if self.webhook:
            targets.append(Webhook(self.webhook, _secret(self.webhook_secret)))
        if self.run:
            targets.append(Command(_arguments(self.run)))
        if self.mail:
            if not self.smtp_host or not self.smtp_from:
                raise GdscoreError(
                    "Expected the environment variables GDSCORE_SMTP_HOST and GDSCORE_SMTP_FROM with --mail"
                )
            targets.append(
                Email(
                    self.smtp_host,
                    self.smtp_from,
                    self.mail,
                    port=self.smtp_port,
                    user=self.smtp_user,
                    password=_secret(self.smtp_password),
                    tls=self.smtp_port != 25,  # that of a server on this machine or network, without encryption
                )
            )
        return targets


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _arguments(command: str) -> list[str]:
    import shlex

    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise GdscoreError(f"Expected --run to be a command, but got {shown(command)}: {error}") from None
    if not arguments:
        raise GdscoreError(f"Expected --run to be a command, but got {shown(command)}")
    return arguments
