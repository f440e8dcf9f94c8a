"""One forward pass of a model: its logits and the features that enter its head, and the model as it was before.

The head is the linear layer whose output is what the model returns as logits. Requirements met here:

- names and positions of layers mean nothing: forward hooks record the linear layers that ran on a real batch, and the
  one is taken whose output is the logits, by memory first and by value second; of a model that returns probabilities,
  the one whose softmax or sigmoid they are;
- it may run on every step of a sequence of which one is returned, as in decoders that classify texts;
- auxiliary heads, unused layers, tied weights and layers called several times do not mislead;
- the layer is verified: features × weights + bias must give the logits;
- what is returned is a copy: the model may write into the memory again, or have it written back after the pass;
- where nothing fits the error names the layers that ran and what to do.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gdscore._softmax import binary_logits
from gdscore.errors import GdscoreError, nearest
from gdscore.models._state import BatchNormMode, Unchanged, not_a_module, unwrapped
from gdscore.models.predictions import (
    Inputs,
    LogitsOrProbabilities,
    OutputKind,
    Where,
    call,
    count_rows,
    describe,
    logits_of,
    split_batch,
    to_device,
)

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOOSE = 5e-2
_TF32 = 1e-2
_SEQUENCE = -1


class Network:
    """A model that gives logits and head features; the head is found on the first batch.

    Gradients are off by ``no_grad`` and not by ``inference_mode``: the arrays go to the caller, who may want to use
    them in autograd, and version counters, which show changes in place, exist only here. Compiled and data-parallel
    models are unwrapped and run eagerly: hooks do not reach into compiled graphs. ``head`` None finds the head, False
    goes without features; `logits_of` explains ``logits``.
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
        self._recorded = [] if head is False else layers_to_record(self._model, head)
        self._wants_head = head is not False
        self._compiled = any(
            hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
            for module in self._model.modules()
        )
        self.head: Head | None = None
        self.kind = LogitsOrProbabilities(outputs)
        self.device = device_of(self._model, device)
        self.dtype = floating_dtype(self._model)
        self._autocast = autocast
        check_autocast(autocast)

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Context of the precision asked for."""
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._autocast)

    def run(self, inputs: Inputs, batch: int) -> tuple[Tensor, Tensor | None]:
        """What the model returns (m, K) and its features (m, D); ``batch`` is the number to name in errors.

        `kind` has the form that `Outputs` needs: (m, 1) of a binary model, and probabilities, come as they are.
        """
        with torch.no_grad(), self.precision(), self._unchanged, recorded_calls(self._recorded) as calls:
            output = self._called(inputs, batch)
            returned = logits_of(output, self._where, count_rows(inputs))
            self.kind.check(returned)
            if self._wants_head and self.head is None:
                self.head = find_head(calls, returned, probabilities=self.kind.probabilities)
                self._recorded = [(self.head.name, self.head.module)]
            features = None if self.head is None else self.head.features(calls, returned)
            return matrix(returned, returned.shape[0]), features

    def logits(self, inputs: Inputs, batch: int) -> Tensor:
        """Logits with a column for each class; logarithms of probabilities."""
        return self.kind.logits(self.run(inputs, batch)[0])

    def _called(self, inputs: Inputs, batch: int) -> Any:
        try:
            eagerly = self._compiled and hasattr(torch.compiler, "set_stance")
            with torch.compiler.set_stance("force_eager") if eagerly else contextlib.nullcontext():
                return call(self._model, inputs, batch)
        except GdscoreError as error:
            if self._batchnorm == "eval" or count_rows(inputs) > 1:
                raise
            raise GdscoreError(
                f"{error}. BatchNorm needs two rows or more for the statistics of a batch: choose a batch_size that "
                "leaves no batch of one row, or drop_last=True, in the loader"
            ) from error.__cause__


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
    weight, bias = _parameters(network.head.module)
    copied = binary_logits(weight.detach().T.clone())
    return copied, None if bias is None else binary_logits(bias.detach().clone()[None])[0]


def check_autocast(autocast: object) -> None:
    """Refuse what is no precision."""
    if autocast is not None and not (isinstance(autocast, torch.dtype) and autocast.is_floating_point):
        raise GdscoreError(f"Expected `autocast` to be a floating-point torch.dtype or None, but got {autocast!r}")


def floating_dtype(model: nn.Module) -> torch.dtype | None:
    """Precision of the weights, or None where they have none or several."""
    dtypes = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else None


def device_of(model: nn.Module, device: torch.device | str | None = None) -> torch.device:
    """Where the weights of a model are, which a ``device`` that is given must agree with."""
    if not isinstance(model, nn.Module):
        raise GdscoreError(not_a_module(model))
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


@dataclass
class LayerCall:
    """One call of a layer: what went in, what came out, and whether it was written to afterwards."""

    name: str
    module: nn.Module
    features: Tensor
    output: Tensor
    versions: tuple[int, int]

    @property
    def changed(self) -> bool:
        """Whether input or output were changed in place after the call."""
        return (_version(self.features), _version(self.output)) != self.versions

    def returned_as(self, logits: Tensor) -> bool:
        """Whether the output is the logits: the same numbers in the same memory."""
        return (
            self.output.numel() == logits.numel()
            and self.output.dtype == logits.dtype
            and self.output.data_ptr() == logits.data_ptr()
            and self.output.device == logits.device
        )

    def __str__(self) -> str:
        weight = self.module.weight
        size = f" {weight.shape[1]}→{weight.shape[0]}" if isinstance(weight, Tensor) and weight.ndim > 1 else ""
        changed = ", changed in place afterwards" if self.changed else ""
        return f"`{self.name}` ({type(self.module).__name__}{size}{changed})"


@dataclass
class LayerCalls:
    """Calls of some layers in one pass: those that give one output a row, and the last that gave a sequence."""

    of_rows: list[LayerCall] = field(default_factory=list)
    of_sequence: LayerCall | None = None


@contextlib.contextmanager
def recorded_calls(layers: Iterable[tuple[str, nn.Module]]) -> Iterator[LayerCalls]:
    """Context that records every call of some layers by forward hooks, which are gone afterwards."""
    calls = LayerCalls()

    def record(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        x = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
        if not isinstance(output, Tensor) or x is None:
            return
        layer_call = LayerCall(name, module, x, output, (_version(x), _version(output)))
        if output.ndim >= 2 and output.shape.numel() == output.shape[0] * max(output.shape[1:], default=1):
            calls.of_rows.append(layer_call)
        elif output.ndim == 3:
            # Of sequences only the last is kept: those of a whole network can fill a device.
            calls.of_sequence = layer_call

    with contextlib.ExitStack() as stack:
        for name, module in layers:
            stack.enter_context(module.register_forward_hook(partial(record, name), with_kwargs=True))
        yield calls


def _version(tensor: Tensor) -> int:
    """How often a tensor was written to; -1 for those of inference mode, which keep no count."""
    return -1 if tensor.is_inference() else tensor._version


def layers_to_record(model: nn.Module, head: str | nn.Module | None = None) -> list[tuple[str, nn.Module]]:
    """Names and layers that may be the head: all linear ones, or the one that the caller names."""
    named = dict(model.named_modules())
    if head is None:
        return [(name, module) for name, module in named.items() if _is_linear(module)]
    if isinstance(head, str):
        if head not in named or not head:
            raise GdscoreError(f"Unknown layer head={head!r}: {nearest(head, [n for n in named if n])}")
        name, layer = head, named[head]
    elif isinstance(head, nn.Module):
        layer = head
        name = next((n for n, module in named.items() if module is layer), "")
        if not name and layer is not model:
            raise GdscoreError(
                f"Expected `head` to be a layer of the model, but this {type(head).__name__} is not in it"
            )
    else:
        raise GdscoreError(f"Expected `head` to be a layer, its name or False, but got {type(head).__name__}")
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim < 2 or weight.shape[2:].numel() != 1:
        raise GdscoreError(
            f"Expected `head` to be a layer with a weight of shape (classes, features), but {name!r} is "
            f"{type(layer).__name__}{'' if weight is None else f' with {describe(weight)}'}"
        )
    return [(name, layer)]


def _is_linear(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    return module.groups == 1 and set(module.kernel_size) == {1}


@dataclass(frozen=True)
class Head:
    """The layer that makes the logits, which of its calls does so, and whether they are returned as they are."""

    name: str
    module: nn.Module
    position: int
    as_it_is: bool

    def features(self, calls: LayerCalls, logits: Tensor) -> Tensor:
        """Features of a batch, shape (m, D); nothing here waits for the device."""
        of_layer = [c for c in calls.of_rows if c.module is self.module]
        if self.position == _SEQUENCE:
            call = calls.of_sequence
        elif self.as_it_is:
            call = next((c for c in of_layer if c.returned_as(logits)), None)
        else:
            call = of_layer[self.position] if self.position < len(of_layer) else None
        if call is None or call.changed:
            raise GdscoreError(
                f"Expected the output of `{self.name}` to be the logits in every batch, as in the first, but here it "
                f"{'is not' if call is None else 'was changed in place'}: the model decides by its data"
            )
        if self.position == _SEQUENCE:
            return _step_features(call, logits)
        return matrix(call.features, logits.shape[0])


def _parameters(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    weight, bias = module.weight, getattr(module, "bias", None)
    assert isinstance(weight, Tensor)
    return weight.flatten(1), bias if isinstance(bias, Tensor) else None


def matrix(values: Tensor, rows: int) -> Tensor:
    """Values as a matrix in memory of its own.

    The memory may be the model's, which writes there in the next pass, or belong to a larger tensor that would be kept
    alive, such as all tokens of which one is the feature.
    """
    return values.reshape(rows, -1).clone(memory_format=torch.contiguous_format)


def find_head(recorded: LayerCalls, returned: Tensor, *, probabilities: bool = False) -> Head:
    """Head by the calls of one forward pass."""
    calls = recorded.of_rows
    logits = _before_softmax(calls, returned) if probabilities else returned
    with_same_output = [c for c in calls if c.returned_as(logits)] or [c for c in calls if _equal(c.output, logits)]
    sound = [c for c in with_same_output if not c.changed and _reproduces(c.module, c.features, logits)]
    sequence = recorded.of_sequence
    if not sound and sequence is not None and _is_step_of(sequence, logits):
        return Head(sequence.name, sequence.module, _SEQUENCE, False)
    if not sound:
        layers = "; ".join(map(str, calls[-6:])) or "none that gives one output a row"
        raise GdscoreError(
            f"Expected a linear layer to make the model's logits, {describe(logits)}, so that features × weights + "
            f"bias = logits, but of the layers that ran, {layers}, none does. Have the model return the output of an "
            "nn.Linear as it is, pass head= with the layer or its name, or head=False to go without features"
        )
    first = sound[0]
    weight, features = _parameters(first.module)[0], first.features
    for other in sound[1:]:
        if not (torch.equal(_parameters(other.module)[0], weight) and _equal(other.features, features)):
            raise GdscoreError(
                f"Expected one layer to make the logits, but {first} and {other} both give the same numbers: "
                "pass head= with the name of the right one"
            )
    calls_of_layer = [c for c in calls if c.module is first.module]
    position = next(i for i, c in enumerate(calls_of_layer) if c is first)
    return Head(first.name, first.module, position, first.returned_as(returned))


def _step_features(call: LayerCall, logits: Tensor) -> Tensor:
    """Features of the step that each row's logits are of; NaN where they are of none, which the scores report."""
    same = (call.output == logits[:, None]).all(dim=2)
    rows = torch.arange(same.shape[0], device=same.device)
    features = call.features[rows, same.int().argmax(dim=1)]
    return features.masked_fill(~same.any(dim=1, keepdim=True), float("nan"))


