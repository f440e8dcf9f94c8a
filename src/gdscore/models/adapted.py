"""The model that the released protocol of the GdScore paper leaves behind."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gdscore.errors import GdscoreError
from gdscore.models.batches import called
from gdscore.models.feed import Feed, check_loader
from gdscore.models.network import Network
from gdscore.models.untouched import batchnorm_layers, kept_rng, unwrapped

__all__ = ["adapted_copy"]


def adapted_copy(model: nn.Module, loader: Iterable[Any]) -> nn.Module:
    """Copy of a model whose BatchNorm statistics were moved by one pass over unlabelled data.

    The code released with the GdScore paper scores a model in training mode, which moves the running statistics of
    BatchNorm towards the test data, and only then measures its accuracy. The published numbers therefore relate the
    score, ``extract(model, loader, batchnorm="batch")``, to the accuracy of this copy, and not of the model itself.

    Parameters
    ----------
    model : nn.Module
        Not changed.
    loader : iterable of batches
        As for `extract`; the result depends on their size and order.

    Returns
    -------
    nn.Module
        In the modes of the model. Only BatchNorm was in training mode during the pass, with each layer's own
        momentum and starting from the model's statistics; dropout was not.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import adapted_copy
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Linear(1, 2)).eval()
    >>> moved = adapted_copy(model, [torch.tensor([[9.0], [11.0]])])
    >>> moved[0].running_mean.tolist(), model[0].running_mean.tolist(), moved.training
    ([1.0], [0.0], False)
    """
    check_loader(loader)
    network = Network(model, head=False)
    adapted = copy.deepcopy(unwrapped(model))
    layers = [layer for layer in batchnorm_layers(adapted) if layer.running_mean is not None]
    if not layers:
        raise GdscoreError("Expected a model with BatchNorm statistics to adapt, but it has none")
    modes = [(module, module.training) for module in adapted.modules()]
    for module, _ in modes:
        module.training = False
    for layer in layers:
        layer.training = True
    feed = Feed(loader, network.device, network.dtype)
    while (batch := feed.take()) is not None:
        with torch.no_grad(), kept_rng():
            called(adapted, batch[0], feed.taken - 1)
        feed.stage()
    for module, training in modes:
        module.training = training
    return adapted
