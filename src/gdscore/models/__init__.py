"""Torch models: `Outputs`, scores and estimates of any `nn.Module`. Needs torch and torchmetrics."""

from gdscore.errors import GdscoreError

try:
    from gdscore.models._network import head_of
    from gdscore.models.estimator import estimator
    from gdscore.models.extract import extract, score_all
    from gdscore.models.metric import ContiguousShard, ScoreMetric
    from gdscore.models.predictions import outputs_of
    from gdscore.models.projnorm import projnorm
    from gdscore.models.rotation import RotationHead, fit_rotation_head
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torchmetrics"):
        raise
    raise GdscoreError(
        "Expected torch and torchmetrics for gdscore.models, but they are not installed: pip install torch torchmetrics"
    ) from error

__all__ = [
    "ContiguousShard",
    "RotationHead",
    "ScoreMetric",
    "estimator",
    "extract",
    "fit_rotation_head",
    "head_of",
    "outputs_of",
    "projnorm",
    "score_all",
]
