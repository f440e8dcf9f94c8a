"""Shifted sets drawn from the reference itself: other mixes of classes, clusters, confidences and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.shifts.families import RESAMPLED
from gdscore.shifts.sets import ShiftedSet

__all__ = ["resampled"]

_KINDS = ("class", "cluster", "confidence", "correctness", "none")


def resampled(
    reference: Outputs, count: int = 100, *, rows: int | None = None, seed: int = 0, kinds: tuple[str, ...] = _KINDS
) -> Iterator[ShiftedSet]:
    """Shifted sets of rows drawn from the reference with replacement, by weights that change its make-up.

    Parameters
    ----------
    reference : Outputs
        Labelled validation outputs.
    count : int
        Number of shifted sets; the kinds take turns.
    rows : int, optional
        Rows of each; by default as many as the reference has.
    seed : int
        Of the draws.
    kinds : tuple of str
        ``class``: a Dirichlet mix of true classes; ``cluster``: of clusters of the features (of the probabilities where
        there are none); ``confidence``: rows favoured by how confident they are, or are not; ``correctness``: up to
        10 points more or fewer errors, which no score can see; ``none``: the reference itself. Each is a family.

    Yields
    ------
    ShiftedSet

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> ref = gdscore.Outputs(logits=rng.normal(size=(200, 4)), labels=rng.integers(0, 4, 200))
    >>> [s.family for s in gdscore.shifts.resampled(ref, 3)]
    ['resampled-class', 'resampled-cluster', 'resampled-confidence']
    """
    size = len(reference) if rows is None else integer("rows", rows, least=1)
    rng = np.random.default_rng(seed)
    weighting = _Weighting(reference, seed)
    for index in range(integer("count", count, least=0)):
        kind = kinds[index % len(kinds)]
        if kind not in _KINDS:
            raise GdscoreError(f"Unknown kind {kind!r} of resampling: valid are {', '.join(map(repr, _KINDS))}")
        weights = getattr(weighting, f"by_{kind}")(rng)
        chosen = rng.choice(len(reference), size=size, p=weights / weights.sum())
        yield ShiftedSet(reference[np.sort(chosen)], f"{RESAMPLED}{kind}")


class _Weighting:
    """Weights of the rows of a reference for each kind of resampling."""

    def __init__(self, reference: Outputs, seed: int) -> None:
        self._labels = arrays.to_numpy(reference.labels)
        self._correct = arrays.to_numpy(reference.correct)
        self._rank = np.argsort(np.argsort(arrays.to_numpy(reference.confidence))) / max(1, len(reference) - 1)
        self._reference, self._seed = reference, seed
        self._groups: NDArray[Any] | None = None

    def by_class(self, rng: np.random.Generator) -> NDArray[Any]:
        return _mixed(self._labels, rng)

    def by_cluster(self, rng: np.random.Generator) -> NDArray[Any]:
        if self._groups is None:
            self._groups = self._clusters()
        return _mixed(self._groups, rng)

    def by_confidence(self, rng: np.random.Generator) -> NDArray[Any]:
        return np.asarray(np.exp(rng.uniform(-5, 3) * self._rank))

    def by_correctness(self, rng: np.random.Generator) -> NDArray[Any]:
        wrong = int((~self._correct).sum())
        if wrong in (0, len(self._correct)):
            return np.ones(len(self._correct))
        share = np.clip(self._correct.mean() + rng.uniform(-0.1, 0.1), 0.01, 0.99)
        return np.asarray(np.where(self._correct, share / (len(self._correct) - wrong), (1 - share) / wrong))

    def by_none(self, rng: np.random.Generator) -> NDArray[Any]:
        return np.ones(len(self._labels))

    def _clusters(self) -> NDArray[Any]:
        from sklearn.cluster import MiniBatchKMeans

        rows = self._reference
        x = arrays.to_numpy(rows.features if "features" in rows.has else rows.probabilities).astype(np.float64)
        number = int(np.clip(len(x) // 20, 1, 20))
        return np.asarray(MiniBatchKMeans(number, random_state=self._seed % 2**32, n_init=3).fit_predict(x))


def _mixed(groups: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Weights that give every group a share drawn from a Dirichlet distribution, flat or peaked."""
    present, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    shares = rng.dirichlet(np.full(len(present), np.exp(rng.uniform(np.log(0.1), np.log(3.0)))))
    return np.asarray((shares / counts)[index] + 1e-12)
