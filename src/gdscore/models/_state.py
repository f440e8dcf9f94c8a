"""A forward pass that leaves the model and the random generators as they were.

Requirements met here:

- attributes of modules (modes, hooks, submodules, buffers and all others), requires_grad, gradients and hooks of
  parameters are put back after every pass, also after an exception;
- values of buffers, and of other tensors that modules keep as attributes, are copied before every pass and written
  back after it. This covers every way of writing (in place, through ``.data``, by a subclass of BatchNorm in evaluation
  mode), costs two copies of the buffers, and never waits for a device;
- threads that use one model take turns, as each puts back what it found;
- models that draw random numbers in evaluation mode, and loaders that shuffle, draw them from a stream of their own,
  which continues from batch to batch; the generators of torch, NumPy and Python are as before whenever the caller's
  code runs.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from copy import copy
from operator import is_
from types import TracebackType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gdscore.errors import GdscoreError, nearest

BatchNormMode: TypeAlias = Literal["eval", "batch"]
MODES = ("eval", "batch")

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_NEW_LOCK = threading.Lock()


def unwrapped(model: nn.Module) -> nn.Module:
    """Model inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def not_a_module(model: Any) -> str:
    """Error for what was given in the place of a model."""
    cure = ": make the network and load these weights with load_state_dict" if isinstance(model, dict) else ""
    return f"Expected `model` to be a torch.nn.Module, but got {type(model).__name__}{cure}"


def batchnorm_layers(model: nn.Module) -> list[_BatchNorm]:
    """All BatchNorm layers, synchronised ones included."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


class Unchanged:
    """Context in which the model is in evaluation mode, and after which it is as it was before; its hooks stay and run.

    What is not guarded: values of parameters that a forward pass writes in place (but for embeddings with
    ``max_norm``, which torch itself writes), and objects inside attributes, such as a list in a dict.

    With ``batchnorm="batch"`` BatchNorm normalises with the statistics of the batch, as in training, but its running
    statistics stay. All other layers, dropout too, are in evaluation mode all the same: the released code of the
    GdScore paper puts the whole model into training mode, which is this for networks without dropout.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Dropout())
    >>> with Unchanged(model, batchnorm="batch"), torch.no_grad():
    ...     model(torch.tensor([[0.0, 1.0], [2.0, 5.0]])).round().tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    >>> model.training, model[0].running_mean.tolist(), model[0].num_batches_tracked.item()
    (True, [0.0, 0.0], 0)
    """

    def __init__(self, model: nn.Module, batchnorm: BatchNormMode = "eval") -> None:
        if not isinstance(model, nn.Module):
            raise GdscoreError(not_a_module(model))
        if batchnorm not in MODES:
            raise GdscoreError(f"Unknown `batchnorm` {batchnorm!r}: {nearest(batchnorm, MODES)}")
        parameters = list(model.parameters())
        if any(nn.parameter.is_lazy(p) for p in parameters):
            raise GdscoreError("Expected a model with weights, but it has lazy layers that saw no data: call it once")
        if batchnorm == "batch" and any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
            raise GdscoreError('Expected batchnorm="eval" for a scripted model: give the model it was scripted from')
        self._model, self._batchnorm = model, batchnorm
        # One for all passes of a model; reentrant, as a model may be run within its own forward pass.
        with _NEW_LOCK:
            self._turn = _LOCKS.setdefault(unwrapped(model), threading.RLock())
        devices = {t.device for t in (*parameters, *model.buffers())}
        self._random = RandomStream(sorted(d.index for d in devices if d.type == "cuda"), derived=True)

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._turn)
            stack.enter_context(self._random)
            modules, parameters = list(self._model.modules()), list(self._model.parameters())
            modes = [(m, m.training) for m in modules]
            attributes = _Attributes(modules)
            embeddings = [m for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
            renormalised = [m.weight for m in embeddings if m.max_norm is not None]
            tensors = _Tensors([*self._model.buffers(), *attributes.tensors, *renormalised], parameters)
            states = [(p, p.requires_grad, p.grad, copy(p._backward_hooks)) for p in parameters]
            # Each has a callback of its own, so that one that fails does not stop the others; the last one runs first.
            stack.callback(_restore_parameters, states)
            stack.callback(tensors.restore)
            stack.callback(attributes.restore)
            stack.callback(_restore_modes, modes)
            for p in parameters:
                p.grad = None
            for m, training in modes:
                if training:
                    m.training = False
            for layer in batchnorm_layers(self._model) if self._batchnorm == "batch" else []:
                layer.training, layer.track_running_stats = True, False
            self._leave = stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave.close()


def _restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for m, training in modes:
        if m.training != training:
            m.training = training


def _restore_parameters(states: list[tuple[nn.Parameter, bool, Tensor | None, Any]]) -> None:
    for p, required, grad, hooks in states:
        if p.requires_grad != required:
            p.requires_grad_(required)
        if p.grad is not grad:
            p.grad = grad
        if p._backward_hooks != hooks:
            p._backward_hooks = hooks


class _Attributes:
    """Attributes of modules, and what those that are dicts, lists and sets hold: hooks, buffers, submodules, …"""

    _CONTAINERS = frozenset({dict, OrderedDict, list, set})

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        attributes = [m.__dict__ for m in modules]
        values = [value for named in attributes for value in named.values()]
        self.tensors = [value for value in values if isinstance(value, Tensor)]
        containers = list({id(value): value for value in values if type(value) in self._CONTAINERS}.values())
        self._states = [(live, live.copy()) for live in [*attributes, *filter(None, containers)]]
        # Most containers of a module hold the hooks of one kind, and there are none.
        self._empty = [container for container in containers if not container]

    def restore(self) -> None:
        with contextlib.ExitStack() as stack:
            for live, kept in self._states:
                if not _same(live, kept):
                    stack.callback(_fill, live, kept)
            for container in filter(None, self._empty):
                container.clear()


def _same(live: Any, kept: Any) -> bool:
    """Whether two containers hold the very same objects, in the same order where they have one.

    Objects are compared by identity: parameters can be keys, and comparing them compares their values.
    """
    if len(live) != len(kept):
        return False
    if type(live) is set:
        return {*map(id, live)} == {*map(id, kept)}
    return all(map(is_, live, kept)) and (type(live) is list or all(map(is_, live.values(), kept.values())))


def _fill(live: Any, kept: Any) -> None:
    if type(live) is list:
        live[:] = kept
        return
    if type(live) is not set:
        # Kept keys stay where they are if they can, as other threads may look at the module.
        for extra in [key for key in live if key not in kept]:
            del live[extra]
        live.update(kept)
        if all(map(is_, live, kept)):
            return
    live.clear()
    live.update(kept)


class _Tensors:
    """Values of some tensors, copied before a pass and written back after it, and the memory that others point to."""

    def __init__(self, copied: Iterable[Tensor], pointed: Iterable[Tensor]) -> None:
        unique = {id(t): t for t in copied if _is_plain(t)}
        self._all = list((unique | {id(t): t for t in pointed if _is_plain(t)}).values())
        self._places = self._places_now()
        # Through `.data`, as writing must not look like a change to an autograd graph that the caller has open.
        self._data = [t.data for t in self._all]
        # Tensors that were made in inference mode can be written only there.
        with torch.inference_mode():
            self._values = [_bytes(t.data) for t in unique.values()]
            self._copies = [torch.empty_like(values) for values in self._values]
            if self._values:
                torch._foreach_copy_(self._copies, self._values)

    def restore(self) -> None:
        if self._places_now() != self._places:
            for t, data in zip(self._all, self._data, strict=True):
                t.data = data
        with torch.inference_mode():
            if self._values:
                torch._foreach_copy_(self._values, self._copies)

    def _places_now(self) -> list[Any]:
        return [*map(Tensor.data_ptr, self._all), *map(Tensor.size, self._all)]


def _is_plain(t: Tensor) -> bool:
    return t.layout == torch.strided and not t.is_meta and not t.is_quantized and t.numel() > 0


def _bytes(t: Tensor) -> Tensor:
    """All memory between a tensor's first and last value, whatever its strides."""
    # Lazily conjugated and negated tensors are views with a mark; without it they are their memory.
    t = t.conj() if t.is_conj() else t
    t = torch._neg_view(t) if t.is_neg() else t
    span = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((span,), (1,), t.storage_offset()).view(torch.uint8)


