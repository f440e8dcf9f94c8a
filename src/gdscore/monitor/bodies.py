"""Outputs in the body of a request: Parquet, Arrow, CSV or npz through `gdscore.io`, or JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import HTTPException, Request
from numpy.typing import NDArray

from gdscore._paths import Limits
from gdscore._stream import Batch
from gdscore.errors import GdscoreError
from gdscore.io import Columns, read_batches
from gdscore.io.arrow import decoding, pyarrow
from gdscore.monitor.schema import StorageError
from gdscore.monitor.windows import as_times
from gdscore.outputs import Outputs

__all__ = ["body_file", "read_body"]

_SUFFIXES = {
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.apache.arrow.file": ".arrow",
    "application/x-npz": ".npz",
    "text/csv": ".csv",
    "application/json": ".json",
}
_MATRICES = ("logits", "probabilities", "features")
LARGEST_FOOTER = 4 << 20
MOST_ROW_GROUPS = 2_000


@asynccontextmanager
async def body_file(request: Request) -> AsyncIterator[Path]:
    """Body of a request in a temporary file; its kind follows from the content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    suffix = _SUFFIXES.get(kind)
    if suffix is None:
        raise HTTPException(415, f"Expected a content type of {', '.join(_SUFFIXES)}, but got {kind[:60]!r}")
    with tempfile.TemporaryDirectory(prefix="gdscore-") as folder:
        path = Path(folder) / f"body{suffix}"
        try:
            with path.open("wb") as file:
                async for chunk in request.stream():
                    file.write(chunk)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageError(f"Expected to keep the body in a file, but the system refused: {reason}") from error
        yield path


def read_body(path: Path, columns: Columns, limits: Limits, max_rows: int) -> Iterator[Batch]:
    """Batches of a body; messages name the body, not the temporary file."""
    rows = 0
    try:
        if path.suffix == ".parquet":
            _check_footer(path)
        if path.suffix == ".json" and columns != Columns():
            raise GdscoreError("Expected no names of columns with JSON, which has logits, time, by … of its own")
        batches = _json_batches(path, limits) if path.suffix == ".json" else _file_batches(path, columns, limits)
        for batch in batches:
            rows += len(batch.outputs)
            if rows > max_rows:
                raise GdscoreError(f"Expected at most {max_rows:,} rows in a body, but there are more")
            yield batch
    except GdscoreError as error:
        raise GdscoreError(str(error).replace(str(path), path.name)) from None


def _file_batches(path: Path, columns: Columns, limits: Limits) -> Iterator[Batch]:
    return read_batches(path, columns=columns, limits=limits, progress=False)


def _check_footer(path: Path) -> None:
    """Refuse a Parquet file of too many row groups, which may all be empty, and take time each.

    Its footer names all row groups and columns; how long it is stands in the last bytes of the file.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        length = int.from_bytes(file.read(4), "little")
    if length > LARGEST_FOOTER:
        raise GdscoreError(f"Expected a Parquet footer of at most {LARGEST_FOOTER:,} bytes, but it has {length:,}")
    pyarrow("Parquet")
    with decoding(path, "a Parquet file"):
        import pyarrow.parquet as pq

        groups = pq.read_metadata(path).num_row_groups
    if groups > MOST_ROW_GROUPS:
        raise GdscoreError(f"Expected at most {MOST_ROW_GROUPS:,} row groups, but there are {groups:,}")


def _times(found: Any) -> NDArray[np.datetime64]:
    """Times of rows; numbers are refused, as they may be seconds or milliseconds."""
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise GdscoreError("Expected `time` to be a list with a time for each row, such as '2026-01-31T05:00:00Z'")
    return as_times(np.array(found, dtype=object))


def _json_batches(path: Path, limits: Limits) -> Iterator[Batch]:
    """One batch of ``{"logits": [[…]], "features": [[…]], "labels": […], "time": […], "by": {"country": […]}}``."""
    if path.stat().st_size > limits.json:
        raise GdscoreError(f"Expected JSON of at most {limits.json:,} bytes: post Parquet instead")
    try:
        found: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise GdscoreError(f"Expected the body to be JSON, but it is not: {str(error)[:100]}") from None
    known = {*_MATRICES, "labels", "time", "by"}
    if not isinstance(found, dict) or set(found) - known:
        raise GdscoreError(f"Expected a JSON object with {', '.join(sorted(known))}")
    try:
        arrays = {name: np.asarray(found[name], dtype=np.float64) for name in _MATRICES if name in found}
        labels = np.asarray(found["labels"], dtype=np.int64) if "labels" in found else None
        time = _times(found["time"]) if "time" in found else None
        by = {str(name): np.asarray(values, dtype=str) for name, values in dict(found.get("by", {})).items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise GdscoreError(f"Expected arrays of numbers, but got something else: {str(error)[:100]}") from None
    outputs: dict[str, Any] = {**arrays, "labels": labels}
    yield Batch(Outputs(**outputs), time, by)
