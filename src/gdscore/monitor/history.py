"""`Monitor`: estimates of models over time, the labels that come later, and the alarms."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gdscore._options import integer, number
from gdscore.errors import GdscoreError, GdscoreWarning, nearest
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.monitor import reading
from gdscore.monitor.alarms import apply_finding, extend_series
from gdscore.monitor.notify import Notifier, notice
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import Alarm, EstimatorFile, Model, Series, Window, open_engine
from gdscore.monitor.splitting import check_name, window_states
from gdscore.monitor.times import as_duration, as_micros, now_micros, shown_time, window_bounds
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ConflictError", "Monitor", "NotFoundError"]

LARGEST_ESTIMATOR = 256 << 20
UNKNOWN_REFERENCE = 1000
"""Rows of a reference that is not known."""


class NotFoundError(GdscoreError):
    """There is no such model, window or alarm."""


class ConflictError(GdscoreError):
    """What is added is there already, with other contents."""


class Monitor:
    """History of estimates in a database, with alarms.

    Parameters
    ----------
    url : str
        ``sqlite:///history.db``, or ``postgresql://user:password@host/name``.
    notify : sequence of Webhook, Command or Email
        What is told of alarms when they begin and end.

    Examples
    --------
    >>> import tempfile, gdscore
    >>> monitor = Monitor(f"sqlite:///{tempfile.mkdtemp()}/history.db")
    >>> monitor.register("animals", every="1d")
    >>> e = gdscore.Estimate(0.9, 0.87, 0.93, level=0.9, n=900, reference_accuracy=0.91)
    >>> monitor.add_estimate("animals", e, time="2026-01-31")["new"]
    True
    >>> monitor.add_labels("animals", time="2026-01-31", correct=90, rows=100)
    >>> monitor.windows("animals")[["accuracy", "truth"]].values.tolist()
    [[0.9, 0.9]]
    >>> monitor.close()
    """

    def __init__(self, url: str = "sqlite:///gdscore-history.db", *, notify: Sequence[Notifier] = ()) -> None:
        self.engine = open_engine(url)
        self.notify = tuple(notify)
        self.notify_on_add = True
        self._delivering = threading.Lock()
        self._estimator = lru_cache(maxsize=16)(self._read_estimator)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Transaction that changes the history: all of it or nothing."""
        with Session(self.engine.execution_options(writes=True)) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Session that only reads."""
        with Session(self.engine) as session:
            yield session

    # -- models ---------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        estimator: AccuracyEstimator | str | Path | bytes | None = None,
        *,
        version: str = "1",
        every: Any = "1d",
        rules: Rules | None = None,
        reference_rows: int | None = None,
    ) -> None:
        """Make a model known, or change its window length and rules.

        Parameters
        ----------
        name, version : str
            A new version of a name replaces the older one; its alarms and its test begin anew.
        estimator : AccuracyEstimator, path or bytes, optional
            Fitted estimator, which is kept in the database. `add` needs it, `add_estimate` does not.
        every : timedelta or str
            Length of a window: ``1d``, ``6h``, ``15min``.
        rules : Rules, optional
            When alarms are raised.
        reference_rows : int, optional
            Rows of the reference, which tell how well its accuracy is known; by default the estimator's, or 1,000.
        """
        check_name("model", name)
        check_name("version", version)
        if "/" in name or "\\" in name or name in (".", ".."):
            raise GdscoreError(
                f"Expected a model name that can be part of an address, without slashes, but got {name!r}"
            )
        content, rows = (None, UNKNOWN_REFERENCE) if estimator is None else _estimator_bytes(estimator)
        rows = rows if reference_rows is None else integer("reference_rows", reference_rows, least=1)
        digest = None if content is None else hashlib.sha256(content).hexdigest()
        length, chosen = as_duration(every), (rules or Rules()).to_dict()
        with self.writing() as session:
            if digest is not None and session.get(EstimatorFile, digest) is None:
                session.add(EstimatorFile(hash=digest, content=content))
                session.flush()
            known = session.scalars(select(Model).where(Model.name == name, Model.version == version)).first()
            if known is None:
                for old in session.scalars(select(Model.id).where(Model.name == name)):
                    ended = update(Alarm).where(Alarm.model_id == old, Alarm.ended.is_(None))
                    session.execute(ended.values(ended=now_micros(), pending="end"))
                session.add(
                    Model(
                        name=name,
                        version=version,
                        estimator_hash=digest,
                        every=length,
                        rules=chosen,
                        reference_rows=rows,
                        created_at=now_micros(),
                    )
                )
                return
            if digest is not None and known.estimator_hash not in (None, digest):
                raise ConflictError(
                    f"Expected a new version of {name!r} for another estimator, but {version!r} has one: give version="
                )
            known.every, known.rules = length, chosen
            if digest is not None or reference_rows is not None:
                known.reference_rows = rows
            known.estimator_hash = digest or known.estimator_hash

    def set_estimator(
        self, name: str, estimator: AccuracyEstimator | str | Path | bytes, *, version: str = "1"
    ) -> None:
        """Give a registered model its estimator; its window length and rules stay."""
        with self.reading() as session:
            found = self._find(session, name, version)
            every, rules = found.every, Rules.from_dict(found.rules)
        self.register(name, estimator, version=version, every=timedelta(microseconds=every), rules=rules)

    def _find(self, session: Session, name: str, version: str | None) -> Model:
        query = select(Model).where(Model.name == str(name)).order_by(Model.id.desc())
        if version is not None:
            query = query.where(Model.version == version)
        found = session.scalars(query).first()
        if found is None:
            known = session.scalars(select(Model.name).distinct().limit(1000)).all()
            hint = nearest(str(name)[:60], known) if known else "none is registered, call register first"
            raise NotFoundError(f"Unknown model {str(name)[:60]!r}: {hint}")
        return found

    def _read_estimator(self, digest: str) -> AccuracyEstimator:
        with self.reading() as session:
            content = session.scalars(select(EstimatorFile.content).where(EstimatorFile.hash == digest)).one()
        return _load(content)

    def estimator(self, model: str, version: str | None = None) -> AccuracyEstimator | None:
        """Estimator of a model, where it was registered with one."""
        with self.reading() as session:
            digest = self._find(session, model, version).estimator_hash
        return None if digest is None else self._estimator(digest)

    # -- adding ---------------------------------------------------------------------------------------------

    def add(
        self,
        model: str,
        outputs: Outputs | Iterable[Any],
        time: Any = None,
        by: Any = None,
        *,
        version: str | None = None,
        replace: bool = False,
    ) -> list[dict[str, Any]]:
        """Estimate the accuracy of one or more windows, and keep the estimates.

        Adding the same window again changes nothing.

        Parameters
        ----------
        model : str
            Name of a model that was registered with its estimator.
        outputs : Outputs, or iterable of Outputs or of the batches of `gdscore.io.read_batches`
            Outputs of the model.
        time : datetime, date, str, pair of those, or array
            Start of the window, its start and end, or the time of each row, which are then split into windows.
        by : sequence, or dict of str to sequence, optional
            Segment of each row: one more window for each segment. A dict names several divisions into segments.
        version : str, optional
            Version of the model, the newest by default.
        replace : bool
            Whether a window that is there with other numbers is replaced; otherwise that is an error. Alarms are not
            computed again.

        Returns
        -------
        list of dict
            The windows; ``new`` tells whether a window was added.
        """
        with self.reading() as session:
            found = self._find(session, model, version)
            digest, every, version = found.estimator_hash, found.every, found.version
        if digest is None:
            raise GdscoreError(f"Expected {model!r} to have an estimator, but it has none: register it with one")
        if time is None and isinstance(outputs, Outputs):
            raise GdscoreError("Expected the time of the window: give time=")
        estimator = self._estimator(digest)
        states = window_states(estimator, outputs, time, by, every)
        if not states:
            raise GdscoreError("Expected outputs with at least one row, but there is none")
        estimates = {key: estimator.estimate_state(state) for key, state in sorted(states.items())}
        return self._store(model, version, estimates, replace)

    def add_estimate(
        self,
        model: str,
        estimate: Estimate,
        time: Any,
        segment: str = "",
        *,
        version: str | None = None,
        replace: bool = False,
    ) -> dict[str, Any]:
        """Keep an estimate that was made elsewhere; parameters are those of `add`."""
        if not isinstance(estimate, Estimate):
            raise GdscoreError(f"Expected a gdscore.Estimate, but got {type(estimate).__name__}")
        check_name("segment", segment, empty=True)
        with self.reading() as session:
            found = self._find(session, model, version)
            every, version = found.every, found.version
        return self._store(model, version, {(*window_bounds(time, every), segment): estimate}, replace)[0]

    def _store(
        self, name: str, version: str, estimates: dict[tuple[int, int, str], Estimate], replace: bool
    ) -> list[dict[str, Any]]:
        with self.writing() as session:
            # Writers of one model wait for each other here, so that the test sees windows one after the other.
            locked = select(Model).where(Model.name == name, Model.version == version).with_for_update()
            model = session.scalars(locked).one()
            stored = [self._store_one(session, model, key, estimate, replace) for key, estimate in estimates.items()]
        if self.notify_on_add:
            self.deliver()
        return stored

    def _store_one(
        self, session: Session, model: Model, key: tuple[int, int, str], estimate: Estimate, replace: bool
    ) -> dict[str, Any]:
        start, end, segment = key
        facts = estimate.to_dict()
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        same = select(Window).where(
            Window.model_id == model.id, Window.segment == segment, Window.start == start, Window.end == end
        )
        window = session.scalars(same).first()
        new = window is None
        if window is not None and window.content_hash == digest:
            return reading.window_dict(window, model) | {"new": False}
        if window is not None and not replace:
            raise ConflictError(
                f"Expected a new window of {model.name!r}, but the one at {shown_time(start)} is there with other "
                "numbers: give replace=True to replace it"
            )
        if window is None:
            window = Window(model_id=model.id, segment=segment, start=start, end=end)
            session.add(window)
        for column in ("accuracy", "low", "high", "level", "reference_accuracy", "scores", "warnings"):
            setattr(window, column, facts[column])
        window.rows, window.estimate, window.content_hash = estimate.n, facts, digest
        window.created_at = now_micros()
        session.flush()
        if new:
            extend_series(session, model, window, estimate)
        return reading.window_dict(window, model) | {"new": new}

    def add_labels(
        self,
        model: str,
        time: Any,
        outputs: Outputs | None = None,
        *,
        correct: int | None = None,
        rows: int | None = None,
        accuracy: float | None = None,
        segment: str = "",
        version: str | None = None,
    ) -> None:
        """Keep the truth of a window whose labels came later.

        Parameters
        ----------
        model, time, segment, version
            Which window, as in `add`.
        outputs : Outputs, optional
            Outputs with labels.
        correct, accuracy, rows : int, float, int, optional
            Instead of outputs: how many of how many rows were predicted right, or their share.
        """
        if outputs is not None:
            if "labels" not in outputs.has:
                raise GdscoreError("Expected outputs with labels, but they have none")
            accuracy, rows = outputs.accuracy, len(outputs)
        rows = integer("rows", rows, least=1)
        if accuracy is not None:
            correct = round(number("accuracy", accuracy, least=0, most=1) * rows)
        correct = integer("correct", correct, least=0)
        if correct > rows:
            raise GdscoreError(f"Expected at most {rows} correct rows, but got {correct}")
        with self.writing() as session:
            found = self._find(session, model, version)
            start, end = window_bounds(time, found.every)
            changed = session.execute(
                update(Window)
                .where(Window.model_id == found.id, Window.segment == segment, Window.start == start, Window.end == end)
                .values(labelled=rows, correct=correct, labels_at=now_micros())
            )
            if not changed.rowcount:  # type: ignore[attr-defined]
                raise NotFoundError(f"Expected a window of {model!r} at {shown_time(start)}, but there is none: add it")

    # -- alarms ---------------------------------------------------------------------------------------------

    def check(self, now: Any = None) -> None:
        """Look for models whose windows have stopped coming, and deliver notices that could not be delivered."""
        moment = now_micros() if now is None else as_micros(now)
        with self.writing() as session:
            newest = session.execute(
                select(Model, Window.end, Series)
                .join(Series, Series.model_id == Model.id)
                .join(Window, Window.id == Series.last_window)
                .where(Series.segment == "", Model.id.in_(reading.current_models()))
            ).all()
            for model, end, series in newest:
                rules, state = Rules.from_dict(model.rules), dict(series.state)
                finding = rules.check_missing(model.name, end, moment, model.every)
                if finding is not None and finding.problem:
                    apply_finding(session, model, "", finding, state, moment, rules.recovery)
        self.deliver()

    def deliver(self) -> None:
        """Send the notices of alarms; one that fails stays pending and is sent by the next call."""
        if not self.notify or not self._delivering.acquire(blocking=False):
            return
        try:
            with self.reading() as session:
                pending = session.execute(
                    select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.pending != "")
                ).all()
                notices = [(a.id, a.pending, notice(reading.alarm_dict(a, m), a.pending)) for a, m in pending]
            for alarm, kind, body in notices:
                failed = [message for target in self.notify if (message := target.send(body)) is not None]
                for message in failed:
                    warnings.warn(
                        f"the notice of alarm {alarm} was not delivered: {message}", GdscoreWarning, stacklevel=2
                    )
                if not failed:
                    with self.writing() as session:
                        done = update(Alarm).where(Alarm.id == alarm, Alarm.pending == kind)
                        session.execute(done.values(pending=""))
        finally:
            self._delivering.release()

    def acknowledge(self, alarm: int, by: str) -> dict[str, Any]:
        """Note that somebody has seen an alarm; the first one stays."""
        check_name("person", by)
        with self.writing() as session:
            row = session.execute(
                select(Alarm, Model).join(Model, Model.id == Alarm.model_id).where(Alarm.id == alarm).with_for_update()
            ).first()
            if row is None:
                raise NotFoundError(f"Expected the number of an alarm, but there is no alarm {alarm}")
            if row[0].acknowledged_at is None:
                row[0].acknowledged_by, row[0].acknowledged_at = by, now_micros()
            return reading.alarm_dict(*row)

    # -- reading --------------------------------------------------------------------------------------------

    def windows(
        self, model: str | None = None, *, segment: str | None = None, since: Any = None, until: Any = None
    ) -> pd.DataFrame:
        """Windows as a pandas DataFrame, by time; of all models and segments where these are not given."""
        with self.reading() as session:
            listed = reading.list_windows(session, model, segment, since=since, until=until, limit=None)
        return _frame(listed, ("start", "end", "created_at", "labels_at"))

    def alarms(self, model: str | None = None, *, open_only: bool = False) -> pd.DataFrame:
        """Alarms as a pandas DataFrame, newest first."""
        with self.reading() as session:
            listed = reading.list_alarms(session, model, open_only=open_only, limit=None)
        return _frame(listed, ("began", "ended", "opened_at", "acknowledged_at"))

    def prune(self, older_than: Any, now: Any = None) -> int:
        """Delete windows that ended longer ago than this, and alarms that did; returns how many windows."""
        limit = (now_micros() if now is None else as_micros(now)) - as_duration(older_than)
        with self.writing() as session:
            latest = select(Series.last_window)
            gone = session.execute(delete(Window).where(Window.end < limit, Window.id.not_in(latest)))
            session.execute(delete(Alarm).where(Alarm.ended < limit))
            return int(gone.rowcount)  # type: ignore[attr-defined]


def _estimator_bytes(estimator: AccuracyEstimator | str | Path | bytes) -> tuple[bytes, int]:
    """File of an estimator, and the rows of its reference."""
    if isinstance(estimator, AccuracyEstimator):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "estimator.gdscore"
            estimator.save(path)
            return path.read_bytes(), estimator.reference_rows_
    if not isinstance(estimator, bytes):
        path = Path(estimator)
        if path.stat().st_size > LARGEST_ESTIMATOR:
            raise GdscoreError(f"Expected an estimator of at most {LARGEST_ESTIMATOR >> 20} MiB")
        estimator = path.read_bytes()
    return estimator, _load(estimator).reference_rows_


def _load(content: bytes) -> AccuracyEstimator:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "estimator.gdscore"
        path.write_bytes(content)
        return AccuracyEstimator.load(path)


def _frame(listed: list[dict[str, Any]], times: Sequence[str]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise GdscoreError("Expected pandas to be installed, but it is not: pip install pandas") from error
    frame = pd.DataFrame(listed)
    for column in times:
        if column in frame:
            frame[column] = pd.to_datetime(frame[column], utc=True, format="ISO8601")
    return frame