def _is_step_of(call: LayerCall, logits: Tensor) -> bool:
    if call.changed or call.output.shape[::2] != logits.shape or call.features.shape[:2] != call.output.shape[:2]:
        return False
    return _reproduces(call.module, _step_features(call, logits), logits)


def _before_softmax(calls: Sequence[LayerCall], returned: Tensor) -> Tensor:
    """Output of the layer whose softmax, or sigmoid of a single column, is what the model returned."""
    near = 1e-4 if torch.finfo(returned.dtype).bits >= 32 else 1e-2
    for layer_call in reversed(calls):
        output = layer_call.output
        if output.numel() == returned.numel() and output.shape[0] == returned.shape[0]:
            z = output.reshape(returned.shape).to(returned)
            if torch.allclose(z.softmax(1) if z.shape[1] > 1 else z.sigmoid(), returned, rtol=near, atol=near):
                return z
    return returned


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.numel() != b.numel() or a.shape[0] != b.shape[0]:
        return False
    return torch.equal(a.reshape(b.shape).to(b), b)


def _reproduces(module: nn.Module, features: Tensor, logits: Tensor) -> bool:
    weight, bias = _parameters(module)
    rows = logits.shape[0]
    if features.numel() != rows * weight.shape[1] or weight.shape[0] != logits.shape[1]:
        return False
    if not weight.is_floating_point() or weight.device != features.device:
        return False
    again = nn.functional.linear(features.reshape(rows, -1).to(weight.dtype), weight, bias)
    tolerance = _TOLERANCE.get(again.dtype, _LOOSE)
    if logits.is_cuda:
        tolerance = max(tolerance, _TF32)
    # Where both are not finite the head is not to blame: `Outputs` reports it.
    compared = torch.isfinite(logits)
    scale = logits.masked_fill(~compared, 0.0).abs().max().clamp(min=1e-6)
    compared |= torch.isfinite(again)
    return bool(((again.to(logits) - logits).abs()[compared] <= tolerance * scale).all())
