"""Tables of the history, and how a database is opened, created and migrated.

Requirements met here:

- the same tables in SQLite and PostgreSQL; a time is a `datetime` in UTC here and an integer of microseconds in the
  database, so that no driver changes it;
- a database of an older version is migrated step by step in one transaction, one of a newer version is refused;
- writers of SQLite wait for each other (``BEGIN IMMEDIATE``) instead of failing; readers never wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Connection,
    Dialect,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from gdscore._format import percent
from gdscore._windows import Every, as_time, parse_every, time_text, utc_starts, window_end
from gdscore.errors import GdscoreError, shown

__all__ = [
    "LONGEST_NAME",
    "MIGRATIONS",
    "VERSION",
    "Alarm",
    "Base",
    "EstimatorFile",
    "KeptRow",
    "Model",
    "RulesChange",
    "Schema",
    "Series",
    "StorageError",
    "Token",
    "Window",
    "check_name",
    "open_engine",
    "shown_length",
    "shown_time",
    "storage_errors",
    "utc_now",
    "window_bounds",
    "with_password",
]

VERSION = 6
MIGRATIONS: dict[int, Callable[[Connection], None]] = {}
"""Steps from a version to the next, by the version they start from."""

LONGEST_NAME = 200
BigId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in INTEGER columns


class StorageError(GdscoreError):
    """The database did not do what it was asked for: it cannot be reached, its disk is full, another writer is slow."""


# -- times ----------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Time(TypeDecorator[datetime]):
    """A time in UTC, kept as microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """To the database."""
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """From the database."""
        return None if value is None else _EPOCH + timedelta(microseconds=int(value))


class Name(TypeDecorator[str]):
    """A name, of which é as one character and é as two are the same."""

    impl = String(LONGEST_NAME)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else normalize("NFC", value)


