"""A forward pass that leaves no trace in the model.

Requirements met here:

- modes, buffers, requires_grad, gradients and torch's random state come back bit for bit, also after an exception;
- entering and leaving costs microseconds and never waits for a device: nothing is copied per pass. BatchNorm does not
  write its statistics in the modes set here; any other buffer betrays a write by its version counter, and only then
  is it put back from a copy made once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gdscore.errors import GdscoreError, nearest

__all__ = ["MODES", "BatchNormMode", "batchnorm_layers", "kept_rng", "untouched", "unwrapped", "version"]

BatchNormMode: TypeAlias = Literal["eval", "batch"]
MODES = ("eval", "batch")


def unwrapped(model: nn.Module) -> nn.Module:
    """Model inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def batchnorm_layers(model: nn.Module) -> list[_BatchNorm]:
    """All BatchNorm layers, synchronised ones included."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@contextlib.contextmanager
def kept_rng(devices: list[int] | None = None) -> Iterator[None]:
    """Leave torch's random state, on the host and on the CUDA devices given, as it was."""
    with torch.random.fork_rng(devices=devices or [], device_type="cuda"):
        yield


class untouched:  # noqa: N801 - used like a function
    """Context in which the model is in evaluation mode, and after which it is as it was before.

    Training flags, buffers, requires_grad, gradients and the random state of torch, on the host and on the model's
    CUDA devices, are restored, also after an exception. Weights are not guarded, as a forward pass does not write
    them. The object may be entered many times; it looks the model over once, when made.

    Parameters
    ----------
    model : nn.Module
        Its hooks stay and run as usual.
    batchnorm : {"eval", "batch"}
        ``"batch"``: BatchNorm normalises with the statistics of the batch, as in training, but its running
        statistics are not touched. All other layers, dropout too, are in evaluation mode all the same: the released
        code of the GdScore paper puts the whole model into training mode, which is this for networks without dropout.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import untouched
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    >>> with untouched(model, batchnorm="batch"), torch.no_grad():
    ...     model(torch.tensor([[0.0, 1.0], [2.0, 5.0]])).round().tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    >>> model.training, model[0].running_mean.tolist(), model[0].num_batches_tracked.item()
    (True, [0.0, 0.0], 0)
    """

    def __init__(self, model: nn.Module, batchnorm: BatchNormMode = "eval") -> None:
        if not isinstance(model, nn.Module):
            raise GdscoreError(f"Expected `model` to be a torch.nn.Module, but got {type(model).__name__}")
        if batchnorm not in MODES:
            raise GdscoreError(f"Unknown `batchnorm` {batchnorm!r}: {nearest(batchnorm, MODES)}")
        self._modules = list(model.modules())
        self._parameters = list(model.parameters())
        if any(nn.parameter.is_lazy(p) for p in self._parameters):
            raise GdscoreError("Expected a model with weights, but it has lazy layers that saw no data: call it once")
        self._batch = batchnorm_layers(model) if batchnorm == "batch" else []
        normal = set(map(id, batchnorm_layers(model)))
        scripted = any(isinstance(m, torch.jit.ScriptModule) for m in self._modules)
        if scripted and batchnorm == "batch":
            raise GdscoreError('Expected batchnorm="eval" for a scripted model: give the model it was scripted from')
        self._buffers = [] if scripted else [_Buffers(m) for m in self._modules if id(m) not in normal]
        self._cuda = sorted({p.device.index for p in self._parameters if p.device.type == "cuda"})

    def __enter__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(kept_rng(self._cuda))
        self._flags = [(m, m.training) for m in self._modules]
        self._tracking = [(m, m.track_running_stats) for m in self._batch]
        self._required = [p.requires_grad for p in self._parameters]
        self._grads = [p.grad for p in self._parameters]
        for buffers in self._buffers:
            buffers.look()
        for p, grad in zip(self._parameters, self._grads, strict=True):
            if grad is not None:
                p.grad = None
        for m, training in self._flags:
            if training:
                _set_mode(m, False)
        for layer in self._batch:
            _set_mode(layer, True)
            layer.track_running_stats = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for layer, tracking in self._tracking:
            layer.track_running_stats = tracking
        for m, training in self._flags:
            if m.training != training:
                _set_mode(m, training)
        for buffers in self._buffers:
            buffers.restore()
        for p, required, grad in zip(self._parameters, self._required, self._grads, strict=True):
            if p.requires_grad != required:
                p.requires_grad_(required)
            if p.grad is not grad:
                p.grad = grad
        self._stack.close()


def _set_mode(module: nn.Module, training: bool) -> None:
    # nn.Module's own assignment looks for parameters and buffers first: six times slower, for hundreds of modules.
    if "training" in module.__dict__:
        module.__dict__["training"] = training
    else:
        module.training = training


class _Buffers:
    """Buffers of one module: who they are, their version counters, and a copy that is renewed when they move on."""

    def __init__(self, module: nn.Module) -> None:
        self._live = module._buffers
        self._seen: dict[str, Tensor | None] = {}
        self._versions: dict[str, int] = {}
        self._copies: dict[str, Tensor] = {}

    def look(self) -> None:
        if not self._live and not self._seen:
            return
        for name, buffer in self._live.items():
            if buffer is None or (self._seen.get(name) is buffer and self._versions[name] == version(buffer)):
                continue
            self._versions[name], self._copies[name] = version(buffer), buffer.detach().clone()
        self._seen = dict(self._live)

    def restore(self) -> None:
        if not self._live and not self._seen:
            return
        if any(name not in self._seen for name in self._live):
            for name in [name for name in self._live if name not in self._seen]:
                del self._live[name]
        for name, buffer in self._seen.items():
            if self._live.get(name, self) is not buffer:
                self._live[name] = buffer
            if buffer is not None and version(buffer) != self._versions[name]:
                with torch.no_grad():
                    buffer.copy_(self._copies[name])
                self._versions[name] = version(buffer)


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; -1 for those of inference mode, which keep no count."""
    return -1 if tensor.is_inference() else tensor._version
