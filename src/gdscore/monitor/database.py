"""How a history is opened, created, migrated and copied; its clock, and what names and bounds of windows may be.

Requirements met here:

- a database of an older version is migrated in one transaction, one of a newer version is refused;
- writers of SQLite wait for each other (``BEGIN IMMEDIATE``) instead of failing; readers never wait;
- a copy that is made while others write is complete, and appears under its name only when it is.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gdscore._files import PathLike, check_path, path_errors
from gdscore._windows import Every, as_time, parse_every, time_text, utc_starts, window_end
from gdscore.errors import GdscoreError, shown
from gdscore.monitor.schema import LONGEST_NAME, Base

REVISION = "0002"
"""Newest file of `migrations/versions`: the version of the tables in `schema.py`."""
_VERSIONS = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


class StorageError(GdscoreError):
    """The database did not do what it was asked for: it cannot be reached, its disk is full, another writer is slow."""

    is_usage = False
    """Nothing is wrong with how a command was used."""


class AdvisedError(GdscoreError):
    """An error whose advice is another one for a program that speaks HTTP."""

    def __init__(self, problem: str, advice: str, http_advice: str) -> None:
        super().__init__(problem, advice, http_advice)
        self.problem, self.advice, self.http_advice = problem, advice, http_advice

    def __str__(self) -> str:
        return f"{self.problem}: {self.advice}"


Key: TypeAlias = tuple[datetime, datetime, str]
"""Start and end of a window, and its segment; the empty segment holds all rows."""

# -- times and names ------------------------------------------------------------------------------------------


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def time_before(clock: datetime, length: Any) -> datetime:
    """Time that is a length such as ``90d`` before another; the first that there is, where it is longer."""
    try:
        return clock - parse_every(length).length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


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
                (first,) = utc_starts(np.array([start.replace(tzinfo=None)], dtype="datetime64[us]"), every).tolist()
                start = first.replace(tzinfo=UTC)
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


def check_name(what: str, name: Any, *, empty: bool = False) -> str:
    """Name of a model, version, segment or person: printable text that fits into its column, in one normal form."""
    if not isinstance(name, str) or not (name or empty) or len(name) > LONGEST_NAME or not name.isprintable():
        raise GdscoreError(
            f"Expected the name of a {what} to be printable text of 1 to {LONGEST_NAME} characters, but got "
            f"{str(name)[:60]!r}"
        )
    return normalize("NFC", name)


# -- opening --------------------------------------------------------------------------------------------------


def open_engine(url: str) -> Engine:
    """Engine of a database whose tables are of this version."""
    engine, hidden = make_engine(url)
    try:
        with storage_errors():
            _prepare(engine)
    except StorageError as error:
        engine.dispose()
        reason = str(error).partition("but it failed: ")[2] or str(error)
        raise StorageError(f"Expected to open the database {hidden!r}, but it failed: {reason}") from None
    except Exception:
        engine.dispose()
        raise
    return engine


def make_engine(url: str) -> tuple[Engine, str]:
    """Engine of a database that may have no tables yet, and its address without the password."""
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
    return engine, hidden


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


def _prepare(engine: Engine) -> None:
    with engine.connect() as connection:
        if _revision(connection) == REVISION:  # and opening waits for no writer
            return
    with engine.connect() as connection, _without_foreign_keys(connection), connection.begin():
        migrate(connection, REVISION)


@contextmanager
def _without_foreign_keys(connection: Connection) -> Iterator[None]:
    """SQLite changes a table by making it anew: to drop the old one would delete the rows that refer to it."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver = connection.connection.driver_connection  # as within a transaction nothing would be switched
    assert isinstance(driver, sqlite3.Connection)
    driver.execute("PRAGMA foreign_keys=OFF")
    connection.execution_options(writes=True)
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def _revision(connection: Connection) -> str | None:
    """Version of the tables; none where there are no tables."""
    if inspect(connection).has_table(_VERSIONS.name):
        return connection.execute(select(_VERSIONS.c.version_num)).scalar_one_or_none()
    if inspect(connection).has_table("schema_version"):
        raise GdscoreError("Expected a history of gdscore 1, but it is older than the first release: begin a new one")
    return None


def migrate(connection: Connection, revision: str, folder: PathLike = Path(__file__).parent / "migrations") -> None:
    """Create the tables, or bring those of an older version to this one; a newer version is refused."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7238401)"))  # one process prepares, others wait
    before = _revision(connection)
    if before == revision:
        return
    if before is None:
        Base.metadata.create_all(connection)
        _VERSIONS.create(connection)
        connection.execute(insert(_VERSIONS).values(version_num=revision))
        return
    from alembic.command import upgrade
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", os.fspath(folder).replace("%", "%%"))
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if before not in revisions:
        raise GdscoreError(
            f"Expected a history of version {revision} or older, but it has version {before[:20]}: update gdscore"
        )
    config.attributes["connection"] = connection
    upgrade(config, revision)
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if broken is not None:
            raise StorageError(f"Expected to migrate the history, but rows of {broken[0]} would refer to nothing")


def back_up(engine: Engine, path: PathLike) -> None:
    """Copy a history in SQLite into a new file while others write; the copy is complete or not there."""
    if engine.dialect.name != "sqlite":
        raise GdscoreError("Expected a history in SQLite, but this one is in PostgreSQL: use pg_dump")
    path = check_path(path)
    if path.exists():
        raise GdscoreError(f"Expected a new file, but {os.fspath(path)!r} is there: name another one")
    with path_errors(path):
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        os.close(handle)
    made = Path(name)
    pool = engine.raw_connection()
    try:
        with closing(sqlite3.connect(made)) as copy:
            source = pool.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
        made.rename(path)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"Expected to copy the history, but it failed: {error}") from error
    finally:
        made.unlink(missing_ok=True)
        pool.close()
