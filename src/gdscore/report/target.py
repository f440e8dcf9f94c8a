"""`Target`: an estimate with the name a report shows it under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeAlias

from gdscore.errors import GdscoreError
from gdscore.estimator import Estimate
from gdscore.scores import ScoreTable

__all__ = ["Target", "Targets", "as_targets", "in_order"]


@dataclass(frozen=True)
class Target:
    """One set of unlabelled rows and what was estimated of it.

    Attributes
    ----------
    name : str
        What the reader calls it: a file, a day, a hospital.
    estimate : Estimate
        From `AccuracyEstimator.estimate`.
    scores : ScoreTable, optional
        More scores of the same rows, from `gdscore.score_all`, to be listed beside those of the estimate.
    when : datetime, optional
        When the rows were collected. Where all targets say so, they are shown as a time series.

    Examples
    --------
    >>> from gdscore import Estimate
    >>> Target("may.parquet", Estimate(0.8, 0.7, 0.9, level=0.9, n=500, reference_accuracy=0.95)).estimate.accuracy
    0.8
    """

    name: str
    estimate: Estimate
    scores: ScoreTable | None = None
    when: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.estimate, Estimate):
            raise GdscoreError(
                f"Expected `estimate` to be a `gdscore.Estimate`, but got {type(self.estimate).__name__}"
            )


Targets: TypeAlias = Estimate | Target | Sequence[Target]


def as_targets(given: Targets) -> list[Target]:
    """List of targets, whichever way they were given."""
    if isinstance(given, Estimate):
        return [Target("target", given)]
    return [given] if isinstance(given, Target) else list(given)


def in_order(targets: Sequence[Target]) -> tuple[list[Target], bool]:
    """Targets by time, and True, where there are several that all have one; otherwise as they are."""
    if len(targets) < 2 or any(t.when is None for t in targets):
        return list(targets), False
    return sorted(targets, key=moment), True


def moment(target: Target) -> datetime:
    """Time of a target in UTC; one without a time zone is taken for UTC, so that all can be compared."""
    if target.when is None:
        raise GdscoreError(f"Expected {target.name!r} to say when it was collected: give `when` to its `Target`")
    if target.when.tzinfo is None:
        return target.when.replace(tzinfo=timezone.utc)
    return target.when.astimezone(timezone.utc)
