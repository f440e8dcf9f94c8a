"""Files that commands read and write: which files make which target, and paths refused before the work starts.

Requirements met here:

- a file or a pattern in quotes is one target, and so is a folder whose files carry no date (the parts of one
  data set); files of a folder are all of one format;
- a folder whose files carry dates, in their own names or in those of sub folders, is one target for each
  date, in order;
- dates are ISO 8601: ``2026-01-31``, ``20260131``, and with a time after ``T``: ``2026-01-31T05``,
  ``20260131T0530``;
- a target that cannot be read keeps none of the others from being computed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer

from gdscore._format import time_text
from gdscore.cli.console import describe_error, show_traceback, told_once
from gdscore.errors import GdscoreError
from gdscore.io.read import files_of
from gdscore.io.table import SUFFIXES
from gdscore.outputs import Outputs

__all__ = [
    "Outcome",
    "TargetFiles",
    "check_different",
    "check_regular_file",
    "check_writable",
    "date_in",
    "failures",
    "find_targets",
    "list_files",
    "one_set",
    "try_each",
    "write_json",
]

T = TypeVar("T")
_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)(?:T(\d\d)(?:[-:h]?(\d\d)(?:[-:m]?(\d\d))?)?)?(?!\d)", re.IGNORECASE
)


@dataclass(frozen=True)
class TargetFiles:
    """Files that are read as one; ``problem`` is why there are none."""

    name: str
    paths: tuple[Path, ...]
    when: datetime | None = None
    problem: Exception | None = None

    def stream(self, quiet: bool) -> Iterator[Outputs]:
        """Rows batch by batch; what is wrong with names and types is raised at once."""
        from gdscore.io import read_outputs

        if self.problem is not None:
            raise self.problem
        return read_outputs(self.paths, progress=False if quiet else None)

    def read(self, quiet: bool = True) -> Outputs:
        """All rows."""
        return Outputs.concatenate(list(self.stream(quiet)))


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """One target and what was computed of it, or the reason why nothing was."""

    target: TargetFiles
    value: T | None
    error: str = ""

    @property
    def name(self) -> str:
        """Name of the target."""
        return self.target.name


def try_each(targets: Sequence[TargetFiles], compute: Callable[[TargetFiles], T], debug: bool) -> list[Outcome[T]]:
    """Compute something of every target; an exception of one is its outcome."""
    outcomes: list[Outcome[T]] = []
    for target in targets:
        try:
            outcomes.append(Outcome(target, compute(target)))
        except BrokenPipeError:
            raise  # of the progress bar
        except Exception as error:
            if debug:
                show_traceback()
            outcomes.append(Outcome(target, None, describe_error(error)[0]))
    return outcomes


def failures(outcomes: Sequence[Outcome[T]]) -> list[str]:
    """Why targets have no result, each reason once with the targets it concerns."""
    return told_once([(o.name, [o.error] if o.value is None else []) for o in outcomes])


def find_targets(given: Sequence[str]) -> list[TargetFiles]:
    """Targets of the names on the command line, under their shortest names that differ."""
    found = [target for item in given for target in _targets_of(item)]
    short = [Path(target.name).name or target.name for target in found]
    short = [Path(name).stem if name.lower().endswith(SUFFIXES) else name for name in short]
    if len(set(short)) == len(found):
        return [replace(target, name=name) for target, name in zip(found, short, strict=True)]
    return found


def one_set(given: str | Path) -> TargetFiles:
    """All that a path, folder or pattern holds, as one set of rows."""
    return TargetFiles(os.fspath(given), tuple(_files(os.fspath(given))))


def list_files(folder: Path) -> list[Path]:
    """Files of outputs in and below a folder, without those that writers leave beside their data (``.x``, ``_x``)."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def date_in(name: str) -> datetime | None:
    """First date in a name, with its time where there is one.

    Examples
    --------
    >>> date_in("log-2026-01-31T05.parquet")
    datetime.datetime(2026, 1, 31, 5, 0)
    >>> date_in("part-00017.parquet") is None
    True
    """
    for match in _DATE.finditer(name):
        year, _, month, day, *time = match.groups()
        # A number that only looks like a date, such as 20261345, is none.
        with contextlib.suppress(ValueError):
            hour, minute, second = (int(part or 0) for part in time)
            return datetime(int(year), int(month), int(day), hour, minute, second)
    return None


def _targets_of(item: str) -> list[TargetFiles]:
    if not item.strip():
        raise GdscoreError("Expected the name of a file or folder, but it is empty: name one")
    try:
        return _dated_targets(item)
    except (GdscoreError, OSError) as error:
        return [TargetFiles(item, (), date_in(Path(item).name), error)]


