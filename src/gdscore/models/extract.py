"""`Outputs` of any torch classifier, batch by batch, in one forward pass that does not change it, and their scores.

Beside the model run, on the same batches: a second model, the model with batch statistics, a head for rotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from gdscore._classes import listed_names
from gdscore._stream import progress_bar
from gdscore.errors import GdscoreError, nearest
from gdscore.models._inputs import check_loader, read_batches, row_count
from gdscore.models._network import Network, floating_dtype
from gdscore.models._state import MODES, BatchNormMode, RandomStream, Unchanged, batchnorm_layers, unwrapped
from gdscore.models.predictions import (
    Inputs,
    OutputKind,
    Where,
    count_rows,
    describe,
    integer_labels,
    map_tensors,
    to_device,
)
from gdscore.outputs import Outputs, checked_threshold
from gdscore.scores import registry

BatchNormStatistics: TypeAlias = BatchNormMode | Literal["both"]

STATISTICS_ROWS = 128
"""Rows that batch statistics are taken of, whatever the batch size of the loader, on which scores should not depend."""


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    device: torch.device | str | None = None,
    head: str | nn.Module | Literal[False] | None = None,
    logits: Where = None,
    outputs: OutputKind = "auto",
    peer: nn.Module | None = None,
    rotation_head: Callable[[Tensor], Tensor] | None = None,
    batchnorm: BatchNormStatistics = "eval",
    autocast: torch.dtype | None = None,
    with_labels: bool = True,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    numbered: bool = False,
    progress: bool | None = None,
) -> Iterator[Outputs]:
    """Run a model once over a loader: logits, features and labels, one `Outputs` per batch.

    The model is in evaluation mode during each forward pass and as it was before at every other moment, also between
    two batches, after an exception and when the iterator is dropped: modes, buffers, gradients, hooks, other
    attributes, and the random states of torch, NumPy and Python.

    Parameters
    ----------
    model : nn.Module
        Any classifier that returns logits as a tensor, in a tuple or as ``logits`` of a dict or Hugging Face output.
        A single logit z of a binary model, in shape (m, 1) or (m,), becomes the logits (0, z). Compiled and
        data-parallel models are unwrapped and run eagerly.
    loader : iterable of batches
        Tensors, tuples ``(x,)``, ``(x, y)``, ``(x, y, more…)`` or dicts; several inputs as ``((x1, x2), y)``. Inputs
        are moved to the device and floating-point ones cast to the precision of the model's weights.
    device : torch.device or str, optional
        Where the model is; its parameters' device by default. The model itself is not moved.
    head : str, nn.Module or False, optional
        The last linear layer or its name. By default it is found on the first batch: the ``nn.Linear`` or 1×1
        convolution whose output is the logits. False goes without features.
    logits : int, str or callable, optional
        Where the logits are in what the model returns, if that is not plain: the position in a tuple, the name in a
        dict, or a function of the output.
    outputs : {"auto", "logits", "probabilities"}, default "auto"
        What the model returns, and ``peer`` too. ``"auto"``: logits; outputs that look like probabilities are refused.
        ``"probabilities"``: a softmax, or a sigmoid in a single column. ``"logits"``: no check.
    peer : nn.Module, optional
        A second model, run on the same batches, for ``peer_logits``.
    rotation_head : callable, optional
        From features (m, D) to logits (m, 4) of the rotation by 0°, 90°, 180°, 270°, for ``rotation_logits``. Inputs
        must be images m×C×H×W; they pass the model three more times.
    batchnorm : {"eval", "batch", "both"}, default "eval"
        ``"eval"``: the statistics stored in the model. ``"batch"``: BatchNorm uses the statistics of each batch, as in
        training, and its running statistics stay. ``"both"``: the model as it is, and a second pass with the statistics
        of about 128 rows of the batch, for ``batch_logits``; where the two disagree, the data differ from the training
        data. The loader should then shuffle, and give 100 rows or more in a batch.
    autocast : torch.dtype, optional
        Run the forward passes under ``torch.autocast`` with this precision.
    with_labels : bool, default True
        False ignores the loader's labels.
    threshold : float, optional
        Of a binary model that decides for class 1 where its probability is at least this, as in `Outputs`.
    class_names : sequence of K str, optional
        Names of the classes in the order of the logits, such as ``dataset.classes`` of torchvision's ``ImageFolder``.
    numbered : bool, default False
        Name rows by their number in the loader's order (``ids``). Random labels then depend on the number and not on
        the bits of the logits, which can differ in the last digit with the loader's batch size. For loaders that do
        not shuffle.
    progress : bool, optional
        Progress bar on standard error. By default where that is a terminal and the loader has a length.

    Yields
    ------
    Outputs
        Torch tensors on the device, in the precision the model computes in.

    Examples
    --------
    >>> import torch, gdscore
    >>> from gdscore import models
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> loader = [(torch.randn(5, 8), torch.tensor([0, 2, 1, 1, 0]))] * 2
    >>> for out in models.extract(model, loader):
    ...     print(out)
    Outputs(logits (5, 3), features (5, 4), labels (5,); torch torch.float32)
    Outputs(logits (5, 3), features (5, 4), labels (5,); torch torch.float32)
    """
    check_loader(loader)
    options: dict[str, Any] = {"logits": logits, "outputs": outputs, "autocast": autocast}
    mode, others = _other_networks(model, peer, batchnorm, device=device, **options)
    network = Network(model, device=device, head=head, batchnorm=mode, **options)
    rotation = None if rotation_head is None else _RotationNetwork(network, rotation_head)
    if rotation is not None and head is False:
        raise GdscoreError("Expected features for `rotation_head`, but head=False goes without them: leave it out")
    decided_at = None if threshold is None else checked_threshold(threshold)
    names, rows = listed_names(class_names), row_count(loader)

    def stream() -> Iterator[Outputs]:
        seen = 0
        with progress_bar(rows or 0, progress if rows else False) as advance:
            for number, batch, labels in read_batches(loader, RandomStream(), "loader"):
                inputs = to_device(batch, network.device, dtype=network.dtype)
                # Each pass has a copy: a first layer may work in place, and the inputs may be the caller's own.
                returned, features = network.run(_copied(inputs), number)
                m, where = len(returned), returned.device
                arrays: dict[str, Any] = {**network.kind.arrays(returned), "features": features}
                if labels is not None and with_labels:
                    arrays["labels"] = integer_labels(labels, m, where)
                for name, other in others.items():
                    inputs_there = to_device(_copied(inputs), other.device, dtype=other.dtype)
                    arrays[name] = other.logits(inputs_there, number).to(where, non_blocking=True)
                if rotation is not None and features is not None:
                    arrays["rotation_logits"] = rotation.logits(inputs, features, number)
                if numbered:
                    arrays["ids"] = torch.arange(seen, seen + m, device=where)
                seen += m
                # The network's own check has looked at them, or was told not to.
                made = Outputs(**arrays, threshold=decided_at, check_logits=False).with_class_names(names)
                del batch, inputs, returned, features, arrays
                yield made
                advance(m)

    return stream()


def _rows_of(inputs: Inputs, part: slice, rows: int) -> Inputs:
    return map_tensors(lambda x: x[part] if x.ndim and len(x) == rows else x, inputs)  # type: ignore[no-any-return]


def _copied(inputs: Inputs) -> Inputs:
    return map_tensors(lambda x: x.detach().clone(), inputs)  # type: ignore[no-any-return]


def score_all(
    model: nn.Module,
    target_loader: Iterable[Any],
    *,
    val_loader: Iterable[Any] | None = None,
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
    peer: nn.Module | None = None,
    rotation_head: Callable[[Tensor], Tensor] | None = None,
    **options: Any,
) -> registry.ScoreTable:
    """Scores of a model on unlabelled data, all in one forward pass over it; the model is not changed.

    Parameters
    ----------
    model : nn.Module
        A classifier.
    target_loader : iterable of batches
        Target data, as for `extract`.
    val_loader : iterable of batches, optional
        Reference data, labelled where scores need it; one more pass.
    scores : iterable of names, or mapping of names to options, optional
        Scores to compute; by default all that are possible.
    peer : nn.Module, optional
        An independently trained model, for ``agreescore``.
    rotation_head : callable, optional
        For ``rotation``, see `extract`.
    **options
        Further options of `extract`: ``head``, ``logits``, ``outputs``, ``threshold``, ``batchnorm``, ``autocast``, …

    Returns
    -------
    ScoreTable
        A dict of the numbers; its attribute ``skipped`` has the reason why others are missing.

    Examples
    --------
    >>> import torch
    >>> from gdscore import models
    >>> model = torch.nn.Linear(8, 3)
    >>> table = models.score_all(model, [torch.randn(256, 8)], scores=["confscore", "atc"])
    >>> sorted(table), table.skipped
    (['confscore'], {'atc': 'needs labelled reference data'})
    """
    check_loader(target_loader, "target_loader")
    if val_loader is not None:
        check_loader(val_loader, "val_loader")
        registry.refuse_one_iterator(target_loader, val_loader, "val_loader")
    target = extract(model, target_loader, peer=peer, rotation_head=rotation_head, **options)
    # No score learns from batch statistics of the reference.
    plain = options | {"batchnorm": "eval"} if options.get("batchnorm") == "both" else options
    reference = None if val_loader is None else extract(model, val_loader, **plain)
    return registry.score_all(target, reference=reference, scores=scores)


def _other_networks(
    model: nn.Module,
    peer: nn.Module | None,
    batchnorm: BatchNormStatistics,
    *,
    device: torch.device | str | None,
    **options: Any,
) -> tuple[BatchNormMode, dict[str, Network]]:
    """Mode to run the model in, and what to run beside it for ``peer_logits`` and ``batch_logits``."""
    if batchnorm not in (*MODES, "both"):
        raise GdscoreError(f"Unknown `batchnorm` {batchnorm!r}: {nearest(str(batchnorm), [*MODES, 'both'])}")
    mode: BatchNormMode = "eval" if batchnorm == "both" else batchnorm
    others: dict[str, Network] = {}
    if peer is not None:
        if not isinstance(peer, nn.Module):
            hint = ', or batchnorm="both" for the model itself' if isinstance(peer, str) else ""
            raise GdscoreError(f"Expected `peer` to be a torch.nn.Module{hint}, but got {type(peer).__name__}")
        others["peer_logits"] = Network(peer, head=False, batchnorm=mode, **options)
    if batchnorm == "both":
        others["batch_logits"] = _BatchStatistics(model, device=device, head=False, batchnorm="batch", **options)
        if not any(layer.running_mean is not None for layer in batchnorm_layers(unwrapped(model))):
            raise GdscoreError(
                'Expected a model with BatchNorm and stored statistics for batchnorm="both", but it has none'
            )
    return mode, others


class _BatchStatistics(Network):
    """The model with the statistics of each batch, large ones taken in even pieces."""

    def run(self, inputs: Inputs, batch: int) -> tuple[Tensor, Tensor | None]:
        rows = count_rows(inputs)
        pieces = torch.tensor_split(torch.arange(rows), max(1, round(rows / STATISTICS_ROWS)))
        if len(pieces) < 2:
            return super().run(inputs, batch)
        returned = []
        for piece in pieces:
            part = slice(int(piece[0]), int(piece[-1]) + 1)
            returned.append(super().run(_rows_of(inputs, part, rows), batch)[0])
        return torch.cat(returned), None


class _RotationNetwork:
    """A rotation head on the features of each batch turned by 0°, 90°, 180° and 270°."""

    def __init__(self, network: Network, head: Callable[[Tensor], Tensor]) -> None:
        if not callable(head):
            raise GdscoreError(f"Expected `rotation_head` to be callable on features, but got {type(head).__name__}")
        self._network, self._head = network, head
        module = head if isinstance(head, nn.Module) else nn.Identity()
        self._unchanged, self._dtype = Unchanged(module), floating_dtype(module)

    def logits(self, inputs: Inputs, features: Tensor, batch: int) -> Tensor:
        """Logits of shape (m, 4 rotations shown, 4 rotations predicted)."""
        if not isinstance(inputs, Tensor) or inputs.ndim != 4:
            raise GdscoreError(f"Expected images of shape (m, C, H, W) to rotate, but got {describe(inputs)}")
        turned = [features]
        for quarter_turns in (1, 2, 3):
            more = self._network.run(torch.rot90(inputs, quarter_turns, dims=(2, 3)), batch)[1]
            assert more is not None
            turned.append(more)
        with torch.no_grad(), self._network.precision(), self._unchanged:
            predicted = torch.stack([self._head(x.to(self._dtype or x.dtype)) for x in turned], dim=1)
        if tuple(predicted.shape[1:]) != (4, 4):
            raise GdscoreError(
                f"Expected `rotation_head` to return logits of shape (m, 4), but got {describe(predicted[:, 0])}"
            )
        return predicted
