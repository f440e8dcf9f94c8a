"""Scores and estimates of every public road, before and after a change: see `__main__`."""

from tests.roads import estimates, models, services  # noqa: F401  (importing them registers their roads)
