"""The head: the linear layer whose output is what the model returns as logits, found by watching it work.

Requirements met here:

- names and positions of layers mean nothing: of all linear layers that ran on a real batch the one is taken whose
  output is the logits, by memory first and by value second;
- it may run on every step of a sequence of which one is returned, as in decoders that classify texts;
- auxiliary heads, unused layers, tied weights and layers called several times do not mislead;
- what was found is verified: features × weights + bias must give the logits;
- where nothing fits the error says what was seen, how it relates to the logits, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.models._relation import relation
from gdscore.models.batches import shapes
from gdscore.models.capture import Capture, LayerCall, layers_to_watch

__all__ = ["Capture", "Head", "choose", "layers_to_watch", "matrix"]

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOOSE = 5e-2
_TF32 = 1e-2
_SEQUENCE = -1


@dataclass(frozen=True)
class Head:
    """The layer that makes the logits, which of its calls does so, and whether they are returned as they are."""

    name: str
    module: nn.Module
    position: int
    as_it_is: bool

    def features(self, capture: Capture, logits: Tensor) -> Tensor:
        """Features of a batch, shape (m, D); nothing here waits for the device."""
        calls = [c for c in capture.calls if c.module is self.module]
        if self.position == _SEQUENCE:
            call = capture.sequence
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


def choose(capture: Capture, logits: Tensor, *, asked: bool) -> Head:
    """Head by what was seen in one forward pass; ``asked`` where the caller named the layer."""
    calls = capture.calls
    found = [c for c in calls if c.returned_as(logits)] or [c for c in calls if _equal(c.output, logits)]
    sound = [c for c in found if not c.changed and _reproduces(c.module, c.features, logits)]
    sequence = capture.sequence
    if not sound and sequence is not None and _is_step_of(sequence, logits):
        return Head(sequence.name, sequence.module, _SEQUENCE, False)
    if not sound:
        raise GdscoreError(_nothing_fits(capture, logits, asked))
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
    return Head(first.name, first.module, position, first.returned_as(logits))


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


def _nothing_fits(capture: Capture, logits: Tensor, asked: bool) -> str:
    seen = [f"{call}: {relation(call.output, logits, call.changed)}" for call in capture.calls[-6:]]
    seen += [f"`{name}`: its output is {what}" for name, what in list(capture.others.items())[-3:]]
    what = "the layer given as head= to make" if asked else "a linear layer to make"
    advice = "pass head= with the layer or its name, " if not asked else ""
    return (
        f"Expected {what} the model's logits, {shapes(logits)}, so that features × weights + bias = logits, but "
        + (f"on this batch the layers seen were {'; '.join(seen)}. " if seen else "no such layer ran on this batch. ")
        + f"Have the model return the layer's own output, {advice}or pass head=False to go without features"
    )
