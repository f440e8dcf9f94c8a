"""One forward pass of a model: its logits and the features that enter its head, and the model as it was before.

Beside it, what runs on the same batches: a second model, the model with batch statistics, a head for rotations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gdscore.errors import GdscoreError, nearest
from gdscore.models._batches import Inputs, call, count_rows, describe, split_batch, to_device
from gdscore.models._head import Head, find_head, layers_to_record, matrix
from gdscore.models._recorder import LayerRecorder
from gdscore.models._state import MODES, BatchNormMode, Unchanged, batchnorm_layers, unwrapped
from gdscore.models.predictions import LogitsOrProbabilities, OutputKind, Where, logits_of, two_columns

__all__ = ["BatchNormStatistics", "Network", "RotationNetwork", "floating_dtype", "head_of", "other_networks"]

BatchNormStatistics: TypeAlias = BatchNormMode | Literal["both"]

STATISTICS_ROWS = 128
"""Rows that batch statistics are taken of, whatever the batch size of the loader, on which scores should not depend."""


class Network:
    """A model that gives logits and head features; the head is found on the first batch.

    Gradients are off by ``no_grad`` and not by ``inference_mode``: the arrays go to the caller, who may want to use
    them in autograd, and version counters, which show changes in place, exist only here.

    Parameters
    ----------
    model : nn.Module
        Compiled and data-parallel models are unwrapped and run eagerly: hooks do not reach into compiled graphs.
    head : layer, its name, None or False, optional
        None finds it, False goes without features.
    logits : int, str or callable, optional
        Where the logits are in the model's output, see `logits_of`.
    outputs : {"auto", "logits", "probabilities"}
        What the model's output is.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device | str | None = None,
        head: str | nn.Module | Literal[False] | None = None,
        logits: Where = None,
        outputs: OutputKind = "auto",
        batchnorm: BatchNormMode = "eval",
        autocast: torch.dtype | None = None,
    ) -> None:
        self._unchanged = Unchanged(model, batchnorm)
        self._model = unwrapped(model)
        self._where, self._batchnorm = logits, batchnorm
        self._asked = head is not None
        self._recorder = LayerRecorder([] if head is False else layers_to_record(self._model, head))
        self._wants_head = head is not False
        self._compiled = any(_is_compiled(module) for module in self._model.modules())
        self.head: Head | None = None
        self.kind = LogitsOrProbabilities(outputs)
        self.device = _device(self._model, device)
        self.dtype = floating_dtype(self._model)
        self._autocast = autocast
        if autocast is not None and not (isinstance(autocast, torch.dtype) and autocast.is_floating_point):
            raise GdscoreError(f"Expected `autocast` to be a floating-point torch.dtype or None, but got {autocast!r}")

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Context of the precision asked for."""
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)

    def run(self, inputs: Inputs, batch: int) -> tuple[Tensor, Tensor | None]:
        """What the model returns (m, K) and its features (m, D); ``batch`` is the number to name in errors.

        `kind` has the form that `Outputs` needs: (m, 1) of a binary model, and probabilities, come as they are.
        """
        with torch.no_grad(), self.precision(), self._unchanged, self._recorder as recorder:
            output = self._called(inputs, batch)
            returned = logits_of(output, self._where, count_rows(inputs))
            self.kind.check(returned)
            features = self._features(recorder, returned, output) if self._wants_head else None
            recorder.clear()
            return matrix(returned, returned.shape[0]), features

    def logits(self, inputs: Inputs, batch: int) -> Tensor:
        """Logits with a column for each class; logarithms of probabilities."""
        return self.kind.logits(self.run(inputs, batch)[0])

    def _called(self, inputs: Inputs, batch: int) -> Any:
        try:
            with self._eagerly():
                return call(self._model, inputs, batch)
        except GdscoreError as error:
            if self._batchnorm == "eval" or count_rows(inputs) > 1:
                raise
            raise GdscoreError(
                f"{error}. BatchNorm needs two rows or more for the statistics of a batch: choose a batch_size that "
                "leaves no batch of one row, or drop_last=True, in the loader"
            ) from error.__cause__

    def _eagerly(self) -> contextlib.AbstractContextManager[Any]:
        if self._compiled and hasattr(torch.compiler, "set_stance"):
            eager: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
            return eager
        return contextlib.nullcontext()

    def _features(self, recorder: LayerRecorder, returned: Tensor, output: Any) -> Tensor:
        if self.head is None:
            try:
                self.head = find_head(recorder, returned, asked=self._asked, probabilities=self.kind.probabilities)
            except GdscoreError as error:
                if self._where is not None or not isinstance(output, (tuple, list)) or len(output) < 2:
                    raise
                raise GdscoreError(
                    f"{error}. The logits were taken from {describe(output)}: where another entry holds them, pass "
                    "logits= with its position"
                ) from None
            self._recorder = LayerRecorder([(self.head.name, self.head.module)])
        return self.head.features(recorder, returned)


def head_of(
    model: nn.Module,
    batch: Any,
    *,
    head: str | nn.Module | None = None,
    logits: Where = None,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Weights and bias of the model's last linear layer.

    With what `extract` gives, ``features @ W + b`` equals ``logits``.

    Parameters
    ----------
    model : nn.Module
        Not changed.
    batch : anything a loader yields
        A real batch: the layer is the one whose output is the model's logits on it.
    head : str or nn.Module, optional
        The layer or its name, where it is not found by itself.
    logits : int, str or callable, optional
        Where the logits are in the model's output, see `logits_of`.
    device : torch.device or str, optional
        Where the model is; its parameters' device by default.

    Returns
    -------
    W : Tensor of shape (D, K)
        Weights, a copy. A binary model with a single logit z counts as one with the logits (0, z).
    b : Tensor of shape (K,) or None
        Bias, a copy.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import head_of
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> W, b = head_of(model, torch.randn(5, 8))
    >>> tuple(W.shape), torch.equal(b, model[2].bias)
    ((4, 3), True)
    """
    if isinstance(batch, (DataLoader, Iterator)):
        raise GdscoreError(
            f"Expected `batch` to be one batch, but got {type(batch).__name__}: next(iter(loader)) gives one"
        )
    network = Network(model, device=device, head=head, logits=logits)
    inputs = split_batch(batch)[0]
    if not count_rows(inputs):
        raise GdscoreError(f"Expected a batch with rows, but got {describe(inputs)}")
    network.run(to_device(inputs, network.device, dtype=network.dtype), 0)
    if network.head is None:
        raise GdscoreError("Expected `head` to be a layer or its name, but got False")
    weight, bias = network.head.weight_and_bias()
    return two_columns(weight), None if bias is None else two_columns(bias[None])[0]


