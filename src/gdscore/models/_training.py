"""Training copies of a network: rows collected and shuffled, a step of SGD, random states of their own."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gdscore._softmax import binary_logits
from gdscore.errors import GdscoreError
from gdscore.models._inputs import check_loader
from gdscore.models._network import Network, device_of, floating_dtype
from gdscore.models._state import seed_generators, unwrapped
from gdscore.models.predictions import (
    Inputs,
    Where,
    call,
    count_rows,
    describe,
    integer_labels,
    logits_of,
    map_tensors,
    no_labels,
    split_batch,
    to_device,
)


@dataclass(frozen=True)
class Rows:
    """Inputs of some rows and their labels, where the caller reads any."""

    inputs: Inputs
    labels: Tensor | None = None

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def __getitem__(self, rows: Tensor | slice) -> Rows:
        picked = map_tensors(lambda x: x[rows] if x.ndim else x, self.inputs)
        return Rows(picked, None if self.labels is None else self.labels[rows])


class Trainer:
    """SGD on all parameters of a copy, frozen ones too, one mini-batch at a time."""

    def __init__(self, model: nn.Module, lr: float, momentum: float, logits: Where) -> None:
        trainable = [p.requires_grad_(True) for p in model.parameters() if p.is_floating_point()]
        self.model = model
        self.optimiser = torch.optim.SGD(trainable, lr=lr, momentum=momentum)
        self._logits, self._device, self._dtype = logits, device_of(model), floating_dtype(model)

    def step(self, batch: Rows) -> None:
        """Take one step down the cross-entropy; waits for nothing on the device."""
        self.optimiser.zero_grad()
        with torch.enable_grad():
            inputs = to_device(batch.inputs, self._device, dtype=self._dtype)
            z = binary_logits(logits_of(call(self.model, inputs, 0), self._logits, len(batch)))
            loss = nn.functional.cross_entropy(z.float(), to_device(batch.labels, z.device))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


def collected(loader: Iterable[Any], seed: int, device: torch.device, *, labelled: bool = False, name: str) -> Rows:
    """All rows of a loader in host memory; a loader that shuffles by torch's random state does so by the seed."""
    check_loader(loader, name)
    parts, labels = [], []
    with seeded(seed, device):
        for batch in loader:
            x, y = split_batch(batch)
            if labelled and y is None:
                raise GdscoreError(
                    f"Expected labelled batches (x, y) from `{name}`, but one has no labels: {no_labels(batch)}"
                )
            # Copies: a loader may use its memory for the next batch.
            parts.append(map_tensors(lambda x: x.detach().to("cpu", copy=True), x))
            if labelled:
                labels.append(integer_labels(y, count_rows(x), "cpu", non_blocking=False, optional=False))
    if not any(map(count_rows, parts)):
        raise GdscoreError(f"Expected `{name}` to yield rows, but it yielded none (an iterator can be read only once)")
    return Rows(_joined(parts), torch.cat(labels) if labelled else None)


def checked(rows: Rows, n_classes: int) -> Rows:
    """Rows as they are, if all labels are classes."""
    assert rows.labels is not None
    bad = torch.nonzero((rows.labels < 0) | (rows.labels >= n_classes)).flatten().tolist()
    if bad:
        label = int(rows.labels[bad[0]])
        raise GdscoreError(f"Expected labels 0 … {n_classes - 1}, but row {bad[0]} has label {label}")
    return rows


def shuffled(rows: Rows, batch_size: int, generator: torch.Generator) -> Iterator[Rows]:
    """One epoch: full mini-batches of a random permutation, or one of all rows where they are fewer."""
    size = min(batch_size, len(rows))
    order = torch.randperm(len(rows), generator=generator)
    for start in range(0, len(rows) - size + 1, size):
        yield rows[order[start : start + size]]


def predicted(model: nn.Module, rows: Rows, batch_size: int, logits: Where, name: str) -> tuple[Rows, int]:
    """Rows with the classes a model predicts in evaluation mode as labels, and the number of classes."""
    network = Network(model, head=False, logits=logits)
    labels, n_classes = [], 0
    for index, start in enumerate(range(0, len(rows), batch_size)):
        # Copied by index: a model that works in place must not change the rows kept.
        piece = rows[torch.arange(start, min(start + batch_size, len(rows)))]
        z = network.logits(to_device(piece.inputs, network.device, dtype=network.dtype), index)
        finite = z.isfinite().all(1)
        if not bool(finite.all()):
            row = start + int((~finite).int().argmax())
            raise GdscoreError(
                f"Expected finite logits, but the model gives NaN or Inf in row {row} of `{name}`: leave out or repair "
                "such rows"
            )
        labels.append(z.argmax(1))
        n_classes = z.shape[1]
    return Rows(rows.inputs, torch.cat(labels).cpu()), n_classes


def working_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """Copy of a model to train, without gradients, compilation or data-parallel wrapping."""
    if next(model.parameters(), None) is None:
        raise GdscoreError(f"Expected a model with parameters, but {type(model).__name__} has none")
    try:
        twin: nn.Module = copy.deepcopy(unwrapped(model))
    except (RuntimeError, TypeError) as error:
        raise GdscoreError(f"Expected a model that copy.deepcopy can copy, but it failed: {error}") from error
    twin.zero_grad(set_to_none=True)
    return twin.to(device)


def in_full_precision(model: nn.Module, works: Callable[[nn.Module], object]) -> nn.Module:
    """A copy in half precision made one in float32: steps of a training are smaller than what half precision can add.

    ``works`` tries it; a network that fails, as it casts its inputs to half precision, is left as it was.
    """
    dtype = floating_dtype(model)
    if dtype in (torch.float16, torch.bfloat16):
        try:
            works(model.float())
        except (GdscoreError, RuntimeError):
            model.to(dtype)
    return model


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random state of its own, on the host and on the device; the caller's comes back."""
    on_gpu = []
    if device.type == "cuda":
        on_gpu.append(torch.cuda.current_device() if device.index is None else device.index)
    with torch.random.fork_rng(devices=on_gpu):
        seed_generators(seed, on_gpu)
        yield


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
