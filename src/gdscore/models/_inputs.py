"""Batches of a loader: read once ahead of the device, collected to train on, or kept for a pass under each shift.

Requirements met here:

- on CUDA the next batch is fetched and copied, from pinned memory on a stream of its own, while the device works on
  this one; elsewhere nothing is fetched ahead;
- a loader that shuffles or augments draws from a random stream of its own that starts at the caller's state;
- batches of kept inputs have one size and the same values, bit for bit, whatever the loader's batch size and however
  they are kept;
- inputs are kept as the loader gives them, and images of 8 bits a value as such: a quarter of float32. They are
  copies, as a loader may use its memory for the next batch;
- inputs that exceed `MEMORY_SHARE` of the free memory are not kept: the loader is iterated again for each pass;
- on an accelerator the inputs are copied there once where they fit, otherwise from pinned memory without waiting.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from gdscore.errors import GdscoreError
from gdscore.models._state import RandomStream, cuda_of
from gdscore.models.predictions import (
    Inputs,
    count_rows,
    describe,
    integer_labels,
    map_tensors,
    no_labels,
    split_batch,
    tensors_in,
    to_device,
)
from gdscore.shifts.images import Composition, Corruption, corrupt
from gdscore.shifts.sets import apply_shift

MEMORY_SHARE = 0.25
"""Share of the free memory, of the host and of an accelerator, that kept inputs may take."""


Kept: TypeAlias = Tensor | dict[str, Tensor]
"""What is kept of a batch: one tensor, or several by name, as of token ids and their mask."""

_VALUES_AT_ONCE = 1 << 24
"""Values that an accelerator corrupts at once: enough to fill it, and a few hundred megabytes with what is between."""


def check_loader(loader: Any, name: str = "loader") -> None:
    """Refuse what would be iterated row by row, or not at all."""
    if isinstance(loader, nn.Module):
        raise GdscoreError(f"Expected `{name}` to yield batches, but got a model: the model comes first, so swap them")
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise GdscoreError(f"Expected `{name}` to yield batches, but got a dataset: wrap it in a DataLoader")
    if isinstance(loader, (Tensor, dict, str)):
        raise GdscoreError(
            f"Expected `{name}` to yield batches, but got a single {type(loader).__name__}: pass a list of one batch"
        )
    if not isinstance(loader, Iterable):
        raise GdscoreError(f"Expected `{name}` to be an iterable of batches, but got {type(loader).__name__}")


def row_count(loader: Any) -> int | None:
    """Rows of all batches, where the loader knows."""
    try:
        return len(loader.dataset)
    except (AttributeError, NotImplementedError, TypeError):
        return None


class LoaderReader:
    """Inputs and labels of a loader's batches, one after the other, moved to the device.

    `read` gives the next batch, or None after the last; `prefetch`, called while the device is busy, begins to fetch
    the one after. What the loader raises meanwhile is kept for the `read` that it belongs to.
    """

    _END: ClassVar = object()

    def __init__(self, loader: Iterable[Any], device: torch.device, dtype: torch.dtype | None = None) -> None:
        self._device, self._dtype = device, dtype
        self._random = RandomStream()
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._ahead: tuple[Inputs, Any] | BaseException | None = None
        self._fetched = False
        self.count = 0
        with self._random:
            self._batches = iter(loader)

    def read(self) -> tuple[Inputs, Any] | None:
        """Next batch, ready for the current stream; None after the last."""
        self._fetch()
        ahead, self._ahead, self._fetched = self._ahead, None, False
        if isinstance(ahead, BaseException):
            raise ahead
        if ahead is None:
            if not self.count:
                raise GdscoreError(
                    "Expected the loader to yield batches, but it yielded none: its dataset is empty, drop_last drops "
                    "all of it, or it is an iterator that was used up before"
                )
            return None
        self.count += 1
        inputs, labels = ahead
        if self._side is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_stream(self._side)
            for tensor in tensors_in((inputs, labels)):
                if tensor.is_cuda:
                    tensor.record_stream(stream)
        return to_device(inputs, self._device, dtype=self._dtype), labels

    def prefetch(self) -> None:
        """Fetch the next batch and begin to copy it, where that runs beside the computation."""
        if self._side is not None:
            self._fetch()

    def _fetch(self) -> None:
        if self._fetched:
            return
        self._fetched = True
        if self._side is not None:
            # The loader may write into the memory that the last batch is still copied from.
            self._side.synchronize()
        try:
            with self._random:
                batch = next(self._batches, self._END)
            if batch is not self._END:
                inputs, labels = split_batch(batch)
                # Labels that are no tensors, such as a list of numbers, stay what they are.
                self._ahead = self._on_device(inputs), self._on_device(labels) if isinstance(labels, Tensor) else labels
        except Exception as error:
            self._ahead = error

    def _on_device(self, part: Any) -> Any:
        if self._side is None:
            return to_device(part, self._device)
        with torch.cuda.stream(self._side):
            return to_device(map_tensors(_pinned, part), self._device)


def _pinned(x: Tensor) -> Tensor:
    return x.pin_memory() if x.device.type == "cpu" and not x.is_pinned() else x


@dataclass(frozen=True)
class LoadedRows:
    """Inputs of some rows and their labels, where the caller reads any."""

    inputs: Inputs
    labels: Tensor | None = None

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def __getitem__(self, rows: Tensor | slice) -> LoadedRows:
        picked = map_tensors(lambda x: x[rows] if x.ndim else x, self.inputs)
        return LoadedRows(picked, None if self.labels is None else self.labels[rows])


def collected(
    loader: Iterable[Any], seed: int, device: torch.device, *, labelled: bool = False, name: str
) -> LoadedRows:
    """All rows of a loader in host memory; a loader that shuffles by torch's random state does so by the seed."""
    check_loader(loader, name)
    parts, labels = [], []
    for _, x, y in _batches(loader, name, RandomStream(cuda_of(device), seed=seed), labelled):
        # Copies: a loader may use its memory for the next batch.
        parts.append(map_tensors(lambda x: x.detach().to("cpu", copy=True), x))
        if labelled:
            labels.append(integer_labels(y, count_rows(x), "cpu", non_blocking=False, optional=False))
    if not any(map(count_rows, parts)):
        raise GdscoreError(f"Expected `{name}` to yield rows, but it yielded none (an iterator can be read only once)")
    return LoadedRows(_joined(parts), torch.cat(labels) if labelled else None)


