"""Ray itself: connecting to a cluster, what a dataset is, and running many calls of which some may fail.

Requirements met here:

- at most a few calls per processor wait at a time, however many there are;
- a worker that dies is replaced and its call repeated; when that does not help, the error names the input;
- when the caller is interrupted or anything fails, calls that still run are cancelled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gdscore._checks import integer, number
from gdscore.errors import GdscoreError
from gdscore.io.read import find_files

RETRIES = 3
ON_ERROR = ("raise", "skip")
_FAN_IN = 64
CONNECT_SECONDS = 20.0


def connect(address: str | None) -> Any:
    """Import Ray and connect to the cluster of an address.

    Without an address it is the one that is connected already, that of the environment's ``RAY_ADDRESS``, or else a new
    one on all processors of this machine, which ends with the process.
    """
    with program_sigterm():
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise GdscoreError(
                "Expected Ray to be installed for gdscore.distributed, but it is not: pip install 'ray[data]'"
            ) from error
        if not ray.is_initialized():
            _start(ray, address)
    return ray


def _start(ray: Any, address: str | None) -> None:
    _check_reachable(address or os.environ.get("RAY_ADDRESS", "local"))
    try:
        ray.init(
            address=address or os.environ.get("RAY_ADDRESS", "local"),
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None if address or "RAY_ADDRESS" in os.environ else False,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "here" if address is None else f"at {address!r}"
        if "InvalidAuthToken" in f"{error} {error.__cause__}":
            raise GdscoreError(
                f"Expected a Ray cluster {where}, but it lets in only who has its token: set RAY_AUTH_MODE=token, "
                "and have the token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            ) from error
        raise GdscoreError(_unreachable(where, " ".join(str(error).split()))) from error


@contextlib.contextmanager
def program_sigterm() -> Iterator[None]:
    """Keep the program's handler of SIGTERM while Ray is imported and started, for its exit code.

    The import swallows an exception of a handler, and Ray takes the signal for itself: one that came is handled at the
    end.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    signal.signal(signal.SIGTERM, lambda *_: came.append(True))
    try:
        yield
    except SystemExit as ended:
        if ended.code != signal.SIGTERM:  # that of Ray's handler
            raise
        came.append(True)
    finally:
        signal.signal(signal.SIGTERM, before)
    if came:
        before(signal.SIGTERM, None)


def _unreachable(where: str, reason: str) -> str:
    return (
        f"Expected a Ray cluster {where}, but could not connect: {reason}: start one with 'ray start --head', or leave "
        "the address out to start one on this machine"
    )


def _check_reachable(address: str) -> None:
    """Refuse a host and port at which nothing answers, as Ray tries to connect to it for more than nine minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():  # "auto" or "local"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GdscoreError(_unreachable(f"at {address!r}", reason)) from error


def files_or_dataset(ray: Any, dataset: Any) -> list[Path] | Any:
    """Paths of local or shared files, in order; or a Ray Dataset."""
    if isinstance(dataset, ray.data.Dataset):
        return dataset
    listed = [dataset] if isinstance(dataset, str | os.PathLike) else dataset
    if not isinstance(listed, Iterable) or not all(isinstance(item, str | os.PathLike) for item in listed):
        raise GdscoreError(
            "Expected `dataset` to be a Ray Dataset, a folder, a pattern or a list of files, but got "
            f"{type(dataset).__name__}: ray.data.from_pandas, from_arrow and others make Ray Datasets"
        )
    paths = list(listed)
    if any("://" in os.fspath(path) for path in paths):
        return ray.data.read_parquet([os.fspath(path) for path in paths])
    # Workers may have another working folder.
    return [path.resolve() for path in find_files(paths)]


def named_sources(sources: Any) -> Iterator[tuple[str, Any]]:
    """Inputs in a fixed order: files by name, tables, or references to the blocks of a Ray Dataset as they are made."""
    if isinstance(sources, list):
        for number, item in enumerate(sources):
            is_file = isinstance(item, Path)
            yield (repr(os.fspath(item)), os.fspath(item)) if is_file else (f"table {number}", item)
        return
    # Without the order kept, a part would not be the same block in the next run.
    options = sources.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        blocks = (ref for bundle in sources.iter_internal_ref_bundles() for ref in bundle.block_refs)
        for number, ref in enumerate(blocks):
            yield f"block {number} of the dataset", ref
    finally:
        options.preserve_order = before


def processors(ray: Any) -> int:
    """Processors of the cluster."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


class Call(NamedTuple):
    """A call of an actor: the name of its input, for messages, a method and its arguments."""

    name: str
    method: str
    args: tuple[Any, ...] = ()


Ended: TypeAlias = tuple[int, str, Any, Any]
"""A call that has ended: its number, the name of its input, a reference to its result, and its report."""


def run_tasks(
    ray: Any, calls: Iterable[tuple[str, Callable[[], tuple[Any, Any]]]], waiting: int
) -> Generator[Ended, None, None]:
    """Start tasks, ``waiting`` at a time, and yield them as they end; Ray repeats those whose worker dies.

    A call has the name of its input, for messages, and a function that starts the work and gives two references: to its
    result and to a small report that is fetched here. Numbers count the calls from 0. Close the generator where not all
    are taken: calls that still run are then cancelled.
    """
    source = enumerate(calls)
    running: dict[Any, tuple[int, str, Any]] = {}
    try:
        while True:
            for number, (name, start) in islice(source, waiting - len(running)):
                result, report = start()
                running[report] = number, name, result
            if not running:
                return
            (finished,), _ = ray.wait(list(running), num_returns=1)
            number, name, result = running.pop(finished)
            try:
                report = ray.get(finished)
            except ray.exceptions.RayError as error:
                raise _explained(ray, name, error) from error
            yield number, name, result, report
    finally:
        for report in running:
            ray.cancel(report, force=False)


