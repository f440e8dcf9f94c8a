"""The model once more, with BatchNorm's statistics of each batch."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError, nearest
from gdscore.models.batches import Inputs
from gdscore.models.network import Network
from gdscore.models.untouched import MODES, BatchNormMode, batchnorm_layers, unwrapped

__all__ = ["Statistics", "with_batch_statistics"]

Statistics: TypeAlias = BatchNormMode | Literal["both"]

ROWS = 128
"""Rows that statistics are taken of: of more they would be closer to the stored ones, and no two loaders alike."""


def with_batch_statistics(
    model: nn.Module, batchnorm: Statistics, **options: Any
) -> tuple[BatchNormMode, Network | None]:
    """Mode to ask the model in, and the network to ask for ``batch_logits`` where both are wanted."""
    if batchnorm == "both":
        itself = _Itself(model, head=False, batchnorm="batch", **options)
        if not any(layer.running_mean is not None for layer in batchnorm_layers(unwrapped(model))):
            raise GdscoreError(
                'Expected a model with BatchNorm and stored statistics for batchnorm="both", but it has none'
            )
        return "eval", itself
    if batchnorm not in MODES:
        raise GdscoreError(f"Unknown `batchnorm` {batchnorm!r}: {nearest(str(batchnorm), [*MODES, 'both'])}")
    return batchnorm, None


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
