"""`extract`: a model on many workers, from inputs to Parquet files of outputs, or straight to an estimate.

A part of the outputs is a Parquet file beside a note with its key, a digest of the inputs, the model and the options.
The note is removed before a part is replaced and written after it, so that a part with a note is complete and belongs
to that key.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._checks import choice, integer
from gdscore._files import DEFAULT_LIMITS, PathLike, check_path, path_errors, read_json, write_json
from gdscore._stream import progress_bar
from gdscore._windows import window_columns
from gdscore.distributed import _cluster
from gdscore.distributed.estimating import check_columns, merged
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.estimator import AccuracyEstimator, Estimate, TargetState
from gdscore.io.arrow import RecordBatchReader, decoding, write_parquet
from gdscore.io.blocks import guarded, joined_blocks
from gdscore.io.write import storable
from gdscore.outputs import Outputs

NOTES = "_parts"


@dataclass(frozen=True)
class Extraction:
    """What `extract` has done.

    Attributes
    ----------
    n_rows, parts : int
        Rows and files of outputs that are there now.
    reused : int
        Files among them that an earlier run had written.
    skipped : dict of str
        Inputs that could not be read, with the reason: files, blocks, or rows of them that ``preprocess`` refused.
    """

    n_rows: int
    parts: int
    reused: int
    skipped: dict[str, str] = field(default_factory=dict)


def extract(
    model: Any,
    dataset: Any,
    output: PathLike,
    *,
    inputs: str = "image",
    shape: Sequence[int] | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
    preprocess: Callable[[Any], Any] | None = None,
    batch_size: int = 256,
    num_actors: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Extraction:
    """Run a model over inputs on a cluster and write its outputs as Parquet.

    Each input file, or block of a Ray Dataset, becomes one file ``part-000000.parquet`` in ``output``, written
    completely or not at all. Called again after it was killed, it goes on: parts of the same inputs, model and options
    stay, all others are made anew. A folder is for one run at a time: a second one stops the first.

    Parameters
    ----------
    model : nn.Module, or function that returns one
        A function is called once in each actor, so that weights are read there and do not travel.
    dataset : Ray Dataset, path, list of paths, or list of Arrow tables
        Parquet files, which every worker must be able to read, a Ray Dataset, or small tables, of names of images say.
    output : path
        A folder that every worker can write into.
    inputs : str
        Column of the inputs, lists or tensors of numbers.
    shape : sequence of int, optional
        Shape of one input, where the column holds flat lists.
    label : str, optional
        Column of true classes, as integers.
    keep : sequence of str, optional
        Columns that are copied to the outputs, such as a time or a country.
    preprocess : callable, optional
        From a record batch of Arrow to what the model is called with, in place of ``inputs``.
    batch_size : int
        Inputs given to the model at once.
    num_actors : int, optional
        Actors, each with a copy of the model; by default as many as the cluster has processors (or GPUs) for.
    num_cpus, num_gpus : float
        What each actor takes of its node. With a GPU the model runs there.
    on_error : {"raise", "skip"}
        What to do with an input that cannot be read: stop with its name, or leave it out with a warning. Of rows that
        ``preprocess`` refuses, such as images that are damaged, only these are left out.
    address, progress
        As in `estimate`.
    **options
        Of `gdscore.models.extract`: ``autocast``, ``head``, ``logits``, ``outputs``, ``batchnorm``, ``threshold``.
    """
    shaped = None if shape is None else tuple(shape)
    work = ModelOptions(model, inputs, shaped, label, tuple(keep), preprocess, batch_size, options, on_error)
    folder = check_path(output).resolve()
    with path_errors(output):
        (folder / NOTES).mkdir(parents=True, exist_ok=True)
        (folder / NOTES / "done.json").unlink(missing_ok=True)
    with (
        _unfinished(folder) as unfinished,
        _actors(work, num_actors, num_cpus, num_gpus, address) as actors,
    ):
        rows = parts = reused = count = 0
        skipped: dict[str, str] = {}
        arguments = str(folder), str(unfinished)
        with contextlib.closing(_reports(*actors, dataset, "write", arguments, on_error, skipped, progress)) as reports:
            for number, _, n_rows, was_there in reports:
                rows, parts, reused = rows + n_rows, parts + bool(n_rows), reused + was_there
                count = max(count, number + 1)
    for old in sorted((folder / NOTES).glob("part-*.json")):
        number = int(old.stem.removeprefix("part-"))
        if number >= count:
            part_of(str(folder), number).unlink(missing_ok=True)
            note_of(str(folder), number).unlink(missing_ok=True)
    _warn(skipped)
    write_json(folder / NOTES / "done.json", {"parts": parts, "rows": rows, "skipped": skipped})
    return Extraction(rows, parts, reused, skipped)


def extract_estimate(
    est: AccuracyEstimator,
    model: Any,
    dataset: Any,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    every: str | None = None,
    class_mix: Any = None,
    inputs: str = "image",
    shape: Sequence[int] | None = None,
    preprocess: Callable[[Any], Any] | None = None,
    batch_size: int = 256,
    num_actors: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    on_error: str = "raise",
    address: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Estimate | dict[Any, Estimate]:
    """Run a model over inputs on a cluster and estimate its accuracy there, without storing outputs.

    Parameters
    ----------
    est, by, time, every, class_mix
        As in `estimate`.
    model, dataset, inputs, shape, preprocess, batch_size, num_actors, num_cpus, num_gpus, on_error, address, progress
        As in `extract`, and so are ``options``.
    """
    _, length = check_columns(None, by, time, every)
    names = (by,) if isinstance(by, str) else tuple(by or ())
    kept = (*names, *([] if time is None else [time]))
    shaped = None if shape is None else tuple(shape)
    work = ModelOptions(model, inputs, shaped, None, kept, preprocess, batch_size, options, on_error)
    with _actors(work, num_actors, num_cpus, num_gpus, address) as actors:
        ray, pool = actors
        states: dict[int, Any] = {}
        skipped: dict[str, str] = {}
        arguments = ray.put(est), time, names, length
        with contextlib.closing(
            _reports(ray, pool, dataset, "state", arguments, on_error, skipped, progress)
        ) as reports:
            for number, state, rows, _ in reports:
                if rows:
                    states[number] = state
        if not states:
            raise GdscoreError("Expected a target with rows, but there is no input that can be read")
        merge = partial(merged, TargetState)
        state = _cluster.merge_refs(ray, merge, [states[number] for number in sorted(states)])
    _warn(skipped)
    estimated: Estimate | dict[Any, Estimate] = est.estimate(TargetState.from_bytes(state), class_mix=class_mix)
    return estimated


def _reports(
    ray: Any,
    pool: _cluster.Actors,
    dataset: Any,
    method: str,
    arguments: tuple[Any, ...],
    on_error: str,
    skipped: dict[str, str],
    progress: bool | None,
) -> Generator[tuple[int, Any, int, bool], None, None]:
    """Number, result, rows and whether it was there, of each input as it ends; ``skipped`` takes in the others."""
    import pyarrow as pa

    tables = isinstance(dataset, list) and bool(dataset) and all(isinstance(item, pa.Table) for item in dataset)
    sources = dataset if tables else _cluster.files_or_dataset(ray, dataset)
    named = enumerate(_cluster.named_sources(sources))
    running = pool.run(_cluster.Call(where, method, (n, source, where, *arguments)) for n, (where, source) in named)
    total = len(sources) if isinstance(sources, list) else None
    with contextlib.closing(running), progress_bar(total, progress, "inputs") as advance:
        for number, _, result, (rows, was_there, wrong) in running:
            if wrong and on_error == "raise":
                raise GdscoreError(next(iter(wrong.values())))
            skipped |= wrong
            yield number, result, rows, was_there
            advance(1)


@contextlib.contextmanager
def _actors(
    work: ModelOptions, num_actors: int | None, num_cpus: float, num_gpus: float, address: str | None
) -> Iterator[tuple[Any, _cluster.Actors]]:
    ray = _cluster.connect(address)
    pool = _cluster.Actors(ray, Extracting, (ray.put(work),), num_actors, num_cpus, num_gpus)
    try:
        yield ray, pool
    finally:
        pool.end()


@contextlib.contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """Folder for the unfinished files of one run, which is removed with all that killed actors have left in it.

    Actors end some time after they are killed. One that begins to write meanwhile finds no folder of that name, as it
    is renamed before it is removed. What a killed caller has left is removed by the next run.
    """
    with path_errors(folder):
        for old in (folder / NOTES).glob("run-*"):
            shutil.rmtree(old, ignore_errors=True)
        made = folder / NOTES / f"run-{secrets.token_hex(8)}"
        made.mkdir()
    try:
        yield made
    finally:
        with contextlib.suppress(OSError):
            made = made.rename(made.with_name(f"{made.name}-ended"))
        for _ in range(10):  # a file whose folder was looked up before the renaming may still appear in it
            if made.exists():
                shutil.rmtree(made, ignore_errors=True)


def _warn(skipped: dict[str, str]) -> None:
    if skipped:
        warnings.warn(
            f"{len(skipped)} inputs were left out: {next(iter(skipped.values()))}", GdscoreWarning, stacklevel=3
        )


# -- the actor ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelOptions:
    """Model, how it is run, and which columns of the inputs are what."""

    model: Any
    inputs: str
    shape: tuple[int, ...] | None = None
    label: str | None = None
    keep: tuple[str, ...] = ()
    preprocess: Callable[[Any], Any] | None = None
    batch_size: int = 256
    extract: dict[str, Any] = field(default_factory=dict)
    on_error: str = "raise"

    def __post_init__(self) -> None:
        integer("batch_size", self.batch_size, least=1)
        choice("on_error", self.on_error, _cluster.ON_ERROR)

    @property
    def arrays(self) -> list[str]:
        """Columns that are read as arrays; ``preprocess`` reads the others itself."""
        read_here = [] if self.preprocess is not None else [self.inputs]
        return list(dict.fromkeys([*read_here, *([self.label] if self.label else []), *self.keep]))


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
        self.options = options
        self.model = model.to(torch.device("cuda" if num_gpus else "cpu"))
        self.digest = hashlib.sha256(repr((sorted(options.extract.items(), key=str), options.batch_size)).encode())
        self.digest.update(repr((self.options.arrays, self.options.shape)).encode())
        for name, tensor in sorted(model.state_dict().items()):
            self.digest.update(name.encode())
            self.digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())

    def write(
        self, number: int, source: Any, where: str, output: str, unfinished: str
    ) -> tuple[None, tuple[int, bool, dict[str, str]]]:
        """Write a part, first into a folder of unfinished files.

        Gives its rows, whether it was there already, and which inputs are left out and why.
        """
        part, note = part_of(output, number), note_of(output, number)
        try:
            key = self._key(source)
            before = read_json(note) if note.exists() else {}
            if before.get("key") == key and (part.exists() or not before["rows"]):
                return None, (int(before["rows"]), True, dict(before["skipped"]))
            note.unlink(missing_ok=True)
            part.unlink(missing_ok=True)
            rows, threshold = 0, None
            left_out: dict[str, str] = {}

            def blocks() -> Iterator[dict[str, NDArray[Any]]]:
                nonlocal rows, threshold
                for outputs, kept in self._outputs(source, where, left_out):
                    rows, threshold = rows + len(outputs), outputs.threshold
                    yield {**{n: storable(a) for n, a in outputs.to_numpy().arrays.items()}, **kept}

            stream = blocks()
            first = next(stream, None)
            if first is not None:
                made = Path(unfinished) / part.name
                write_parquet(made, chain([first], stream), threshold=threshold)
                _move(made, part)
            made = Path(unfinished) / note.name
            write_json(made, {"key": key, "rows": rows, "skipped": left_out})
            _move(made, note)
        except GdscoreError as error:
            return None, (0, False, {where: _named(error, where)})
        return None, (rows, False, left_out)

    def state(
        self, number: int, source: Any, where: str, est: Any, time: str | None, by: tuple[str, ...], every: Any
    ) -> tuple[bytes, Any]:
        """State of the outputs, without storing rows; the report is as that of `write`."""
        state = est.state()
        left_out: dict[str, str] = {}
        try:
            for outputs, kept in self._outputs(source, where, left_out):
                times = None if time is None else kept[time]
                if times is not None and times.dtype.kind != "M":
                    raise GdscoreError(f"Expected times in column {time!r}, but its values are of type {times.dtype}")
                state.update(outputs, window_columns(times, {name: kept[name] for name in by}, every) or None)
        except GdscoreError as error:
            return b"", (0, False, {where: _named(error, where)})
        return state.to_bytes(), (state.n_rows, False, left_out)

    def _outputs(
        self, source: Any, where: str, left_out: dict[str, str]
    ) -> Iterator[tuple[Outputs, dict[str, NDArray[Any]]]]:
        """Outputs of each batch, with the columns that are kept; ``left_out`` takes in rows that cannot be read."""
        from gdscore.models import extract

        kept: deque[dict[str, NDArray[Any]]] = deque()

        def loader() -> Iterator[Any]:
            for inputs, labels, columns in self._batches(source, where, left_out):
                kept.append(columns)
                yield inputs if labels is None else (inputs, labels)

        batches = loader()
        first = next(batches, None)
        if first is None:
            return
        for outputs in extract(self.model, chain([first], batches), progress=False, **self.options.extract):
            yield outputs, kept.popleft()

    def _batches(
        self, source: Any, where: str, left_out: dict[str, str]
    ) -> Iterator[tuple[Any, Any, dict[str, NDArray[Any]]]]:
        import torch

        spec = self.options
        reader = RecordBatchReader(repr(where), spec.arrays, DEFAULT_LIMITS)
        first = 0
        for piece in _pieces(source, self.options.batch_size):
            for name in spec.arrays:
                if name not in piece.schema.names:
                    raise GdscoreError(f"Expected a column {name!r} in {where}, but it has {piece.schema.names}")
            prepared = None
            if spec.preprocess is not None:
                count = piece.num_rows
                piece, prepared = self._prepared(piece, first, where, left_out)
                first += count
                if piece is None:
                    continue
            arrays = joined_blocks(list(reader.blocks(piece)))
            labels = torch.from_numpy(np.array(arrays[spec.label])) if spec.label else None
            if spec.preprocess is not None:
                inputs = prepared
            else:
                shape = spec.shape or getattr(piece.schema.field(spec.inputs).type, "shape", None)
                array = np.array(arrays[spec.inputs])
                inputs = torch.from_numpy(array if shape is None else array.reshape(len(array), *shape))
            yield inputs, labels, {name: arrays[name] for name in spec.keep}

    def _prepared(self, piece: Any, first: int, where: str, left_out: dict[str, str]) -> tuple[Any, Any]:
        """Rows of a batch that can be read, and what the model is called with; None where there are no such rows.

        Where some cannot be read, each is tried alone.
        """
        try:
            return piece, self._model_inputs(piece)
        except Exception as error:
            if self.options.on_error != "skip" or isinstance(error, MemoryError):
                raise
        readable = []
        for row in range(piece.num_rows):
            try:
                self._model_inputs(piece.slice(row, 1))
            except Exception as error:
                name = "" if isinstance(error, GdscoreError) else f"{type(error).__name__}: "
                left_out[f"row {first + row} of {where}"] = f"{name}{error}"
            else:
                readable.append(row)
        if not readable:
            return None, None
        piece = piece.take(readable)
        return piece, self._model_inputs(piece)

    def _model_inputs(self, piece: Any) -> Any:
        from gdscore.models.predictions import describe, tensors_in

        assert self.options.preprocess is not None
        inputs = self.options.preprocess(piece)
        first = next(tensors_in(inputs), None)
        if first is None or not first.ndim or len(first) != piece.num_rows:
            raise GdscoreError(
                f"Expected `preprocess` to return a tensor, or several, with a row for each of {piece.num_rows} "
                f"inputs, but got {describe(inputs)}"
            )
        return inputs

    def _key(self, source: Any) -> str:
        digest = self.digest.copy()
        if isinstance(source, str):
            with Path(source).open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        else:
            import pyarrow as pa

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
        batches = guarded(file.iter_batches(rows, use_threads=False), lambda: decoding(Path(source), "a Parquet file"))
        yield from (batch for batch in batches if batch.num_rows)


def _move(made: Path, place: Path) -> None:
    with path_errors(made):
        made.replace(place)


def _named(error: GdscoreError, where: str) -> str:
    return str(error) if where in str(error) else f"{error} (in {where})"
