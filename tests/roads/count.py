"""How many source files does each of four roads cross?

    python -m tests.roads.count                             # all four, with the lists of files
    python -m tests.roads.count --only image frame
    python -m tests.roads.count --at-most image=26 frame=13 post=26 ray=22     # status 1 where one crosses more

A road crosses a file of `src/gdscore` when at least five of its lines inside functions run on it: functions, methods,
lambdas and generators, in all threads and in Ray's workers. A helper of fewer lines is no file that a reader has to
open. What runs when a file is imported does not count, nor does what is made ready before the road begins. By this
definition the roads crossed 37, 19, 38 and 32 files at commit c2acaa7, and 40, 23, 41 and 34 where a single line is
enough (--lines 1).

image   `models.estimator` on a loader of images, default shifts
frame   `from_frame`, `AccuracyEstimator.fit`, `from_frame`, `estimate` of a pandas DataFrame
post    POST of windows as Parquet to the service until one raises an alarm; the service runs and the model is
        registered with its estimator before
ray     `distributed.estimate` of a folder of Parquet files, driver and worker; the estimator is fitted and the cluster
        started before
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import gdscore
from tests.roads import data, services
from tests.roads.models import loader, log, network

LINES = 5
SOURCE = str(Path(gdscore.__file__).resolve().parent) + os.sep


class Seen:
    """Lines of functions that ran; each is written down at once, as workers of Ray are ended without notice."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"seen-{os.getpid()}.txt"
        self.lines: set[tuple[str, int]] = set()
        self.active = True

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        function = code.co_flags & CO_NEWLOCALS and code.co_flags & CO_OPTIMIZED
        if not function or not code.co_filename.startswith(SOURCE) or _importing(frame):
            return None
        return self.line

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        line = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and self.active and line not in self.lines:
            self.lines.add(line)
            with self.path.open("a") as file:
                file.write(f"{line[0].removeprefix(SOURCE)} {line[1]}\n")
        return self.line

    def start(self) -> None:
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> None:
        self.active = False
        sys.settrace(None)
        threading.settrace(None)


def _importing(frame: FrameType | None) -> bool:
    """Whether a function is called by the body of a module of ours: a decorator that registers something."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(SOURCE):
            return True
        frame = frame.f_back
    return False


@contextmanager
def crossed(folder: str) -> Iterator[Seen]:
    seen = Seen(folder)
    seen.start()
    try:
        yield seen
    finally:
        seen.stop()


def watch_worker() -> None:
    """In each worker of Ray, when it starts."""
    Seen(os.environ["GDSCORE_ROADS_FOLDER"]).start()


# -- the roads ------------------------------------------------------------------------------------------------


def image(folder: str) -> None:
    from gdscore import models

    model, images = network(), loader(60, 0)
    with crossed(folder):
        models.estimator(model, images, progress=False)


def frame(folder: str) -> None:
    known, new = log(700, 1.0, 1), log(600, 1.5, 2)
    with crossed(folder):
        est = gdscore.AccuracyEstimator().fit(gdscore.from_frame(known, probabilities="prob_*", label="label"))
        est.estimate(gdscore.from_frame(new, probabilities="prob_*"))


def post(folder: str) -> None:
    with tempfile.TemporaryDirectory() as inside, crossed(folder) as seen:
        seen.active = False
        body = services.parquet(inside, data.outputs(300, 2.5, 3, labels=False))
        # The service's threads begin with the client and are watched from then on.
        with services.served(inside) as client:
            alarms: list[Any] = []
            for day in range(20):
                seen.active = True
                services.post_day(client, day, body)
                seen.active = False
                alarms = alarms or client.get("/api/v1/alarms").json()
                if alarms:
                    return
    raise AssertionError("no alarm in twenty windows")


def ray(folder: str) -> None:
    from gdscore import distributed

    est = data.fitted()
    root = Path(__file__).resolve().parents[2]
    variables = {"GDSCORE_ROADS_FOLDER": folder, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    hook = {"worker_process_setup_hook": watch_worker, "env_vars": variables}
    with tempfile.TemporaryDirectory() as target:
        services.write_parts(target)
        with services.cluster(runtime_env=hook), crossed(folder):
            distributed.estimate(est, target, progress=False)


ROADS = {"image": image, "frame": frame, "post": post, "ray": ray}


def count(name: str, least: int = LINES) -> list[str]:
    """Files that a road crosses, relative to the package; ``least`` lines must run in each."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ROADS[name](folder)
        seen = {line for path in Path(folder).glob("seen-*") for line in path.read_text().splitlines()}
    lines = Counter(line.partition(" ")[0] for line in seen)
    return sorted(file for file, ran in lines.items() if ran >= least)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(ROADS), default=list(ROADS))
    parser.add_argument("--at-most", nargs="+", default=[], metavar="ROAD=FILES")
    parser.add_argument("--lines", type=int, default=LINES, help="that must run in a file")
    options = parser.parse_args()
    most = {name: int(files) for name, _, files in (limit.partition("=") for limit in options.at_most)}
    failed = False
    for name in options.only:
        files = count(name, options.lines)
        over = len(files) > most.get(name, len(files))
        failed |= over
        print(f"{name}: {len(files)} files{f', more than {most[name]}' if over else ''}")  # noqa: T201
        print(textwrap.fill(" ".join(files), 116, initial_indent="    ", subsequent_indent="    "))  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
