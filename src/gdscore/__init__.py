"""How accurate is a classifier on data without labels?

>>> import gdscore
>>> "gdscore" in gdscore.list_scores(available=["logits", "features"])
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs
from gdscore.scores import (
    MeanScore,
    Score,
    ScoreTable,
    create_score,
    list_scores,
    register_score,
    restore_score,
    score,
    score_all,
)

if TYPE_CHECKING:
    from gdscore import (
        distributed,
        estimator,
        functional,
        io,
        labeling,
        models,
        report,
        scores,
        shifts,
        tracking,
    )
    from gdscore._windows import window_starts
    from gdscore.calibration import calibration_error, find_temperature, fit_temperature, reliability
    from gdscore.estimator import AccuracyEstimator, ClassEstimate, Estimate, EstimateWarning, direct_estimate
    from gdscore.frames import from_frame, to_frame
    from gdscore.models import from_batches
    from gdscore.shifts import ShiftedSet
    from gdscore.sklearn import from_sklearn, sklearn_head
    from gdscore.tracking import AccuracyTracker

__version__ = "1.0.0rc1"

_LAZY = {
    "gdscore._windows": ("window_starts",),
    "gdscore.calibration": ("calibration_error", "find_temperature", "fit_temperature", "reliability"),
    "gdscore.estimator": ("AccuracyEstimator", "ClassEstimate", "Estimate", "EstimateWarning", "direct_estimate"),
    "gdscore.frames": ("from_frame", "to_frame"),
    "gdscore.models": ("from_batches",),
    "gdscore.shifts": ("ShiftedSet",),
    "gdscore.sklearn": ("from_sklearn", "sklearn_head"),
    "gdscore.tracking": ("AccuracyTracker",),
}
_MODULES = (
    *("distributed", "estimator", "functional", "io", "labeling"),
    *("models", "report", "scores", "shifts", "tracking"),
)

__all__ = [
    "AccuracyEstimator",
    "AccuracyTracker",
    "ClassEstimate",
    "Estimate",
    "EstimateWarning",
    "GdscoreError",
    "GdscoreWarning",
    "MeanScore",
    "Outputs",
    "Score",
    "ScoreTable",
    "ShiftedSet",
    "__version__",
    "calibration_error",
    "create_score",
    "direct_estimate",
    "distributed",
    "estimator",
    "find_temperature",
    "fit_temperature",
    "from_batches",
    "from_frame",
    "from_sklearn",
    "functional",
    "io",
    "labeling",
    "list_scores",
    "models",
    "register_score",
    "reliability",
    "report",
    "restore_score",
    "score",
    "score_all",
    "scores",
    "shifts",
    "sklearn_head",
    "to_frame",
    "tracking",
    "window_starts",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gdscore.{name}")
    for module, names in _LAZY.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'gdscore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
