"""One forward pass of a model: its logits and the features that enter its head, and the model as it was before."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.models.batches import Inputs, Where, called, logits_of, split_batch, to_device
from gdscore.models.head import Capture, Head, choose, layers_to_watch, matrix
from gdscore.models.untouched import BatchNormMode, untouched, unwrapped

__all__ = ["Network", "head_of"]


class Network:
    """A model that can be asked for logits and head features; the head is found on the first batch.

    Gradients are off by ``no_grad`` and not by ``inference_mode``: the arrays go to the caller, who may want to use
    them in autograd, and version counters, which betray changes in place, exist only here.

    Parameters
    ----------
    model : nn.Module
        Compiled and data-parallel models are unwrapped and run eagerly: hooks do not reach into compiled graphs.
    head : layer, its name, None or False, optional
        None finds it, False goes without features.
    logits : int, str or callable, optional
        Where the logits are in the model's output, see `logits_of`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device | str | None = None,
        head: str | nn.Module | Literal[False] | None = None,
        logits: Where = None,
        batchnorm: BatchNormMode = "eval",
        autocast: torch.dtype | None = None,
    ) -> None:
        self._guard = untouched(model, batchnorm)
        self._model = unwrapped(model)
        self._where = logits
        self._asked = head is not None
        self._capture = Capture([] if head is False else layers_to_watch(self._model, head))
        self._wants_head = head is not False
        self._compiled = any(_is_compiled(module) for module in self._model.modules())
        self.head: Head | None = None
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
        """Logits (m, K) and features (m, D) of inputs on the device; ``batch`` is the number to name in errors."""
        with torch.no_grad(), self.precision(), self._guard, self._capture as capture:
            with self._eagerly():
                output = called(self._model, inputs, batch)
            logits = logits_of(output, self._where)
            features = self._features(capture, logits) if self._wants_head else None
            capture.clear()
            return matrix(logits, logits.shape[0]), features

    def _eagerly(self) -> contextlib.AbstractContextManager[Any]:
        if self._compiled and hasattr(torch.compiler, "set_stance"):
            eager: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
            return eager
        return contextlib.nullcontext()

    def _features(self, capture: Capture, logits: Tensor) -> Tensor:
        if self.head is None:
            self.head = choose(capture, logits, asked=self._asked)
            self._capture = Capture([(self.head.name, self.head.module)])
        return self.head.features(capture, logits)


def head_of(
    model: nn.Module,
    batch: Any,
    *,
    head: str | nn.Module | None = None,
    logits: Where = None,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Weights of the model's last linear layer, for ``AccuracyEstimator.fit(head=...)``.

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
    network = Network(model, device=device, head=head, logits=logits)
    network.run(to_device(split_batch(batch)[0], network.device, dtype=network.dtype), 0)
    assert network.head is not None
    weight, bias = network.head.weight_and_bias()
    return two_columns(weight), None if bias is None else two_columns(bias[None])[0]


def two_columns(z: Tensor) -> Tensor:
    """Matrix as it is, or (0, z) of the single column z of a binary model."""
    return torch.cat([torch.zeros_like(z), z], dim=1) if z.shape[1] == 1 else z


def floating_dtype(model: nn.Module) -> torch.dtype | None:
    """Precision of the weights, or None where they have none or several."""
    found = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return found.pop() if len(found) == 1 else None


def _device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    tensors = [*model.parameters(), *model.buffers()]
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