def _dated_targets(item: str) -> list[TargetFiles]:
    path = Path(item)
    files = _files(item)
    if not path.is_dir():
        return [TargetFiles(item, tuple(files), date_in(path.name) if len(files) == 1 else None)]
    dates = {file: _date_in_path(file.relative_to(path)) for file in files}
    undated = [file for file, when in dates.items() if when is None]
    if len(undated) == len(files):
        return [TargetFiles(item, tuple(files))]
    if undated:
        raise GdscoreError(
            f"Expected a date such as 2026-01-31 in the name of every file in {item!r} or of none, but "
            f"{len(files) - len(undated)} have one and {os.fspath(undated[0])!r} has none: rename it or move it away"
        )
    by_date: dict[datetime, list[Path]] = {}
    for file, when in dates.items():
        assert when is not None
        by_date.setdefault(when, []).append(file)
    return [
        TargetFiles(os.fspath(path / time_text(when)), tuple(files), when) for when, files in sorted(by_date.items())
    ]


def _files(item: str) -> list[Path]:
    path = Path(item)
    if not path.is_dir():
        if path.exists() and not path.is_file():
            raise GdscoreError(f"Expected {item!r} to be a file or a folder, but it is a pipe or a device")
        return files_of(item)
    found = list_files(path)
    if not found:
        raise GdscoreError(f"Expected {' or '.join(SUFFIXES)} files in the folder {item!r}, but found none")
    counts = Counter(file.suffix.lower() for file in found)
    if len(counts) > 1:
        # A set that was converted would be counted twice, one that is left out be missed.
        kinds = " and ".join(f"{counts[suffix]} {suffix}" for suffix in SUFFIXES)
        raise GdscoreError(
            f"Expected files of one format in {item!r}, but it has {kinds}: move the others away, or give a pattern "
            f"such as {os.fspath(path / '*.parquet')!r}"
        )
    return found


def _date_in_path(path: Path) -> datetime | None:
    return next((when for part in reversed(path.parts) if (when := date_in(part))), None)


# -- files to write -------------------------------------------------------------------------------------------


def check_writable(
    path: str | Path | None, *, inputs: Iterable[str | Path] = (), suffixes: tuple[str, ...] = ()
) -> None:
    """Refuse a path that cannot be written, is one of the input files or has another suffix; None and - are fine."""
    if path is None or os.fspath(path) == "-":
        return
    shown, target = os.fspath(path), Path(path)
    if not shown or shown == ".":
        raise GdscoreError("Expected the name of a file to write, but it is empty: name one")
    if suffixes and target.suffix.lower() not in suffixes:
        raise GdscoreError(f"Expected an output that ends in {' or '.join(suffixes)}, but got {shown!r}")
    try:
        folder = target.resolve().parent
    except (OSError, RuntimeError) as error:
        raise GdscoreError(f"Expected a path that can be written, but {shown!r} is a loop of links") from error
    if target.exists() and not target.is_file():
        raise GdscoreError(f"Expected {shown!r} to be a file, but it is a folder or a device: name a file")
    for given in inputs if target.exists() else ():
        if Path(given).exists() and target.samefile(given):
            raise GdscoreError(f"Expected an output beside the inputs, but {shown!r} is one of them: name another file")
    if not folder.is_dir():
        raise GdscoreError(f"Expected a folder to write {shown!r} into, but there is none: create it first")
    try:
        # Tried and not asked: permissions, quotas and read-only disks differ too much.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise GdscoreError(
            f"Expected to write {shown!r}, but the system refused: {error.strerror}: name a folder that is yours"
        ) from error


def check_different(first: str | Path | None, second: str | Path | None, names: str) -> None:
    """Refuse one file for two outputs."""
    if first is not None and second is not None and Path(first).resolve() == Path(second).resolve():
        raise GdscoreError(f"Expected different files for {names}, but both are {os.fspath(first)!r}: name another")


def check_regular_file(path: str | Path) -> None:
    """Refuse what is there but no regular file: a pipe without a writer would be waited for without end."""
    if Path(path).exists() and not Path(path).is_file():
        raise GdscoreError(f"Expected {os.fspath(path)!r} to be a file, but it is a folder, a pipe or a device")


def write_json(path: str, value: Any) -> None:
    """Write to a file, or for - to standard output; in ASCII, so that any stream can carry it."""
    if path == "-":
        typer.echo(json.dumps(value, indent=2, allow_nan=False, default=lambda array: array.tolist()))
        return
    from gdscore import files

    files.write_json(path, value)
