"""Threads of two histories write at once: none fails, and what is stored afterwards is what one look at all windows gives."""

import random
import threading

import numpy as np
from sqlalchemy import func, select

from gdscore import GdscoreError, Outputs
from gdscore.monitor import Monitor
from gdscore.monitor.alarms import follow_again
from gdscore.monitor.database import StorageError
from gdscore.monitor.schema import Alarm, KeptRow, Model, Series, Window
from tests.monitor.conftest import day
from tests.monitor.random_history import RULES, estimator

NAMES, DAYS, ROWS, STEPS = ("a", "b"), 8, 12, 15


def some_step(monitor, rng):
    name, n = rng.choice(NAMES), rng.randrange(DAYS)
    kinds = ["rows", "labels", "counts", "prune", "delete", "acknowledge", "version", "look"]
    kind = rng.choices(kinds, [30, 25, 10, 5, 5, 10, 3, 12])[0]
    ids = [f"{n}-{k}" for k in range(ROWS)]
    if kind == "rows":
        p = np.random.default_rng(rng.randrange(10)).beta(1.5, 1.5, ROWS)
        outputs = Outputs(probabilities=np.stack([1 - p, p], 1), ids=np.array(ids))
        monitor.add(name, outputs, day(n), {"of": ["a", "b"] * (ROWS // 2)}, replace=True)
    elif kind == "labels":
        monitor.add_row_labels(name, ids, [rng.randrange(2) for _ in ids], time=day(n))
    elif kind == "counts":
        monitor.add_labels(name, day(n), correct=rng.randrange(ROWS), rows=ROWS)
    elif kind == "prune":
        monitor.prune("1d", now=day(rng.randrange(3)))
        monitor.prune_rows()
    elif kind == "version":
        monitor.register(name, version=rng.choice("12"))
    elif kind == "look":
        monitor.check()
    else:
        table = Window if kind == "delete" else Alarm
        with monitor.reading() as session:
            numbers = session.scalars(select(table.id)).all()
        if numbers and kind == "delete":
            monitor.delete_window(rng.choice(numbers))
        elif numbers:
            monitor.acknowledge(rng.choice(numbers), "Ada")


def alarms(monitor):
    with monitor.reading() as session:
        listed = session.scalars(select(Alarm).order_by(Alarm.id)).all()
        return [(a.id, a.model_id, a.segment, a.rule, a.raised, a.ended, a.withdrawn) for a in listed]


def test_six_threads_at_once_leave_what_one_look_at_all_windows_gives(url):
    histories = [Monitor(url) for _ in range(2)]
    for name in NAMES:
        for version in "21":
            histories[0].register(name, estimator(), version=version, rules=RULES | {"min_accuracy": 0.8})
    failures = []

    def work(place):
        rng = random.Random(place)
        for _ in range(STEPS):
            try:
                some_step(histories[place % 2], rng)
            except StorageError as error:
                failures.append(error)
            except GdscoreError:
                pass  # the window, the alarm or its rows are gone meanwhile
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with histories[0].reading() as session:
        of_series = select(Window.model_id, Window.segment, func.count(), func.max(Window.start))
        stored = {
            (model, segment): (count, last)
            for model, segment, count, last in session.execute(of_series.group_by(Window.model_id, Window.segment))
        }
        summaries = {
            (series.model_id, series.segment): (series.windows, session.get_one(Window, series.last_window).start)
            for series in session.scalars(select(Series).where(Series.windows > 0))
        }
        strays = session.scalars(select(KeptRow).where(KeptRow.window_id.not_in(select(Window.id)))).all()
    assert summaries == stored
    assert strays == []
    before = alarms(histories[0])
    with histories[0].writing() as session:
        for model, segment in session.execute(
            select(Model, Series.segment).join(Series, Series.model_id == Model.id)
        ).all():
            follow_again(session, model, segment)
    assert alarms(histories[0]) == before
    for history in histories:
        history.close()
