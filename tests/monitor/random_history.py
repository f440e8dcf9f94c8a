"""Random histories compared with a plain model of them: ``python -m tests.monitor.random_history --steps 1000 --seeds 20``.

Two processes register versions, roll back, post windows in any order, replace, label, prune and delete; some are killed
in the middle of a step (``--kill``). The plain model is dictionaries, and alarms that are found by looking at all windows
of a series.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
from sqlalchemy import select

from gdscore import AccuracyEstimator, Estimate, Outputs
from gdscore.monitor import Monitor
from gdscore.monitor.schema import Alarm, KeptRow, Model, RulesChange, Series, Window

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS, ROWS, RECOVERY = 40, 12, 2
NAMES, SEGMENTS = ("churn", "spam"), ("of=a", "of=b")
RULES = {
    "false_alarms_per_year": None,
    "missing_after": None,
    "tracking": False,
    "warnings": [],
    "min_rows": 1,
    "max_width": 1.0,
    "recovery": RECOVERY,
    "keep_rows": "100000d",
    "notify_within": None,
}


def day(n):
    return START + timedelta(days=n)


@cache
def estimator():
    rng = np.random.default_rng(0)
    share = rng.beta(6, 1, 300)
    right = rng.random(300) < share
    labels = rng.integers(0, 2, 300)
    one = np.where(labels == right, share, 1 - share)
    return AccuracyEstimator().fit(Outputs(probabilities=np.stack([1 - one, one], 1), labels=labels))


def outputs(step):
    """Rows with ids of a window, by the numbers of a step."""
    rng = np.random.default_rng(step["draw"])
    p = rng.beta(1.5, 1.5, ROWS)
    ids = np.array([f"{step['day']}-{k}" for k in range(ROWS)])
    return Outputs(probabilities=np.stack([1 - p, p], 1), ids=ids)


# -- steps: done by a history, and by the plain model -------------------------------------------------------


def do(monitor, step):
    """Do a step; what came of it, as plain data."""
    kind, name = step["kind"], step.get("name")
    if kind == "register":
        monitor.register(name, estimator(), version=step["version"], rules=RULES | {"min_accuracy": step["floor"]})
    elif kind == "rules":
        monitor.set_rules(name, {"min_accuracy": step["floor"]})
    elif kind == "estimate":
        e = Estimate(step["accuracy"], 0.0, 1.0, level=0.9, n_rows=100, reference_accuracy=0.9)
        monitor.add_estimate(name, e, day(step["day"]), step["segment"], version=step["version"], replace=True)
    elif kind == "rows":
        of = ["a" if k % 2 else "b" for k in range(ROWS)]
        monitor.add(name, outputs(step), day(step["day"]), {"of": of}, version=step["version"], replace=True)
    elif kind == "counts":
        monitor.add_labels(name, day(step["day"]), correct=step["correct"], rows=10, segment=step["segment"])
    elif kind == "labels":
        monitor.add_row_labels(name, step["ids"], step["labels"], time=day(step["day"]))
    elif kind == "prune":
        monitor.prune("1d", now=day(step["day"] + 1))
    elif kind == "delete":
        monitor.delete_window(step["window"])
    elif kind == "acknowledge":
        monitor.acknowledge(step["alarm"], "Ada")


class Plain:
    """What the history should be."""

    def __init__(self):
        self.current = {}  # name -> version
        self.floors = {}  # (name, version) -> floor
        self.windows = defaultdict(dict)  # (name, version, segment) -> {day: window}
        self.gone = defaultdict(list)  # the same -> windows deleted by retention, which still count for alarms
        self.pruned = {}  # (name, version) -> day

    def copy(self):
        import copy

        return copy.deepcopy(self)

    def do(self, step):
        kind, name = step["kind"], step.get("name")
        if kind == "register":
            self.current[name] = step["version"]
            self.floors[name, step["version"]] = step["floor"]
        elif kind == "rules":
            self.floors[name, self.current[name]] = step["floor"]
        elif kind == "estimate":
            self._put(name, step, step["segment"], {"accuracy": step["accuracy"], "rows": 100})
        elif kind == "rows":
            out = outputs(step)
            for segment in ("", *SEGMENTS):
                rows = [k for k in range(ROWS) if not segment or segment == ("of=a" if k % 2 else "of=b")]
                e = estimator().estimate(out[np.array(rows)])
                self._put(name, step, segment, {"accuracy": e.accuracy, "rows": len(rows)})
            window = self._series(name, step, "").get(step["day"])
            if window is not None:
                before = {i: label for i, (_, label) in window.get("kept", {}).items()}
                predicted = np.asarray(out.predictions).tolist()
                ids = [f"{step['day']}-{k}" for k in range(ROWS)]
                window["kept"] = {i: (p, before.get(i)) for i, p in zip(ids, predicted, strict=True)}
                if any(label is not None for label in before.values()):
                    self._recount(name, step["version"] or self.current[name], step["day"])
        elif kind == "counts":
            window = self.windows[name, self.current[name], step["segment"]][step["day"]]
            window["labels"] = (10, step["correct"])
        elif kind == "labels":
            for of, version in list(self.floors):
                window = self.windows[name, version, ""].get(step["day"], {})
                if of == name and "kept" in window:
                    for i, label in zip(step["ids"], step["labels"], strict=True):
                        window["kept"][i] = (window["kept"][i][0], label)
                    self._recount(name, version, step["day"])
        elif kind == "prune":
            for key, series in self.windows.items():
                for n in sorted(series)[:-1]:
                    if n + 1 < step["day"]:
                        self.gone[key].append(series.pop(n))
            for key in self.floors:
                self.pruned[key] = max(step["day"], self.pruned.get(key, 0))
        elif kind == "delete":
            del self.windows[tuple(step["series"])][step["day"]]

    def _series(self, name, step, segment):
        return self.windows[name, step["version"] or self.current[name], segment]

    def _put(self, name, step, segment, facts):
        version = step["version"] or self.current[name]
        series = self.windows[name, version, segment]
        if step["day"] not in series and step["day"] + 1 < self.pruned.get((name, version), 0):
            return
        floor = self.floors[name, version]
        before = series.get(step["day"], {})
        if facts == {k: before.get(k) for k in facts}:
            return  # the same window again
        series[step["day"]] = before | facts | {"floor": floor, "day": step["day"]}
        if before.get("labels") and before["labels"][0] > facts["rows"]:
            series[step["day"]].pop("labels")

    def _recount(self, name, version, n):
        for segment in ("", *SEGMENTS):
            kept = self.windows[name, version, ""][n]["kept"]
            mine = {
                i: row
                for i, row in kept.items()
                if not segment or segment == ("of=a" if int(i.partition("-")[2]) % 2 else "of=b")
            }
            known = [(p, label) for p, label in mine.values() if label is not None]
            window = self.windows[name, version, segment].get(n)
            if known and window is not None:
                window["labels"] = (len(known), sum(p == label for p, label in known))

    def alarms(self, key):
        """Alarms of a series by rule, found anew from all of its windows: raised and ended, None where open."""
        series = [*self.gone[key], *(self.windows[key][n] for n in sorted(self.windows[key]))]
        found = []
        for rule in ("accuracy", "labels:accuracy"):
            opened, fine = None, []
            for window in series:
                value = window["accuracy"]
                if rule != "accuracy":
                    if "labels" not in window:
                        continue
                    value = window["labels"][1] / window["labels"][0]
                if value < window["floor"] - 1e-9:
                    opened, fine = (window["day"] if opened is None else opened), []
                elif opened is not None:
                    fine.append(window["day"])
                    if len(fine) == RECOVERY:
                        found.append((rule, opened, fine[0]))
                        opened, fine = None, []
            if opened is not None:
                found.append((rule, opened, None))
        return found


# -- random steps -------------------------------------------------------------------------------------------


def next_step(rng, plain, look):
    """A step that can be done; ``look`` gives the numbers of windows by series and day, and those of alarms."""
    name = rng.choice(NAMES)
    floor = rng.choice([0.5, 0.7, 0.8])
    if name not in plain.current:
        return {"kind": "register", "name": name, "version": "1", "floor": floor}
    versions = [version for of, version in plain.floors if of == name]
    version = rng.choice(versions) if rng.random() < 0.2 else None
    newest = max((n for key, s in plain.windows.items() if key[0] == name for n in s), default=-1)
    # Windows with rows are of even days, as one that had rows and is replaced by an estimate keeps its rows.
    n = min(newest + 1, DAYS) if rng.random() < 0.6 else rng.randrange(DAYS)
    here = [(key, n) for key, s in plain.windows.items() for n in s if key[0] == name]
    kind = rng.choices(
        ["window", "register", "rules", "counts", "labels", "prune", "delete", "acknowledge"],
        [50, 4, 3, 14, 14, 2, 4, 4],
    )[0]
    step = {"kind": kind, "name": name, "version": version, "day": n}
    if kind == "register":
        return step | {"version": rng.choice([*versions, str(len(versions) + 1)]), "floor": floor}
    if kind == "rules":
        return step | {"floor": floor}
    if kind == "prune":
        return step | {"day": max(rng.randrange(DAYS) - 10, 1)}
    if kind == "acknowledge" and (alarms := look()[1]):
        return step | {"alarm": rng.choice(sorted(alarms))}
    if kind == "delete" and here:
        key, n = rng.choice(here)
        if key[2] == "" and "kept" in plain.windows[key][n]:
            return step | {"kind": "prune", "day": 1}  # its segments would lose the rows that they were counted from
        return step | {"window": look()[0][key, n], "series": key, "day": n}
    if kind == "counts":
        mine = [(k, n) for k, n in here if k[1] == plain.current[name] and plain.windows[k][n]["rows"] >= 10]
        if mine:
            key, n = rng.choice(mine)
            return step | {"segment": key[2], "day": n, "correct": rng.randrange(4, 11)}
    if kind == "labels":
        mine = [(k, n) for k, n in here if "kept" in plain.windows[k][n]]
        if mine:
            key, n = rng.choice(mine)
            ids = rng.sample(sorted(plain.windows[key][n]["kept"]), rng.randrange(1, ROWS))
            return step | {"day": n, "ids": ids, "labels": [rng.randrange(2) for _ in ids]}
    if n % 2 == 0:
        return step | {"kind": "rows", "draw": rng.randrange(6)}
    segment = rng.choice(["", "", *SEGMENTS])
    return step | {"kind": "estimate", "accuracy": rng.choice([0.4, 0.6, 0.75, 0.9]), "segment": segment}


# -- comparing ----------------------------------------------------------------------------------------------


def contents(monitor):
    """Windows, rows, alarms, numbers of windows, summaries, current versions and rules of a history."""
    windows, kept, alarms, numbers, summaries = {}, {}, [], {}, {}
    with monitor.reading() as session:
        models = {m.id: m for m in session.scalars(select(Model))}
        floors = {c.id: c.rules["min_accuracy"] for c in session.scalars(select(RulesChange))}
        for w in session.scalars(select(Window)):
            key = models[w.model_id].name, models[w.model_id].version, w.segment
            n = (w.start - START).days
            labels = None if w.labelled is None else (w.labelled, w.correct)
            windows[key, n] = (round(w.accuracy, 9), w.rows, labels, floors[w.rules_change])
            numbers[key, n] = w.id
        by_number = {number: place for place, number in numbers.items()}
        for row in session.scalars(select(KeptRow)):
            kept.setdefault(by_number[row.window_id], {})[row.row_id] = (row.prediction, row.label)
        for a in session.scalars(select(Alarm)):
            key = models[a.model_id].name, models[a.model_id].version, a.segment
            alarms.append((a.id, key, a.rule, a.raised, a.ended, a.withdrawn))
        for s in session.scalars(select(Series)):
            key = models[s.model_id].name, models[s.model_id].version, s.segment
            if s.windows or s.last_window:  # what retention deleted still counts where no window is left
                summaries[key] = (s.windows, by_number[s.last_window][1])
        current = [(m.name, m.version) for m in models.values() if m.superseded_at is None]
        rules = {(m.name, m.version): m.rules["min_accuracy"] for m in models.values()}
    return windows, kept, alarms, numbers, summaries, sorted(current), rules


def differences(plain, monitor):
    """What a history has other than the plain model."""
    windows, kept, alarms, _, summaries, current, rules = contents(monitor)
    wrong = [] if rules == plain.floors else [("rules", rules, plain.floors)]
    expected = {
        (key, n): (round(w["accuracy"], 9), w["rows"], w.get("labels"), w["floor"])
        for key, series in plain.windows.items()
        for n, w in series.items()
    }
    wrong += [
        ("window", k, windows.get(k), expected.get(k))
        for k in {*windows, *expected}
        if windows.get(k) != expected.get(k)
    ]
    rows = {(key, n): w["kept"] for key, series in plain.windows.items() for n, w in series.items() if "kept" in w}
    wrong += [("rows", k, kept.get(k), rows.get(k)) for k in {*kept, *rows} if kept.get(k) != rows.get(k)]
    if current != sorted(plain.current.items()):
        wrong.append(("current", current, plain.current))
    counts = {key: (len(s), max(s)) for key, s in plain.windows.items() if s}
    wrong += [
        ("series", k, summaries.get(k), counts.get(k))
        for k in {*summaries, *counts}
        if summaries.get(k) != counts.get(k)
    ]
    for key in {*plain.windows, *(a[1] for a in alarms)}:
        limit = day(plain.pruned.get(key[:2], 0))
        is_current = plain.current.get(key[0]) == key[1]
        there = {
            (
                rule,
                (raised - START).days,
                None if ended is None or (not is_current and ended > day(2 * DAYS)) else (ended - START).days,
            )
            for _, of, rule, raised, ended, withdrawn in alarms
            if of == key and not withdrawn and (ended is None or ended >= limit)
        }
        should = {a for a in plain.alarms(key) if a[2] is None or day(a[2]) >= limit}
        if there != should:
            wrong.append(("alarms", key, sorted(there - should, key=str), sorted(should - there, key=str)))
        if not is_current and any(of == key and ended is None for _, of, _, _, ended, _ in alarms):
            wrong.append(("an alarm of an older version is open", key))
    return wrong


def same(plain, monitor, *place):
    wrong = differences(plain, monitor)
    assert wrong == [], (*place, wrong[:3])


class Numbers:
    """Numbers of windows and alarms that were ever seen: none stands for anything else later."""

    def __init__(self):
        self.seen = {}

    def check(self, monitor):
        _, _, alarms, numbers, *_ = contents(monitor)
        for place, number in numbers.items():
            assert self.seen.setdefault(("window", number), place) == place, (number, place)
        for number, key, rule, *_ in alarms:
            assert self.seen.setdefault(("alarm", number), (key, rule)) == (key, rule), (number, key, rule)
        return numbers, [a[0] for a in alarms]


# -- processes ----------------------------------------------------------------------------------------------


class Worker:
    """A history in a process of its own, which can be killed."""

    def __init__(self, url):
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        command = [sys.executable, "-m", "tests.monitor.random_history", "--worker", url]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=root)
        assert self.process.stdout.readline() == "ready\n"

    def send(self, step):
        self.process.stdin.write(json.dumps(step) + "\n")
        self.process.stdin.flush()

    def do(self, step):
        self.send(step)
        answer = self.process.stdout.readline()
        assert answer == "done\n", answer

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Here:
    """A history in this process, with connections of its own."""

    def __init__(self, url):
        self.monitor = Monitor(url)

    def do(self, step):
        do(self.monitor, step)

    def close(self):
        self.monitor.close()


def work(url):
    monitor = Monitor(url)
    estimator()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        do(monitor, json.loads(line))
        print("done", flush=True)  # noqa: T201


def run(url, seed, steps, *, kills=0, check_every=25):
    """A random history of so many steps; raises where it differs from the plain model."""
    rng, plain, seen = random.Random(seed), Plain(), Numbers()
    reader = Monitor(url)
    workers = [(Worker if kills else Here)(url) for _ in range(2)]
    deaths = set(rng.sample(range(10, steps), kills)) if kills else set()
    killed = 0
    try:
        for n in range(steps):
            step = next_step(rng, plain, lambda: seen.check(reader))
            place = rng.randrange(2)
            if n in deaths:
                workers[place].send(step)
                time.sleep(rng.choice([0, 0.002, 0.01, 0.03]))
                workers[place].kill()
                workers[place] = Worker(url)
                after = plain.copy()
                after.do(step)
                if step["kind"] == "prune":  # of one model after the other: the next look goes on
                    workers[place].do(step)
                # Killed before or after, and never between.
                if step["kind"] == "prune" or differences(plain, reader):
                    plain, killed = after, killed + 1
                same(plain, reader, seed, n, step)
                continue
            workers[place].do(step)
            plain.do(step)
            if n % check_every == 0 or n == steps - 1:
                seen.check(reader)
                same(plain, reader, seed, n, step)
    finally:
        for worker in workers:
            worker.close()
        reader.close()
    return len(plain.windows), killed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    args = parser.parse_args()
    if args.worker:
        work(args.worker)
        return
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            series, killed = run(f"sqlite:///{folder}/history.db", seed, args.steps, kills=args.kills)
        result = f"{args.steps} steps, {series} series, {args.kills} kills, {killed} of them after the step was done"
        print(f"seed {seed}: {result}: as the plain model", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
