"""A loader's batches, read one after the other, on the device before they are needed.

Requirements met here:

- on CUDA the next batch is fetched and copied, from pinned memory on a stream of its own, while the device works on
  this one; elsewhere nothing is fetched ahead;
- a loader that shuffles or augments draws from a random stream of its own that starts at the caller's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from gdscore.errors import GdscoreError
from gdscore.models._batches import Inputs, map_tensors, split_batch, tensors_in, to_device
from gdscore.models._random import RandomStream

__all__ = ["BatchReader", "check_loader", "row_count"]


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


class BatchReader:
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
        try:
            with self._random:
                batch = next(self._batches, self._END)
            if batch is not self._END:
                inputs, labels = split_batch(batch)
                # Labels that are no tensors, such as a list of numbers, stay what they are.
                self._ahead = self._moved(inputs), self._moved(labels) if isinstance(labels, Tensor) else labels
        except Exception as error:
            self._ahead = error

    def _moved(self, part: Any) -> Any:
        if self._side is None:
            return to_device(part, self._device)
        with torch.cuda.stream(self._side):
            return to_device(map_tensors(_pinned, part), self._device)


def _pinned(x: Tensor) -> Tensor:
    return x.pin_memory() if x.device.type == "cpu" and not x.is_pinned() else x
