"""Data and model of `gdscore demo`: a small network on real handwritten digits, and shifts that it meets."""

from gdscore.demo.digits import METHODS, TARGETS, Digits, Trial

__all__ = ["METHODS", "TARGETS", "Digits", "Trial"]
