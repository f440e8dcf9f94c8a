"""Files that commands read and write: which files make which target, and which columns are read.

Requirements met here:

- a file or a pattern in quotes is one target, and so is a folder whose files carry no date (the parts of one
  data set); files of a folder are all of one format;
- a folder whose files carry dates, in their own names or in those of sub folders, is one target for each
  date, in order; it is one target where a column has the times, as a window may span files;
- dates are ISO 8601: ``2026-01-31``, ``20260131``, and with a time after ``T``: ``2026-01-31T05``,
  ``20260131T0530``;
- a target that cannot be read keeps none of the others from being computed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar

import typer

from gdscore._files import check_path, check_readable, check_writable
from gdscore._windows import time_text
from gdscore.cli.console import describe_error, group_messages, shared_options, show_traceback
from gdscore.errors import GdscoreError
from gdscore.io import SUFFIXES, Batch, Columns, find_files
from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator

T = TypeVar("T")
_DEFAULT_COLUMNS = Columns()
COLUMNS_PANEL = "Columns of tables"


def _column_option(metavar: str, help_text: str) -> Any:
    return Annotated[str | None, typer.Option(metavar=metavar, help=help_text, rich_help_panel=COLUMNS_PANEL)]


TimeColumn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of times: one estimate for each window.", rich_help_panel=COLUMNS_PANEL
    ),
]
WindowLength: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH",
        help="Length of windows: 30min, 6h, 1d (default), week, month; in a time zone 'month Europe/Paris'.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
IdColumn: TypeAlias = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column that names the rows.", rich_help_panel=COLUMNS_PANEL),
]


_COLUMN_OPTIONS = {
    "probabilities": _column_option("COLUMNS", "Columns of probabilities: a pattern such as 'prob_*', or a,b,c."),
    "logits": _column_option("COLUMNS", "Columns of logits, in the same way."),
    "features": _column_option("COLUMNS", "Columns of features, in the same way."),
    "prediction": _column_option("COLUMN", "Column of decided classes, where they are not the most probable ones."),
    "threshold": Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="For a binary model: class 1 if its probability is at least P.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ],
    "label": _column_option("COLUMN", "Column of true classes: numbers or names."),
    "class_names": _column_option("NAMES", "Names of the classes: a,b,c in the order of the columns."),
}


def column_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that name columns of a table, which it gets as one argument, ``columns``.

    By default it gets all of them. What is not named has the name that `gdscore.io` expects.
    """
    options = {name: _COLUMN_OPTIONS[name] for name in names or _COLUMN_OPTIONS}

    def named(options: dict[str, Any]) -> Columns:
        chosen: dict[str, Any] = {n: v if n == "threshold" else _names(n, v) for n, v in options.items()}
        return Columns(**chosen)

    return shared_options("columns", options, named)


def column_arguments(columns: Columns) -> list[str]:
    """Options of a command line that name the same columns, for a command that a person runs next."""
    arguments = []
    for name in ("probabilities", "logits", "features", "prediction", "threshold", "class_names", "id"):
        column = getattr(columns, name)
        if column is not None:
            text = ",".join(column) if isinstance(column, tuple) else str(column)
            arguments += [f"--{name.replace('_', '-')}", text]
    return arguments


def _names(option: str, text: str | None) -> str | list[str] | None:
    listed = text is not None and option not in ("label", "prediction") and ("," in text or option == "class_names")
    return text.split(",") if text is not None and listed else text


_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(-?)(\d\d)\2(\d\d)(?:T(\d\d)(?:[-:h]?(\d\d)(?:[-:m]?(\d\d))?)?)?(?!\d)", re.IGNORECASE
)


