"""The actor that holds a model: inputs of a file or block in, a part of the outputs or a state out.

A part is a Parquet file beside a note with its key, a digest of the inputs, the model and the options. The note is
removed before a part is replaced and written after it, so that a part with a note is complete and belongs to that key.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import files
from gdscore._paths import DEFAULT_LIMITS, path_errors
from gdscore._windows import window_columns
from gdscore.errors import GdscoreError
from gdscore.io.arrow import RecordBatchReader, decoding, pyarrow, write_parquet
from gdscore.outputs import Outputs

__all__ = ["NOTES", "Extracting", "InputColumns", "ModelOptions", "note_of", "part_of"]

NOTES = "_parts"


@dataclass(frozen=True)
class InputColumns:
    """Which columns of the inputs are what."""

    inputs: str
    shape: tuple[int, ...] | None = None
    label: str | None = None
    keep: tuple[str, ...] = ()
    preprocess: Callable[[Any], Any] | None = None

    @property
    def arrays(self) -> list[str]:
        """Columns that are read as arrays; ``preprocess`` reads the others itself."""
        own = [] if self.preprocess is not None else [self.inputs]
        return list(dict.fromkeys([*own, *([self.label] if self.label else []), *self.keep]))


@dataclass(frozen=True)
class ModelOptions:
    """Model, and how it is run."""

    model: Any
    columns: InputColumns
    batch_size: int
    extract: dict[str, Any] = field(default_factory=dict)


def part_of(output: str, number: int) -> Path:
    """Where the outputs of an input go."""
    return Path(output) / f"part-{number:06d}.parquet"


def note_of(output: str, number: int) -> Path:
    """Where the note about them goes; readers pass over folders that begin with an underscore."""
    return Path(output) / NOTES / f"part-{number:06d}.json"


class Extracting:
    """Actor with the model."""

    def __init__(self, options: ModelOptions, num_gpus: float) -> None:
        import torch
        from torch import nn

        model = options.model if isinstance(options.model, nn.Module) else options.model()
        if not isinstance(model, nn.Module):
            raise GdscoreError(
                f"Expected `model` to be an nn.Module or a function that returns one, but got {type(model).__name__}"
            )
        self.options, self.columns = options, options.columns
        self.model = model.to(torch.device("cuda" if num_gpus else "cpu"))
        self.digest = hashlib.sha256(repr((sorted(options.extract.items(), key=str), options.batch_size)).encode())
        self.digest.update(repr((self.columns.arrays, self.columns.shape)).encode())
        for name, tensor in sorted(model.state_dict().items()):
            self.digest.update(name.encode())
            self.digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())

    def write(
        self, number: int, source: Any, where: str, output: str, unfinished: str
    ) -> tuple[None, tuple[int, bool, str]]:
        """Write a part, first into a folder of unfinished files.

        Gives its rows, whether it was there already, and what is wrong.
        """
        part, note = part_of(output, number), note_of(output, number)
        try:
            key = self._key(source)
            before = files.read_json(note) if note.exists() else {}
            if before.get("key") == key and (part.exists() or not before["rows"]):
                return None, (int(before["rows"]), True, "")
            note.unlink(missing_ok=True)
            part.unlink(missing_ok=True)
            rows = 0

            def blocks() -> Iterator[dict[str, NDArray[Any]]]:
                nonlocal rows
                for outputs, kept in self._outputs(source, where):
                    rows += len(outputs)
                    yield {**{n: _storable(a) for n, a in outputs.to_numpy().arrays.items()}, **kept}

            stream = blocks()
            first = next(stream, None)
            if first is not None:
                made = Path(unfinished) / part.name
                write_parquet(made, chain([first], stream), None)
                _move(made, part)
            made = Path(unfinished) / note.name
            files.write_json(made, {"key": key, "rows": rows})
            _move(made, note)
        except GdscoreError as error:
            return None, (0, False, _named(error, where))
        return None, (rows, False, "")

    def state(
        self, est: Any, source: Any, where: str, time: str | None, by: tuple[str, ...], every: Any
    ) -> tuple[bytes, Any]:
        """State of the outputs, without storing rows; the report is as that of `write`."""
        state = est.state()
        try:
            for found, kept in self._outputs(source, where):
                times = None if time is None else kept[time]
                if times is not None and times.dtype.kind != "M":
                    raise GdscoreError(f"Expected times in column {time!r}, but its values are of type {times.dtype}")
                state.update(found, window_columns(times, {name: kept[name] for name in by}, every) or None)
        except GdscoreError as error:
            return b"", (0, False, _named(error, where))
        return state.to_bytes(), (state.n_rows, False, "")

    def _outputs(self, source: Any, where: str) -> Iterator[tuple[Outputs, dict[str, NDArray[Any]]]]:
        """Outputs of each batch, with the columns that are kept."""
        from gdscore.models import extract

        kept: deque[dict[str, NDArray[Any]]] = deque()

        def loader() -> Iterator[Any]:
            for inputs, labels, columns in self._batches(source, where):
                kept.append(columns)
                yield inputs if labels is None else (inputs, labels)

        batches = loader()
        first = next(batches, None)
        if first is None:
            return
        for outputs in extract(self.model, chain([first], batches), progress=False, **self.options.extract):
            yield outputs, kept.popleft()

    def _batches(self, source: Any, where: str) -> Iterator[tuple[Any, Any, dict[str, NDArray[Any]]]]:
        import torch

        pa, spec = pyarrow("Parquet"), self.columns
        reader = RecordBatchReader(Path(where), spec.arrays, DEFAULT_LIMITS, pa)
        for piece in _pieces(source, self.options.batch_size):
            for name in spec.arrays:
                if name not in piece.schema.names:
                    raise GdscoreError(f"Expected a column {name!r} in {where}, but it has {piece.schema.names}")
            arrays = _joined(list(reader.blocks(piece)))
            labels = torch.from_numpy(np.array(arrays[spec.label])) if spec.label else None
            if spec.preprocess is not None:
                inputs = spec.preprocess(piece)
            else:
                shape = spec.shape or getattr(piece.schema.field(spec.inputs).type, "shape", None)
                array = np.array(arrays[spec.inputs])
                inputs = torch.from_numpy(array if shape is None else array.reshape(len(array), *shape))
            yield inputs, labels, {name: arrays[name] for name in spec.keep}

    def _key(self, source: Any) -> str:
        digest = self.digest.copy()
        if isinstance(source, str):
            with Path(source).open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        else:
            pa = pyarrow("Arrow")
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, source.schema) as writer:
                writer.write_table(source.combine_chunks())
            digest.update(sink.getvalue())
        return digest.hexdigest()


def _pieces(source: Any, rows: int) -> Iterator[Any]:
    """Record batches of a Parquet file or a table, of exactly so many rows but for the last."""
    if not isinstance(source, str):
        yield from (b for b in source.combine_chunks().to_batches(max_chunksize=rows) if b.num_rows)
        return
    import pyarrow.parquet as pq

    with decoding(Path(source), "a Parquet file"):
        file = pq.ParquetFile(source, page_checksum_verification=True)
    with file:
        batches = file.iter_batches(rows, use_threads=False)
        while True:
            with decoding(Path(source), "a Parquet file"):
                batch = next(batches, None)
            if batch is None:
                return
            if batch.num_rows:
                yield batch


def _move(made: Path, place: Path) -> None:
    with path_errors(made):
        made.replace(place)


def _joined(blocks: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    """Arrays that Parquet has: bfloat16 becomes float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else np.ascontiguousarray(array)


def _named(error: GdscoreError, where: str) -> str:
    return str(error) if where in str(error) else f"{error} (in {where})"
