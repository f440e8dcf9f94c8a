"""How far confidence is from accuracy, and the one temperature that brings it closest.

Requirements met here:

- labelled outputs of any array library, one or a stream of them, are read in chunks of rows;
- the calibration error of a stream needs the memory of its bins alone;
- the estimator's histograms have the same bins, by `confidence_bins`;
- where the data do not determine a temperature, `find_temperature` returns so and `fit_temperature` warns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import integer
from gdscore._stream import stream
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs

__all__ = [
    "Reliability",
    "Temperature",
    "calibration_error",
    "confidence_bins",
    "find_temperature",
    "fit_temperature",
    "reliability",
]

_CHUNK = 4096
_EDGE = 4 * float(np.finfo(np.float32).eps)
_COLDEST, _HOTTEST = 0.01, 100.0
"""Bounds of temperatures for logits of ordinary size; the colder one of smaller, the hotter one of larger logits moves
with their size."""
_LEAST, _MOST = 1e-30, 1e30
_FARTHEST = 1e300
"""How far below the largest logit one counts: sums of more than that would overflow."""


class Reliability(NamedTuple):
    """Rows by confidence: one entry for each bin, the means NaN where the bin is empty."""

    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]


def reliability(outputs: Outputs | Iterable[Outputs], *, bins: int = 15) -> Reliability:
    """Mean confidence and accuracy of the rows in equal bins of confidence.

    Bin b of B holds the rows of confidence in (b/B, (b+1)/B].

    Parameters
    ----------
    outputs : Outputs or iterable of Outputs
        With ``logits`` or ``probabilities``, and with ``labels``. A stream is read once, in constant memory.
    bins : int
        Number of bins B.

    Returns
    -------
    Reliability
        ``counts``, ``confidence`` and ``accuracy``, arrays of length B.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(probabilities=np.array([0.9, 0.8, 0.3, 0.6]), labels=np.array([1, 0, 0, 1]))
    >>> r = gdscore.reliability(out, bins=4)
    >>> r.counts.tolist(), r.confidence.round(2).tolist(), r.accuracy.round(2).tolist()
    ([0, 0, 2, 2], [nan, nan, 0.65, 0.85], [nan, nan, 1.0, 0.5])
    """
    bins = integer("bins", bins, least=1)
    totals = np.zeros((3, bins))
    for chunk in _chunks(_labelled(outputs)):
        c = arrays.to_numpy(arrays.wide(chunk.confidence))
        level, columns = confidence_bins(c, bins), (np.ones_like(c), c, arrays.to_numpy(chunk.correct))
        totals += np.stack([np.bincount(level, weights=column, minlength=bins) for column in columns])
    counts, confidence, correct = totals
    rows = np.where(counts > 0, counts, np.nan)
    return Reliability(counts.astype(np.int64), confidence / rows, correct / rows)


def confidence_bins(confidence: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Number of the bin (b/B, (b+1)/B] that each confidence lies in; 0 lies in the first.

    What float32 rounds to an edge is at the edge: a confidence of 0.85 is in the same bin in every precision.

    Examples
    --------
    >>> confidence_bins(np.array([0.0, 0.5, 0.51, 1.0]), 4).tolist()
    [0, 1, 2, 3]
    """
    edges = np.linspace(0.0, 1.0, bins + 1)
    return np.searchsorted(edges[1:-1], confidence * (1 - _EDGE), side="left")


def calibration_error(outputs: Outputs | Iterable[Outputs], *, bins: int = 15) -> float:
    r"""Compute the expected calibration error, Σ_b n_b/n · \|accuracy_b − confidence_b\|.

    Bins are those of `reliability`: of equal width, each with its upper edge. 0 is perfect.

    Parameters
    ----------
    outputs, bins
        As in `reliability`.

    Returns
    -------
    float
        Between 0 and 1.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(probabilities=np.array([0.9, 0.8, 0.3, 0.6]), labels=np.array([1, 0, 0, 1]))
    >>> round(gdscore.calibration_error(out, bins=4), 6)  # 2/4 · |1 − 0.65| + 2/4 · |0.5 − 0.85|
    0.35
    """
    counts, confidence, accuracy = reliability(outputs, bins=bins)
    apart = np.abs(np.nan_to_num(counts * accuracy) - np.nan_to_num(counts * confidence))
    return float(apart.sum() / counts.sum())


class Temperature(NamedTuple):
    """A fitted temperature, and whether the data determine it.

    Attributes
    ----------
    value : float
        T; where it is not determined, 0.01 or 100, whichever the likelihood rises towards.
    determined : bool
        False where all predictions are right (0.01), and where the logits contradict the labels (100).
    rows : int
        Labelled rows it was fitted on.
    """

    value: float
    determined: bool
    rows: int


