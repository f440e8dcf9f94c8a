"""ProjNorm: how far a network moves when it is trained on its own predictions.

Requirements met here:

- everything is trained on copies and under a random state of its own: the given model, its gradients and the
  caller's random state stay as they were, also after an exception;
- loaders may be read once only and yield batches of any size: rows are collected in host memory and shuffled by
  the seed, so that equal rows give equal training whatever the loader's batch size;
- both trainings see the same seeds: equal data and labels give a distance of exactly 0.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from gdscore._checks import choice, integer, number
from gdscore._softmax import binary_logits
from gdscore._stream import progress_bar
from gdscore.errors import GdscoreError
from gdscore.models._inputs import LoadedRows, check_classes, collected
from gdscore.models._network import Network, device_of, floating_dtype, in_full_precision, working_copy
from gdscore.models._state import RandomStream, cuda_of
from gdscore.models.predictions import Where, call, logits_of, to_device


def projnorm(
    model: nn.Module,
    target_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    init: Callable[[], nn.Module] | None = None,
    start: str = "fresh",
    steps: int = 500,
    lr: float = 1e-3,
    momentum: float = 0.9,
    batch_size: int = 128,
    seed: int = 0,
    logits: Where = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> float:
    r"""Distance between a network trained on reference labels and one trained on pseudo-labels; falls with accuracy.

    .. math:: \|\theta_{ref} - \tilde\theta\|_2

    One initialisation is trained twice, equally long and with the same seeds: on the reference with its true labels
    (:math:`\theta_{ref}`) and on the target with the classes that ``model`` predicts in evaluation mode
    (:math:`\tilde\theta`). SGD without weight decay, learning rate on a cosine from ``lr`` to 0 over ``steps``,
    training mode, nothing frozen. Parameters count, BatchNorm's running statistics do not.

    Parameters
    ----------
    model : nn.Module
        Gives the pseudo-labels; is not changed.
    target_loader : iterable
        Target data, labels or none.
    val_loader : iterable, optional
        Labelled data of the training distribution; needed by ``start="fresh"`` only.
    init : callable, optional
        Function without arguments that makes the network both trainings start from, such as a pretrained one. By
        default they start from a copy of ``model``.
    start : str, default "fresh"
        ``model``: the parameters of ``model`` are the start and :math:`\theta_{ref}`, as the GdScore paper
        describes it; no reference is needed.
    steps, lr, momentum, batch_size
        Of the training. A permutation of the rows is cut into full mini-batches and the remainder left out; fewer
        rows than ``batch_size`` form one mini-batch.
    seed : int, default 0
        Of the mini-batches, of dropout and of ``init``.
    logits : int, str or callable, optional
        Where the model's output holds the logits, as in `extract`.
    device : torch.device or str, optional
        Where the model is; its parameters' device by default. The training runs there, and the model is not moved.
    progress : bool, optional
        Whether to show a progress bar (rows trained on); by default where a terminal is attached.

    Notes
    -----
    Host memory: all target and reference rows, once each. Device memory: two to three copies of the network, and
    one more of momentum. On a GPU equality to the last bit is up to its kernels.

    References
    ----------
    Yu et al., "Predicting Out-of-Distribution Error with the Projection Norm", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import projnorm
    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(256, 4, generator=rng)
    >>> model = torch.nn.Linear(4, 2, bias=False)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]]))
    >>> reference = [(x, model(x).argmax(1))]
    >>> projnorm(model, [x], reference, steps=20)  # the reference itself, all predictions right
    0.0
    >>> round(projnorm(model, [x + 1], reference, steps=20), 4)
    0.0091
    """
    choice("start", start, ("fresh", "model"))
    steps = integer("steps", steps, least=1)
    batch_size = integer("batch_size", batch_size, least=1)
    seed = integer("seed", seed, least=0)
    lr, momentum = number("lr", lr, above=0), number("momentum", momentum, least=0, most=1)
    if start == "model" and (init is not None or val_loader is not None):
        raise GdscoreError(
            "`start='model'` starts from the model itself and reads no reference: leave out `init` and "
            "`val_loader`, or use start='fresh'"
        )
    if start == "fresh" and val_loader is None:
        raise GdscoreError("`start='fresh'` needs `val_loader` with labels; where there is none use start='model'")
    where = device_of(model, device)

    # Parameters made in inference mode cannot be trained, wherever the caller is.
    with torch.inference_mode(False):
        teacher = working_copy(model, where)
        unlabelled = collected(target_loader, seed, where, name="target_loader")

        def one_row(network: nn.Module) -> object:
            return _predicted(network, unlabelled[:1], 1, logits, "target_loader")

        teacher = in_full_precision(teacher, one_row)
        target, n_classes = _predicted(teacher, unlabelled, batch_size, logits, "target_loader")
        runs = [target]
        if val_loader is not None:
            reference = collected(val_loader, seed, where, labelled=True, name="val_loader")
            assert reference.labels is not None
            check_classes(reference.labels, n_classes, "val_loader")
            runs.append(reference)
        initial = teacher if init is None else in_full_precision(_initialised(init, seed, where), one_row)
        for rows, name in zip(runs, ("target_loader", "val_loader"), strict=False):
            _, classes = _predicted(initial, rows[:1], 1, logits, name)
            if classes != n_classes:
                raise GdscoreError(f"Expected `init` to make a network of {n_classes} classes, but it has {classes}")
        ends = []
        with progress_bar(steps * sum(min(batch_size, len(rows)) for rows in runs), progress) as advance:
            for rows in runs:
                trainer = _Trainer(copy.deepcopy(initial).train(), lr, momentum, logits)
                with RandomStream(cuda_of(where), seed=seed):
                    _train(trainer, rows, steps, batch_size, seed, advance)
                ends.append(trainer.model)
        return _distance(initial if len(ends) == 1 else ends[1], ends[0])


def _initialised(init: Callable[[], nn.Module], seed: int, device: torch.device) -> nn.Module:
    with RandomStream(cuda_of(device), seed=seed):
        initial = init() if callable(init) and not isinstance(init, nn.Module) else None
    if not isinstance(initial, nn.Module):
        raise GdscoreError("Expected `init` to be a function without arguments that returns an nn.Module")
    return working_copy(initial, device)


class _Trainer:
    """SGD on all parameters of a copy, frozen ones too, one mini-batch at a time."""

    def __init__(self, model: nn.Module, lr: float, momentum: float, logits: Where) -> None:
        trainable = [p.requires_grad_(True) for p in model.parameters() if p.is_floating_point()]
        self.model = model
        self.optimiser = torch.optim.SGD(trainable, lr=lr, momentum=momentum)
        self._logits, self._device, self._dtype = logits, device_of(model), floating_dtype(model)

    def step(self, batch: LoadedRows) -> None:
        """Take one step down the cross-entropy; waits for nothing on the device."""
        self.optimiser.zero_grad()
        with torch.enable_grad():
            inputs = to_device(batch.inputs, self._device, dtype=self._dtype)
            z = binary_logits(logits_of(call(self.model, inputs, 0), self._logits, len(batch)))
            loss = nn.functional.cross_entropy(z.float(), to_device(batch.labels, z.device))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


def _shuffled(rows: LoadedRows, batch_size: int, generator: torch.Generator) -> Iterator[LoadedRows]:
    """One epoch: full mini-batches of a random permutation, or one of all rows where they are fewer."""
    size = min(batch_size, len(rows))
    order = torch.randperm(len(rows), generator=generator)
    for start in range(0, len(rows) - size + 1, size):
        yield rows[order[start : start + size]]


def _predicted(model: nn.Module, rows: LoadedRows, batch_size: int, logits: Where, name: str) -> tuple[LoadedRows, int]:
    """LoadedRows with the classes a model predicts in evaluation mode as labels, and the number of classes."""
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
    return LoadedRows(rows.inputs, torch.cat(labels).cpu()), n_classes


def _train(
    trainer: _Trainer, rows: LoadedRows, steps: int, batch_size: int, seed: int, advance: Callable[[int], None]
) -> None:
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(trainer.optimiser, T_max=steps)
    generator = torch.Generator().manual_seed(seed)
    epochs = itertools.chain.from_iterable(_shuffled(rows, batch_size, generator) for _ in itertools.count())
    for batch in itertools.islice(epochs, steps):
        trainer.step(batch)
        schedule.step()
        advance(len(batch))


def _distance(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    squares = [(a.detach().double() - b.detach().double()).square().sum().item() for a, b in pairs]
    value = math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
    if math.isnan(value):
        raise GdscoreError(
            "The training diverged: parameters are not finite any more; use a smaller `lr`, and leave out rows with "
            "NaN or Inf"
        )
    return value
