"""All scores of a model on a loader, in one pass on its device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gdscore.models.extract import extract
from gdscore.models.feed import check_loader
from gdscore.scores.compute import ScoreTable, score_all

__all__ = ["score"]


def score(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
    reference: Iterable[Any] | None = None,
    peer: nn.Module | None = None,
    rotation_head: Callable[[Tensor], Tensor] | None = None,
    **options: Any,
) -> ScoreTable:
    """Scores of a model on unlabelled data, all in one forward pass over it; the model is not changed.

    Parameters
    ----------
    model : nn.Module
        A classifier.
    loader : iterable of batches
        The data in question, as for `extract`.
    scores : iterable of names, or mapping of names to options, optional
        Scores to compute; by default all that are possible.
    reference : iterable of batches, optional
        Validation data of the training distribution, labelled where scores need it; one more pass.
    peer : nn.Module, optional
        An independently trained model, for ``agreescore``.
    rotation_head : callable, optional
        For ``rotation``, see `extract`.
    **options
        Further options of `extract`: ``head``, ``logits``, ``batchnorm``, ``autocast``, …

    Returns
    -------
    ScoreTable
        A dict of the numbers; its attribute ``skipped`` says why others are not there.

    Examples
    --------
    >>> import torch
    >>> from gdscore import models
    >>> model = torch.nn.Linear(8, 3)
    >>> table = models.score(model, [torch.randn(256, 8)], scores=["confscore", "atc"])
    >>> sorted(table), table.skipped
    (['confscore'], {'atc': 'needs labelled reference data'})
    """
    if reference is not None:
        check_loader(reference, "reference")
    target = extract(model, loader, peer=peer, rotation_head=rotation_head, **options)
    # No score learns from the model's second opinion on the reference.
    plain = options | {"batchnorm": "eval"} if options.get("batchnorm") == "both" else options
    reference = None if reference is None else extract(model, reference, **plain)
    with kept_casts(model, options.get("autocast")):
        return score_all(target, reference=reference, scores=scores)


def kept_casts(model: nn.Module, autocast: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Context in which autocast casts the weights once, not once for each batch.

    Autocast forgets its casts when the outermost context ends. Around a pass that nobody else's code runs in, a
    disabled one keeps them.
    """
    weight = next(model.parameters(), None)
    if autocast is None or weight is None:
        return contextlib.nullcontext()
    kept: contextlib.AbstractContextManager[Any] = torch.autocast(weight.device.type, enabled=False)
    return kept
