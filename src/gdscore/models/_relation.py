"""How the output of a layer relates to the logits, in words for a message."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["relation"]


def relation(output: Tensor, logits: Tensor, changed: bool = False) -> str:
    """Word the most telling relation: scaled, masked, normalised, or how far apart.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models._relation import relation
    >>> z = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    >>> relation(z, z / 2)
    'the logits are 0.5 times its output, so they were scaled afterwards'
    >>> relation(z, z.softmax(1))
    'the logits are the softmax of its output, so the model returns probabilities'
    """
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
