"""Which scores look at the same thing, and are blind to the same things."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ROW_SCORES", "views_of"]

ROW_SCORES = ("atc", "selfscore", "agreescore")
"""Scores that judge rows one by one; each is read together with confidence."""


def views_of(scores: Sequence[str]) -> list[list[int]]:
    """Positions of the scores of each view: of the population, then one for every score of rows.

    Examples
    --------
    >>> views_of(["cot", "nuclear", "confscore", "atc"])
    [[0, 1, 2], [2, 3]]
    """
    names = list(scores)
    population = [i for i, name in enumerate(names) if name not in ROW_SCORES]
    beside = [i for i in population if names[i] == "confscore"]
    rows = [[*beside, i] for i, name in enumerate(names) if name in ROW_SCORES]
    return [population, *rows] if population else rows
