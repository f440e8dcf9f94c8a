"""The head: the linear layer whose output is what the model returns as logits, found by recording its calls.

Requirements met here:

- names and positions of layers mean nothing: of all linear layers that ran on a real batch the one is taken whose
  output is the logits, by memory first and by value second; of a model that returns probabilities, the one whose
  softmax or sigmoid they are;
- it may run on every step of a sequence of which one is returned, as in decoders that classify texts;
- auxiliary heads, unused layers, tied weights and layers called several times do not mislead;
- what was found is verified: features × weights + bias must give the logits;
- where nothing fits the error names what was seen, how it relates to the logits, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError, nearest
from gdscore.models._batches import describe
from gdscore.models._recorder import LayerCall, LayerRecorder

__all__ = ["Head", "find_head", "layers_to_record", "matrix"]

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOOSE = 5e-2
_TF32 = 1e-2
_SEQUENCE = -1


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

    def features(self, recorder: LayerRecorder, logits: Tensor) -> Tensor:
        """Features of a batch, shape (m, D); nothing here waits for the device."""
        calls = [c for c in recorder.calls if c.module is self.module]
        if self.position == _SEQUENCE:
            call = recorder.sequence
        elif self.as_it_is:
            call = next((c for c in calls if c.returned_as(logits)), None)
        else:
            call = calls[self.position] if self.position < len(calls) else None
        if call is None or call.changed:
            raise GdscoreError(
                f"Expected the output of `{self.name}` to be the logits in every batch, as in the first, but here it "
                f"{'is not' if call is None else 'was changed in place'}: the model decides by its data"
            )
        if self.position == _SEQUENCE:
            return _step_features(call, logits)
        return matrix(call.features, logits.shape[0])

    def weight_and_bias(self) -> tuple[Tensor, Tensor | None]:
        """W of shape (D, K) and b of length K or None, as detached copies."""
        weight, bias = _parameters(self.module)
        return weight.detach().T.clone(), None if bias is None else bias.detach().clone()


def _parameters(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    weight, bias = module.weight, getattr(module, "bias", None)
    assert isinstance(weight, Tensor)
    return weight.flatten(1), bias if isinstance(bias, Tensor) else None


def matrix(features: Tensor, rows: int) -> Tensor:
    """Features as a matrix that keeps no larger tensor alive, such as all tokens of which one is the feature."""
    x = features.reshape(rows, -1)
    return x.clone() if x.untyped_storage().nbytes() > x.numel() * x.element_size() else x


def find_head(recorder: LayerRecorder, returned: Tensor, *, asked: bool, probabilities: bool = False) -> Head:
    """Head by the calls of one forward pass; ``asked`` where the caller named the layer."""
    calls = recorder.calls
    logits = _before_softmax(calls, returned) if probabilities else returned
    found = [c for c in calls if c.returned_as(logits)] or [c for c in calls if _equal(c.output, logits)]
    sound = [c for c in found if not c.changed and _reproduces(c.module, c.features, logits)]
    sequence = recorder.sequence
    if not sound and sequence is not None and _is_step_of(sequence, logits):
        return Head(sequence.name, sequence.module, _SEQUENCE, False)
    if not sound:
        raise GdscoreError(_nothing_fits(recorder, logits, asked))
    first = sound[0]
    weight, features = _parameters(first.module)[0], first.features
    for other in sound[1:]:
        if not (torch.equal(_parameters(other.module)[0], weight) and _equal(other.features, features)):
            raise GdscoreError(
                f"Expected one layer to make the logits, but {first} and {other} both give the same numbers: "
                "pass head= with the name of the right one"
            )
    own = [c for c in calls if c.module is first.module]
    position = next(i for i, c in enumerate(own) if c is first)
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
    for seen in reversed(calls):
        if seen.output.numel() == returned.numel() and seen.output.shape[0] == returned.shape[0]:
            z = seen.output.reshape(returned.shape).to(returned)
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
    known = torch.isfinite(logits)
    scale = logits.masked_fill(~known, 0.0).abs().max().clamp(min=1e-6)
    known |= torch.isfinite(again)
    return bool(((again.to(logits) - logits).abs()[known] <= tolerance * scale).all())


def _nothing_fits(recorder: LayerRecorder, logits: Tensor, asked: bool) -> str:
    seen = [f"{call}: {_relation(call.output, logits, call.changed)}" for call in recorder.calls[-6:]]
    seen += [f"`{name}`: its output is {what}" for name, what in list(recorder.others.items())[-3:]]
    what = "the layer given as head= to make" if asked else "a linear layer to make"
    advice = "return the layer's own output" + ("" if asked else ", pass head= with the layer or its name")
    if not seen and not asked:
        advice = "make the logits by an nn.Linear, which can share its weight with other layers"
    return (
        f"Expected {what} the model's logits, {describe(logits)}, so that features × weights + bias = logits, but "
        + (f"on this batch the layers seen were {'; '.join(seen)}. " if seen else "no such layer ran on this batch. ")
        + f"Have the model {advice}, or pass head=False to go without features"
    )


def _relation(output: Tensor, logits: Tensor, changed: bool) -> str:
    """How the output of a layer relates to the logits, in words: scaled, masked, normalised, or how far apart."""
    if changed:
        return "its input or output was changed in place afterwards"
    if output.shape[0] != logits.shape[0] or output.numel() != logits.numel():
        return f"its output has shape {tuple(output.shape)}"
    z, out = logits.double(), output.reshape(logits.shape).to(logits.device).double()
    equal = float((z == out).double().mean())
    if equal == 1.0:
        return "its output equals the logits, but features × weights + bias does not, so the layer is not linear"
    if equal >= 0.1:
        return f"its output equals the logits in {equal:.0%} of the entries, so they were masked or clipped afterwards"
    factor = float((z * out).nansum() / (out * out).nansum().clamp(min=1e-300))
    if _close(z, factor * out):
        return f"the logits are {factor:.4g} times its output, so they were scaled afterwards"
    for name, function in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
        if _close(z, function(out, dim=1)):
            what = "probabilities" if name == "softmax" else "log-probabilities"
            return f"the logits are the {name} of its output, so the model returns {what}"
    shift = z - out
    if _close(shift, shift[:1].expand_as(shift)):
        return "the logits are its output plus a constant for each class, so a bias was added afterwards"
    return f"its output differs from the logits by up to {float((z - out).nan_to_num().abs().max()):.3g}"


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(torch.isfinite(a).all()) and torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(a.abs().max()))
