"""Scores: numbers that rise or fall with accuracy, one file per method."""

from gdscore.scores import (  # noqa: F401  (importing a method registers it)
    agreescore,
    atc,
    confscore,
    cot,
    cott,
    dispersion,
    doc,
    entropy,
    frechet,
    gdscore,
    gradnorm,
    mano,
    nuclear,
    projnorm,
    rotation,
    selfscore,
)
from gdscore.scores.base import Score
from gdscore.scores.compute import ScoreTable, score, score_all
from gdscore.scores.registry import create_score, list_scores, register_score, restore_score

__all__ = [
    "Score",
    "ScoreTable",
    "create_score",
    "list_scores",
    "register_score",
    "restore_score",
    "score",
    "score_all",
]
