"""Second opinions on the same batches: of another model, and of the model with BatchNorm's statistics of each batch."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError, nearest
from gdscore.models.batches import Inputs
from gdscore.models.network import Network
from gdscore.models.untouched import MODES, BatchNormMode, batchnorm_layers, unwrapped

__all__ = ["Statistics", "second_opinions"]

Statistics: TypeAlias = BatchNormMode | Literal["both"]

ROWS = 128
"""Rows that statistics are taken of: of more they would be closer to the stored ones, and no two loaders alike."""


def second_opinions(
    model: nn.Module,
    peer: nn.Module | None,
    batchnorm: Statistics,
    *,
    device: torch.device | str | None,
    **options: Any,
) -> tuple[BatchNormMode, dict[str, Network]]:
    """Mode to ask the model in, and whom to ask for ``peer_logits`` and ``batch_logits``."""
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
        others["batch_logits"] = _Itself(model, device=device, head=False, batchnorm="batch", **options)
        if not any(layer.running_mean is not None for layer in batchnorm_layers(unwrapped(model))):
            raise GdscoreError(
                'Expected a model with BatchNorm and stored statistics for batchnorm="both", but it has none'
            )
    return mode, others


class _Itself(Network):
    """The model with the statistics of each batch, large ones taken in even pieces."""

    def run(self, inputs: Inputs, batch: int) -> tuple[Tensor, Tensor | None]:
        pieces = torch.tensor_split(inputs, max(1, round(len(inputs) / ROWS))) if isinstance(inputs, Tensor) else ()
        if len(pieces) < 2:
            return super().run(inputs, batch)
        said = []
        for piece in pieces:
            said.append(super().run(piece, batch)[0])
        return torch.cat(said), None
