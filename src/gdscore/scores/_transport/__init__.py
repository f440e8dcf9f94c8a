"""Exact optimal transport from many rows of probabilities to few class vertices."""

from __future__ import annotations

from gdscore.scores._transport.memo import solved
from gdscore.scores._transport.solver import SOLVERS, Transport, solve

__all__ = ["SOLVERS", "Transport", "solve", "solved"]
