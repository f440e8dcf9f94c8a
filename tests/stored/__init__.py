"""Files of earlier versions, which this one reads; ``python -m tests.stored`` writes those of this version."""
