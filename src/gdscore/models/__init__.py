"""Torch models: `Outputs`, scores and estimates of any `nn.Module`. Needs torch, and torchmetrics for `ScoreMetric`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.models.metric import ScoreCollection, ScoreMetric

_INSTALL = "Expected torch and torchmetrics for gdscore.models, but {} is not installed: pip install torch torchmetrics"

try:
    import torch  # noqa: F401  (first: without it the others may fail in libraries that look for it)

    from gdscore.models._agreement import Agreement
    from gdscore.models._network import head_of
    from gdscore.models.check import Check, check
    from gdscore.models.estimator import estimator
    from gdscore.models.extract import extract, score_all
    from gdscore.models.predictions import from_batches
    from gdscore.models.projnorm import projnorm
    from gdscore.models.rotation import RotationHead, fit_rotation_head
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise GdscoreError(_INSTALL.format("torch")) from error

__all__ = [
    "Agreement",
    "Check",
    "RotationHead",
    "ScoreCollection",
    "ScoreMetric",
    "check",
    "estimator",
    "extract",
    "fit_rotation_head",
    "from_batches",
    "head_of",
    "projnorm",
    "score_all",
]


def __getattr__(name: str) -> Any:
    # Importing torchmetrics takes longer than all the rest, and nothing else needs it.
    if name not in ("ScoreCollection", "ScoreMetric"):
        raise AttributeError(f"module 'gdscore.models' has no attribute {name!r}")
    try:
        return getattr(import_module("gdscore.models.metric"), name)
    except ModuleNotFoundError as error:
        if error.name != "torchmetrics":
            raise
        raise GdscoreError(_INSTALL.format("torchmetrics")) from error


def __dir__() -> list[str]:
    return sorted(__all__)
