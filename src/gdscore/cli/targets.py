"""Which files make which target.

Requirements met here:

- a file or a pattern in quotes is one target, and so is a folder whose files carry no date (the parts of one
  data set); files of a folder are all ``.npz`` or all Parquet;
- a folder whose files carry dates, in their own names or in those of sub folders, is one target for each
  date, in order;
- dates are ISO 8601: ``2026-01-31``, ``20260131``, and with a time after ``T``: ``2026-01-31T05``,
  ``20260131T0530``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gdscore.errors import GdscoreError
from gdscore.io import SUFFIXES, find_files
from gdscore.outputs import Outputs

__all__ = ["Data", "about", "date_of", "find_targets", "in_words", "listed", "one_set"]

_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)(?:T(\d\d)(?:[-:h]?(\d\d)(?:[-:m]?(\d\d))?)?)?(?!\d)", re.IGNORECASE
)


@dataclass(frozen=True)
class Data:
    """Files that are read as one."""

    name: str
    paths: tuple[Path, ...]
    when: datetime | None = None

    def stream(self, quiet: bool) -> Iterator[Outputs]:
        """Rows batch by batch; what is wrong with names and types is said at once."""
        from gdscore.io import read_outputs

        return read_outputs(self.paths, progress=False if quiet else None)


def find_targets(given: Sequence[str]) -> list[Data]:
    """Targets of what stands on the command line, named by their shortest names that differ."""
    found = [data for item in given for data in _targets_of(item)]
    short = [Path(data.name).name for data in found]
    short = [Path(name).stem if name.lower().endswith(SUFFIXES) else name for name in short]
    if len(set(short)) == len(found):
        return [replace(data, name=name) for data, name in zip(found, short, strict=True)]
    return found


def one_set(given: str) -> Data:
    """All that a path, folder or pattern holds, as one set of rows."""
    return Data(given, tuple(find_files(given)))


def listed(folder: Path) -> list[Path]:
    """Files of outputs in and below a folder, without those whose names say that writers left them beside."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def date_of(name: str) -> datetime | None:
    """First date in a name, with its time where there is one.

    Examples
    --------
    >>> date_of("log-2026-01-31T05.parquet")
    datetime.datetime(2026, 1, 31, 5, 0)
    >>> date_of("part-00017.parquet") is None
    True
    """
    for match in _DATE.finditer(name):
        year, _, month, day, *time = match.groups()
        # A number that only looks like a date, such as 20261345, is none.
        with contextlib.suppress(ValueError):
            hour, minute, second = (int(part or 0) for part in time)
            return datetime(int(year), int(month), int(day), hour, minute, second)
    return None


def in_words(when: datetime) -> str:
    """Date, the time where it is not midnight, and its seconds where there are."""
    if when.second:
        return when.strftime("%Y-%m-%dT%H:%M:%S")
    return when.strftime("%Y-%m-%dT%H:%M" if when.hour or when.minute else "%Y-%m-%d")


@contextlib.contextmanager
def about(data: Data) -> Iterator[None]:
    """Name the target in errors that do not."""
    try:
        yield
    except GdscoreError as error:
        if any(os.fspath(path) in str(error) for path in data.paths):
            raise
        raise GdscoreError(f"{data.name}: {error}") from error


def _targets_of(item: str) -> list[Data]:
    path = Path(item)
    files = find_files(item)
    if not path.is_dir():
        return [Data(item, tuple(files), date_of(path.name) if len(files) == 1 else None)]
    dates = {file: _date_in(file.relative_to(path)) for file in files}
    undated = [file for file, when in dates.items() if when is None]
    if len(undated) == len(files):
        return [Data(item, tuple(files))]
    if undated:
        raise GdscoreError(
            f"Expected a date such as 2026-01-31 in the name of every file in {item!r} or of none, but "
            f"{len(files) - len(undated)} have one and {os.fspath(undated[0])!r} has none: rename it or move it away"
        )
    by_date: dict[datetime, list[Path]] = {}
    for file, when in dates.items():
        assert when is not None
        by_date.setdefault(when, []).append(file)
    return [Data(os.fspath(path / in_words(when)), tuple(files), when) for when, files in sorted(by_date.items())]


def _date_in(path: Path) -> datetime | None:
    return next((when for part in reversed(path.parts) if (when := date_of(part))), None)
