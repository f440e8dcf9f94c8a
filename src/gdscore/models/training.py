"""Training copies of a network: rows collected and cut anew, a step of SGD, random states of their own."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.models.batches import (
    Inputs,
    Where,
    call,
    count_rows,
    integer_labels,
    logits_of,
    shapes,
    split_batch,
    to_device,
)
from gdscore.models.feed import check_loader
from gdscore.models.network import Network, floating_dtype, two_columns
from gdscore.models.untouched import kept_rng, unwrapped


@dataclass(frozen=True)
class Rows:
    """Inputs of some rows and their labels, where the caller reads any."""

    inputs: Inputs
    labels: Tensor | None = None

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def __getitem__(self, rows: Tensor | slice) -> Rows:
        return Rows(_picked(self.inputs, rows), None if self.labels is None else self.labels[rows])


class Trainer:
    """SGD on all parameters of a copy, frozen ones too, one mini-batch at a time."""

    def __init__(self, model: nn.Module, lr: float, momentum: float, logits: Where) -> None:
        trainable = [p.requires_grad_(True) for p in model.parameters() if p.is_floating_point()]
        self.model = model
        self.optimiser = torch.optim.SGD(trainable, lr=lr, momentum=momentum)
        self._logits = logits

    def step(self, batch: Rows) -> None:
        """Take one step down the cross-entropy; waits for nothing on the device."""
        self.optimiser.zero_grad()
        z = differentiable(self.model, batch, self._logits)
        loss = nn.functional.cross_entropy(z.float(), to_device(batch.labels, z.device))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


def differentiable(model: nn.Module, batch: Rows, logits: Where) -> Tensor:
    """Logits of a mini-batch, at least two columns, with the graph behind them."""
    with torch.enable_grad():
        inputs = to_device(batch.inputs, device_of(model), dtype=floating_dtype(model))
        return two_columns(logits_of(call(model, inputs), logits))


def recut(loader: Iterable[Any], size: int | None, labelled: bool = False) -> Iterator[Rows]:
    """Rows of a loader on the host, in its order, in batches of ``size`` (None: all in one), the last maybe shorter."""
    parts: list[Rows] = []
    held = 0
    for batch in loader:
        inputs, labels = split_batch(batch)
        if labelled and labels is None:
            raise GdscoreError(f"Expected the loader to yield labels with the inputs, but it yielded {shapes(batch)}")
        rows = Rows(
            to_device(inputs, "cpu", non_blocking=False),
            integer_labels(labels, count_rows(inputs), "cpu", non_blocking=False) if labelled else None,
        )
        start, end = 0, len(rows)
        while start < end:
            stop = end if size is None else min(end, start + size - held)
            parts.append(rows[start:stop])
            held, start = held + stop - start, stop
            if held == size:
                yield _joined(parts)
                parts, held = [], 0
    if parts:
        yield _joined(parts)


def collected(
    loader: Iterable[Any], seed: int, device: torch.device, labelled: bool = False, name: str = "loader"
) -> Rows:
    """All rows of a loader in host memory; a loader that shuffles by torch's random state does so by the seed."""
    check_loader(loader, name)
    with seeded(seed, device):
        rows = next(recut(loader, None, labelled), None)
    if rows is None:
        raise GdscoreError(f"Expected `{name}` to yield rows, but it yielded none (an iterator can be read only once)")
    return rows


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


def predicted(model: nn.Module, rows: Rows, batch_size: int, logits: Where) -> tuple[Rows, int]:
    """Rows with the classes a model predicts in evaluation mode as labels, and the number of classes."""
    network = Network(model, head=False, logits=logits)
    labels, n_classes = [], 0
    for index, start in enumerate(range(0, len(rows), batch_size)):
        # Copied by index: a model that works in place must not change the rows kept.
        piece = rows[torch.arange(start, min(start + batch_size, len(rows)))]
        z = two_columns(network.run(to_device(piece.inputs, network.device, dtype=network.dtype), index)[0])
        labels.append(z.argmax(1))
        n_classes = z.shape[1]
    return Rows(rows.inputs, torch.cat(labels).cpu()), n_classes


def working_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """Copy of a model to do with as one likes, without gradients, compilation or data-parallel wrapping."""
    try:
        twin: nn.Module = copy.deepcopy(unwrapped(model))
    except (RuntimeError, TypeError) as error:
        raise GdscoreError(f"Expected a model that copy.deepcopy can copy, but it failed: {error}") from error
    twin.zero_grad(set_to_none=True)
    return twin.to(device)


def device_of(model: nn.Module, device: torch.device | str | None = None) -> torch.device:
    """Return the device asked for, or else where the model's first parameter is."""
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    if first is None:
        raise GdscoreError(f"Expected a model with parameters, but {type(model).__name__} has none")
    return first.device


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random state of its own, on the host and on the device; the caller's comes back."""
    # Not torch.manual_seed: that would seed every device there is, also those whose state is not saved.
    on_gpu = []
    if device.type == "cuda":
        on_gpu.append(torch.cuda.current_device() if device.index is None else device.index)
    with kept_rng(on_gpu):
        torch.default_generator.manual_seed(seed)
        for index in on_gpu:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def _picked(inputs: Inputs, rows: Tensor | slice) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs[rows]
    return {k: v[rows] if isinstance(v, Tensor) and v.ndim else v for k, v in inputs.items()}


def _joined(parts: Sequence[Rows]) -> Rows:
    labels = [part.labels for part in parts if part.labels is not None]
    first = parts[0].inputs
    if isinstance(first, Tensor):
        inputs: Inputs = _concatenated([part.inputs for part in parts])
    else:
        columns = {k: [_entry(part.inputs, k) for part in parts] for k in first}
        inputs = {k: _concatenated(v) if isinstance(v[0], Tensor) and v[0].ndim else v[0] for k, v in columns.items()}
    return Rows(inputs, torch.cat(labels) if labels else None)


def _entry(inputs: Inputs, name: str) -> Any:
    if isinstance(inputs, Tensor) or name not in inputs:
        raise GdscoreError(f"Expected every batch to have `{name}` as the first one, but one is {shapes(inputs)}")
    return inputs[name]


def _concatenated(parts: Sequence[Any]) -> Tensor:
    if len({tuple(p.shape[1:]) if isinstance(p, Tensor) else None for p in parts}) > 1:
        raise GdscoreError(
            f"Expected inputs of one shape to cut batches anew, but got {shapes(parts[0])} and others: pad or resize "
            "all rows alike"
        )
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