@dataclass(frozen=True)
class TargetFiles:
    """Files that are read as one; ``problem`` is why there are none, and ``segment`` which of their rows are meant."""

    name: str
    paths: tuple[Path, ...]
    when: datetime | None = None
    columns: Columns = _DEFAULT_COLUMNS
    problem: Exception | None = None
    segment: str = ""

    def stream(self, quiet: bool) -> Iterator[Outputs]:
        """Rows batch by batch; what is wrong with names and types is raised at once."""
        return (batch.outputs for batch in self.batches(quiet))

    def batches(self, quiet: bool) -> Iterator[Batch]:
        """Rows batch by batch, with the times and segments of the columns for them."""
        from gdscore.io import read_batches

        if self.problem is not None:
            raise self.problem
        return read_batches(self.paths, columns=self.columns, progress=False if quiet else None)

    def read(self, quiet: bool = True) -> Outputs:
        """All rows."""
        return Outputs.concatenate(list(self.stream(quiet)))

    def read_labelled(self, quiet: bool = True) -> Outputs:
        """All rows, which must have labels."""
        rows = self.read(quiet)
        if "labels" not in rows.has:
            raise GdscoreError(
                f"Expected labels in {self.name!r}, but it holds only {', '.join(sorted(rows.arrays))}: add an array "
                "`labels` (.npz) or a column `label`; name the column where others are named: --label label"
            )
        return rows


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
    return group_messages([(o.name, [o.error] if o.value is None else []) for o in outcomes])


def find_targets(items: Sequence[str], columns: Columns = _DEFAULT_COLUMNS) -> list[TargetFiles]:
    """Targets of the names on the command line, under their shortest names that differ."""
    all_targets = [target for item in items for target in _targets_of(item, columns)]
    short = [Path(target.name).name or target.name for target in all_targets]
    short = [Path(name).stem if name.lower().endswith(SUFFIXES) else name for name in short]
    # A pattern such as *.csv has no shorter name that tells anything.
    short = [name if name.strip("*") else target.name for name, target in zip(short, all_targets, strict=True)]
    if len(set(short)) == len(all_targets):
        return [replace(target, name=name) for target, name in zip(all_targets, short, strict=True)]
    return all_targets


def one_set(item: str | Path, columns: Columns = _DEFAULT_COLUMNS) -> TargetFiles:
    """All that a path, folder or pattern holds, as one set of rows."""
    return TargetFiles(os.fspath(item), tuple(find_files(item)), None, columns)


def load_estimator(name: str) -> AccuracyEstimator:
    """Estimator that `gdscore fit` wrote; what is no file is refused first."""
    from gdscore.estimator import AccuracyEstimator

    check_readable(name)
    return AccuracyEstimator.load(name)


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
        year, _, month, day, hour, minute, second = match.groups()
        # A number that only looks like a date, such as 20261345, is none.
        with contextlib.suppress(ValueError):
            return datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    return None


def _targets_of(item: str, columns: Columns) -> list[TargetFiles]:
    check_path(item)
    try:
        return _dated_targets(item, columns)
    except GdscoreError as error:
        return [TargetFiles(item, (), date_in(Path(item).name), problem=error)]


def _dated_targets(item: str, columns: Columns) -> list[TargetFiles]:
    path = Path(item)
    files = find_files(item)
    if not path.is_dir():
        return [TargetFiles(item, tuple(files), date_in(path.name) if len(files) == 1 else None, columns)]
    dates = {
        file: next((when for part in reversed(file.relative_to(path).parts) if (when := date_in(part))), None)
        for file in files
    }
    undated = [file for file, when in dates.items() if when is None]
    if len(undated) == len(files) or columns.time is not None:
        return [TargetFiles(item, tuple(files), None, columns)]
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
        TargetFiles(os.fspath(path / time_text(when)), tuple(files), when, columns)
        for when, files in sorted(by_date.items())
    ]


_SUFFIXES_OF_OUTPUTS = {"--html": (".html", ".htm"), "--picture": (".svg", ".png", ".pdf")}


def check_outputs(inputs: Sequence[str | Path], **paths: str | Path | None) -> None:
    """Refuse files to write, by the names of their options, that cannot be, are inputs, or are the same file twice."""
    outputs = {f"--{name.replace('_', '-')}": path for name, path in paths.items()}
    for name, path in outputs.items():
        check_writable(path, inputs=inputs, suffixes=_SUFFIXES_OF_OUTPUTS.get(name, ()))
    for first, second in combinations(outputs, 2):
        one, other = outputs[first], outputs[second]
        if one is not None and other is not None and Path(one).resolve() == Path(other).resolve():
            raise GdscoreError(
                f"Expected different files for {first} and {second}, but both are {os.fspath(one)!r}: name another"
            )


def write_json(path: str, value: Any) -> None:
    """Write to a file, or for - to standard output; in ASCII, so that any stream can carry it."""
    if path == "-":
        typer.echo(json.dumps(value, indent=2, allow_nan=False, default=lambda array: array.tolist()))
        return
    from gdscore import _files

    _files.write_json(path, value)
