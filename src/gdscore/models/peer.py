"""The second model of a pass: one of the caller's, or the model itself with BatchNorm's statistics of each batch."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.models.batches import Inputs
from gdscore.models.network import Network
from gdscore.models.untouched import batchnorm_layers, unwrapped

__all__ = ["ITSELF", "Peer", "second_network"]

Peer: TypeAlias = nn.Module | Literal["batchnorm"]
ITSELF = "batchnorm"

ROWS = 128
"""Rows that statistics are taken of: of more they would be closer to the stored ones, and no two loaders alike."""


def second_network(
    model: nn.Module, peer: Peer | None, *, device: torch.device | str | None = None, **options: Any
) -> Network | None:
    """Network to ask for ``peer_logits``, or None; ``options`` are those of the first one."""
    if peer is None:
        return None
    if peer != ITSELF:
        if isinstance(peer, str):
            raise GdscoreError(f'Expected `peer` to be a torch.nn.Module or "{ITSELF}", but got {peer!r}')
        return Network(peer, head=False, **options)
    if not batchnorm_layers(unwrapped(model)):
        raise GdscoreError(f'Expected a model with BatchNorm for peer="{ITSELF}", but it has none: give a second model')
    if options.get("batchnorm") == "batch":
        raise GdscoreError(
            f'Expected batchnorm="eval" with peer="{ITSELF}", but both would use the statistics of the batch'
        )
    return _Itself(model, device=device, head=False, **options | {"batchnorm": "batch"})


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
