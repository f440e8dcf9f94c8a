r"""The last layer's gradient, as residuals and as norms: all that GdScore computes.

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
from typing import NamedTuple

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs

__all__ = [
    "Residuals",
    "column_log_sums",
    "cross_entropy",
    "entropy",
    "log_norms",
    "log_sum",
    "product_log_sums",
    "smoothed",
    "uniform",
    "where_rows",
]

_BLOCK_ELEMENTS = 1 << 20
"""Gradient entries worked on at once on a processor: 4 MiB of float32 stay in its caches, and the product of a block
that large still runs at full speed."""

_DEVICE_ELEMENTS = 1 << 26
"""Gradient entries worked on at once on an accelerator: 256 MiB of float32."""


class Residuals(NamedTuple):
    """Derivative of the loss by the logits, row by row: ``unit`` (m×K) times exp(``log_scale``) (m)."""

    unit: Array
    log_scale: Array


def cross_entropy(chunk: Outputs, labels: Array) -> Residuals:
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


def uniform(chunk: Outputs) -> Residuals:
    """S − 1/K."""
    s, z = chunk.probabilities, chunk.logits
    xp = namespace(s)
    # Of nearly equal logits the difference has lost its digits; deviations from their mean have not.
    near = xp.expm1(xp.clip(z - xp.mean(z, axis=1, keepdims=True), -1.0, 1.0))
    middle = xp.mean(near, axis=1, keepdims=True)
    alike = xp.max(xp.abs(near), axis=1, keepdims=True) < 0.5
    return _plain(xp.where(alike, (near - middle) / (s.shape[1] * (1.0 + middle)), s - 1.0 / s.shape[1]))


def smoothed(chunk: Outputs, labels: Array, epsilon: float) -> Residuals:
    """S − ((1−ε)·onehot(labels) + ε/K)."""
    s = chunk.probabilities
    residual = s - epsilon / s.shape[1]
    return _plain(arrays.put(residual, labels, arrays.pick(residual, labels) - (1.0 - epsilon)))


def entropy(chunk: Outputs) -> Residuals:
    """Derivative of the entropy by the logits, −S∘(ln S + H)."""
    xp = namespace(chunk.logits)
    log_s = chunk.logits - chunk.logsumexp[:, None]
    # ln of the top probability near 1: the difference above has lost its digits, ln(1 − (1 − c)) has not.
    log_s = arrays.put(log_s, chunk.predictions, xp.log1p(-chunk.one_minus_confidence))
    return _plain(-chunk.probabilities * (log_s + chunk.entropy[:, None]))


def where_rows(condition: Array, first: Residuals, second: Residuals) -> Residuals:
    """Rows of ``first`` where the condition holds, of ``second`` elsewhere."""
    xp = namespace(condition)
    return Residuals(
        xp.where(condition[:, None], first.unit, second.unit), xp.where(condition, first.log_scale, second.log_scale)
    )


def _plain(residual: Array) -> Residuals:
    return Residuals(residual, namespace(residual).zeros_like(residual[:, 0]))


def product_log_sums(features: Array, residual: Array, p: float, batch: int) -> Array:
    """Ln Σ_d |g_dk|^p of every column k of g = XᵀR for each ``batch`` rows, shape (batches, K), in float64.

    For p = ∞ the logarithm of the largest entry of the column.
    """
    if arrays.on_host(features) or arrays.is_jax(features):
        rows = [slice(start, start + batch) for start in range(0, features.shape[0], batch)]
        block = _block_for(features, residual, p)
        sums = [_log_sums_in_blocks(features[b], residual[b], p, block) for b in rows]
        return namespace(sums[0]).stack(sums)
    # One product for many mini-batches: an accelerator waits for the host to launch each of them otherwise.
    xp = namespace(features)
    d, k = features.shape[1], residual.shape[1]
    x = xp.permute_dims(xp.reshape(features, (-1, batch, d)), (0, 2, 1))
    r = xp.reshape(residual, (-1, batch, k))
    step = max(1, _DEVICE_ELEMENTS // (d * k))
    starts = range(0, x.shape[0], step)
    return arrays.concatenate([column_log_sums(x[i : i + step] @ r[i : i + step], p) for i in starts])


def _block_for(features: Array, residual: Array, p: float) -> Array | None:
    """Memory for one block of the product; JAX, which writes into none, gets None, and so does a product at once."""
    if p > 1 or arrays.is_jax(features):
        return None
    xp = namespace(features)
    rows = min(features.shape[1], max(16, _BLOCK_ELEMENTS // residual.shape[1]))
    return xp.empty((rows, residual.shape[1]), dtype=xp.result_type(features, residual))


def _log_sums_in_blocks(x: Array, r: Array, p: float, block: Array | None) -> Array:
    if p > 1:
        return column_log_sums(x.T @ r, p)
    # |g| ≤ 1e38 gives |g|^p ≤ 1e38 for p ≤ 1, so that no block needs the largest entry of all.
    rows = max(16, _BLOCK_ELEMENTS // r.shape[1]) if block is None else block.shape[0]
    total: Array = 0.0
    with np.errstate(divide="ignore"):
        for start in range(0, x.shape[1], rows):
            columns = x[:, start : start + rows].T
            # New memory for every product would cost more than taking the power of all its entries.
            g = columns @ r if block is None else namespace(x).matmul(columns, r, out=block[: columns.shape[0]])
            powers = _power(g, p)
            total = total + arrays.wide(namespace(powers).sum(powers, axis=0))
        return _log(total)


def column_log_sums(g: Array, p: float) -> Array:
    """Ln Σ_d |g_dk|^p of every column of a matrix, or of each of a stack; they may be overwritten."""
    xp = namespace(g)
    with np.errstate(divide="ignore", under="ignore"):
        if p <= 1:
            return _log(xp.sum(_power(g, p), axis=-2))
        g = xp.abs(g)
        if p == math.inf:
            return _log(xp.max(g, axis=-2))
        largest = xp.max(g, axis=(-2, -1), keepdims=True)
        largest = xp.where(largest > 0, largest, xp.ones_like(largest))
        return _log(xp.sum((g / largest) ** p, axis=-2)) + p * _log(largest[..., 0])


def log_norms(sums: Array, p: float) -> Array:
    """Log-norms of the K columns and, last, of the matrix, from the columns' log-sums of powers."""
    xp = namespace(sums)
    if p == math.inf:
        return xp.concat([sums, xp.max(sums, axis=-1, keepdims=True)], axis=-1)
    return xp.concat([sums, log_sum(sums, axis=-1)[..., None]], axis=-1) / p


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
        return g if p == 1 else g.sqrt_() if p == 0.5 else g.log2_().mul_(p).exp2_()
    xp = namespace(g)
    if arrays.is_jax(g):
        return xp.exp2(p * xp.log2(xp.abs(g)))
    xp.abs(g, out=g)
    if p == 1:
        return g
    if p == 0.5:
        return xp.sqrt(g, out=g)
    xp.log2(g, out=g)
    g *= p
    return xp.exp2(g, out=g)


def _log(x: Array) -> Array:
    x = arrays.wide(x)
    return namespace(x).log(x)
