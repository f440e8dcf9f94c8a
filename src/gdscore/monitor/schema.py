"""Tables of the history. `database.py` opens them, `migrations/` changes those of an older version.

Requirements met here:

- the same tables in SQLite and PostgreSQL; a time is a `datetime` in UTC here and an integer of microseconds in the
  database, so that no driver changes it;
- the number of a window, an alarm or a model is never used again;
- what belongs to a window, an alarm or a model goes with it (foreign keys).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import normalize

from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from gdscore._windows import Every, parse_every

LONGEST_NAME = 200
LONGEST_RULE = 260
"""Such as ``recall:`` and the name of a class."""
BigId = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in INTEGER columns
NEVER_AGAIN = {"sqlite_autoincrement": True}
"""SQLite would give the number of a deleted row to the next one; PostgreSQL does not."""
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


class Base(DeclarativeBase):
    """Base of all tables; migrations find indexes and keys by these names."""

    type_annotation_map = {datetime: Time, Every: Length, float: Double}  # noqa: RUF012
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def _model_key() -> ForeignKey:
    return ForeignKey("models.id", ondelete="CASCADE")


class EstimatorFile(Base):
    """A saved estimator, by the SHA-256 of its bytes."""

    __tablename__ = "estimators"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class Model(Base):
    """A version of a model. Windows go to the current one, which is the one that no other has superseded."""

    __tablename__ = "models"
    __table_args__ = (
        UniqueConstraint("name", "version"),
        Index(
            "ix_models_current",
            "name",
            unique=True,
            sqlite_where=text("superseded_at IS NULL"),
            postgresql_where=text("superseded_at IS NULL"),
        ),
        NEVER_AGAIN,
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(Name)
    version: Mapped[str] = mapped_column(Name)
    estimator_hash: Mapped[str | None] = mapped_column(ForeignKey("estimators.hash"))
    every: Mapped[Every]
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    rules_change: Mapped[int] = mapped_column(BigInteger)
    """Number of the newest change of the rules, by which the windows that come are judged."""
    reference_rows: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]
    current_since: Mapped[datetime]
    """When the version was registered, again where another one was in between."""
    superseded_at: Mapped[datetime | None]
    """When another version was registered; none for the current one."""
    retired_at: Mapped[datetime | None]
    """When the model was retired: it is watched no more."""
    pruned_before: Mapped[datetime | None]
    """Windows that ended before this time were deleted by retention, and are not added again."""
    learn_from: Mapped[datetime | None]
    """Windows from this time on are learned from again, as somebody asked for it."""


class RulesChange(Base):
    """Rules of a model from a time on, and who changed them. Windows are judged by those of the time they came at."""

    __tablename__ = "rules_changes"
    __table_args__ = (NEVER_AGAIN,)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(_model_key(), index=True)
    changed_at: Mapped[datetime]
    changed_by: Mapped[str] = mapped_column(String(LONGEST_NAME))
    changes: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The rules that changed, with their new values."""
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    """All rules since then."""
    reference_rows: Mapped[int] = mapped_column(BigInteger)
    learn_from: Mapped[datetime | None]


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
            *("reference_accuracy", "label_free", "last_known", "labelled", "correct", "missed", "id"),
        ),
        NEVER_AGAIN,
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(_model_key())
    segment: Mapped[str] = mapped_column(Name)
    start: Mapped[datetime]
    end: Mapped[datetime]
    rows: Mapped[int] = mapped_column(BigInteger)
    accuracy: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    level: Mapped[float]
    reference_accuracy: Mapped[float]
    label_free: Mapped[float]
    """The estimate without the labels of earlier windows."""
    last_known: Mapped[float | None]
    """The latest accuracy by labels that was known when the window came."""
    labelled: Mapped[int | None] = mapped_column(BigInteger)
    correct: Mapped[int | None] = mapped_column(BigInteger)
    missed: Mapped[bool | None]
    """Whether labels showed an accuracy outside the interval of an estimate that rests on labels."""
    labels_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    rules_change: Mapped[int] = mapped_column(BigInteger)
    """Number of the change of the rules that was the newest when the window came."""
    n_series: Mapped[int]
    """Series that the model had then."""
    content_hash: Mapped[str] = mapped_column(String(64))
    warnings: Mapped[list[dict[str, str]]] = mapped_column(JSON)
    scores: Mapped[dict[str, float]] = mapped_column(JSON)
    measures: Mapped[dict[str, list[float]] | None] = mapped_column(JSON(none_as_null=True))
    """Value, low and high of the recall, precision and F1 of the classes that rules name."""
    classes: Mapped[list[int] | None] = mapped_column(JSON(none_as_null=True))
    """Labels by class, where they are known."""
    tracked: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """What else the next estimates need of one that rests on labels: the rest of a `TrackedWindow`."""
    estimate: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)

    @property
    def so_far(self) -> bool:
        """Whether the estimate was made before the window had ended, of the rows so far; the next one replaces it."""
        return self.end is not None and self.created_at < self.end