def cuda_of(device: torch.device) -> list[int]:
    """Number of a CUDA device, as a list; empty for other devices."""
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]


def clock(device: torch.device) -> float:
    """Seconds of the clock, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class RandomStream:
    """Context in which torch, NumPy and Python draw from a stream of its own; the caller's states come back.

    The first time it starts at the caller's states, and each further time where it stopped. ``cuda`` are the devices
    whose generators count, beside those of the host. ``seed`` seeds torch's part instead. So does ``derived``, by a
    number derived from the caller's state, so that two streams that start at one state do not give the same numbers.
    """

    def __init__(self, cuda: Sequence[int] = (), *, seed: int | None = None, derived: bool = False) -> None:
        self._cuda, self._seed, self._derived = cuda, seed, derived
        self._stopped_at: tuple[Any, ...] | None = None
        self._callers: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._callers = self._states()
        if self._stopped_at is not None:
            self._set(self._stopped_at)
            return
        seed = self._seed
        if self._derived:
            seed = int(torch.randint(2**62, (), device="cpu")) ^ 0x1E3779B97F4A7C15
        if seed is not None:
            # `torch.manual_seed` would seed every device there is, also those whose state is not saved.
            torch.default_generator.manual_seed(seed)
            for index in self._cuda:
                torch.cuda.default_generators[index].manual_seed(seed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped_at = self._states()
        self._set(self._callers)

    def _states(self) -> tuple[Any, ...]:
        numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator that a model may use
        return torch.get_rng_state(), [torch.cuda.get_rng_state(i) for i in self._cuda], numpy, random.getstate()

    def _set(self, states: tuple[Any, ...]) -> None:
        host, devices, numpy, python = states
        torch.set_rng_state(host)
        for index, state in zip(self._cuda, devices, strict=True):
            torch.cuda.set_rng_state(state, index)
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
