"""The paper's ablation of layers: GdScore of groups of parameters, by backpropagation.

Requirements met here:

- everything happens on a copy, in evaluation mode, and under a random state of its own;
- labels are those `extract` and `gdscore.score` would give, to the row: they are drawn from the logits of the
  loader's own batches, as random labels hang on the bits of the logits;
- gradients keep the precision of GdScore itself: the exact residual is sent backward, not a loss in float32.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gdscore import _arrays as arrays
from gdscore._options import integer
from gdscore.errors import GdscoreError, GdscoreWarning, nearest
from gdscore.models._labels import HARD_RULES, labelled, same_layer
from gdscore.models.batches import Where, to_device
from gdscore.models.feed import check_loader
from gdscore.models.network import Network
from gdscore.models.training import (
    Rows,
    checked,
    device_of,
    differentiable,
    recut,
    seeded,
    working_copy,
)
from gdscore.outputs import Outputs
from gdscore.scores import _gradient as gradient
from gdscore.scores.gdscore import GdScore

__all__ = ["gradient_scores"]

Groups = Mapping[str, str | Iterable[str]]


def gradient_scores(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    groups: Groups | None = None,
    p: float = 0.3,
    tau: float = 0.5,
    batch_size: int = 128,
    label_rule: str = "mixed",
    seed: int = 0,
    head: nn.Module | str | Literal[False] | None = None,
    logits: Where = None,
    device: torch.device | str | None = None,
) -> dict[str, float]:
    r"""GdScore of groups of parameters, by backpropagation: does the last layer say as much as the others?

    .. math:: \frac{1}{m}\sum_b |b|\,\Big\|\nabla_{\theta_G}\,\frac{1}{|b|}\sum_{i \in b} \ell(z_i, y_i)\Big\|_p

    with :math:`\theta_G` all parameters of group G as one vector, b consecutive mini-batches of the loader's rows, and
    cross-entropy :math:`\ell` with labels by ``label_rule``.

    Parameters
    ----------
    model : nn.Module
        Stays untouched; a copy is worked on, in evaluation mode.
    loader : iterable
        Batches of any size; the rows are cut anew in their order.
    groups : mapping from names to prefixes, optional
        Which parameters form a group: the name of a module or parameter, or several; ``""`` is the whole network. By
        default one group for each direct child of the model that has parameters, ``last``: the weights of the layer
        that makes the logits, and ``all``. A child called ``last`` or ``all`` is named with a dot behind it.
    p, tau, batch_size, label_rule, seed
        As in `gdscore.scores.gdscore.GdScore`.
    head : nn.Module, str or False, optional
        The layer of ``last``, where it is not found by itself; False for no such group.
    logits : int, str or callable, optional
        Where the model's output holds the logits, as in `logits_of`.
    device : torch.device or str, optional
        Where to compute; by default where the model is.

    Returns
    -------
    dict of str to float
        ``last`` equals ``gdscore.score("gdscore", ...)`` of the extracted outputs, unless the network uses those
        weights elsewhere too. A group that has no part in the logits, beside others that have, is 0.

    Notes
    -----
    Two forward passes and one backward pass of each row, as far back as the groups reach; the number of groups costs
    nothing. Frozen parameters count as any others.

    References
    ----------
    Xie et al., "Leveraging Gradients for Unsupervised Accuracy Estimation under Distribution Shift", TMLR 2025.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import gradient_scores
    >>> rng = torch.Generator().manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> with torch.no_grad():
    ...     for weight in model.parameters():
    ...         _ = weight.copy_(torch.randn(weight.shape, generator=rng))
    >>> values = gradient_scores(model, [torch.randn(256, 4, generator=rng)], label_rule="pseudo")
    >>> {name: round(value, 1) for name, value in values.items()}
    {'0': 3633.1, '2': 1445.3, 'last': 937.7, 'all': 23836.6}
    """
    size = integer("batch_size", batch_size, least=1)
    rule = GdScore(p=p, tau=tau, batch_size=size, label_rule=label_rule, seed=seed)
    check_loader(loader)
    where = device_of(model, device)
    with torch.inference_mode(False), seeded(rule.seed, where):
        twin = working_copy(model, where).eval().requires_grad_(False)
        members = {} if groups is None else _resolved(twin, groups)
        batches = recut(labelled(twin, loader, rule, logits), size, labelled=label_rule in HARD_RULES)
        first = next(batches, None)
        if first is None:
            raise GdscoreError("Expected the loader to yield rows, but it yielded none (a generator is read only once)")
        if groups is None:
            last = None if head is False else _last_weight(twin, same_layer(model, twin, head), first, logits)
            members = _resolved(twin, _default_groups(twin, last))
        parameters = {name: q for name, q in _parameters(twin).items() if any(name in g for g in members.values())}
        for parameter in parameters.values():
            parameter.requires_grad_(True)

        total, rows = np.full(len(members), -math.inf), 0
        for batch in itertools.chain([first], batches):
            sums = _log_sums(twin, parameters, batch, rule, logits)
            norms = [_log_norm([sums[name] for name in names], rule.p) for names in members.values()]
            total = np.logaddexp(total, np.array(norms) + math.log(len(batch)))
            rows += len(batch)
    if rows < size:
        warnings.warn(
            f"gradient_scores: {rows} rows do not fill one mini-batch of {size}; compare the numbers only with sets of "
            "as many rows",
            GdscoreWarning,
            stacklevel=2,
        )
    return {name: _mean(name, float(log_sum), rows) for name, log_sum in zip(members, total, strict=True)}


def _log_sums(
    model: nn.Module, parameters: Mapping[str, Tensor], batch: Rows, rule: GdScore, logits: Where
) -> dict[str, float]:
    """Ln Σ|g|^p of the mini-batch's gradient by each parameter; ln max|g| for p = ∞."""
    z = differentiable(model, batch, logits)
    if not z.requires_grad:
        raise GdscoreError(
            f"Expected logits that can be differentiated by {next(iter(parameters))!r} or others of the groups, but "
            "the model returns them without a graph (detached, or under no_grad), or uses none of these parameters"
        )
    labels = None if batch.labels is None else checked(batch, z.shape[1]).labels
    outputs = Outputs(logits=z.detach(), labels=to_device(labels, z.device))
    residuals, _ = (rule if labels is None else GdScore(label_rule="true")).residuals(outputs)
    # Rows are scaled by the largest of them, so that residuals far below float32's smallest number survive.
    peak = residuals.log_scale.max()
    backward = (residuals.unit * torch.exp(residuals.log_scale - peak)[:, None]).to(z.dtype)
    gradients = torch.autograd.grad(z, list(parameters.values()), backward, allow_unused=True)
    scale = float(peak) - math.log(len(batch))
    sums = {}
    for name, g in zip(parameters, gradients, strict=True):
        log_sum = -math.inf if g is None else gradient.column_log_sums(arrays.working(g).reshape(-1, 1), rule.p).item()
        sums[name] = log_sum + scale * (1 if rule.p == math.inf else rule.p)
    return sums


