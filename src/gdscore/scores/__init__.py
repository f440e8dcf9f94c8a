"""Scores: numbers that rise or fall with accuracy, one file per method."""

import importlib
import pkgutil

from gdscore.scores.base import MeanScore, Score
from gdscore.scores.registry import (
    ScoreTable,
    create_score,
    list_scores,
    register_score,
    restore_score,
    score,
    score_all,
)

__all__ = [
    "MeanScore",
    "Score",
    "ScoreTable",
    "create_score",
    "list_scores",
    "register_score",
    "restore_score",
    "score",
    "score_all",
]

# Importing a method registers it.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
