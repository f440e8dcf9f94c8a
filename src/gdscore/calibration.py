"""How far confidence is from accuracy, and the one temperature that brings it closest.

Requirements met here:

- labelled outputs of any array library, whole or as a stream, are read in chunks of rows;
- the calibration error of a stream needs the memory of its bins alone;
- what is returned where the data do not determine a temperature is said in a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs

__all__ = ["Reliability", "calibration_error", "fit_temperature", "reliability"]

_CHUNK = 4096
_COLDEST, _HOTTEST = 0.01, 100.0


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
    >>> import numpy as np
    >>> from gdscore.calibration import reliability
    >>> from gdscore.outputs import Outputs
    >>> out = Outputs(probabilities=np.array([0.9, 0.8, 0.3, 0.6]), labels=np.array([1, 0, 0, 1]))
    >>> r = reliability(out, bins=4)
    >>> r.counts.tolist(), r.confidence.round(2).tolist(), r.accuracy.round(2).tolist()
    ([0, 0, 2, 2], [nan, nan, 0.65, 0.85], [nan, nan, 1.0, 0.5])
    """
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise GdscoreError(f"Expected `bins` to be an integer of at least 1, but got {bins!r}")
    edges = np.linspace(0.0, 1.0, int(bins) + 1)
    counts = np.zeros(bins, dtype=np.int64)
    confidence, correct = np.zeros(bins), np.zeros(bins)
    for chunk in _chunks(_labelled(outputs)):
        c = arrays.to_numpy(chunk.confidence).astype(np.float64)
        bin_of = np.searchsorted(edges[1:-1], c, side="left")
        counts += np.bincount(bin_of, minlength=bins)
        confidence += np.bincount(bin_of, weights=c, minlength=bins)
        correct += np.bincount(bin_of, weights=arrays.to_numpy(chunk.correct), minlength=bins)
    rows = np.where(counts > 0, counts, np.nan)
    return Reliability(counts, confidence / rows, correct / rows)


def calibration_error(outputs: Outputs | Iterable[Outputs], *, bins: int = 15) -> float:
    r"""Compute the expected calibration error, Σ_b n_b/n · \|accuracy_b − confidence_b\|.

    Bins are those of `reliability`: of equal width, each with its upper edge. 0 is perfect.

    Parameters
    ----------
    outputs : Outputs or iterable of Outputs
        With ``logits`` or ``probabilities``, and with ``labels``. A stream is read once, in constant memory.
    bins : int
        Number of bins.

    Returns
    -------
    float
        Between 0 and 1.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore.calibration import calibration_error
    >>> from gdscore.outputs import Outputs
    >>> out = Outputs(probabilities=np.array([0.9, 0.8, 0.3, 0.6]), labels=np.array([1, 0, 0, 1]))
    >>> round(calibration_error(out, bins=4), 6)  # 2/4 · |1 − 0.65| + 2/4 · |0.5 − 0.85|
    0.35
    """
    counts, confidence, accuracy = reliability(outputs, bins=bins)
    return float(np.nansum(counts * np.abs(accuracy - confidence)) / counts.sum())


def fit_temperature(reference: Outputs | Iterable[Outputs]) -> float:
    r"""Temperature T that minimises the negative log-likelihood −Σ ln softmax(z/T)_y of labelled outputs.

    The likelihood is concave in 1/T, so its slope has one zero; T is sought between 0.01 and 100 to a relative
    1e-9. ``outputs.with_temperature(T)`` applies it.

    Parameters
    ----------
    reference : Outputs or iterable of Outputs
        With ``logits`` or ``probabilities``, and with ``labels``. It is read several times: of a stream, logits and
        labels are kept in memory.

    Returns
    -------
    float
        1.0 where all classes have equal logits in every row, as any temperature does then.

    Warns
    -----
    GdscoreWarning
        Where the likelihood still rises at a bound, which is returned: at 0.01 where all predictions are right, at
        100 where the logits speak against the labels or are very large.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.

    Examples
    --------
    Of three equal rows two are right, so that the confidence should be 2/3, and the logit ln 2 instead of 2.

    >>> import numpy as np
    >>> from gdscore.calibration import fit_temperature
    >>> from gdscore.outputs import Outputs
    >>> out = Outputs(logits=np.array([[2.0, 0.0]] * 3), labels=np.array([0, 0, 1]))
    >>> T = fit_temperature(out)
    >>> round(T, 4), out.with_temperature(T).confidence.round(4).tolist()
    (2.8854, [0.6667, 0.6667, 0.6667])
    """
    if isinstance(reference, Outputs):
        parts = list(_labelled(reference))
    else:  # copied as they come, as a loader may fill the same buffers again
        parts = [Outputs(logits=part.logits, labels=part.labels).held() for part in _labelled(reference)]
    if all(not _spread(chunk) for chunk in _chunks(parts)):
        return 1.0
    slope = cache(partial(_slope, parts))
    for bound, sign in ((_COLDEST, 1.0), (_HOTTEST, -1.0)):
        if sign * slope(-math.log(bound)) <= 0:
            warnings.warn(
                f"The temperature is not determined by the {sum(map(len, parts))} labelled rows: the likelihood still "
                f"rises at the bound {bound}, which is returned; give more rows",
                GdscoreWarning,
                stacklevel=2,
            )
            return bound
    from scipy.optimize import brentq

    return math.exp(-brentq(slope, -math.log(_HOTTEST), -math.log(_COLDEST), xtol=1e-10))


def _labelled(outputs: Outputs | Iterable[Outputs]) -> Iterator[Outputs]:
    if not isinstance(outputs, Iterable | Outputs):
        raise GdscoreError(f"Expected `Outputs` or an iterable of them, but got {type(outputs).__name__}")
    empty = True
    for part in [outputs] if isinstance(outputs, Outputs) else outputs:
        if not isinstance(part, Outputs):
            raise GdscoreError(f"Expected `Outputs` or an iterable of them, but got one of {type(part).__name__}")
        if not part.has >= {"logits", "labels"}:
            raise GdscoreError(
                f"Expected outputs with `logits` or `probabilities` and with `labels`, "
                f"but these hold only {', '.join(part.arrays)}"
            )
        if part.sound is not None and not bool(part.sound):
            Outputs(**part.to_numpy().arrays)  # refuses them by row
        empty = False
        yield part
    if empty:
        raise GdscoreError("Expected at least one `Outputs`, but the iterable is empty")


def _chunks(parts: Iterable[Outputs]) -> Iterator[Outputs]:
    for part in parts:
        for start in range(0, len(part), _CHUNK):
            yield part[start : start + _CHUNK]


def _centred(chunk: Outputs) -> Any:
    z = arrays.wide(chunk.logits)
    return z - arrays.namespace(z).max(z, axis=1)[:, None]


def _spread(chunk: Outputs) -> bool:
    return bool(arrays.namespace(z := _centred(chunk)).any(z < 0))


def _slope(parts: list[Outputs], log_beta: float) -> float:
    """Differentiate the negative log-likelihood by β = 1/T: Σ (mean of z under softmax(βz) − z_y)."""
    beta, total = math.exp(log_beta), 0.0
    for chunk in _chunks(parts):
        z = _centred(chunk)
        xp = arrays.namespace(z)
        weight = xp.exp(beta * z)
        mean = xp.sum(weight * z, axis=1) / xp.sum(weight, axis=1)
        total += float(xp.sum(mean - arrays.pick(z, arrays.like(chunk.labels, z))))
    return total
