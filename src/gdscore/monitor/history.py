"""`Monitor`: estimates of models over time, the labels that come later, and the alarms."""

from __future__ import annotations

import threading
import time as time_module
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gdscore._checks import integer
from gdscore._files import PathLike
from gdscore._windows import as_time, parse_every
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.monitor import alarms, queries, store
from gdscore.monitor.database import (
    AdvisedError,
    Key,
    StorageError,
    back_up,
    check_name,
    open_engine,
    storage_errors,
    time_before,
    utc_now,
    window_bounds,
)
from gdscore.monitor.labels import (
    Collector,
    EarlierLabels,
    count_labels,
    delete_rows,
    join_labels,
    store_labels,
    store_rows,
)
from gdscore.monitor.notify import Delivery, Notifier
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import Alarm, EstimatorFile, KeptRow, Model, Window
from gdscore.monitor.store import AT_ONCE, EstimatorLike, Fresh
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    import pandas as pd

MOST_ESTIMATORS = 16
WAIT_S = 45.0
"""Seconds that `Monitor.deliver` waits for its targets, of which each may take 30."""
CLOSE_S = 5.0
PAUSE_S = 0.05
TURN_S = 30.0


class Monitor:
    """History of estimates in a database, with alarms.

    Parameters
    ----------
    url : str
        ``sqlite:///history.db``, or ``postgresql://user:password@host/name``.
    notify : sequence of Webhook, Command or Email
        What sends a notice when an alarm begins and when it ends; of alarms that begin from now on.
    public_url : str, optional
        Address under which people see the pages of the service: notices have a link to the alarm.

    Examples
    --------
    >>> import tempfile, gdscore
    >>> monitor = Monitor(f"sqlite:///{tempfile.mkdtemp()}/history.db")
    >>> rules = monitor.register("animals", every="1d")
    >>> e = gdscore.Estimate(0.9, 0.87, 0.93, level=0.9, n_rows=900, reference_accuracy=0.91)
    >>> monitor.add_estimate("animals", e, time="2026-01-31")["new"]
    True
    >>> monitor.add_labels("animals", time="2026-01-31", correct=90, rows=100)
    >>> monitor.windows("animals")[["accuracy", "truth"]].values.tolist()
    [[0.9, 0.9]]
    >>> monitor.close()
    """

    def __init__(
        self,
        url: str = "sqlite:///gdscore-history.db",
        *,
        notify: Sequence[Notifier] = (),
        public_url: str | None = None,
    ) -> None:
        self.engine = open_engine(url)
        # A monitor that nobody closes: its connections close with it.
        weakref.finalize(self, self.engine.dispose)
        self.public_url = None if public_url is None else public_url.rstrip("/")
        self._writer = self.engine.execution_options(writes=True)
        self._estimator = lru_cache(MOST_ESTIMATORS)(self._load)
        # Threads wait here for their turn to write: SQLite lets those that wait for a file sleep and look again.
        self._turn = threading.Lock() if self.engine.dialect.name == "sqlite" else None
        self.delivery = Delivery(alarms.Outbox(self), tuple(notify))

    def close(self) -> None:
        """Close the connections; what is being sent has five seconds to arrive, and is sent again otherwise."""
        if self.delivery.stop(CLOSE_S):
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Transaction that changes the history: all of it or nothing."""
        if self._turn is not None and not self._turn.acquire(timeout=TURN_S):
            raise StorageError("Expected a turn to write to the database, but others write for too long")
        try:
            with storage_errors(), Session(self._writer) as session, session.begin():
                yield session
                told = alarms.queue_notices(session)
        finally:
            if self._turn is not None:
                self._turn.release()
        if told:
            self.delivery.start()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Session that only reads."""
        with storage_errors(), Session(self.engine) as session:
            yield session

    # -- models ---------------------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        estimator: EstimatorLike | None = None,
        *,
        version: str | None = None,
        every: Any = None,
        rules: Rules | Mapping[str, Any] | None = None,
        reference_rows: int | None = None,
        by: str = "unknown",
    ) -> Rules:
        """Make a model known, or change its window length and rules; returns its rules.

        Parameters
        ----------
        name : str
            Name of the model.
        version : str, optional
            By default the one that windows go to, or 1. From now on they go to the version that is given, also where it
            was registered before; alarms of the others end. The tests of a new one begin anew, and it keeps the rules
            and the length of windows.
        estimator : AccuracyEstimator, path or bytes, optional
            Fitted estimator, which is kept in the database. `add` needs it, `add_estimate` does not.
        every : str or timedelta, optional
            Length of a window: ``1d``, ``6h``, ``15min``, ``week``, ``month``, in a time zone ``month Europe/Paris``; a
            new model has ``1d``.
        rules : Rules or dict, optional
            When alarms are raised: all rules, or a dict of those to change. The others stay.
        reference_rows : int, optional
            Rows of the reference, which tell how well its accuracy is known; by default the estimator's, or 100.
        by : str
            Who changes the rules, for their history.
        """
        name = store.check_model_name(name)
        version = None if version is None else check_name("version", version)
        content, digest, rows = store.read_estimator(estimator)
        if reference_rows is not None:
            rows = integer("reference_rows", reference_rows, least=1)
        length = None if every is None else parse_every(every)
        check_name("person", by)
        with self.writing() as session:
            stored = store.store_model(
                *(session, name, version, content, digest), every=length, rules=rules, reference_rows=rows, by=by
            )
            return Rules.from_dict(stored.rules)

    def set_rules(self, name: str, rules: Rules | Mapping[str, Any], *, by: str = "unknown") -> Rules:
        """Change rules of the newest version of a model, all or those of a dict, for the windows that come."""
        check_name("person", by)
        with self.writing() as session:
            model = queries.find_model(session, name)
            store.store_rules(session, model, rules, by)
            return Rules.from_dict(model.rules)

    def rules(self, name: str) -> Rules:
        """Rules of the newest version of a model."""
        return Rules.from_dict(self._model(name, None).rules)

    def learn_again(self, name: str, *, since: Any = None, by: str = "unknown") -> datetime:
        """Let the tests of the newest version learn again what its windows are like while nothing is wrong.

        Parameters
        ----------
        name : str
            Name of the model.
        since : datetime, date or str, optional
            Start of the first window to learn from; by default the next one that comes.
        by : str
            Who asks for it, for the history of changes.

        Returns
        -------
        datetime
            Time from which windows are learned from. An open alarm of a test that learns ends there.
        """
        check_name("person", by)
        with self.writing() as session:
            model = store.lock_model(session, queries.find_model(session, name).id)
            return store.learn_again(session, model, None if since is None else as_time(since), by)

    def set_estimator(self, name: str, estimator: EstimatorLike, *, version: str | None = None) -> None:
        """Give a registered model, of the newest version by default, its estimator; length and rules stay."""
        content, digest, rows = store.read_estimator(estimator)
        with self.writing() as session:
            registered = queries.find_model(session, name, version)
            store.store_model(
                *(session, registered.name, registered.version, content, digest), reference_rows=rows, switch=False
            )

    def models(self) -> list[str]:
        """Names of the models that are registered."""
        with self.reading() as session:
            return list(session.scalars(select(Model.name).distinct().order_by(Model.name)))

    def version(self, name: str) -> str:
        """Version of a model that windows go to."""
        return self._model(name, None).version

    def estimator(self, model: str, version: str | None = None) -> AccuracyEstimator | None:
        """Estimator of a model, where it was registered with one."""
        digest = self._model(model, version).estimator_hash
        return None if digest is None else self._estimator(digest)

    def _load(self, digest: str) -> AccuracyEstimator:
        with self.reading() as session:
            content = session.scalars(select(EstimatorFile.content).where(EstimatorFile.hash == digest)).one()
        return AccuracyEstimator.load(content)

    def _model(self, name: str, version: str | None) -> Model:
        with self.reading() as session:
            return queries.find_model(session, name, version)

    # -- adding ---------------------------------------------------------------------------------------------

    def add(
        self,
        model: str,
        outputs: Outputs | Iterable[Any],
        time: Any = None,
        by: Any = None,
        *,
        inputs: Any = None,
        version: str | None = None,
        replace: bool = False,
    ) -> list[dict[str, Any]]:
        """Estimate the accuracy of one or more windows, and keep the estimates.

        Adding the same window again changes nothing. Windows may come in any order: where one comes late or is
        replaced, the alarms of its series are computed again. Notices of alarms are sent in the background; what was
        not sent when the process ends is sent by the next one, or wait for it with `deliver`.

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
        inputs : data frame or matrix, optional
            Inputs of the same rows, where the estimator was fitted on a table by `fit_predictor`: pages of alarms then
            name the columns that moved most.
        version : str, optional
            Version of the model, the newest by default.
        replace : bool
            Whether a window that is there with other numbers is replaced; otherwise that is an error.

        Returns
        -------
        list of dict
            The windows; ``new`` tells whether a window was added.
        """
        added = self.add_quietly(model, outputs, time, by, inputs=inputs, version=version, replace=replace)
        for window in added:
            if "note" in window:
                warnings.warn(window["note"], GdscoreWarning, stacklevel=2)
        return added

    def add_quietly(
        self,
        model: str,
        outputs: Outputs | Iterable[Any],
        time: Any = None,
        by: Any = None,
        *,
        inputs: Any = None,
        version: str | None = None,
        replace: bool = False,
    ) -> list[dict[str, Any]]:
        """As `add`, without warnings: what there is to know of a window is its ``note``."""
        target = self._model(model, version)
        if target.estimator_hash is None:
            raise AdvisedError(
                f"Expected {model!r} to have an estimator, but it has none",
                "register it with one (`gdscore monitor register MODEL FILE` with the file of `gdscore fit`)",
                f"send the file of `gdscore fit`: PUT /api/v1/models/{target.name}/estimator",
            )
        if by is not None and not isinstance(outputs, Outputs):
            raise GdscoreError("Expected `by` of a stream in its batches, as gdscore.io.read_batches has it")
        if inputs is not None and not isinstance(outputs, Outputs):
            raise GdscoreError("Expected `inputs` with `Outputs` of the same rows, but got a stream")
        estimator = self._estimator(target.estimator_hash)
        kept = Collector(estimator) if Rules.from_dict(target.rules).keep_rows is not None else None
        fresh = store.estimate_windows(estimator, outputs, time, by, inputs, target.every, kept)
        return self._store(target, fresh, replace, kept)

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
        segment = check_name("segment", segment, empty=True)
        target = self._model(model, version)
        fresh = {(*window_bounds(time, target.every), segment): Fresh(estimate)}
        return self._store(target, fresh, replace)[0]

    def _store(
        self, model: Model, fresh: Mapping[Key, Fresh], replace: bool, kept: Collector | None = None
    ) -> list[dict[str, Any]]:
        with self.reading() as session:
            labels = EarlierLabels(session, model, {key[2] for key in fresh}, self._estimator)
            made = store.prepare_windows(model, fresh, labels)
        added: list[dict[str, Any]] = []
        if len(made) > AT_ONCE:
            with self.reading() as session:
                store.check_added(session, model, made, replace)
        for first in range(0, len(made), AT_ONCE):
            if first:
                time_module.sleep(PAUSE_S)
            with self.writing() as session:
                locked = store.lock_model(session, model.id)
                stored = store.store_windows(session, locked, made[first : first + AT_ONCE], replace)
                if kept is not None:
                    store_rows(session, locked, stored, kept)
            added += stored
        return added

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
        segment = check_name("segment", segment, empty=True)
        target = self._model(model, version)
        key = (*window_bounds(time, target.every), segment)
        counts = count_labels(key, outputs, correct=correct, accuracy=accuracy, rows=rows)
        with self.writing() as session:
            store_labels(session, store.lock_model(session, target.id), [counts])

    def add_row_labels(
        self, model: str, ids: Sequence[Any], labels: Sequence[Any], *, time: Any = None, version: str | None = None
    ) -> dict[str, Any]:
        """Keep labels of rows by their ids, where the rule `keep_rows` has kept the rows; they may come in parts.

        Parameters
        ----------
        model, version : str
            Which model; all its versions by default.
        ids, labels : sequence
            Id and true class of each row, by the name or the position of the class. A later label replaces an earlier.
        time : datetime, str or pair, optional
            The window, as in `add`; needed where ids occur in several windows.

        Returns
        -------
        dict
            How many labels were ``added``, ``replaced``, the ``same`` and of ``unknown`` ids; and the ``windows``, with
            their accuracy by labels, and what P(right) let expect of the labelled rows and of all.
        """
        row_ids, truths = [str(value) for value in ids], list(labels)
        if not row_ids or len(row_ids) != len(truths):
            raise GdscoreError(f"Expected as many labels as ids, but got {len(truths)} for {len(row_ids)}")
        target = self._model(model, version)
        with self.writing() as session:
            query = select(Model).where(Model.name == target.name).order_by(Model.id).with_for_update()
            locked = [m for m in session.scalars(query) if version is None or m.version == version]
            versions = {
                m.id: (m, None if m.estimator_hash is None else self._estimator(m.estimator_hash)) for m in locked
            }
            window = None if time is None else window_bounds(time, target.every)
            return join_labels(session, versions, row_ids, truths, window)

    # -- alarms ---------------------------------------------------------------------------------------------

    def check(self, now: Any = None) -> None:
        """Look for models whose windows have stopped coming, and send the notices that are due."""
        self.check_missing(now)
        self.deliver()

    def check_missing(self, now: Any = None) -> None:
        """Look for models whose windows have stopped coming."""
        with self.writing() as session:
            alarms.check_missing(session, utc_now() if now is None else as_time(now))

    def deliver(self) -> None:
        """Send the notices that are due and wait for it, at most 45 seconds; one that fails is tried again later."""
        for problem in self.delivery.deliver(WAIT_S):
            warnings.warn(problem, GdscoreWarning, stacklevel=3)

    def acknowledge(self, alarm: int, by: str) -> dict[str, Any]:
        """Note who has seen an alarm. The first note stays."""
        return self.acknowledge_all([alarm], by)[0]

    def acknowledge_all(self, alarms: Sequence[int], by: str) -> list[dict[str, Any]]:
        """Acknowledge several alarms, or none where one is unknown."""
        check_name("person", by)
        with self.writing() as session:
            locked = [store.lock_alarm(session, number) for number in alarms]
            for alarm, _ in locked:
                if alarm.acknowledged_at is None:
                    alarm.acknowledged_by, alarm.acknowledged_at = by, utc_now()
            return [queries.alarm_facts(alarm, model) for alarm, model in locked]

    def snooze(self, alarm: int, until: Any) -> dict[str, Any]:
        """Silence an alarm for Prometheus until a time; None ends that."""
        with self.writing() as session:
            row, model = store.lock_alarm(session, alarm)
            row.snoozed_until = None if until is None else as_time(until)
            return queries.alarm_facts(row, model)

    # -- reading --------------------------------------------------------------------------------------------

    def windows(
        self, model: str | None = None, *, segment: str | None = None, since: Any = None, until: Any = None
    ) -> pd.DataFrame:
        """Windows as a pandas DataFrame, by time; of all models and segments where these are not given."""
        with self.reading() as session:
            listed = queries.list_windows(session, model, segment, since=since, until=until, limit=None)
        return _frame(listed, queries.window_facts(Window(), Model()), ("start", "end", "created_at", "labels_at"))

    def alarms(self, model: str | None = None, *, open_only: bool = False) -> pd.DataFrame:
        """Alarms as a pandas DataFrame, newest first."""
        with self.reading() as session:
            listed = queries.list_alarms(session, model, open_only=open_only, limit=None)
        times = ("raised", "began", "ended", "opened_at", "acknowledged_at", "snoozed_until")
        return _frame(listed, queries.alarm_facts(Alarm(), Model()), times)

    def prune(self, older_than: Any, now: Any = None) -> int:
        """Delete windows that ended longer ago than this, with their rows, and such alarms; returns how many windows.

        The newest window of each series stays.
        """
        limit = time_before(utc_now() if now is None else as_time(now), older_than)
        with self.writing() as session:
            numbers = store.prunable_models(session, limit)
        deleted = 0
        for number in numbers:
            with self.writing() as session:
                deleted += store.prune_windows(session, number, limit)
        return deleted

    def delete_window(self, window: int, *, model: str | None = None) -> dict[str, Any]:
        """Delete a window, of this model where it is given, with its rows and labels; returns what it was.

        Alarms are computed without it.
        """
        with self.writing() as session:
            return store.delete_window(session, window, model)

    def retire(self, name: str) -> None:
        """Stop watching a model: its alarms end, its history stays. `register` starts watching again."""
        with self.writing() as session:
            store.retire_model(session, store.lock_model(session, queries.find_model(session, name).id))

    def delete_model(self, name: str) -> int:
        """Delete a model with its history, all versions of it; returns how many versions."""
        with self.writing() as session:
            return store.delete_model(session, name)

    def back_up(self, path: PathLike) -> None:
        """Copy a history in SQLite into a new file, also while others write."""
        back_up(self.engine, path)

    def prune_rows(self, now: Any = None) -> None:
        """Delete the rows that were kept for labels for as long as the rule `keep_rows` of their model says."""
        with self.reading() as session:
            if session.scalars(select(KeptRow.window_id).limit(1)).first() is None:
                return  # and no writer waits
        with self.writing() as session:
            delete_rows(session, utc_now() if now is None else as_time(now))


def _frame(listed: list[dict[str, Any]], columns: Iterable[str], times: Sequence[str]) -> pd.DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise GdscoreError("Expected pandas to be installed, but it is not: pip install pandas") from error
    frame = pd.DataFrame(listed, columns=list(columns))
    for column in times:
        frame[column] = pd.to_datetime(frame[column], utc=True, format="ISO8601")
    return frame
