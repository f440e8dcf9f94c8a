r"""GdScore: the norm of the last layer's gradient under pseudo-labels.

Requirements met here:

- no autograd: ∂L/∂W = Xᵀ(S − Y)/m;
- a residual keeps its relative precision at any margin. Row i is kept as a unit row r̂ and a log-scale a with
  s − y = r̂·eᵃ: for a one-hot label y, r̂_k = s_k/(1−s_y), r̂_y = −1 and a = ln(1−s_y) = −softplus(z_y − lse_{k≠y} z_k),
  none of which cancels or underflows;
- ‖g‖_p is kept as a logarithm, (1/p) ln Σ|g|^p, with |g|^p = 2^(p log₂|g|) computed in place and in blocks that stay
  in a processor's cache: `pow` costs as much as the product, log₂ and 2^x together half of it or less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import boolean, choice, integer, number
from gdscore._hashing import key_as_uint64, row_key, value_words
from gdscore._softmax import ROUNDING
from gdscore._stream import CHUNK_ROWS, joined
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import register_score

LABEL_RULES = ("mixed", "pseudo", "random", "uniform", "true", "expected")
LOSSES = ("cross_entropy", "entropy", "smoothing")

_BLOCK_ELEMENTS = 1 << 20
"""Gradient entries worked on at once on a processor: 4 MiB of float32 stay in its caches, and the product of a block
that large still runs at full speed."""

_DEVICE_ELEMENTS = 1 << 26
"""Gradient entries worked on at once on an accelerator: 256 MiB of float32."""


class Residuals(NamedTuple):
    """Derivative of the loss by the logits, row by row: ``unit`` (m×K) times exp(``log_scale``) (m)."""

    unit: Array
    log_scale: Array


def cross_entropy_residuals(chunk: Outputs, labels: Array) -> Residuals:
    """S − onehot(labels), with full relative precision at any margin."""
    xp = namespace(chunk.logits)
    z = xp.asarray(chunk.logits, copy=True)
    label_logit = arrays.pick(z, labels)
    others = arrays.put(z, labels, -math.inf)
    peak = xp.max(others, axis=1)
    others -= peak[:, None]
    others = arrays.exp(others)
    total = xp.sum(others, axis=1)
    margin = label_logit - peak - xp.log(total)
    others /= total[:, None]
    return Residuals(arrays.put(others, labels, -1.0), -xp.logaddexp(xp.zeros_like(margin), margin))


def uniform_residuals(chunk: Outputs) -> Residuals:
    """S − 1/K."""
    s, z = chunk.probabilities, chunk.logits
    xp = namespace(s)
    # Of nearly equal logits the difference has lost its digits; deviations from their mean have not.
    near = xp.expm1(xp.clip(z - xp.mean(z, axis=1, keepdims=True), -1.0, 1.0))
    middle = xp.mean(near, axis=1, keepdims=True)
    alike = xp.max(xp.abs(near), axis=1, keepdims=True) < 0.5
    return _plain(xp.where(alike, (near - middle) / (s.shape[1] * (1.0 + middle)), s - 1.0 / s.shape[1]))


def smoothed_residuals(chunk: Outputs, labels: Array, epsilon: float) -> Residuals:
    """S − ((1−ε)·onehot(labels) + ε/K)."""
    s = chunk.probabilities
    residual = s - epsilon / s.shape[1]
    return _plain(arrays.put(residual, labels, arrays.pick(residual, labels) - (1.0 - epsilon)))


def entropy_residuals(chunk: Outputs) -> Residuals:
    """Derivative of the entropy by the logits, −S∘(ln S + H) = −S∘(d − Σ S d), d the logits less the row's largest.

    ln S and H are alike where all classes are, and both near 0 where the top probability is near 1: their sum loses its
    digits. Differences of logits do not.
    """
    xp = namespace(chunk.logits)
    # Far below the top S is 0, but 0 · ∞ would not be.
    below = xp.clip(chunk.logits - xp.max(chunk.logits, axis=1, keepdims=True), -1e4, None)
    mean = xp.sum(chunk.probabilities * below, axis=1, keepdims=True)
    return _plain(-chunk.probabilities * (below - mean))


def where_rows(condition: Array, first: Residuals, second: Residuals) -> Residuals:
    """Rows of ``first`` where the condition holds, of ``second`` elsewhere."""
    xp = namespace(condition)
    return Residuals(
        xp.where(condition[:, None], first.unit, second.unit), xp.where(condition, first.log_scale, second.log_scale)
    )


def _plain(residual: Array) -> Residuals:
    return Residuals(residual, namespace(residual).zeros_like(residual[:, 0]))


def product_log_norms(features: Array, residual: Array, p: float, batch: int) -> Array:
    """Ln ‖XᵀR‖_p for each ``batch`` rows, shape (batches,), in float64."""
    if arrays.on_host(features) or arrays.is_jax(features):
        rows = [slice(start, start + batch) for start in range(0, features.shape[0], batch)]
        block = _block_for(features, residual, p)
        norms = [_log_norm_in_blocks(features[b], residual[b], p, block) for b in rows]
        return namespace(norms[0]).stack(norms)
    # One product for many mini-batches: an accelerator waits for the host to launch each of them otherwise.
    xp = namespace(features)
    d, k = features.shape[1], residual.shape[1]
    x = xp.permute_dims(xp.reshape(features, (-1, batch, d)), (0, 2, 1))
    r = xp.reshape(residual, (-1, batch, k))
    step = max(1, _DEVICE_ELEMENTS // (d * k))
    starts = range(0, x.shape[0], step)
    return arrays.concatenate([log_norm(x[i : i + step] @ r[i : i + step], p) for i in starts])


def _block_for(features: Array, residual: Array, p: float) -> Array | None:
    """Memory for one block of the product; JAX, which writes into none, gets None, and so does a product at once."""
    if p > 1 or arrays.is_jax(features):
        return None
    xp = namespace(features)
    rows = min(features.shape[1], max(16, _BLOCK_ELEMENTS // residual.shape[1]))
    return xp.empty((rows, residual.shape[1]), dtype=xp.result_type(features, residual))


def _log_norm_in_blocks(x: Array, r: Array, p: float, block: Array | None) -> Array:
    if p > 1:
        return log_norm(x.T @ r, p)
    # |g| ≤ 1e38 gives |g|^p ≤ 1e38 for p ≤ 1, so that no block needs the largest entry of all.
    rows = max(16, _BLOCK_ELEMENTS // r.shape[1]) if block is None else block.shape[0]
    total: Array = 0.0
    with np.errstate(divide="ignore"):
        for start in range(0, x.shape[1], rows):
            columns = x[:, start : start + rows].T
            # New memory for every product would cost more than taking the power of all its entries.
            g = columns @ r if block is None else namespace(x).matmul(columns, r, out=block[: columns.shape[0]])
            total = total + _sum(_power(g, p))
        return _log(total) / p


def log_norm(g: Array, p: float) -> Array:
    """Ln ‖g‖_p of a matrix, or of each of a stack; they may be overwritten."""
    xp = namespace(g)
    with np.errstate(divide="ignore", under="ignore"):
        if p <= 1:
            return _log(_sum(_power(g, p))) / p
        g = xp.abs(g)
        largest = xp.max(g, axis=(-2, -1))
        if p == math.inf:
            return _log(largest)
        divisor = xp.where(largest > 0, largest, xp.ones_like(largest))
        return _log(_sum((g / divisor[..., None, None]) ** p)) / p + _log(divisor)


def _sum(powers: Array) -> Array:
    """Sum of each matrix, of its columns in float64."""
    of_columns = arrays.wide(namespace(powers).sum(powers, axis=-2))
    return namespace(of_columns).sum(of_columns, axis=-1)


def log_sum(x: Array, axis: int) -> Array:
    """Ln Σ exp(x) along an axis, of float64 numbers that may all be −∞."""
    xp = namespace(x)
    largest = xp.max(x, axis=axis, keepdims=True)
    largest = xp.where(largest > -math.inf, largest, xp.zeros_like(largest))
    with np.errstate(divide="ignore"):
        return xp.squeeze(largest, axis=axis) + xp.log(xp.sum(xp.exp(x - largest), axis=axis))


def _power(g: Array, p: float) -> Array:
    """|g|^p, overwriting g where the library can."""
    if arrays.is_torch(g):
        g = g.abs_()
        return g if p == 1 else g.log2_().mul_(p).exp2_()
    xp = namespace(g)
    if arrays.is_jax(g):
        return xp.exp2(p * xp.log2(xp.abs(g)))
    xp.abs(g, out=g)
    if p == 1:
        return g
    xp.log2(g, out=g)
    g *= p
    return xp.exp2(g, out=g)


def _log(x: Array) -> Array:
    x = arrays.wide(x)
    return namespace(x).log(x)


@register_score("gdscore")
class GdScore(Score):
    r"""Mean p-norm of the last layer's gradient over mini-batches (Xie et al., TMLR 2025); falls with accuracy.

    .. math:: \frac{1}{m}\sum_b |b|\,\Big\|\frac{1}{|b|} X_b^\top (S_b - Y_b)\Big\|_p

    over consecutive mini-batches b, with X the features, S the softmax and Y the labels by ``label_rule``.

    Parameters
    ----------
    p : float, default 0.3
        Order of the norm, larger than 0; ``math.inf`` for the largest entry.
    tau : float, default 0.5
        Rows with a confidence above it are "confident".
    batch_size : int or None, default 128
        Rows of a mini-batch; None for the gradient of all rows (the paper's equation). A last, shorter
        mini-batch counts by its rows.
    label_rule : str, default "mixed"
        ``mixed``: the predicted class for confident rows, a random one for the others; ``pseudo``: the predicted
        class; ``random``; ``uniform``: 1/K; ``true``: the labels (an oracle); ``expected``: as ``mixed`` with 1/K
        for the others, the mean over the random draw.
    loss : str, default "cross_entropy"
        ``entropy``: cross-entropy on confident rows plus entropy on the others, each averaged over its own rows of
        the mini-batch; ``smoothing``: labels (1−ε)·onehot + ε/K.
    epsilon : float, default 0.4
        ε of ``smoothing``.
    seed : int, default 0
        Of the random labels, each of which depends on the seed and its row alone.
    log : bool, default False
        Return the natural logarithm, for p so small that the norm overflows.
    variant : str, default "default"
        ``published``: a confidence of exactly ``tau`` is confident, and a last, shorter mini-batch counts as much
        as a full one.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> out = gdscore.Outputs(logits=3 * rng.normal(size=(256, 10)), features=rng.normal(size=(256, 32)))
    >>> round(gdscore.score("gdscore", out, log=True), 4)
    14.6282
    >>> round(gdscore.score("gdscore", out, p=2, label_rule="uniform"), 4)
    0.3212
    """

    optional_inputs = frozenset({"predictions", "labels", "ids"})
    formula = "mean over mini-batches b of || X_b^T (S_b - Y_b) / |b| ||_p, Y the pseudo-labels"
    good_for = "no reference and no training; the pull of uncertain rows on the last layer"
    fails_when = "predictions are wrong and confident: their gradient vanishes; sets of fewer rows than a mini-batch"

    def __init__(
        self,
        *,
        p: float = 0.3,
        tau: float = 0.5,
        batch_size: int | None = 128,
        label_rule: str = "mixed",
        loss: str = "cross_entropy",
        epsilon: float = 0.4,
        seed: int = 0,
        log: bool = False,
        variant: str = "default",
    ) -> None:
        self.p = number("p", p, above=0)
        self.tau = number("tau", tau, least=0, most=1)
        self.batch_size = None if batch_size is None else integer("batch_size", batch_size, least=1)
        self.label_rule = choice("label_rule", label_rule, LABEL_RULES)
        self.loss = choice("loss", loss, LOSSES)
        self.epsilon = number("epsilon", epsilon, least=0, most=1)
        self.seed = integer("seed", seed, least=0)
        self.log = boolean("log", log)
        self.variant = choice("variant", variant, ("default", "published"))
        self.inputs = frozenset({"logits", "features"} | ({"labels"} if label_rule == "true" else set()))
        if self.batch_size is not None:
            self.chunk_rows = self.batch_size * max(1, CHUNK_ROWS // self.batch_size)
        super().__init__()

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """False, but for the rules whose labels ignore the prediction: there a confident model has large residuals."""
        return self.label_rule in ("uniform", "random")

    def reset(self) -> Score:
        """Forget all rows; options stay."""
        self._pool: list[Outputs] = []
        return super().reset()

    def measure(self, chunk: Outputs) -> Stats:
        """Log-sums of the norms of the chunk's mini-batches, or its part of the gradient of all rows."""
        residuals, confident = self.residuals(chunk)
        if self.batch_size is None:
            return self._full_gradient(chunk, residuals, confident)
        full = len(chunk) // self.batch_size * self.batch_size
        parts = [(slice(0, full), self.batch_size), (slice(full, len(chunk)), len(chunk) - full)]
        stats = [
            self._batches(chunk, residuals, confident, rows, size) for rows, size in parts if rows.stop > rows.start
        ]
        return stats[0] if len(stats) == 1 else self.combine(*stats)

    def combine(self, first: Stats, second: Stats) -> Stats:
        """Log-sums add by logaddexp; gradients, a matrix times the exponential of a scale, at the larger scale."""
        if "log_norms" in second:
            logs = namespace(second["log_norms"]).logaddexp(first["log_norms"], second["log_norms"])
            return {"log_norms": logs, "weight": first["weight"] + second["weight"]}
        stats: Stats = {}
        for name in [k.removeprefix("rows_") for k in second if k.startswith("rows_")]:
            scales = first[f"scale_{name}"], second[f"scale_{name}"]
            xp = namespace(scales[1])
            scale = xp.maximum(*scales)
            parts = [
                s[f"gradient_{name}"] * xp.exp(own_scale - scale)
                for s, own_scale in zip((first, second), scales, strict=True)
            ]
            stats[f"gradient_{name}"], stats[f"scale_{name}"] = parts[0] + parts[1], scale
            stats[f"rows_{name}"] = first[f"rows_{name}"] + second[f"rows_{name}"]
        return stats

    def result(self, stats: HostStats) -> float:
        """Mean norm, or its logarithm."""
        log = self._log_norm(stats)
        if not log < math.inf:
            raise GdscoreError(self.overflow_message())
        if self.log:
            if not log > -math.inf:
                raise GdscoreError("A gradient of 0 has no logarithm: use log=False, which gives 0")
            return log
        if log > math.log(np.finfo(float).max):
            raise GdscoreError(f"The norm overflows: its logarithm is {log:.6g}; use log=True to get that instead")
        return math.exp(log)

    def warning(self) -> str | None:
        """Fewer rows than one mini-batch: the norm of a shorter batch is larger."""
        if self.batch_size is not None and self.n_rows < self.batch_size:
            return (
                f"{self.n_rows} rows do not fill one mini-batch of {self.batch_size}; the number is larger than "
                "that of more rows of the same distribution would be, so compare it only with sets of as many rows"
            )
        return None

    # -- the parts ------------------------------------------------------------------------------------------

    def residuals(self, chunk: Outputs) -> tuple[Residuals, Array]:
        """Derivative of the loss by the logits of each row, and which rows are confident."""
        # A confidence that differs from tau by rounding only is equal to it.
        least = self.tau * (1 - ROUNDING if self.variant == "published" else 1 + ROUNDING)
        confident = chunk.confidence > least
        if self.label_rule == "uniform":
            labelled = uniform_residuals(chunk)
        elif self.loss == "smoothing":
            labelled = smoothed_residuals(chunk, self.labels(chunk, confident), self.epsilon)
        else:
            labelled = cross_entropy_residuals(chunk, self.labels(chunk, confident))
        if self.loss == "entropy":
            labelled = where_rows(confident, labelled, entropy_residuals(chunk))
        elif self.label_rule == "expected":
            labelled = where_rows(confident, labelled, uniform_residuals(chunk))
        return labelled, confident

    def labels(self, chunk: Outputs, confident: Array) -> Array:
        """Class of each row by ``label_rule``; for the soft rules, of the rows that have one."""
        if self.label_rule == "true":
            return chunk.labels
        if self.label_rule in ("pseudo", "expected"):
            return chunk.predictions
        labels = chunk.random_labels(self.seed)
        if self.label_rule == "mixed":
            labels = namespace(labels).where(confident, chunk.predictions, labels)
        return labels

    def _batches(self, chunk: Outputs, residuals: Residuals, confident: Array, rows: slice, size: int) -> Stats:
        """Statistics of some rows of a chunk, in mini-batches of ``size``."""
        unit = residuals.unit[rows]
        xp = namespace(unit)
        count = unit.shape[0] // size
        log_scale = xp.reshape(residuals.log_scale[rows], (count, size))
        peak = xp.max(log_scale, axis=1, keepdims=True)
        weights = xp.exp(log_scale - peak)
        if self.loss == "entropy":
            # Each group is averaged over its own rows; the division by all rows comes below.
            sure = xp.reshape(xp.astype(confident[rows], unit.dtype), (count, size))
            members = xp.sum(sure, axis=1, keepdims=True)
            weights = (
                weights * size * (sure / xp.clip(members, 1.0, None) + (1 - sure) / xp.clip(size - members, 1.0, None))
            )
        unit *= xp.reshape(weights, (-1, 1))
        norms = product_log_norms(chunk.features[rows], unit, self.p, size) + (arrays.wide(peak[:, 0]) - math.log(size))
        weight = 1.0 if self.variant == "published" else float(size)
        total = log_sum(norms, axis=0) + math.log(weight)
        return {"log_norms": total, "weight": namespace(total).ones_like(total) * (weight * count)}

    def _full_gradient(self, chunk: Outputs, residuals: Residuals, confident: Array) -> Stats:
        xp = namespace(residuals.unit)
        stats: Stats = {}
        groups = {"sure": confident, "unsure": ~confident} if self.loss == "entropy" else {"all": None}
        for name, members in groups.items():
            log_scale = residuals.log_scale
            if members is not None:
                log_scale = xp.where(members, log_scale, -math.inf)
            peak = xp.max(log_scale)
            peak = xp.where(peak > -math.inf, peak, xp.zeros_like(peak))
            weights = xp.exp(log_scale - peak)
            stats[f"gradient_{name}"] = arrays.wide(chunk.features.T @ (residuals.unit * weights[:, None]))
            stats[f"scale_{name}"] = arrays.wide(peak)
            rows = xp.ones_like(log_scale) if members is None else xp.astype(members, log_scale.dtype)
            stats[f"rows_{name}"] = arrays.wide(xp.sum(rows))
        return stats

    def _log_norm(self, stats: HostStats) -> float:
        with np.errstate(all="ignore"):
            if self.batch_size is not None:
                return float(stats["log_norms"] - np.log(stats["weight"]))
            groups = [k.split("_")[1] for k in stats if k.startswith("rows_")]
            # A group without rows has a scale of no meaning, and a gradient of 0.
            scale = max(float(stats[f"scale_{n}"]) for n in groups if stats[f"rows_{n}"] > 0)
            relative = {n: min(float(stats[f"scale_{n}"]) - scale, 0.0) for n in groups}
            parts = [stats[f"gradient_{n}"] * np.exp(relative[n]) / max(stats[f"rows_{n}"], 1) for n in groups]
            return float(log_norm(sum(parts), self.p)) + scale

    # -- leftover rows of merged states ---------------------------------------------------------------------

    @staticmethod
    def _split(rows: Outputs, batch_size: int) -> tuple[list[Outputs], list[Outputs]]:
        """Rows that fill mini-batches, and those left over; empty lists where there are none."""
        full = len(rows) // batch_size * batch_size
        return [rows[:full]] if full else [], [rows[full:]] if full < len(rows) else []

    def _merge_rest(self, rest: Outputs) -> None:
        if self.batch_size is None:
            super()._merge_rest(rest)
            return
        full, left = self._split(rest, self.batch_size)
        for rows in full:
            self._add(self._measured(rows))
        self._pool.extend(left)

    def merge(self, other: Score) -> Score:
        """Take in another state; rows that fill no mini-batch are pooled and ordered by their hash at `compute`."""
        super().merge(other)
        if isinstance(other, GdScore):
            self._pool.extend(other._pool)
        return self

    def _with_kept_rows(self, stats: Stats | None) -> Stats:
        if not self._pool or self.batch_size is None:
            return super()._with_kept_rows(stats)
        rest = self._pending.rest()
        full, left = ([], []) if rest is None else self._split(rest, self.batch_size)
        for rows in full:
            stats = self._added(stats, self._measured(rows))
        pooled = joined([*self._pool, *left])
        # Equal logits have equal hashes; their features then decide which comes first, whatever the order of merging.
        ties = key_as_uint64(row_key(value_words(pooled.features)))
        order = np.lexsort((ties, key_as_uint64(pooled.row_keys())))
        return self._added(stats, self._measured(pooled[order]))

    def _kept_rows(self) -> dict[str, Outputs | None]:
        return {**super()._kept_rows(), "pool": joined(self._pool) if self._pool else None}

    def _restore_rows(self, kept: Mapping[str, Outputs]) -> None:
        super()._restore_rows(kept)
        self._pool = [kept["pool"]] if "pool" in kept else []