def _explained(ray: Any, name: str, error: Any) -> GdscoreError:
    if isinstance(error, ray.exceptions.RayTaskError):
        return GdscoreError(_failure(name, error.cause))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "creation task" in lines[0]:
        return GdscoreError(f"Expected a worker for {name}, but none could be made ready: {lines[-1]}")
    return GdscoreError(
        f"Expected a worker for {name}, but {RETRIES + 1} workers died of it, the last with: {lines[0]} (often memory: "
        "give workers more of it, or write smaller files)"
    )


def _failure(name: str, cause: BaseException) -> str:
    """Error message for what a call raised."""
    if isinstance(cause, GdscoreError):
        return f"{cause} (in {name})"
    first = next(iter(str(cause).strip().splitlines()), "")
    if isinstance(cause, MemoryError):
        return (
            f"Expected memory for {name}, but a worker has too little: {first} (give workers more, write smaller "
            "files, or use a smaller batch_size)"
        )
    if "No module named" in first:
        return (
            f"Expected workers with the modules of the caller, but one reports {first} (in {name}): install them there"
        )
    return f"Expected no error in {name}, but got {type(cause).__name__}: {first}"


class Actors:
    """Actors of one class, each of which is replaced where its process or node dies.

    A new one may have to wait for a processor, for ever where a node is gone: calls are made to those that are ready.
    Ray's own ``max_restarts`` and ``max_task_retries`` do not do that: a call stays with the actor that Ray starts
    again, and where a node is removed it uses up its tries before Ray knows that the node is gone.

    The constructor of ``cls`` takes ``args``, references to its arguments, and the number of GPUs; its methods return a
    result and a small report. By default there are as many as the cluster has processors or GPUs for.
    """

    def __init__(
        self, ray: Any, cls: type, args: tuple[Any, ...], count: int | None, num_cpus: float, num_gpus: float
    ) -> None:
        number("num_cpus", num_cpus, least=0)
        number("num_gpus", num_gpus, least=0)
        resources = ray.cluster_resources()
        fits = [int(resources.get(what, 0) // each) for what, each in (("CPU", num_cpus), ("GPU", num_gpus)) if each]
        possible = min(fits, default=1)
        if not possible:
            raise GdscoreError(
                f"Expected a cluster with {num_cpus:g} processors and {num_gpus:g} GPUs for an actor, but it has "
                f"{resources.get('CPU', 0):g} and {resources.get('GPU', 0):g}"
            )
        wanted = possible if count is None else min(integer("num_actors", count, least=1), possible)
        self._ray, self._args = ray, (*args, num_gpus)
        self._made = ray.remote(cls).options(num_cpus=num_cpus, num_gpus=num_gpus)
        self._actors: list[Any] = []
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        for _ in range(wanted):
            self._add()

    def _add(self) -> None:
        actor = self._made.remote(*self._args)
        self._actors.append(actor)
        self._starting[actor.__ray_ready__.remote()] = actor

    def run(self, calls: Iterable[Call]) -> Generator[Ended, None, None]:
        """Call methods of the actors, one at a time of each, and yield the calls as they end.

        A call is made again where its actor dies. Close the generator where not all calls are taken.
        """
        source, again = enumerate(calls), list[tuple[int, Call]]()
        running: dict[Any, tuple[int, Call, Any, Any]] = {}
        deaths: Counter[int] = Counter()
        while True:
            while self._idle and (following := again.pop() if again else next(source, None)):
                number, call = following
                actor = self._idle.pop()
                result, report = getattr(actor, call.method).options(num_returns=2).remote(*call.args)
                running[report] = number, call, actor, result
            if self._idle and not running:
                return
            (finished,), _ = self._ray.wait([*self._starting, *running], num_returns=1)
            if finished in self._starting:
                self._idle.append(self._starting.pop(finished))
                continue
            number, call, actor, result = running.pop(finished)
            try:
                report = self._ray.get(finished)
            except self._ray.exceptions.RayError as error:
                deaths[number] += 1
                raised = isinstance(error, self._ray.exceptions.RayTaskError) or "creation task" in str(error)
                if raised or deaths[number] > RETRIES:
                    raise _explained(self._ray, call.name, error) from error
                self._ray.kill(actor)
                self._actors.remove(actor)
                self._add()
                again.append((number, call))
            else:
                self._idle.append(actor)
                yield number, call.name, result, report

    def end(self) -> None:
        """End all actors."""
        for actor in self._actors:
            self._ray.kill(actor)


def merge_refs(ray: Any, merged: Callable[..., bytes], refs: list[Any]) -> bytes:
    """State of all states behind the references, merged on the cluster in a tree; the caller holds one."""
    merge = ray.remote(_call).options(max_retries=RETRIES)
    while len(refs) > 1:
        refs = [merge.remote(merged, *refs[start : start + _FAN_IN]) for start in range(0, len(refs), _FAN_IN)]
    try:
        state: bytes = ray.get(refs[0])
    except ray.exceptions.RayError as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise GdscoreError(
            f"Expected all states to merge, but one was lost with its node: {first}: call it again"
        ) from error
    return state


def _call(merged: Callable[..., bytes], *states: bytes) -> bytes:
    return merged(*states)