def _batches(loader: Iterable[Any], name: str, random: RandomStream, labelled: bool) -> Iterator[tuple[int, Any, Any]]:
    """Number, inputs and labels of each batch of a loader, which draws from the random stream."""
    with random:
        batches = iter(loader)
    end = object()
    for number in itertools.count():
        with random:
            batch = next(batches, end)
        if batch is end:
            return
        x, y = split_batch(batch)
        if labelled and y is None:
            raise GdscoreError(
                f"Expected labelled batches (x, y) from `{name}`, but batch {number} has no labels: {no_labels(batch)}"
            )
        yield number, x, y


def check_classes(labels: Tensor, n_classes: int, name: str) -> None:
    """Refuse labels that are no classes."""
    bad = torch.nonzero((labels < 0) | (labels >= n_classes)).flatten().tolist()
    if bad:
        label = int(labels[bad[0]])
        raise GdscoreError(f"Expected labels 0 … {n_classes - 1}, but row {bad[0]} has label {label} of `{name}`")


class TensorForm:
    """Inputs of any shape and type, one tensor or several by name, given to shifts as the loader gives them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def encode(self, x: Any, number: int) -> Kept:
        """What is kept of batch ``number``, in memory of its own."""
        tensors = list(x.values()) if isinstance(x, dict) else [x]
        if any(not isinstance(t, Tensor) or not t.ndim or len(t) != len(tensors[0]) for t in tensors):
            raise GdscoreError(
                f"Expected a tensor of inputs from `val_loader`, or a dict of tensors of as many rows, but batch "
                f"{number} is {describe(x)}; for other inputs use AccuracyEstimator.fit_predictor with shifts of your "
                "own"
            )
        kept: Kept = map_tensors(lambda t: t.detach().clone(), x)
        return kept

    def decode(self, kept: Kept) -> Kept:
        """Inputs on the device."""
        decoded: Kept = map_tensors(lambda t: t.to(self.device, non_blocking=True), kept)
        return decoded

    def for_model(self, x: Tensor) -> Tensor:
        """Inputs as the model takes them."""
        return x


class ImageForm(TensorForm):
    """Images in [0, 1], of which the loader gives (image − mean) / std."""

    def __init__(self, normalize: Any, device: torch.device) -> None:
        super().__init__(device)
        self._mean, self._std = _mean_and_std(normalize)
        self._normalized = normalize is not None
        self._here = self._mean.to(device), self._std.to(device)
        # Looked up on accelerators, where a division by a number can be rounded in another way.
        self._table = (torch.arange(256) / 255).to(device)

    def encode(self, x: Any, number: int) -> Tensor:
        """Images of 8 bits a value where that keeps every value exactly, otherwise as they are, in a copy."""
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
            raise GdscoreError(
                f"Expected float images of shape (m, C, H, W) from `val_loader`, but batch {number} is {describe(x)}: "
                f"{_form_cure(x)}"
            )
        for name, part in (("mean", self._mean), ("std", self._std)):
            if len(part) not in (1, x.shape[1]):
                numbers = "1 number" if x.shape[1] == 1 else f"{x.shape[1]} numbers"
                raise GdscoreError(f"Expected {numbers} in the {name} of `normalize`, but got {len(part)}")
        if not x.numel():
            return x
        x = x.detach()
        mean, std = self._mean.to(x.device), self._std.to(x.device)
        values = x.to(torch.float32)
        images = values * std + mean
        low, high = float(images.min()), float(images.max())
        if not (low >= -0.02 and high <= 1.02):
            raise GdscoreError(self._range_message(low, high, number, values))
        levels: Tensor = (images * 255).round().clamp(0, 255).to(torch.uint8)
        back = levels / 255
        return levels if torch.equal((back - mean) / std if self._normalized else back, values) else x.clone()

    def _range_message(self, low: float, high: float, number: int, values: Tensor) -> str:
        if not (math.isfinite(low) and math.isfinite(high)):
            return f"Expected finite images, but batch {number} holds NaN or Inf: leave out or repair such rows"
        if self._normalized:
            least, most = float(values.min()), float(values.max())
            cure = "give the mean and std of the loader's own Normalize"
            if float(self._mean.max()) > 1:
                cure = "divide its mean and std by 255, as they are of images up to 255"
            elif least >= 0 and most <= 1:
                cure = "leave it out, as the loader gives images between 0 and 1"
            return (
                f"Expected images between 0 and 1 once `normalize` is undone, but they go from {low:.2f} to "
                f"{high:.2f} (the loader gives {least:.2f} to {most:.2f}): the `normalize` given is not the loader's; "
                f"{cure}"
            )
        cure = "where the loader normalises, pass normalize=(mean, std)"
        if low >= 0 and 2 < high <= 65535:
            largest = "255" if 127 < high <= 255 else "the largest value that a pixel can have"
            cure = f"divide them by {largest}, as in training, or {cure}"
        return f"Expected images between 0 and 1, but they go from {low:.2f} to {high:.2f}: {cure}"

    def decode(self, kept: Kept) -> Tensor:
        """Images in [0, 1] on the device, in float32."""
        assert isinstance(kept, Tensor)
        x = kept.to(self.device, non_blocking=True)
        if x.dtype != torch.uint8:
            mean, std = self._here
            x = x.to(torch.float32)
            return (x * std + mean if self._normalized else x).clamp(0, 1)
        if x.device.type == "cpu":
            return x / 255
        return self._table.index_select(0, x.reshape(-1).to(torch.int32)).view(x.shape)

    def for_model(self, x: Tensor) -> Tensor:
        """Normalised images."""
        mean, std = self._here
        return (x - mean) / std if self._normalized else x


def _form_cure(x: Any) -> str:
    if not isinstance(x, Tensor):
        return (
            "yield images and labels as pairs (x, y) or as a dict of both and nothing else, or use "
            "AccuracyEstimator.fit_predictor with a function"
        )
    if x.ndim == 4 and x.dtype == torch.uint8:
        return "convert images of 8 bits as in training, such as x.float() / 255"
    return "for other inputs give `shifts`, callables from inputs to inputs"


class LabelledInputs:
    """Inputs of all batches (x, y) of a loader and their labels, on the host.

    The loader is iterated once, and again for each pass where the inputs are too large to keep and it allows it.
    Batches may be dicts: of one tensor beside the labels, or of several where the form takes them.
    """

    def __init__(self, loader: Iterable[Any], form: TensorForm) -> None:
        check_loader(loader, "val_loader")
        self._loader, self._form = loader, form
        self._name: str | None = None
        limit = MEMORY_SHARE * _free_memory()
        parts: list[Kept] = []
        labels, size, self.kept = [], 0, True
        for kept, y in self._read():
            self._row_shape = next(tensors_in(kept)).shape[1:]
            labels.append(y)
            size += sum(t.nbytes for t in tensors_in(kept))
            # An iterator cannot be read again: what it gives is kept.
            self.kept = self.kept and (size <= limit or isinstance(loader, Iterator))
            if self.kept:
                parts.append(kept)
            else:
                parts.clear()
        if not labels:
            raise GdscoreError("Expected `val_loader` to yield rows, but it yielded none")
        self.labels = torch.cat(labels)
        self._parts = _placed(parts, size, form.device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all inputs, (N, …); of the first where there are several by name."""
        return len(self), *self._row_shape

    def for_call(self, x: Kept) -> Inputs:
        """Inputs as the loader gives them to the model: by name where its batches are dicts."""
        return x if self._name is None or not isinstance(x, Tensor) else {self._name: x}

    def batches(self, size: int) -> Iterator[tuple[int, Any]]:
        """Position of the first row and inputs on the device, ``size`` rows at a time."""
        start = 0
        for group in _regrouped(self._parts if self.kept else self._read_again(), size):
            x = _joined([self._form.decode(part) for part in group])
            yield start, x
            start += count_rows(x)

    def batches_at_once(self, size: int) -> int:
        """Batches of a size that an accelerator can corrupt at once in little memory; 1 on a CPU."""
        if self._form.device.type == "cpu":
            return 1
        return max(1, min(_VALUES_AT_ONCE // (size * self._row_shape.numel()), -(-len(self) // size)))

    def shift(self, shift: Any, x: Tensor, start: int) -> Any:
        """Shifted inputs, whose first row is row ``start`` of the set; images were checked when they were read."""
        if isinstance(shift, (Corruption, Composition)):
            return corrupt(shift, x, start)
        return apply_shift(shift, x, start)

    def _read(self) -> Iterator[tuple[Kept, Tensor]]:
        # A stream of its own for each pass, from the caller's state: a loader that shuffles gives the same order.
        shape: Any = None
        for number, x, y in _batches(self._loader, "val_loader", RandomStream(), True):
            if isinstance(x, Mapping) and len(x) == 1:
                ((self._name, x),) = x.items()
            kept = self._form.encode(x, number)
            rows = count_rows(kept)
            if not rows:
                continue
            here = map_tensors(lambda t: tuple(t.shape[1:]), kept)
            shape = here if shape is None else shape
            if here != shape:
                raise GdscoreError(
                    f"Expected inputs of one shape, {shape}, but batch {number} has {here}: "
                    "pad, crop or resize all rows alike in the loader"
                )
            yield kept, integer_labels(y, rows, torch.device("cpu"), optional=False)

    def _read_again(self) -> Iterator[Kept]:
        start = 0
        for kept, y in self._read():
            if not torch.equal(self.labels[start : start + len(y)], y):
                raise GdscoreError(
                    "Expected `val_loader` to give the same rows in the same order each time, but the labels differ: "
                    f"its inputs exceed {MEMORY_SHARE:.0%} of the free memory and are read once for each shift. Use a "
                    "loader without shuffling, or fewer rows"
                )
            start += len(y)
            yield kept
        if start != len(self.labels):
            raise GdscoreError(f"Expected `val_loader` to give {len(self.labels)} rows again, but it gave {start}")


def _joined(parts: Sequence[Any]) -> Any:
    """Batches one after the other; what is no tensor with rows is that of the first batch."""
    first = parts[0]
    if isinstance(first, dict):
        if any(not isinstance(part, dict) or part.keys() != first.keys() for part in parts):
            other = next(part for part in parts if not isinstance(part, dict) or part.keys() != first.keys())
            raise GdscoreError(
                f"Expected every batch to have {', '.join(map(repr, first))} as the first one, but one is "
                f"{describe(other)}"
            )
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_joined(column) for column in zip(*parts, strict=True))
    if not isinstance(first, Tensor) or not first.ndim:
        return first
    if len({tuple(p.shape[1:]) if isinstance(p, Tensor) else None for p in parts}) > 1:
        raise GdscoreError(
            f"Expected inputs of one shape to form batches anew, but got {describe(first)} and others: pad or resize "
            "all rows alike"
        )
    return first if len(parts) == 1 else torch.cat(list(parts))


def _regrouped(parts: Iterable[Kept], size: int) -> Iterator[list[Kept]]:
    group: list[Kept] = []
    missing = size
    for part in parts:
        begin, rows = 0, count_rows(part)
        while begin < rows:
            rows_taken = slice(begin, begin + missing)
            group.append(map_tensors(lambda t, rows_taken=rows_taken: t[rows_taken], part))  # type: ignore[misc]
            taken = min(missing, rows - begin)
            begin += taken
            missing -= taken
            if not missing:
                yield group
                group, missing = [], size
    if group:
        yield group


def _placed(parts: list[Kept], size: int, device: torch.device) -> list[Kept]:
    if device.type != "cuda":
        return parts
    fits = size <= MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
    return [map_tensors(lambda t: t.to(device) if fits else _pinned(t), part) for part in parts]


def _free_memory() -> float:
    """Free memory of the host in bytes, or no limit where the system does not tell it."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _mean_and_std(normalize: Any) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, shaped to broadcast over images."""
    try:
        pair = (0.0, 1.0) if normalize is None else normalize
        mean, std = [torch.as_tensor(part, dtype=torch.float32).reshape(-1, 1, 1) for part in pair]
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `normalize` to be a pair (mean, std), but got {normalize!r}") from None
    if not bool((std > 0).all()):
        raise GdscoreError("Expected a positive std in `normalize`, but one is not")
    return mean, std
