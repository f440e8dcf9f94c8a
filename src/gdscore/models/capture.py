"""Watching layers at work: what went into them and what came out in one forward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gdscore.errors import GdscoreError, nearest
from gdscore.models.batches import shapes
from gdscore.models.untouched import version

__all__ = ["Capture", "LayerCall", "layers_to_watch"]


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
        return (version(self.features), version(self.output)) != self.versions

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
        return f"`{self.name}` ({type(self.module).__name__}{size})"


class Capture:
    """Context that notes every call of some layers by forward hooks, which are gone afterwards."""

    def __init__(self, layers: Iterable[tuple[str, nn.Module]]) -> None:
        self.clear()
        self._layers = list(layers)
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Capture:
        self.clear()
        for name, module in self._layers:
            self._handles.append(module.register_forward_hook(self._hook(name), with_kwargs=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._handles:
            self._handles.pop().remove()

    def clear(self) -> None:
        """Forget the calls seen, and the memory they hold."""
        self.calls: list[LayerCall] = []
        self.sequence: LayerCall | None = None
        self.others: dict[str, str] = {}

    def _hook(self, name: str) -> Any:
        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            x = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
            if not isinstance(output, Tensor) or x is None:
                self.others[name] = shapes(output)
                return
            seen = LayerCall(name, module, x, output, (version(x), version(output)))
            if _rows_only(output):
                self.calls.append(seen)
            else:
                # Of sequences and maps only the last is kept: those of a whole network can fill a device.
                self.others[name] = shapes(output)
                self.sequence = seen if output.ndim == 3 else self.sequence

        return note


def _rows_only(output: Tensor) -> bool:
    return output.ndim >= 2 and output.shape.numel() == output.shape[0] * max(output.shape[1:], default=1)


def layers_to_watch(model: nn.Module, head: str | nn.Module | None = None) -> list[tuple[str, nn.Module]]:
    """Names and layers that may be the head: all linear ones, or the one the caller says."""
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
            f"{type(layer).__name__}{'' if weight is None else f' with {shapes(weight)}'}"
        )
    return [(name, layer)]


def _is_linear(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    return module.groups == 1 and set(module.kernel_size) == {1}