def other_networks(
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
        pieces = (
            torch.tensor_split(inputs, max(1, round(len(inputs) / STATISTICS_ROWS)))
            if isinstance(inputs, Tensor)
            else ()
        )
        if len(pieces) < 2:
            return super().run(inputs, batch)
        returned = []
        for piece in pieces:
            returned.append(super().run(piece, batch)[0])
        return torch.cat(returned), None


class RotationNetwork:
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


def floating_dtype(model: nn.Module) -> torch.dtype | None:
    """Precision of the weights, or None where they have none or several."""
    found = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return found.pop() if len(found) == 1 else None


def _device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    everywhere = [*model.parameters(), *model.buffers()]
    # Weights that are loaded from a disk layer by layer are on the device meta meanwhile.
    tensors = [t for t in everywhere if not t.is_meta]
    if everywhere and not tensors:
        raise GdscoreError(
            "Expected a model with weights, but it is on the device meta, which holds no values: load them, such as by "
            "model.load_state_dict(weights, assign=True)"
        )
    here = tensors[0].device if tensors else torch.device("cpu")
    if device is None:
        return here
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise GdscoreError(f"Expected `device` to be a torch device, but got {device!r}: {error}") from None
    if tensors and (wanted.type != here.type or wanted.index not in (None, *(t.device.index for t in tensors))):
        raise GdscoreError(
            f"Expected the model on device {wanted}, but its parameters are on {here}: the model is never changed, so "
            f"move it by model.to({str(wanted)!r}), or leave device= out"
        )
    return here if tensors and wanted.index is None else wanted


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