def find_temperature(reference: Outputs | Iterable[Outputs]) -> Temperature:
    r"""Temperature T that minimises the negative log-likelihood −Σ ln softmax(z/T)_y of labelled outputs.

    The likelihood is concave in 1/T, so its slope has one zero. T is sought to a relative 1e-9 between 0.01 and 100, or
    farther out by a factor s where logits are s times smaller or larger than 1, so that logits may have any scale.
    ``outputs.with_temperature(T.value)`` applies it. It gives no warning; see ``determined``.

    Parameters
    ----------
    reference : Outputs or iterable of Outputs
        With ``logits`` or ``probabilities``, and with ``labels``. It is read several times: of a stream, logits and
        labels are kept in memory.

    Returns
    -------
    Temperature
        1.0 where all classes have equal logits in every row, as any temperature does then.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> gdscore.find_temperature(gdscore.Outputs(logits=np.array([[4.0, 0.0]]), labels=np.array([0])))
    Temperature(value=0.01, determined=False, rows=1)
    """
    if isinstance(reference, Outputs):
        parts = list(_labelled(reference))
    else:  # copied as they come, as a loader may fill the same buffers again
        parts = [part.only({"logits", "labels"}).working_copy() for part in _labelled(reference)]
    rows = sum(map(len, parts))
    size = _size(parts)
    if not size:
        return Temperature(1.0, True, rows)
    slope = cache(partial(_slope, parts))
    low, high = _COLDEST, _HOTTEST
    if slope(-math.log(low)) <= 0:
        low, high = max(_COLDEST * min(size, 1.0), _LEAST), low
    elif slope(-math.log(high)) >= 0:
        low, high = high, min(_HOTTEST * max(size, 1.0), _MOST)
    for bound, outer, sign in ((_COLDEST, low, 1.0), (_HOTTEST, high, -1.0)):
        if sign * slope(-math.log(outer)) <= 0:
            return Temperature(bound, False, rows)
    from scipy.optimize import brentq

    value = math.exp(-brentq(slope, -math.log(high), -math.log(low), xtol=1e-10))
    return Temperature(value, True, rows)


def fit_temperature(reference: Outputs | Iterable[Outputs]) -> float:
    r"""Temperature of `find_temperature` as a number, with a warning where the data do not determine it.

    That is 0.01 or 100 then, whichever the likelihood rises towards.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    Of three equal rows two are right, so that the confidence should be 2/3, and the logit ln 2 instead of 2.

    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=np.array([[2.0, 0.0]] * 3), labels=np.array([0, 0, 1]))
    >>> T = gdscore.fit_temperature(out)
    >>> round(T, 4), out.with_temperature(T).confidence.round(4).tolist()
    (2.8854, [0.6667, 0.6667, 0.6667])
    """
    temperature = find_temperature(reference)
    if not temperature.determined:
        warnings.warn(
            f"The temperature is not determined by the {temperature.rows} labelled rows: the likelihood still rises at "
            f"the bound {temperature.value}, which is returned; give more rows",
            GdscoreWarning,
            stacklevel=2,
        )
    return temperature.value


def _labelled(outputs: Outputs | Iterable[Outputs]) -> Iterator[Outputs]:
    for part in stream(outputs, "outputs"):
        if not part.has >= {"logits", "labels"}:
            raise GdscoreError(
                f"Expected outputs with `logits` or `probabilities` and with `labels`, "
                f"but these hold only {', '.join(part.arrays)}"
            )
        part.check_values()
        yield part


def _chunks(parts: Iterable[Outputs]) -> Iterator[Outputs]:
    for part in parts:
        for start in range(0, len(part), _CHUNK):
            yield part[start : start + _CHUNK]


def _centred(chunk: Outputs) -> Array:
    z = arrays.wide(chunk.logits)
    with np.errstate(over="ignore"):
        # Far below the top a class weighs nothing, but 0 · ∞ is not 0.
        return namespace(z).clip(z - namespace(z).max(z, axis=1)[:, None], -_FARTHEST, None)


def _size(parts: list[Outputs]) -> float:
    """Size of the logits: the median over rows of their mean distance to the largest; 0 where all are equal."""
    sizes = [arrays.to_numpy(namespace(z).mean(-z, axis=1)) for z in map(_centred, _chunks(parts))]
    joined = np.concatenate(sizes)
    return float(np.median(joined[joined > 0])) if (joined > 0).any() else 0.0


def _slope(parts: list[Outputs], log_beta: float) -> float:
    """Differentiate the negative log-likelihood by β = 1/T: Σ (mean of z under softmax(βz) − z_y)."""
    beta, total = math.exp(log_beta), 0.0
    for chunk in _chunks(parts):
        z = _centred(chunk)
        xp = namespace(z)
        with np.errstate(under="ignore", over="ignore"):
            weight = xp.exp(beta * z)
            mean = xp.sum(weight * z, axis=1) / xp.sum(weight, axis=1)
            total += float(xp.sum(mean - arrays.pick(z, arrays.like(chunk.labels, z))))
    return total
