"""Scores on a bottom-k sample: the k rows of smallest hash, with how often each occurred.

The sample depends on the set of rows alone, not on their order, batching or sharding, and samples of parts merge to
the sample of all rows. Equal rows have equal hashes: one of them is kept, with their count, so that a model with few
distinct outputs (a tree, say) is represented exactly however many rows there are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import namespace
from gdscore._hashing import key_as_uint64, row_key, value_words
from gdscore.outputs import ARGMAX, Outputs
from gdscore.scores.base import Score, Stats


def sample_of(chunk: Outputs) -> Stats:
    """All rows of a chunk as a sample: the row's hash, that of its content, a count of one, the probabilities.

    Where rows were not decided by the largest logit, the decided classes are part of the content.
    """
    high, low = chunk.row_keys()
    # Rows are equal only if their probabilities are; equal ids, or equal float32 bits of float64 logits, do not tell.
    apart = "ids" in chunk.arrays or str(chunk.probabilities.dtype).endswith("float64")
    decided: Stats = {}
    if chunk.decision != ARGMAX:
        xp = namespace(chunk.logits)
        decided = {"decided": xp.astype(chunk.predictions, xp.int32)}
        words = xp.concat([value_words(chunk.probabilities), decided["decided"][:, None]], axis=1)
        content = row_key(words)
    else:
        content = row_key(value_words(chunk.probabilities)) if apart else (high, low)
    return {
        "high": high,
        "low": low,
        "content_high": content[0],
        "content_low": content[1],
        "counts": high * 0 + 1,
        "rows": chunk.probabilities,
        **decided,
    }


def bottom_k(samples: list[Stats], k: float) -> Stats:
    """Sample of the union: distinct rows in the order of their hash, the first k of them."""
    last = samples[-1]
    parts = {n: arrays.concatenate([arrays.like(s[n], last[n]) for s in samples]) for n in last}
    keys = key_as_uint64((parts["high"], parts["low"]))
    contents = key_as_uint64((parts["content_high"], parts["content_low"]))
    order = np.lexsort((contents, keys))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (keys[order][1:] != keys[order][:-1]) | (contents[order][1:] != contents[order][:-1])
    counts = np.add.reduceat(arrays.to_numpy(parts["counts"])[order].astype(np.int64), np.flatnonzero(new))
    size = int(min(k, len(counts)))
    kept = arrays.like(order[new][:size], parts["rows"])
    picked = {n: parts[n][kept] for n in last if n != "counts"}
    return {**picked, "counts": arrays.like(counts[:size], parts["rows"])}


class SampleScore(Score):
    """Score computed from a bottom-k sample of the rows' probabilities, exact while k rows or fewer are distinct."""

    k: int
    sample_limit: float

    def reset(self) -> Score:
        """Forget all rows; options and fit stay."""
        self._waiting: list[Stats] = []
        return super().reset()

    @property
    def sampling_error(self) -> float:
        """Half-width of a 95 % bound on what the sample can be off by: 0 while exact, else √(ln 40 / 2k).

        One row in k moves a mean transport cost in [0, 1] by at most 1/k: McDiarmid's inequality.
        """
        kept = int(self.statistics()["counts"].sum()) if self.n_rows else 0
        return 0.0 if kept == self.n_rows else math.sqrt(math.log(40) / (2 * self.k))

    def measure(self, chunk: Outputs) -> Stats:
        """All rows of the chunk."""
        return sample_of(chunk)

    def _add(self, more: Stats) -> None:
        # Sorting waits until there is as much to sort as the sample holds: its cost per row is then constant.
        self._waiting.append(more)
        if sum(len(s["counts"]) for s in self._waiting) >= self.k:
            self._gather()

    def _gather(self) -> None:
        if self._waiting:
            self._stats = bottom_k(self._samples(), self.sample_limit)
            self._waiting = []

    def _samples(self) -> list[Stats]:
        return ([] if self._stats is None else [self._stats]) + self._waiting

    def merge(self, other: Score) -> Score:
        """Take in another state."""
        if isinstance(other, SampleScore):
            other._gather()
        return super().merge(other)

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and learned."""
        self._gather()
        return super().state_dict()

    def _with_kept_rows(self, stats: Stats | None) -> Stats:
        rest = self._pending.rest()
        return bottom_k(self._samples() + ([] if rest is None else [self._measured(rest)]), self.sample_limit)
