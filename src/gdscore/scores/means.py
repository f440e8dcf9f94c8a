"""Scores that are the mean of one number per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore.outputs import Outputs
from gdscore.scores.base import HostStats, Score, Stats

__all__ = ["MeanScore", "mean_stats"]


class MeanScore(Score):
    """Mean over the rows of `row_values`."""

    def row_values(self, chunk: Outputs) -> Array:
        """One number, or truth value, for each row: shape (m,)."""
        raise NotImplementedError

    def measure(self, chunk: Outputs) -> Stats:
        """Sum of the row values and number of rows."""
        return mean_stats(self.row_values(chunk))

    def stat_axes(self) -> Sequence[Mapping[str, str]]:
        """Two numbers."""
        return [{"total": "", "rows": ""}]

    def result(self, stats: HostStats) -> float:
        """Mean row value."""
        return float(stats["total"] / stats["rows"])


def mean_stats(values: Array) -> Stats:
    """Sum and number of the rows of a vector, in float64."""
    xp = namespace(values)
    if xp.isdtype(values.dtype, "bool"):
        values = xp.astype(values, xp.float32)
    total = arrays.wide(xp.sum(arrays.wide(values)))
    return {"total": total, "rows": namespace(total).zeros_like(total) + values.shape[0]}
