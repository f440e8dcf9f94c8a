"""Tables of the history, and how a database is opened, created and migrated.

Requirements met here:

- the same tables in SQLite and PostgreSQL; times are microseconds since 1970 in UTC, so that no driver changes them;
- a database of an older version is migrated step by step in one transaction, one of a newer version is refused;
- writers of SQLite wait for each other (``BEGIN IMMEDIATE``) instead of failing; readers never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
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
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from gdscore.errors import GdscoreError

__all__ = [
    "MIGRATIONS",
    "VERSION",
    "Alarm",
    "Base",
    "EstimatorFile",
    "Model",
    "Series",
    "StorageError",
    "Token",
    "Window",
    "check_name",
    "open_engine",
    "storage_errors",
]

VERSION = 1
MIGRATIONS: dict[int, Callable[[Connection], None]] = {}
"""Steps from a version to the next, by the version they start from."""

LONGEST_NAME = 200
BigId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in INTEGER columns


class StorageError(GdscoreError):
    """The database did not do what it was asked for: it cannot be reached, its disk is full, another writer is slow."""


class Base(DeclarativeBase):
    """Base of all tables."""


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
    """A version of a model. The newest of a name is the one that windows are added to."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("name", "version"),)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    version: Mapped[str] = mapped_column(String(LONGEST_NAME))
    estimator_hash: Mapped[str | None] = mapped_column(ForeignKey("estimators.hash"))
    every: Mapped[int] = mapped_column(BigInteger)
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    reference_rows: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[int] = mapped_column(BigInteger)


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
    segment: Mapped[str] = mapped_column(String(LONGEST_NAME))
    start: Mapped[int] = mapped_column(BigInteger)
    end: Mapped[int] = mapped_column(BigInteger)
    rows: Mapped[int] = mapped_column(BigInteger)
    accuracy: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    level: Mapped[float]
    reference_accuracy: Mapped[float]
    labelled: Mapped[int | None] = mapped_column(BigInteger)
    correct: Mapped[int | None] = mapped_column(BigInteger)
    labels_at: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[int] = mapped_column(BigInteger)
    content_hash: Mapped[str] = mapped_column(String(64))
    warnings: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    scores: Mapped[dict[str, float]] = mapped_column(JSON)
    before: Mapped[dict[str, Any] | None] = mapped_column(JSON, deferred=True)
    """State of the series' alarms before this window, from which they are computed again."""
    estimate: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)


class Series(Base):
    """Summary of all windows of a model and segment: enough for the overview and for the next window."""

    __tablename__ = "series"
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    segment: Mapped[str] = mapped_column(String(LONGEST_NAME), primary_key=True)
    windows: Mapped[int] = mapped_column(BigInteger)
    last_window: Mapped[int] = mapped_column(BigInteger)
    recent: Mapped[list[float]] = mapped_column(JSON)
    state: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)


class Alarm(Base):
    """A problem, from its beginning to its end.

    ``raised`` is the start of the window that raised the alarm, ``began`` the start of the first window that had the
    problem. ``pending`` names the notices that have not been delivered.
    """

    __tablename__ = "alarms"
    __table_args__ = (
        UniqueConstraint("model_id", "segment", "rule", "raised"),
        Index("ix_alarms_open", "ended", "model_id"),
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    segment: Mapped[str] = mapped_column(String(LONGEST_NAME))
    rule: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text)
    raised: Mapped[int] = mapped_column(BigInteger)
    began: Mapped[int] = mapped_column(BigInteger)
    ended: Mapped[int | None] = mapped_column(BigInteger)
    withdrawn: Mapped[bool] = mapped_column(default=False)
    opened_at: Mapped[int] = mapped_column(BigInteger)
    acknowledged_by: Mapped[str | None] = mapped_column(String(LONGEST_NAME))
    acknowledged_at: Mapped[int | None] = mapped_column(BigInteger)
    pending: Mapped[str] = mapped_column(String(10), index=True)


class Token(Base):
    """A token of the service: only its SHA-256 is kept."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(String(LONGEST_NAME), unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[int] = mapped_column(BigInteger)


def check_name(what: str, name: Any, *, empty: bool = False) -> str:
    """Name of a model, version, segment or person: printable text that fits into its column."""
    if not isinstance(name, str) or not (name or empty) or len(name) > LONGEST_NAME or not name.isprintable():
        raise GdscoreError(
            f"Expected the name of a {what} to be printable text of 1 to {LONGEST_NAME} characters, but got "
            f"{str(name)[:60]!r}"
        )
    return name


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
        engine = create_engine(parts, connect_args={"timeout": 60})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif parts.get_backend_name() == "postgresql":
        engine = create_engine(parts.set(drivername="postgresql+psycopg"), pool_pre_ping=True, max_overflow=20)
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


@contextmanager
def storage_errors() -> Iterator[None]:
    """Tell of a database that fails as `StorageError`."""
    try:
        yield
    except OperationalError as error:
        raise StorageError(f"Expected the database to do its work, but it failed: {_first_line(error)}") from error


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
        if found > VERSION:
            raise GdscoreError(
                f"Expected a history of version {VERSION} or older, but it has version {found}: update gdscore"
            )
        for version in range(found, VERSION):
            MIGRATIONS[version](connection)
            connection.execute(update(Schema).values(version=version + 1))
