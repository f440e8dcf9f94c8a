"""Torch models: `Outputs` and scores of any `nn.Module`, at the cost of plain inference. Needs the extra ``torch``."""

from gdscore.errors import GdscoreError

try:
    from gdscore.models.adapted import adapted_copy
    from gdscore.models.batches import call, logits_of, split_batch, to_device
    from gdscore.models.epochs import finetuned_scores
    from gdscore.models.estimating import estimator
    from gdscore.models.extract import extract
    from gdscore.models.layers import gradient_scores
    from gdscore.models.metrics import ScoreMetric
    from gdscore.models.network import head_of
    from gdscore.models.projnorm import projnorm
    from gdscore.models.rotation import RotationHead, fit_rotation_head, joint_rotation_loss
    from gdscore.models.sampler import ContiguousShard
    from gdscore.models.scoring import score
    from gdscore.models.untouched import untouched
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torchmetrics"):
        raise
    raise GdscoreError(
        'Expected torch and torchmetrics for gdscore.models, but they are not installed: pip install "gdscore[torch]"'
    ) from error

__all__ = [
    "ContiguousShard",
    "RotationHead",
    "ScoreMetric",
    "adapted_copy",
    "call",
    "estimator",
    "extract",
    "finetuned_scores",
    "fit_rotation_head",
    "gradient_scores",
    "head_of",
    "joint_rotation_loss",
    "logits_of",
    "projnorm",
    "score",
    "split_batch",
    "to_device",
    "untouched",
]
