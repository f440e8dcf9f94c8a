"""GdScore's labels for the rows of a loader, and the layer of a copy: what both ablations need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from gdscore.models.batches import Where, split_batch, to_device
from gdscore.models.head import layers_to_watch
from gdscore.models.network import Network, two_columns
from gdscore.models.untouched import unwrapped
from gdscore.outputs import Outputs
from gdscore.scores.gdscore import GdScore

__all__ = ["HARD_RULES", "labelled", "same_layer"]

HARD_RULES = ("mixed", "pseudo", "random", "true")
"""Rules that give every row one class: what a network can be trained on."""


def labelled(model: nn.Module, loader: Iterable[Any], rule: GdScore, logits: Where) -> Iterator[Any]:
    """Batches with a class for each row by the rule; as they are where the rule reads their labels or needs none."""
    if rule.label_rule not in HARD_RULES or rule.label_rule == "true":
        yield from loader
        return
    network = Network(model, head=False, logits=logits)
    for index, batch in enumerate(loader):
        inputs, _ = split_batch(batch)
        z, _ = network.run(to_device(inputs, network.device, dtype=network.dtype), index)
        outputs = Outputs(logits=two_columns(z))
        yield inputs, rule.labels(outputs, outputs.confidence > rule.tau)


def same_layer(model: nn.Module, twin: nn.Module, head: nn.Module | str | None) -> nn.Module | None:
    """Layer of the copy that the caller named in the model."""
    return None if head is None else twin.get_submodule(layers_to_watch(unwrapped(model), head)[0][0])