def _log_norm(log_sums: list[float], p: float) -> float:
    return max(log_sums) if p == math.inf else float(np.logaddexp.reduce(log_sums)) / p


def _mean(name: str, log_sum: float, rows: int) -> float:
    log_norm = log_sum - math.log(rows)
    if math.isnan(log_norm):
        raise GdscoreError(f"Expected finite gradients, but those of {name!r} hold NaN or Inf")
    try:
        return math.exp(log_norm)
    except OverflowError:
        raise GdscoreError(
            f"The norm of {name!r} overflows: its logarithm is {log_norm:.6g}; use a larger `p`"
        ) from None


def _parameters(model: nn.Module) -> dict[str, Tensor]:
    """Floating-point parameters by name; a shared one under its first name only."""
    return {name: q for name, q in model.named_parameters() if q.is_floating_point()}


def _last_weight(twin: nn.Module, head: nn.Module | None, batch: Rows, logits: Where) -> str:
    """Name of the weights that make the logits."""
    network = Network(twin, head=head, logits=logits)
    network.run(to_device(batch.inputs, network.device, dtype=network.dtype), 0)
    assert network.head is not None
    weight = network.head.module.weight
    return next(name for name, q in twin.named_parameters() if q is weight)


def _default_groups(model: nn.Module, last: str | None) -> dict[str, str]:
    blocks = [name for name, child in model.named_children() if _parameters(child)]
    groups = {f"{name}." if name in ("last", "all") else name: name for name in blocks}
    return {**groups, **({} if last is None else {"last": last}), "all": ""}


def _resolved(model: nn.Module, groups: Groups) -> dict[str, list[str]]:
    """Names of the parameters of each group."""
    if not isinstance(groups, Mapping) or not groups:
        raise GdscoreError(f"Expected `groups` to map names to prefixes of parameter names, but got {groups!r}")
    first_name = {id(q): name for name, q in _parameters(model).items()}
    every = {
        name: first_name[id(q)] for name, q in model.named_parameters(remove_duplicate=False) if id(q) in first_name
    }
    members: dict[str, list[str]] = {}
    for group, prefixes in groups.items():
        found: dict[str, None] = {}
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes:
            names = [n for n in every if not prefix or n == prefix or n.startswith(prefix.removesuffix(".") + ".")]
            if not names:
                valid = {".".join(n.split(".")[:depth]) for n in every for depth in range(1, n.count(".") + 2)}
                raise GdscoreError(f"No parameters under {prefix!r} for the group {group!r}: {nearest(prefix, valid)}")
            found.update(dict.fromkeys(every[n] for n in names))
        if not found:
            raise GdscoreError(f"Expected the group {group!r} to name parameters or modules, but it is empty")
        members[group] = list(found)
    return members
