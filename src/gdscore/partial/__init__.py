"""Parts of a target, worked on anywhere: each part becomes bytes, the bytes are merged and made an estimate of.

The functions know no engine. Ray (`gdscore.distributed`), Spark, Dask or a queue of jobs carry the bytes.
"""

from gdscore.partial.scores import FittedScores, fit_scores
from gdscore.partial.state import finish_state, merge_states, partial_state

__all__ = ["FittedScores", "finish_state", "fit_scores", "merge_states", "partial_state"]
