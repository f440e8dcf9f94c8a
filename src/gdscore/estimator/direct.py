"""Estimates by one score alone: scores that are accuracies themselves, and the paper's straight line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gdscore._checks import boolean, choice, share
from gdscore._stream import labelled_reference, stream
from gdscore.calibration import fit_temperature
from gdscore.errors import GdscoreError
from gdscore.estimator.correctness import ShiftedSetTable
from gdscore.estimator.estimate import Estimate, EstimateWarning, quantile_of, sampling_error
from gdscore.estimator.evidence import Floats
from gdscore.outputs import Outputs, same_class_names, same_decision
from gdscore.scores.registry import create_score
from gdscore.shifts.sets import parts_of

DIRECT = ("confscore", "doc", "atc", "cot", "cott", "agreescore")
ERROR_RATES = ("cot", "agreescore")


def direct_estimate(
    name: str,
    outputs: Outputs | Iterable[Outputs],
    *,
    reference: Outputs | Iterable[Outputs],
    temperature: bool = True,
    level: float = 0.9,
) -> Estimate:
    """Accuracy by one score alone, without shifted sets.

    Parameters
    ----------
    name : str
        ``confscore``, ``doc``, ``atc``, ``cot``, ``cott`` or ``agreescore`` (needs peer logits).
    outputs : Outputs or iterable of Outputs
        Outputs of the target.
    reference : Outputs or iterable of Outputs
        Labelled outputs of the reference.
    temperature : bool, default True
        Divide the logits by the temperature fitted on the reference.
    level : float, default 0.9
        Of the interval, which holds the sampling error of the rows only: how far the score is off is unknown.

    Returns
    -------
    Estimate
        Accuracy and interval; ``scores`` has the score.

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
    level = share("level", level, most=0.999)
    temperature = boolean("temperature", temperature)
    labelled = labelled_reference(reference)
    divisor = fit_temperature(labelled) if temperature else 1.0
    score = create_score(name)
    if score.reference_inputs:
        score.fit(labelled.with_temperature(divisor))
    for part in stream(outputs, "outputs"):
        if "logits" in part.has and part.n_classes != labelled.n_classes:
            raise GdscoreError(
                f"Expected {labelled.n_classes} classes as in the reference, but the outputs have {part.n_classes}"
            )
        same_class_names(labelled.class_names, part.class_names)
        same_decision(labelled.decision, part.decision, "the reference")
        part.check_values()
        score.update(part.with_temperature(divisor))
    value = score.compute()
    accuracy = min(max(1 - value if name in ERROR_RATES else value, 0.0), 1.0)
    # Scores of a sample know no more than its rows.
    error = sampling_error(accuracy, min(score.n_rows, getattr(score, "k", score.n_rows)), level)
    message = f"the interval holds the sampling error of {score.n_rows} rows only, not the error of {name}"
    return Estimate(
        accuracy=accuracy,
        low=max(0.0, accuracy - error),
        high=min(1.0, accuracy + error),
        level=level,
        n_rows=score.n_rows,
        reference_accuracy=labelled.accuracy,
        scores={name: value},
        warnings=[EstimateWarning("sampling_only", "info", message)],
        method=f"{name}{' with temperature' if temperature else ''}",
    )


@dataclass(frozen=True)
class ScoreLine:
    """The straight line from a score to accuracy, as in the GdScore paper."""

    # Least squares over the shifted sets
    slope: float
    intercept: float
    error: float  # 90 % quantile of the absolute errors on families left out

    @classmethod
    def fit(cls, name: str, scores: Floats, table: ShiftedSetTable) -> tuple[ScoreLine, ShiftedSetTable]:
        """Fit the line, and refit it without each family."""
        parts = [parts_of(family) for family in table.families]
        predicted = np.full(len(scores), np.nan)
        for group in set(parts):
            without = np.array([not (group & other) for other in parts])
            line = _least_squares(scores[without], table.accuracy[without])
            if line is not None:
                in_group = np.array([other == group for other in parts])
                predicted[in_group] = np.clip(line[1] + line[0] * scores[in_group], 0, 1)
        line = _least_squares(scores, table.accuracy)
        if line is None or np.isnan(predicted).all():
            raise GdscoreError(
                f"Expected shifted sets of at least two families with different values of {name!r} to fit a line to, "
                "but there are none: give `shifted_sets`, or use the default method"
            )
        error = float(np.nanquantile(np.abs(predicted - table.accuracy), 0.9))
        return cls(*line, error), replace(table, predicted=predicted)

    def accuracy(self, score: float) -> float:
        """Accuracy at a value of the score."""
        return min(max(self.intercept + self.slope * score, 0.0), 1.0)

    def half_width(self, accuracy: float, rows: int, level: float) -> float:
        """Half-width of the interval."""
        return math.hypot(self.error * quantile_of(level) / quantile_of(0.9), sampling_error(accuracy, rows, level))


def _least_squares(x: Floats, y: Floats) -> tuple[float, float] | None:
    """Slope and intercept; None where x does not differ, or differs too much to compute with."""
    if len(x) < 2:
        return None
    with np.errstate(all="ignore"):
        centred = x - x.mean()
        slope = centred @ (y - y.mean()) / (centred @ centred)
        intercept = y.mean() - slope * x.mean()
    return (float(slope), float(intercept)) if np.isfinite([slope, intercept]).all() else None
