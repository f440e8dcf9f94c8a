"""Streams of `Outputs`: read one by one, cut into chunks of one size from the first row, and split by segment.

Long ones show a progress bar on standard error, for people only.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import is_array
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs

CHUNK_ROWS = 1024
"""Rows worked on at once: a multiple of GdScore's mini-batch, and small enough for a processor's cache."""


class Rechunker:
    """Keeps copies of the rows that do not fill a chunk yet."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._kept: list[Outputs] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, outputs: Outputs) -> Iterator[Outputs]:
        """Chunks completed by these rows; full chunks of a large input are passed on without a copy."""
        start = 0
        if self._count:
            start = min(self.rows - self._count, len(outputs))
            self._keep(outputs[:start])
            if self._count == self.rows:
                full = self.rest()
                self._kept, self._count = [], 0
                if full is not None:
                    yield full
        while len(outputs) - start >= self.rows:
            yield outputs[start : start + self.rows]
            start += self.rows
        if start < len(outputs):
            self._keep(outputs[start:])

    def rest(self) -> Outputs | None:
        """Rows kept so far as one piece, or None."""
        if not self._kept:
            return None
        if len(self._kept) > 1:
            self._kept = [joined(self._kept)]
        return self._kept[0]

    def adopt(self, rest: Outputs) -> None:
        """Take over rows that nobody else will change, without a copy."""
        self._kept, self._count = [rest], len(rest)

    def _keep(self, rows: Outputs) -> None:
        self._kept.append(rows.working_copy())
        self._count += len(rows)


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Rows of all parts, in the array library and on the device of the last."""
    return Outputs.concatenate([part.like(parts[-1]) for part in parts])


def stream(data: Outputs | Iterable[Outputs] | None, what: str) -> Iterator[Outputs]:
    """Outputs one by one, of a single one or of any iterable; anything else, or nothing, is an error."""
    return _items(data, what, Outputs)


def _items(data: Any, what: str, kinds: Any) -> Iterator[Any]:
    if isinstance(data, kinds):
        yield data
        return
    no_stream = isinstance(data, (str, bytes, dict)) or is_array(data) or hasattr(data, "iloc")
    if no_stream or not isinstance(data, Iterable) or _of_torch_data(data):
        raise GdscoreError(f"Expected `{what}` to be `gdscore.Outputs` or a stream of them, but got {kind_of(data)}")
    empty = True
    for item in data:
        if not isinstance(item, kinds):
            raise GdscoreError(f"Expected `{what}` to yield `gdscore.Outputs`, but it yielded {kind_of(item)}")
        empty = False
        yield item
    if empty:
        raise GdscoreError(
            f"Expected `{what}` to have rows, but the stream is empty: a generator gives its rows once, make it again"
        )


def labelled_reference(reference: Outputs | Iterable[Outputs]) -> Outputs:
    """Labelled outputs as one, of a stream too; or an error."""
    parts = []
    for part in stream(reference, "reference"):
        if "labels" not in part.has:
            raise GdscoreError(
                "Expected `reference` with labels, but it has none: pass labels= to Outputs, y to from_sklearn, or "
                "label= to from_frame"
            )
        if "logits" not in part.has:
            raise GdscoreError("Expected `reference` with logits or probabilities, but it has neither")
        part.check_values()
        # What makes its parts one by one may use their memory again.
        parts.append(part if isinstance(reference, (Outputs, list, tuple)) else part.working_copy())
    return Outputs.concatenate(parts)


def kind_of(value: object) -> str:
    """Name what came in place of `Outputs`, with the way to make them where there is one."""
    if value is None:
        return "nothing"
    name = type(value).__name__
    if is_array(value):
        ways = "gdscore.Outputs(logits=…), gdscore.Outputs(probabilities=…) or gdscore.from_sklearn(clf, X)"
        return f"{name}: give {ways}"
    if isinstance(value, str | os.PathLike):
        return f"{name}: gdscore.io.read_outputs reads files"
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if _of_torch_data(value) or any(is_array(part) for part in inside):
        return f"{name}: gdscore.models.extract(model, loader) makes outputs of the batches of a torch loader"
    return f"{name}: gdscore.from_frame makes outputs of it" if hasattr(value, "iloc") else name


def _of_torch_data(value: object) -> bool:
    """Whether it is a loader or a dataset of torch, which need not be imported for that."""
    return any(kind.__module__.startswith("torch.utils.data") for kind in type(value).__mro__)


class Batch(NamedTuple):
    """Rows of a stream with what belongs to them: times, and columns that name their segments, where there are any."""

    outputs: Outputs
    time: NDArray[np.datetime64] | None = None
    by: Mapping[str, Any] = MappingProxyType({})


def batches(data: Any, by: Any = None) -> Iterator[Batch]:
    """Batches of `Outputs`, of a batch or of a stream of either.

    ``by`` has the segments of `Outputs`, or those of each part of a stream; one more or one fewer of them is an error.
    """
    parts = _items(data, "outputs", (Outputs, Batch))
    if by is None or isinstance(data, Outputs):
        columns = columns_of(by)
        for part in parts:
            yield part if isinstance(part, Batch) else Batch(part, None, columns)
        return
    if not isinstance(by, Iterable) or isinstance(by, str | bytes) or getattr(by, "ndim", 1) == 0:
        raise GdscoreError(f"Expected `by` to have segments for each part of the stream, but got {type(by).__name__}")
    names, nothing = iter(by), object()
    for part in parts:
        segments = next(names, nothing)
        if segments is nothing or isinstance(part, Batch):
            why = "it ended" if segments is nothing else "its parts have segments of their own"
            raise GdscoreError(f"Expected `by` to have segments for every part of the stream, but {why}")
        yield Batch(part, None, columns_of(segments))
    if next(names, nothing) is not nothing:
        raise GdscoreError("Expected `by` to have segments for the parts of the stream only, but it has more")


def columns_of(by: Any) -> Mapping[str, Any]:
    """Columns that name segments, of a data frame, a dict of columns or one column; none of None."""
    if by is None:
        return {}
    if not isinstance(by, Mapping) and not hasattr(by, "columns"):
        return {"": by}
    names = list(by if isinstance(by, Mapping) else by.column_names if hasattr(by, "column_names") else by.columns)
    columns = {str(name): by[name] for name in names}
    if len(columns) < len(names):
        raise GdscoreError(f"Expected columns of different names in `by`, but got {names!r:.80}")
    return columns


def in_order(columns: Mapping[str, Any], names: Sequence[str] | None) -> Mapping[str, Any]:
    """Columns that name segments in the order of those of the rows before, None where these are the first rows."""
    if names is None:
        return columns
    if columns.keys() != set(names):
        raise GdscoreError(
            f"Expected the columns of segments that the rows before have, {_listed(names)}, but got "
            f"{_listed(columns)}: give the same columns with all rows"
        )
    return {name: columns[name] for name in names}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) if name else "one without a name" for name in names) or "none"


def segment_codes(columns: Mapping[str, Any], n_rows: int) -> tuple[list[Any], NDArray[np.int64]]:
    """Segments in the order in which rows of them first come, and the number of each row's segment.

    A segment is the value of the one column, or a tuple of the values of several. Missing values are None, all others
    keep their type.
    """
    (keys, codes), *others = [_codes(values, n_rows) for values in columns.values()]
    if not others:
        return keys, codes
    pairs: list[tuple[Any, ...]] = [(key,) for key in keys]
    for more, next_codes in others:
        used, first, codes = np.unique(codes * len(more) + next_codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        pairs = [(*pairs[at // len(more)], more[at % len(more)]) for at in used[order].tolist()]
        codes = np.argsort(order)[codes.reshape(-1)]
    return list(pairs), codes


def _codes(values: Any, n_rows: int) -> tuple[list[Any], NDArray[np.int64]]:
    if hasattr(values, "to_pylist"):  # scalars of Arrow are neither equal to their values nor missing
        values = values.to_pylist()
    listed = _plain(arrays.to_numpy(values)) if is_array(values) else values
    listed = list(listed) if isinstance(listed, Iterable) and not isinstance(listed, (str, bytes)) else None
    if listed is None or len(listed) != n_rows:
        came = "one value" if listed is None else f"{len(listed)}"
        names = [values] if isinstance(values, str) else listed
        named = names and len(names) < 10 and all(isinstance(name, str) and len(name) < 60 for name in names)
        cure = f": are these columns of a frame? Give by=frame[{names!r}]" if named else ""
        raise GdscoreError(f"Expected `by` to name a segment for each of {n_rows} rows, but got {came}{cure}")
    numbers: dict[Any, int] = {}
    code_of: dict[Any, int] = {}
    value = None
    try:
        for value in dict.fromkeys(listed):
            code_of[value] = numbers.setdefault(_segment(value), len(numbers))
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `by` to name segments by strings or numbers, but got {value!r:.80}") from None
    return list(numbers), np.fromiter(map(code_of.__getitem__, listed), dtype=np.int64, count=n_rows)


def _segment(value: Any) -> Any:
    """Key of a value: None where it is missing, otherwise as Python has it."""
    if isinstance(value, np.generic):
        (value,) = _plain(np.asarray([value]))
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return None
    return tuple(map(_segment, value)) if isinstance(value, tuple) else value


def _plain(names: NDArray[Any]) -> list[Any]:
    if names.dtype.kind == "M" and np.datetime_data(names.dtype)[0] not in ("Y", "M", "W", "D", "h", "m", "s", "ms"):
        names = names.astype("datetime64[us]")  # finer ones would be numbers of nanoseconds
    listed: list[Any] = names.tolist()
    return listed


_READERS: Mapping[str, Any] = {
    "float": float,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "microseconds": lambda value: timedelta(microseconds=value),
}


def segment_to_json(key: Any) -> Any:
    """Segment as JSON has it; a dict names the type of what JSON does not have."""
    if isinstance(key, tuple):
        return [segment_to_json(item) for item in key]
    if isinstance(key, float) and not math.isfinite(key):
        return {"float": repr(key)}
    if key is None or isinstance(key, bool | int | float | str):
        return key
    if isinstance(key, datetime):
        return {"datetime": key.isoformat(timespec="microseconds")}
    if isinstance(key, date):
        return {"date": key.isoformat()}
    if isinstance(key, timedelta):
        return {"microseconds": key // timedelta(microseconds=1)}
    raise GdscoreError(
        f"Expected segments that are text, numbers, truth values, times or tuples of them to make bytes of, but got "
        f"{key!r:.80}: name segments by text, such as str(segment)"
    )


def segment_from_json(value: Any) -> Any:
    """Segment that `segment_to_json` made JSON of."""
    if isinstance(value, list):
        return tuple(segment_from_json(item) for item in value)
    if isinstance(value, dict):
        ((kind, text),) = value.items()
        if kind not in _READERS:
            raise ValueError(f"a segment is of the unknown type {kind!r:.40}")
        return _READERS[kind](text)
    return value


def segment_to_text(key: Any) -> str:
    """Segment in a cell of a table: text as it is, everything else, and text that looks like it, as JSON.

    Examples
    --------
    >>> [segment_to_text(key) for key in ("fr", 1, "1", None, ("fr", 1))]
    ['fr', '1', '"1"', 'null', '["fr", 1]']
    """
    return key if isinstance(key, str) and segment_from_text(key) is key else json.dumps(segment_to_json(key))


def segment_from_text(text: str) -> Any:
    """Segment that `segment_to_text` wrote."""
    try:
        return segment_from_json(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return text


LONG = 300.0
"""Seconds from which on a warning says how long something will take, where nobody watches."""


def announce(text: str, seconds: float, show: bool | None) -> None:
    """Say how long something will take: on a terminal, or where asked to; otherwise by a warning if it is long."""
    text = f"{text}: about {duration(seconds)}"
    if show or (show is None and sys.stderr is not None and sys.stderr.isatty()):
        print(text, file=sys.stderr)  # noqa: T201
    elif seconds > LONG:
        warnings.warn(text, GdscoreWarning, stacklevel=4)


def duration(seconds: float) -> str:
    """Time in seconds or minutes, rounded up."""
    return f"{math.ceil(seconds)} s" if seconds < 100 else f"{math.ceil(seconds / 60)} min"


@contextlib.contextmanager
def progress_bar(total: int | None, show: bool | None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Give a function that takes the rows (or other units) done.

    ``show=None`` shows the bar where a terminal is attached; ``total=None`` means that the number is not known.
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Streams of the process stay as they are: the rows go to code that may itself print.
    bar = Progress(
        TextColumn(unit),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, force_terminal=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(unit, total=total)
        yield partial(bar.advance, task)
