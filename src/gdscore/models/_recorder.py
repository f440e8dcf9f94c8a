"""Calls of layers during a forward pass, recorded by forward hooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gdscore.models._batches import describe

__all__ = ["LayerCall", "LayerRecorder"]


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
        return f"`{self.name}` ({type(self.module).__name__}{size})"


class LayerRecorder:
    """Context that records every call of some layers by forward hooks, which are gone afterwards."""

    def __init__(self, layers: Iterable[tuple[str, nn.Module]]) -> None:
        self.clear()
        self._layers = list(layers)
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> LayerRecorder:
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
        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            x = next((v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
            if not isinstance(output, Tensor) or x is None:
                self.others[name] = describe(output)
                return
            seen = LayerCall(name, module, x, output, (_version(x), _version(output)))
            if _rows_only(output):
                self.calls.append(seen)
            else:
                # Of sequences and maps only the last is kept: those of a whole network can fill a device.
                self.others[name] = describe(output)
                self.sequence = seen if output.ndim == 3 else self.sequence

        return record


def _rows_only(output: Tensor) -> bool:
    return output.ndim >= 2 and output.shape.numel() == output.shape[0] * max(output.shape[1:], default=1)


def _version(tensor: Tensor) -> int:
    """How often a tensor was written to; -1 for those of inference mode, which keep no count."""
    return -1 if tensor.is_inference() else tensor._version