class Length(TypeDecorator[Every]):
    """Length of windows, kept as text."""

    impl = String(80)
    cache_ok = True

    def process_bind_param(self, value: Every | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Every | None:
        """From the database."""
        return None if value is None else parse_every(value)


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def shown_length(passed: timedelta) -> str:
    """Length of time in words.

    Examples
    --------
    >>> shown_length(timedelta(seconds=90)), shown_length(timedelta(days=3))
    ('1 min', '3 days')
    """
    seconds = max(passed.total_seconds(), 0.0)
    for unit, length in (("days", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds // 60:.0f} min"


def shown_time(time: datetime | None) -> str:
    """Time for people, without the zone, which pages name once."""
    return "" if time is None else time_text(time.replace(tzinfo=None, microsecond=0)).replace("T", " ")


def window_bounds(time: Any, every: Every) -> tuple[datetime, datetime]:
    """Start and end of a window: a pair of times, or its start; times without a zone are in that of the windows.

    Of windows that follow the calendar or a time zone, a time inside of one stands for it. A window that starts more
    than a day after now is refused, as it would stay the newest one. A day is allowed, as clocks differ and local times
    are given without a zone.
    """
    try:
        if isinstance(time, (tuple, list)) and len(time) == 2:
            start, end = as_time(time[0], every.tzinfo), as_time(time[1], every.tzinfo)
        else:
            start = as_time(time, every.tzinfo)
            if every.has_own_starts:
                (found,) = utc_starts(np.array([start.replace(tzinfo=None)], dtype="datetime64[us]"), every).tolist()
                start = found.replace(tzinfo=UTC)
            end = window_end(start, every)
    except OverflowError:
        raise GdscoreError(f"Expected a window between the years 1 and 9999, but got {shown(time)}") from None
    if end <= start:
        raise GdscoreError(f"Expected a window that ends after it starts, but got {shown(time)}")
    clock = utc_now()
    longest = every.length + timedelta(days=3 if every.months else 1)  # months are not of one length
    if end - clock > longest and start <= clock + timedelta(days=1):
        raise GdscoreError(
            f"Expected a window that ends soon, but it ends at {end:%Y-%m-%d %H:%M:%S} and the clock here is "
            f"at {shown_time(clock)}: it would hide that other windows do not come"
        )
    if start > clock + timedelta(days=1):
        raise GdscoreError(
            f"Expected a window that has begun, but it starts at {start:%Y-%m-%d %H:%M:%S} and the clock of this "
            f"machine is at {shown_time(clock)}: are the time, its unit and the length of windows right?"
        )
    return start, end


# -- tables ---------------------------------------------------------------------------------------------------


class Base(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {datetime: Time, Every: Length}  # noqa: RUF012


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


class Schema(Base):
    """Version of the tables; one row."""

    __tablename__ = "schema_version"
    version: Mapped[int] = mapped_column(Integer, primary_key=True)


class EstimatorFile(Base):
    """A saved estimator, by the SHA-256 of its bytes."""

    __tablename__ = "estimators"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class Model(Base):
    """A version of a model. The one of a name that was registered last is the one that windows are added to."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("name", "version"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(Name)
    version: Mapped[str] = mapped_column(Name)
    estimator_hash: Mapped[str | None] = mapped_column(ForeignKey("estimators.hash"))
    every: Mapped[Every]
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    reference_rows: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    current_since: Mapped[datetime]
    """When the version was registered, again where another one was in between."""
    pruned_before: Mapped[datetime | None]
    """Windows that ended before this time were deleted by retention, and are not added again."""
    learn_from: Mapped[datetime | None]
    """Windows from this time on are learned from again, as somebody asked for it."""


class RulesChange(Base):
    """Rules of a model from a time on, and who changed them."""

    __tablename__ = "rules_changes"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), index=True)
    changed_at: Mapped[datetime]
    changed_by: Mapped[str] = mapped_column(String(LONGEST_NAME))
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The rules that changed, with their new values."""


class Window(Base):
    """The estimate of a window of time, and the labels that came later.

    Long columns come last: SQLite then finds the short ones without reading the long ones.
    """

    __tablename__ = "windows"
    __table_args__ = (
        UniqueConstraint("model_id", "segment", "start", "end"),
        Index("ix_windows_end", "end"),
        # All that a chart and "how good past estimates were" read, so that they never open the wide table.
        Index(
            "ix_windows_series",
            *("model_id", "segment", "start", "end", "rows", "accuracy", "low", "high", "level"),
            *("reference_accuracy", "labelled", "correct", "id"),
        ),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    segment: Mapped[str] = mapped_column(Name)
    start: Mapped[datetime]
    end: Mapped[datetime]
    rows: Mapped[int] = mapped_column(BigInteger)
    accuracy: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    level: Mapped[float]
    reference_accuracy: Mapped[float]
    labelled: Mapped[int | None] = mapped_column(BigInteger)
    correct: Mapped[int | None] = mapped_column(BigInteger)
    labels_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    content_hash: Mapped[str] = mapped_column(String(64))
    warnings: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    scores: Mapped[dict[str, float]] = mapped_column(JSON)
    before: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)
    """State of the series' alarms before this window, from which they are computed again."""
    estimate: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)

    @property
    def so_far(self) -> bool:
        """Whether the estimate was made before the window had ended, of the rows so far; the next one replaces it."""
        return self.end is not None and self.created_at < self.end

    def to_dict(self, model: Model) -> dict[str, Any]:
        """Plain data, for JSON and frames."""
        return {
            "id": self.id,
            "model": model.name,
            "version": model.version,
            "segment": self.segment,
            "start": _iso(self.start),
            "end": _iso(self.end),
            "so_far": self.so_far,
            "rows": self.rows,
            "accuracy": self.accuracy,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "reference_accuracy": self.reference_accuracy,
            "warnings": self.warnings,
            "scores": self.scores,
            "created_at": _iso(self.created_at),
            "labelled": self.labelled,
            "truth": None if not self.labelled else (self.correct or 0) / self.labelled,
            "labels_at": _iso(self.labels_at),
        }


class KeptRow(Base):
    """A row of a window, where the rules of its model ask for rows: what labels that come later are joined with.

    ``right`` is P(right), and ``segments`` has one name a line. The key comes first: SQLite keeps rows in its order.
    """

    __tablename__ = "kept_rows"
    __table_args__ = (Index("ix_kept_rows_id", "row_id", "window_id"), {"sqlite_with_rowid": False})
    window_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    row_id: Mapped[str] = mapped_column(String(LONGEST_NAME), primary_key=True)
    prediction: Mapped[int]
    right: Mapped[float]
    label: Mapped[int | None]
    segments: Mapped[str] = mapped_column(Text)


class Series(Base):
    """Summary of all windows of a model and segment: enough for the overview and for the next window."""

    __tablename__ = "series"
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    segment: Mapped[str] = mapped_column(Name, primary_key=True)
    windows: Mapped[int] = mapped_column(BigInteger)
    last_window: Mapped[int] = mapped_column(BigInteger)
    recent: Mapped[list[float]] = mapped_column(JSON)
    stale_since: Mapped[datetime | None]
    """Start of the first window that came late, or changed, and has not been followed yet."""
    late: Mapped[int] = mapped_column(BigInteger, default=0)
    """How many such windows there are."""
    labels: Mapped[dict[str, float] | None] = mapped_column(JSON)
    """Of the newest windows with labels: accuracy and rows of the newest, number of windows, share that holds."""
    state: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)


class Alarm(Base):
    """A problem, from its beginning to its end.

    ``raised`` is the start of the window that raised the alarm, ``began`` the start of the first window that had the
    problem. ``level``, ``value`` and ``latest`` are the accuracy before or asked for, in the window that raised the
    alarm, and in its newest window (for ``labels:coverage``, shares of intervals that held). ``pending`` names the
    notices that have not been delivered.
    """

    __tablename__ = "alarms"
    __table_args__ = (
        UniqueConstraint("model_id", "segment", "rule", "raised"),
        Index("ix_alarms_open", "ended", "model_id"),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    segment: Mapped[str] = mapped_column(Name)
    rule: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text)
    raised: Mapped[datetime]
    began: Mapped[datetime]
    ended: Mapped[datetime | None]
    end_reason: Mapped[str | None] = mapped_column(String(40))
    level: Mapped[float | None]
    value: Mapped[float | None]
    latest: Mapped[float | None]
    withdrawn: Mapped[bool] = mapped_column(default=False)
    opened_at: Mapped[datetime]
    acknowledged_by: Mapped[str | None] = mapped_column(String(LONGEST_NAME))
    acknowledged_at: Mapped[datetime | None]
    pending: Mapped[str] = mapped_column(String(10), index=True)

    @property
    def text(self) -> str:
        """The values then and now, how long it lasts, and why it ended."""
        now = "at its end" if self.ended else "now"
        asked = "of intervals should hold" if self.rule == "labels:coverage" else "asked for"
        before = "before" if "sequential" in (self.rule or "") else asked
        named = ((before, self.level), ("when raised", self.value), (now, self.latest))
        values = ", ".join(f"{percent(value)} {name}" for name, value in named if value is not None)
        if self.ended is None:
            state = f"open for {shown_length(utc_now() - self.began)}" if self.began else ""
        else:
            lasted = shown_length(self.ended - self.began)
            state = f"lasted {lasted}, ended: {'withdrawn' if self.withdrawn else self.end_reason or 'unknown'}"
        seen = f"acknowledged by {self.acknowledged_by}" if self.acknowledged_by else ""
        return "; ".join(part for part in (values, state, seen) if part)

    def to_dict(self, model: Model) -> dict[str, Any]:
        """Plain data, for JSON, notices and frames."""
        return {
            "id": self.id,
            "model": model.name,
            "version": model.version,
            "segment": self.segment,
            "rule": self.rule,
            "message": self.message,
            "began": _iso(self.began),
            "opened_at": _iso(self.opened_at),
            "ended": _iso(self.ended),
            "end_reason": self.end_reason,
            "level": self.level,
            "value": self.value,
            "latest": self.latest,
            "text": self.text,
            "withdrawn": self.withdrawn,
            "acknowledged_by": self.acknowledged_by,
            "acknowledged_at": _iso(self.acknowledged_at),
        }


class Token(Base):
    """A token of the service: only its SHA-256 is kept."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[datetime]


# -- names and databases --------------------------------------------------------------------------------------


def check_name(what: str, name: Any, *, empty: bool = False) -> str:
    """Name of a model, version, segment or person: printable text that fits into its column, in one normal form."""
    if not isinstance(name, str) or not (name or empty) or len(name) > LONGEST_NAME or not name.isprintable():
        raise GdscoreError(
            f"Expected the name of a {what} to be printable text of 1 to {LONGEST_NAME} characters, but got "
            f"{str(name)[:60]!r}"
        )
    return normalize("NFC", name)


def open_engine(url: str) -> Engine:
    """Engine of a database whose tables are of this version."""
    try:
        parts = make_url(url)
    except ArgumentError:
        raise GdscoreError("Expected a database such as sqlite:///history.db or postgresql://host/name") from None
    hidden = parts.render_as_string(hide_password=True)
    if parts.get_backend_name() == "sqlite":
        if parts.database in (None, "", ":memory:"):
            raise GdscoreError(f"Expected a database file such as sqlite:///history.db, but got {hidden!r}")
        with suppress(OSError):  # opening it will tell why; only its owner may read it
            os.close(os.open(str(parts.database), os.O_CREAT | os.O_RDWR, 0o600))
        engine = create_engine(parts, connect_args={"timeout": 30}, pool_size=20, max_overflow=20, pool_timeout=5)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif parts.get_backend_name() == "postgresql":
        engine = create_engine(
            with_password(parts).set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            max_overflow=20,
            pool_timeout=5,
        )
    else:
        raise GdscoreError(
            f"Expected a database such as sqlite:///history.db or postgresql://host/name, but got {hidden!r}"
        )
    try:
        _prepare(engine)
    except DatabaseError as error:
        engine.dispose()
        raise StorageError(f"Expected to open the database {hidden!r}, but it failed: {_first_line(error)}") from None
    except Exception:
        engine.dispose()
        raise
    return engine


def with_password(url: URL) -> URL:
    """Address with the password of the file that GDSCORE_DATABASE_PASSWORD_FILE names, where it has none."""
    name = os.environ.get("GDSCORE_DATABASE_PASSWORD_FILE")
    if not name or url.password is not None:
        return url
    try:
        return url.set(password=Path(name).read_text(encoding="utf-8").rstrip("\n"))
    except OSError as error:
        raise GdscoreError(
            f"Expected GDSCORE_DATABASE_PASSWORD_FILE to name a file that can be read, but: {error.strerror}"
        ) from None


@contextmanager
def storage_errors() -> Iterator[None]:
    """Tell of a database that fails as `StorageError`."""
    try:
        yield
    except (IntegrityError, ProgrammingError):
        raise
    except DataError as error:  # a zero character in a name that was asked for
        raise GdscoreError(
            f"Expected names that the database can hold, but it refused: {_first_line(error)}"
        ) from error
    except DatabaseError as error:
        raise StorageError(f"Expected the database to do its work, but it failed: {_first_line(error)}") from error
    except PoolTimeout as error:
        raise StorageError("Expected a free connection to the database, but all are waiting for it") from error


def _first_line(error: DatabaseError) -> str:
    """Why a database refused, without the statement and its values."""
    return (str(error.orig).splitlines() or [type(error.orig).__name__])[0]


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy begins transactions, not the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _found_version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(Schema.__tablename__):
        return None
    return connection.execute(select(Schema.version)).scalar_one()


def _prepare(engine: Engine) -> None:
    with engine.connect() as connection:
        if _found_version(connection) == VERSION:  # and opening waits for no writer
            return
    with engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(7238401)"))  # one process prepares, others wait
        found = _found_version(connection)
        if found is None:
            Base.metadata.create_all(connection)
            connection.execute(insert(Schema).values(version=VERSION))
            return
        if found > VERSION or any(version not in MIGRATIONS for version in range(found, VERSION)):
            remedy = "update gdscore" if found > VERSION else "it is older than the first release: begin a new one"
            raise GdscoreError(f"Expected a history of version {VERSION}, but it has version {found}: {remedy}")
        for version in range(found, VERSION):
            MIGRATIONS[version](connection)
            connection.execute(update(Schema).values(version=version + 1))