class KeptRow(Base):
    """A row of a window, where the rules of its model ask for rows: what labels that come later are joined with.

    ``right`` is P(right), and ``segments`` has one name a line. The key comes first: SQLite keeps rows in its order.
    """

    __tablename__ = "kept_rows"
    __table_args__ = (Index("ix_kept_rows_id", "row_id", "window_id"), {"sqlite_with_rowid": False})
    window_id: Mapped[int] = mapped_column(ForeignKey("windows.id", ondelete="CASCADE"), primary_key=True)
    row_id: Mapped[str] = mapped_column(String(LONGEST_NAME), primary_key=True)
    prediction: Mapped[int]
    right: Mapped[float]
    label: Mapped[int | None]
    segments: Mapped[str] = mapped_column(Text)


class Series(Base):
    """Summary of all windows of a model and segment: enough for the overview and for the next window."""

    __tablename__ = "series"
    model_id: Mapped[int] = mapped_column(_model_key(), primary_key=True)
    segment: Mapped[str] = mapped_column(Name, primary_key=True)
    windows: Mapped[int] = mapped_column(BigInteger)
    last_window: Mapped[int] = mapped_column(BigInteger)
    recent: Mapped[list[float]] = mapped_column(JSON)
    labels: Mapped[dict[str, float] | None] = mapped_column(JSON)
    """Of the newest windows with labels: accuracy and rows of the newest, number of windows, share that holds."""
    state: Mapped[dict[str, Any]] = mapped_column(JSON, deferred=True)
    """State of the alarms after the newest window."""
    origin: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)
    """The same before the oldest window, where retention has deleted older ones."""


class Alarm(Base):
    """A problem, from its beginning to its end.

    ``raised`` is the start of the window that raised the alarm, ``began`` the start of the first window that had the
    problem. ``level``, ``value`` and ``latest`` are the accuracy before or asked for, in the window that raised the
    alarm, and in its newest window (for ``labels:coverage``, shares of intervals that held).
    """

    __tablename__ = "alarms"
    __table_args__ = (
        UniqueConstraint("model_id", "segment", "rule", "raised"),
        Index("ix_alarms_open", "ended", "model_id"),
        NEVER_AGAIN,
    )
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    model_id: Mapped[int] = mapped_column(_model_key())
    segment: Mapped[str] = mapped_column(Name)
    rule: Mapped[str] = mapped_column(String(LONGEST_RULE))
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
    snoozed_until: Mapped[datetime | None]


class Target(Base):
    """Where notices go: known since a service or a command was first started with it."""

    __tablename__ = "targets"
    __table_args__ = (NEVER_AGAIN,)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """SHA-256 of its address, which is often a secret."""
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    seen_at: Mapped[datetime]
    """When a process that sends to it last looked; one that nobody sends to is forgotten."""
    sender: Mapped[str | None] = mapped_column(String(64))
    leased_until: Mapped[datetime | None]
    """Until then the process ``sender`` sends, and no other."""
    failures: Mapped[int] = mapped_column(default=0)
    """Failures since the last success."""
    waits_until: Mapped[datetime | None]
    """Nothing is sent before, as it has failed."""


class Notice(Base):
    """A notice to a target: that an alarm begins or that it has ended."""

    __tablename__ = "notices"
    __table_args__ = (Index("ix_notices_due", "target_id", "next_try"), NEVER_AGAIN)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    alarm_id: Mapped[int] = mapped_column(ForeignKey("alarms.id", ondelete="CASCADE"), index=True)
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[datetime]
    attempts: Mapped[int] = mapped_column(default=0)
    next_try: Mapped[datetime | None]
    """None where it was sent or given up."""
    sent_at: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(Text)


class Token(Base):
    """A token of the service: only its SHA-256 is kept."""

    __tablename__ = "tokens"
    __table_args__ = (NEVER_AGAIN,)
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(Name, unique=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(10))
    model: Mapped[str | None] = mapped_column(Name)
    """The one model that it is for; none for all."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
