"""Scores that are accuracies or error rates themselves, as estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from gdscore._options import choice, number
from gdscore._stream import stream
from gdscore.calibration import fit_temperature
from gdscore.errors import GdscoreError
from gdscore.estimator.estimate import Estimate
from gdscore.outputs import Outputs
from gdscore.scores.registry import create_score

__all__ = ["DIRECT", "direct_estimate", "sampling_error"]

DIRECT = ("confscore", "doc", "atc", "cot", "cott", "agreescore")
ERROR_RATES = ("cot", "agreescore")


def direct_estimate(
    name: str,
    outputs: Outputs | Iterable[Outputs],
    *,
    reference: Outputs,
    temperature: bool = True,
    level: float = 0.9,
) -> Estimate:
    """Accuracy by one score alone, without calibration on shifted sets.

    Parameters
    ----------
    name : str
        ``confscore``, ``doc``, ``atc``, ``cot``, ``cott`` or ``agreescore`` (needs peer logits).
    outputs : Outputs or iterable of Outputs
        What the classifier said about the unlabelled rows.
    reference : Outputs
        Labelled validation outputs.
    temperature : bool
        Divide the logits by the temperature fitted on the reference.
    level : float
        Of the interval, which holds the sampling error of the rows only: how far the method itself is off is unknown.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(3000, 5)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    >>> val = gdscore.Outputs(logits=z[:1500], labels=labels[:1500])
    >>> e = gdscore.direct_estimate("atc", gdscore.Outputs(logits=z[1500:]), reference=val)
    >>> bool(abs(e.accuracy - (z[1500:].argmax(1) == labels[1500:]).mean()) < 0.05)
    True
    """
    choice("name", name, DIRECT)
    level = number("level", level, above=0, most=1)
    if not isinstance(reference, Outputs) or "labels" not in reference.has:
        raise GdscoreError("Expected `reference` to be labelled `gdscore.Outputs`, but it has no labels")
    divisor = fit_temperature(reference) if temperature else 1.0
    score = create_score(name)
    if score.reference_inputs:
        score.fit(reference.with_temperature(divisor))
    for part in stream(outputs, "outputs"):
        score.update(part.with_temperature(divisor))
    value = score.finish(score.statistics())
    accuracy = min(max(1 - value if name in ERROR_RATES else value, 0.0), 1.0)
    # Scores of a sample know no more than its rows.
    error = sampling_error(accuracy, min(score.n_rows, getattr(score, "k", score.n_rows)), level)
    return Estimate(
        accuracy=accuracy,
        low=max(0.0, accuracy - error),
        high=min(1.0, accuracy + error),
        level=level,
        n=score.n_rows,
        reference_accuracy=reference.accuracy,
        scores={name: value},
        warnings=[f"the interval holds the sampling error of {score.n_rows} rows only, not the error of {name} itself"],
        method=f"{name}{' with temperature' if temperature else ''}",
    )


def sampling_error(accuracy: float, rows: int, level: float) -> float:
    """Half-width of a normal interval for a share observed on so many rows; never 0, as no share is certain."""
    share = (accuracy * rows + 1) / (rows + 2)
    z = NormalDist().inv_cdf(0.5 + min(level, 1 - 1e-9) / 2)
    return z * math.sqrt(share * (1 - share) / rows)
