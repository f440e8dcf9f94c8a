"""A few labels of a target: which rows to label, and an interval that covers at about its level whatever the shift."""

from gdscore.labeling.betting import LabelSequence, sequence
from gdscore.labeling.choice import choose
from gdscore.labeling.labelled import LabelledEstimate, estimate, estimate_segments
from gdscore.labeling.rows import LabelRows, read_csv

__all__ = [
    "LabelRows",
    "LabelSequence",
    "LabelledEstimate",
    "choose",
    "estimate",
    "estimate_segments",
    "read_csv",
    "sequence",
]
