"""Ray itself: connecting to a cluster, and running many calls of which some may fail.

Requirements met here:

- at most a few calls per processor wait at a time, however many there are;
- a worker that dies is replaced and its call repeated by Ray; when that does not help, the error names the input;
- when the caller is interrupted or anything fails, calls that still run are cancelled.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

from gdscore._options import integer, number
from gdscore.errors import GdscoreError

__all__ = ["Actors", "connect", "merge_refs", "processors", "run_all"]

RETRIES = 3
_FAN_IN = 64


def connect(address: str | None) -> Any:
    """Import Ray and connect to the cluster of an address.

    Without an address it is the one that is connected already, that of the environment's ``RAY_ADDRESS``, or else a new
    one on all processors of this machine, which ends with the process.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise GdscoreError(
            "Expected Ray to be installed for gdscore.distributed, but it is not: pip install 'ray[data]' pyarrow"
        ) from error
    if not ray.is_initialized():
        before = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(
                address=address or os.environ.get("RAY_ADDRESS", "local"),
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if address or "RAY_ADDRESS" in os.environ else False,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = "here" if address is None else f"at {address!r}"
            raise GdscoreError(
                f"Expected a Ray cluster {where}, but could not connect: {' '.join(str(error).split())}: start one "
                "with 'ray start --head', or leave the address out to start one on this machine"
            ) from error
        # Ray takes the signal for itself, and with it the exit code of programs that have a handler.
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    return ray


def processors(ray: Any) -> int:
    """Processors of the cluster."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def run_all(
    ray: Any, calls: Iterable[tuple[str, Callable[[], tuple[Any, Any]]]], waiting: int
) -> Generator[tuple[int, str, Any, Any], None, None]:
    """Start calls, a few at a time, and yield them as they end.

    Parameters
    ----------
    ray : module
    calls : iterable of (str, callable)
        Name of the input, for messages; and a function that starts the work and gives two references: to what is
        passed on, and to a small report that is fetched here.
    waiting : int
        Calls that run or wait at a time.

    Close it where not all are taken: calls that still run are then cancelled.

    Yields
    ------
    (number, name, reference, report)
        Numbers count the calls from 0.
    """
    source = enumerate(calls)
    running: dict[Any, tuple[int, str, Any]] = {}
    try:
        while True:
            while len(running) < waiting and (item := next(source, None)) is not None:
                number, (name, start) = item
                passed_on, report = start()
                running[report] = (number, name, passed_on)
            if not running:
                return
            (done,), _ = ray.wait(list(running), num_returns=1)
            number, name, passed_on = running.pop(done)
            try:
                report = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise GdscoreError(_failure(name, error.cause)) from error
            except ray.exceptions.RayError as error:
                raise GdscoreError(_death(name, str(error).strip().splitlines() or [type(error).__name__])) from error
            yield number, name, passed_on, report
    finally:
        for report in running:
            # Actors' calls cannot be ended by force; their actor ends with its last handle.
            ray.cancel(report, force=False)


def _failure(name: str, cause: BaseException) -> str:
    """Word what a call raised."""
    if isinstance(cause, GdscoreError):
        return f"{cause} (in {name})"
    first = next(iter(str(cause).strip().splitlines()), "")
    if "No module named" in first:
        return f"Expected workers with the modules of the caller, but one says {first} (in {name}): install them there"
    return f"Expected no error in {name}, but got {type(cause).__name__}: {first}"


def _death(name: str, lines: list[str]) -> str:
    """Word why there is no worker for an input."""
    if "creation task" in lines[0]:
        return f"Expected a worker for {name}, but none could be made ready: {lines[-1]}"
    return (
        f"Expected a worker for {name}, but {RETRIES + 1} workers died of it, the last with: {lines[0]} (often memory: "
        "give workers more of it, or write smaller files)"
    )


class Actors:
    """Actors of one class, each of which is restarted by Ray where its process or node dies.

    Parameters
    ----------
    ray : module
    cls : type
        Its constructor takes ``args`` and the number of GPUs; its methods return a result and a small report.
    args : tuple
        References to the arguments.
    count : int, optional
        As many as the cluster has processors or GPUs for by default.
    num_cpus, num_gpus : float
        What each takes of its node.
    """

    def __init__(
        self, ray: Any, cls: type, args: tuple[Any, ...], count: int | None, num_cpus: float, num_gpus: float
    ) -> None:
        number("num_cpus", num_cpus, least=0)
        number("num_gpus", num_gpus, least=0)
        there = ray.cluster_resources()
        fits = [int(there.get(what, 0) // each) for what, each in (("CPU", num_cpus), ("GPU", num_gpus)) if each]
        possible = min(fits, default=1)
        if not possible:
            raise GdscoreError(
                f"Expected a cluster with {num_cpus:g} processors and {num_gpus:g} GPUs for an actor, but it has "
                f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}"
            )
        wanted = possible if count is None else min(integer("num_actors", count, least=1), possible)
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": RETRIES, "max_task_retries": RETRIES}
        self._ray = ray
        made = ray.remote(_fetching(cls)).options(**options)
        self._actors = [made.remote(list(args), num_gpus) for _ in range(wanted)]
        self._running: list[list[Any]] = [[] for _ in self._actors]

    def __len__(self) -> int:
        return len(self._actors)

    def start(self, method: str, *args: Any) -> tuple[Any, Any]:
        """Call a method of the actor that has least to do; gives references to its result and its report."""
        self._running = [
            self._ray.wait(refs, num_returns=len(refs), timeout=0)[1] if refs else [] for refs in self._running
        ]
        at = min(range(len(self)), key=lambda i: len(self._running[i]))
        result, report = getattr(self._actors[at], method).options(num_returns=2).remote(*args)
        self._running[at].append(report)
        return result, report

    def end(self) -> None:
        """End all actors."""
        for actor in self._actors:
            self._ray.kill(actor)


def _fetching(cls: type) -> type:
    """Class that fetches what its constructor is called with; Ray warns of actors that get references themselves."""

    def start(self: Any, refs: list[Any], num_gpus: float) -> None:
        import ray

        cls.__init__(self, *ray.get(refs), num_gpus)  # type: ignore[misc]

    return type(cls.__name__, (cls,), {"__init__": start})


def merge_refs(ray: Any, refs: list[Any]) -> bytes:
    """State of all states behind the references, merged on the cluster in a tree; the caller holds one."""
    merge = ray.remote(_merged).options(max_retries=RETRIES)
    while len(refs) > 1:
        refs = [merge.remote(*refs[start : start + _FAN_IN]) for start in range(0, len(refs), _FAN_IN)]
    state: bytes = ray.get(refs[0])
    return state


def _merged(*states: bytes) -> bytes:
    from gdscore.partial import merge_states

    return merge_states(states)
