"""GdScore: the norm of the last layer's gradient under pseudo-labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import boolean, choice, integer, number
from gdscore._hashing import key_as_uint64, row_key, value_words
from gdscore._stream import CHUNK_ROWS, joined
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores import _gradient as gradient
from gdscore.scores.base import HostStats, Score, Stats
from gdscore.scores.registry import register_score

__all__ = ["GdScore"]

LABEL_RULES = ("mixed", "pseudo", "random", "uniform", "true", "expected")
LOSSES = ("cross_entropy", "entropy", "smoothing")


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

    formula = "mean over mini-batches b of || X_b^T (S_b - Y_b) / |b| ||_p, Y the pseudo-labels"

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
                s[f"gradient_{name}"] * xp.exp(own - scale) for s, own in zip((first, second), scales, strict=True)
            ]
            stats[f"gradient_{name}"], stats[f"scale_{name}"] = parts[0] + parts[1], scale
            stats[f"rows_{name}"] = first[f"rows_{name}"] + second[f"rows_{name}"]
        return stats

    def stat_axes(self) -> Sequence[Mapping[str, str]]:
        """Logarithms of the norms of the columns and of all, or the gradient of each group of rows with its scale."""
        if self.batch_size is not None:
            return [{"log_norms": "L", "weight": ""}]
        groups = ("sure", "unsure") if self.loss == "entropy" else ("all",)
        axes = {"gradient": "DK", "scale": "", "rows": ""}
        return [{f"{what}_{group}": letters for group in groups for what, letters in axes.items()}]

    def result(self, stats: HostStats) -> float:
        """Mean norm, or its logarithm."""
        log_norm = self._checked_logs(self._log_norms(stats)[-1:])[0]
        return float(log_norm) if self.log else math.exp(log_norm)

    def compute_per_class(self) -> NDArray[Any]:
        """Mean norm of each class's column of the gradient, shape (K,): which classes the number comes from."""
        logs = self._checked_logs(self._log_norms(self.statistics())[:-1])
        return logs if self.log else np.asarray(np.exp(logs))

    def _checked_logs(self, logs: NDArray[Any]) -> NDArray[Any]:
        """Logarithms of norms where they, or the norms if those are asked for, are finite; an error otherwise."""
        largest = float(logs.max())
        if not largest < math.inf:
            raise GdscoreError(self.overflow_message())
        if self.log:
            if not float(logs.min()) > -math.inf:
                raise GdscoreError("A gradient of 0 has no logarithm: use log=False, which gives 0")
        elif largest > math.log(np.finfo(float).max):
            raise GdscoreError(f"The norm overflows: its logarithm is {largest:.6g}; use log=True to get that instead")
        return logs

    def warning(self) -> str | None:
        """Fewer rows than one mini-batch: the norm of a shorter batch is larger."""
        if self.batch_size is not None and self.n_rows < self.batch_size:
            return (
                f"{self.n_rows} rows do not fill one mini-batch of {self.batch_size}; the number is larger than "
                "that of more rows of the same distribution would be, so compare it only with sets of as many rows"
            )
        return None

    # -- the parts ------------------------------------------------------------------------------------------

    def residuals(self, chunk: Outputs) -> tuple[gradient.Residuals, Array]:
        """Derivative of the loss by the logits of each row, and which rows are confident."""
        confident = chunk.confidence >= self.tau if self.variant == "published" else chunk.confidence > self.tau
        if self.label_rule == "uniform":
            labelled = gradient.uniform(chunk)
        elif self.loss == "smoothing":
            labelled = gradient.smoothed(chunk, self.labels(chunk, confident), self.epsilon)
        else:
            labelled = gradient.cross_entropy(chunk, self.labels(chunk, confident))
        if self.loss == "entropy":
            labelled = gradient.where_rows(confident, labelled, gradient.entropy(chunk))
        elif self.label_rule == "expected":
            labelled = gradient.where_rows(confident, labelled, gradient.uniform(chunk))
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

    def _batches(
        self, chunk: Outputs, residuals: gradient.Residuals, confident: Array, rows: slice, size: int
    ) -> Stats:
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
                weights * size * (sure / xp.clip(members, 1, None) + (1 - sure) / xp.clip(size - members, 1, None))
            )
        unit *= xp.reshape(weights, (-1, 1))
        sums = gradient.product_log_sums(chunk.features[rows], unit, self.p, size)
        norms = gradient.log_norms(sums, self.p) + (arrays.wide(peak) - math.log(size))
        weight = 1.0 if self.variant == "published" else float(size)
        total = gradient.log_sum(norms, axis=0) + math.log(weight)
        return {"log_norms": total, "weight": namespace(total).ones_like(total[0]) * (weight * count)}

    def _full_gradient(self, chunk: Outputs, residuals: gradient.Residuals, confident: Array) -> Stats:
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

    def _log_norms(self, stats: HostStats) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            if self.batch_size is not None:
                return np.asarray(stats["log_norms"] - np.log(stats["weight"]))
            groups = [k.split("_")[1] for k in stats if k.startswith("rows_")]
            # A group without rows has a scale of no meaning, and a gradient of 0.
            scale = max(float(stats[f"scale_{n}"]) for n in groups if stats[f"rows_{n}"] > 0)
            own = {n: min(float(stats[f"scale_{n}"]) - scale, 0.0) for n in groups}
            parts = [stats[f"gradient_{n}"] * np.exp(own[n]) / max(stats[f"rows_{n}"], 1) for n in groups]
            return np.asarray(gradient.log_norms(gradient.column_log_sums(sum(parts), self.p), self.p) + scale)

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
