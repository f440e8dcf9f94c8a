"""Batches of a loader: read one by one, collected to train on, or kept for a pass under each shift.

Requirements met here:

- a loader that shuffles or augments draws from a random stream of its own that starts at the caller's state;
- batches of kept inputs have one size and the same values, bit for bit, whatever the loader's batch size;
- inputs are kept as the loader gives them, and images of 8 bits a value as such: a quarter of float32. They are
  copies, as a loader may use its memory for the next batch;
- inputs that would not fit into the host's memory are refused with what to do, before the system ends the process;
- on an accelerator the inputs are copied there once where they fit.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
)
from gdscore.shifts.images import Composition, Corruption, corrupt
from gdscore.shifts.sets import apply_shift

_MEMORY_SHARE = 0.25
"""Share of an accelerator's free memory that kept inputs may take."""
_HOST_SHARE = 0.4
"""The same of the host's whole memory; the batches and all of them joined are there at once for a moment."""

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


def read_batches(
    loader: Iterable[Any], random: RandomStream, name: str, *, labelled: bool = False
) -> Iterator[tuple[int, Inputs, Any]]:
    """Number, inputs and labels of each batch that has rows; the loader draws from the random stream."""
    with random:
        batches = iter(loader)
    end, any_rows = object(), False
    for number in itertools.count():
        with random:
            batch = next(batches, end)
        if batch is end:
            break
        inputs, labels = split_batch(batch)
        if labelled and labels is None:
            raise GdscoreError(
                f"Expected labelled batches (x, y) from `{name}`, but batch {number} has no labels: {no_labels(batch)}"
            )
        if count_rows(inputs):
            any_rows = True
            yield number, inputs, labels
    if not any_rows:
        raise GdscoreError(
            f"Expected `{name}` to yield rows, but it yielded none: its dataset is empty, drop_last drops all of it, "
            "or it is an iterator that was used up before"
        )


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
    for _, x, y in read_batches(loader, RandomStream(cuda_of(device), seed=seed), name, labelled=labelled):
        # Copies: a loader may use its memory for the next batch.
        parts.append(map_tensors(lambda x: x.detach().to("cpu", copy=True), x))
        if labelled:
            labels.append(integer_labels(y, count_rows(x), "cpu", non_blocking=False, optional=False))
    return LoadedRows(_joined(parts), torch.cat(labels) if labelled else None)


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

    def joined(self, parts: Sequence[Kept]) -> Kept:
        """What is kept of all batches."""
        kept: Kept = _joined(parts)
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
        return levels if torch.equal(self._as_given(levels), values) else x.clone()

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

    def joined(self, parts: Sequence[Kept]) -> Kept:
        """Images of 8 bits a value where all are; otherwise all as the loader gave them."""
        images: list[Any] = list(parts)
        if any(part.dtype != torch.uint8 for part in images):
            images = [self._as_given(part) if part.dtype == torch.uint8 else part for part in images]
        return super().joined(images)

    def _as_given(self, levels: Tensor) -> Tensor:
        mean, std = self._mean.to(levels.device), self._std.to(levels.device)
        images = levels / 255
        return (images - mean) / std if self._normalized else images

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
    """Inputs of all batches (x, y) of a loader and their labels; batches may be dicts where the form takes them."""

    def __init__(self, loader: Iterable[Any], form: TensorForm) -> None:
        check_loader(loader, "val_loader")
        self._form = form
        self._name: str | None = None
        parts, labels, size, limit = [], [], 0, _HOST_SHARE * _host_memory()
        # A stream of its own from the caller's state: a loader that shuffles gives the same order each time.
        for number, x, y in read_batches(loader, RandomStream(), "val_loader", labelled=True):
            if isinstance(x, Mapping) and len(x) == 1:
                ((self._name, x),) = x.items()
            parts.append(form.encode(x, number))
            labels.append(integer_labels(y, count_rows(x), "cpu", optional=False))
            size += sum(t.nbytes for t in tensors_in(parts[-1]))
            if size > limit:
                raise GdscoreError(
                    "Expected a reference that fits into memory, but the inputs of its first "
                    f"{sum(map(len, labels)):,} rows take {size / 2**30:.1f} GiB: a few thousand rows are enough, as "
                    "of torch.utils.data.Subset(val_set, range(5000)) where val_set is in random order"
                )
        self.labels = torch.cat(labels)
        self._kept = form.joined(parts)
        if form.device.type == "cuda":
            size = sum(t.nbytes for t in tensors_in(self._kept))
            if size <= _MEMORY_SHARE * torch.cuda.mem_get_info(form.device)[0]:
                self._kept = map_tensors(lambda t: t.to(form.device), self._kept)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all inputs, (N, …); of the first where there are several by name."""
        return tuple(next(tensors_in(self._kept)).shape)

    def for_call(self, x: Kept) -> Inputs:
        """Inputs as the loader gives them to the model: by name where its batches are dicts."""
        return x if self._name is None or not isinstance(x, Tensor) else {self._name: x}

    def batches(self, size: int) -> Iterator[tuple[int, Any]]:
        """Position of the first row and inputs on the device, ``size`` rows at a time."""
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield start, self._form.decode(map_tensors(lambda t, rows=rows: t[rows], self._kept))  # type: ignore[misc]

    def batches_at_once(self, size: int) -> int:
        """Batches of a size that an accelerator can corrupt at once in little memory; 1 on a CPU."""
        if self._form.device.type == "cpu":
            return 1
        return max(1, min(_VALUES_AT_ONCE // (size * math.prod(self.shape[1:])), -(-len(self) // size)))

    def shift(self, shift: Any, x: Tensor, start: int) -> Any:
        """Shifted inputs, whose first row is row ``start`` of the set; images were checked when they were read."""
        if isinstance(shift, (Corruption, Composition)):
            return corrupt(shift, x, start)
        return apply_shift(shift, x, start)


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
    other = next((p for p in parts if not isinstance(p, Tensor) or p.shape[1:] != first.shape[1:]), None)
    if other is not None:
        raise GdscoreError(
            f"Expected inputs of one shape to form batches anew, but got {describe(first)} and {describe(other)}: pad, "
            "crop or resize all rows alike"
        )
    return first if len(parts) == 1 else torch.cat(list(parts))


def _host_memory() -> float:
    """Bytes of the host's memory, or no limit where the system does not tell it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


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
