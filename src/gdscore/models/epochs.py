"""The paper's ablation of epochs: GdScore after fine-tuning a copy of the network on its own labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gdscore._options import choice, integer, number
from gdscore.errors import GdscoreError
from gdscore.io.progress import progress_bar
from gdscore.models._labels import HARD_RULES, labelled, same_layer
from gdscore.models.batches import Where
from gdscore.models.extract import extract
from gdscore.models.feed import check_loader
from gdscore.models.training import (
    Rows,
    Trainer,
    checked,
    collected,
    device_of,
    predicted,
    seeded,
    shuffled,
    working_copy,
)
from gdscore.scores.gdscore import GdScore

__all__ = ["finetuned_scores"]


def finetuned_scores(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    epochs: Iterable[int] = (0, 1, 5, 10, 20),
    lr: float = 1e-3,
    momentum: float = 0.9,
    p: float = 0.3,
    tau: float = 0.5,
    batch_size: int = 128,
    label_rule: str = "mixed",
    seed: int = 0,
    head: nn.Module | str | None = None,
    logits: Where = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> dict[int, float]:
    r"""GdScore after r epochs of fine-tuning with its own labels: does more training say more?

    .. math:: \frac{1}{m}\sum_b |b|\,\Big\|\nabla_W\,\frac{1}{|b|}\sum_{i \in b} \ell(z_i(\theta_r), y_i)\Big\|_p

    The labels y are given once, by ``label_rule`` and the model as it came. A copy is then trained on them, and after
    r epochs, at parameters :math:`\theta_r`, the gradient by the last layer's weights W under those same labels is
    measured over all rows in evaluation mode. With r = 0 nothing has been trained, and the value is GdScore.

    Parameters
    ----------
    model : nn.Module
        Stays untouched.
    loader : iterable
        Batches of any size.
    epochs : iterable of int, default (0, 1, 5, 10, 20)
        After how many epochs to measure.
    lr, momentum
        Of SGD without weight decay, in training mode, nothing frozen. The learning rate is constant, so that the value
        after r epochs does not depend on what else is asked for.
    p, tau, batch_size, seed
        As in `gdscore.scores.gdscore.GdScore`; ``batch_size`` rows also form a training step, of a permutation by
        ``seed`` in each epoch that leaves out what does not fill one.
    label_rule : str, default "mixed"
        ``mixed``, ``pseudo``, ``random`` or ``true``.
    head, logits
        The last linear layer and the place of the logits, as in `extract`.
    device : torch.device or str, optional
        Where to compute; by default where the model is.
    progress : bool, optional
        Whether to show a progress bar (rows trained on); by default where a terminal is attached.

    Returns
    -------
    dict of int to float
        By epoch, in ascending order.

    Notes
    -----
    All rows are kept in host memory. As many forward and backward passes as the largest of ``epochs``, and a forward
    pass for each number asked for.

    References
    ----------
    Xie et al., "Leveraging Gradients for Unsupervised Accuracy Estimation under Distribution Shift", TMLR 2025.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import finetuned_scores
    >>> rng = torch.Generator().manual_seed(0)
    >>> model = torch.nn.Linear(4, 3)
    >>> with torch.no_grad():
    ...     for weight in model.parameters():
    ...         _ = weight.copy_(torch.randn(weight.shape, generator=rng))
    >>> x = torch.randn(256, 4, generator=rng)
    >>> values = finetuned_scores(model, [x], epochs=(0, 5), lr=0.1, label_rule="pseudo")
    >>> {epoch: round(value, 2) for epoch, value in values.items()}
    {0: 98.55, 5: 43.97}
    """
    asked = sorted({integer("epochs", epoch, least=0) for epoch in epochs})
    if not asked:
        raise GdscoreError("Expected `epochs` to hold at least one number, but it is empty")
    choice("label_rule", label_rule, HARD_RULES)
    size = integer("batch_size", batch_size, least=1)
    rule = GdScore(p=p, tau=tau, batch_size=size, label_rule=label_rule, seed=seed)
    lr, momentum = number("lr", lr, above=0), number("momentum", momentum, least=0, most=1)
    check_loader(loader)
    where = device_of(model, device)
    values: dict[int, float] = {}
    with torch.inference_mode(False):
        twin = working_copy(model, where).eval()
        layer = same_layer(model, twin, head)
        rows = collected(labelled(twin, loader, rule, logits), rule.seed, where, labelled=True)
        checked(rows, predicted(twin, rows[:1], 1, logits)[1])
        trainer = Trainer(twin, lr, momentum, logits)
        generator = torch.Generator().manual_seed(rule.seed)
        with seeded(rule.seed, where), progress_bar(asked[-1] * len(rows), progress) as advance:
            for epoch in range(asked[-1] + 1):
                if epoch in asked:
                    values[epoch] = _last_layer_score(twin, rows, rule, layer, logits)
                if epoch < asked[-1]:
                    twin.train()
                    for batch in shuffled(rows, size, generator):
                        trainer.step(batch)
                        advance(len(batch))
    return values


def _last_layer_score(model: nn.Module, rows: Rows, rule: GdScore, head: nn.Module | None, logits: Where) -> float:
    size = rule.batch_size or len(rows)
    batches = (rows[start : start + size] for start in range(0, len(rows), size))
    loader = ((batch.inputs, batch.labels) for batch in batches)
    score = GdScore(p=rule.p, batch_size=rule.batch_size, label_rule="true")
    for outputs in extract(model, loader, head=head, logits=logits, progress=False):
        score.update(outputs)
    return score.compute()
