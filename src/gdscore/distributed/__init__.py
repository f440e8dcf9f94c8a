"""Extraction, scores and estimates over a Ray cluster; needs the extra ``ray``.

Rows stay where they are: each file or block becomes a `TargetState` of some kilobytes, and states are merged in a tree.
"""

from gdscore.distributed._cluster import connect
from gdscore.distributed.estimating import estimate, score_all
from gdscore.distributed.extracting import Extraction, extract, extract_estimate
from gdscore.distributed.fitting import estimator

__all__ = ["Extraction", "connect", "estimate", "estimator", "extract", "extract_estimate", "score_all"]
