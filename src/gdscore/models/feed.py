"""Batches of a loader, on the device before they are needed.

Requirements met here:

- on CUDA the next batch is fetched and copied, from pinned memory on a stream of its own, while the device works on
  this one; elsewhere nothing is fetched ahead;
- a loader draws its order and augmentations from torch's random state on the host: it gets a stream of its own that
  starts there, so that the caller's state is as before whenever the caller has the word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from gdscore.errors import GdscoreError
from gdscore.models.batches import Inputs, split_batch, to_device

__all__ = ["Feed", "check_loader", "length"]


def check_loader(loader: Any, name: str = "loader") -> None:
    """Refuse what would be iterated row by row, or not at all."""
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise GdscoreError(f"Expected `{name}` to yield batches, but got a dataset: wrap it in a DataLoader")
    if isinstance(loader, (Tensor, dict, str)):
        raise GdscoreError(
            f"Expected `{name}` to yield batches, but got a single {type(loader).__name__}: a list of one batch will do"
        )
    if not isinstance(loader, Iterable):
        raise GdscoreError(f"Expected `{name}` to be an iterable of batches, but got {type(loader).__name__}")


def length(loader: Any) -> int | None:
    """Rows of all batches, where the loader knows."""
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        return None


class Feed:
    """Inputs and labels of a loader's batches, one after the other, moved to the device.

    `take` gives the next batch, or None after the last; `stage`, called while the device is busy, begins to fetch the
    one after. What the loader raises meanwhile is kept for the `take` that it belongs to.
    """

    _END: ClassVar = object()

    def __init__(self, loader: Iterable[Any], device: torch.device, dtype: torch.dtype | None = None) -> None:
        self._device, self._dtype = device, dtype
        self._rng = torch.get_rng_state()
        self._side = _side_stream(device)
        self._ahead: tuple[Inputs, Any] | BaseException | None = None
        self._staged = False
        self.taken = 0
        with self._loader_rng():
            self._batches = iter(loader)

    def take(self) -> tuple[Inputs, Any] | None:
        """Next batch, ready for the current stream; None after the last."""
        self.stage(always=True)
        ahead, self._ahead, self._staged = self._ahead, None, False
        if isinstance(ahead, BaseException):
            raise ahead
        if ahead is None:
            if not self.taken:
                raise GdscoreError(
                    "Expected the loader to yield batches, but it yielded none: its dataset is empty, drop_last drops "
                    "all of it, or it is an iterator that was used up before"
                )
            return None
        self.taken += 1
        inputs, labels = ahead
        if self._side is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_stream(self._side)
            for tensor in _tensors((inputs, labels)):
                if tensor.is_cuda:
                    tensor.record_stream(stream)
        return to_device(inputs, self._device, dtype=self._dtype), labels

    def stage(self, *, always: bool = False) -> None:
        """Fetch the next batch and begin to copy it, where that runs beside the computation."""
        if self._staged or (self._side is None and not always):
            return
        self._staged = True
        try:
            with self._loader_rng():
                batch = next(self._batches, self._END)
            if batch is not self._END:
                inputs, labels = split_batch(batch)
                self._ahead = self._moved(inputs), self._moved(labels)
        except Exception as error:
            self._ahead = error

    def _moved(self, part: Any) -> Any:
        if self._side is None:
            return to_device(part, self._device)
        with torch.cuda.stream(self._side):
            return to_device(_pinned(part), self._device)

    @contextlib.contextmanager
    def _loader_rng(self) -> Iterator[None]:
        callers = torch.get_rng_state()
        torch.set_rng_state(self._rng)
        try:
            yield
        finally:
            self._rng = torch.get_rng_state()
            torch.set_rng_state(callers)


def _side_stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def _tensors(part: Any) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (tuple, dict)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _tensors(inner)


def _pinned(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.pin_memory() if part.device.type == "cpu" and not part.is_pinned() else part
    return {name: _pinned(value) for name, value in part.items()} if isinstance(part, dict) else part
