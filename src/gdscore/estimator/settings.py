"""Constants of the estimator, in one place; ``benchmarks/estimates/constants.py`` compares them with others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Constants of `AccuracyEstimator`.

    Attributes
    ----------
    calibration_edge : float
        Calibrated confidences are kept this far from 0 and 1.
    tilts : tuple of float
        Log-odds by which classes are made rarer and more frequent in the class mixes that shifted sets are used in.
    penalty : float
        Ridge penalty of the correction, in sets.
    strictness : float
        How many times the part of a target's movement that no class mix explains counts against the assumption that
        only the mix has moved. Shifted sets teach the number, between a quarter of this and twice as many.
    smoothing : float
        Weight of the reference's predicted probabilities relative to its labels, where its rows of each class are
        counted by cell.
    prior_rows : float
        Rows in the reference's class mix that are added to a target when its mix is estimated.
    stable_slack : float
        How far the class mix under ``stable`` may differ from the reference's: so many times the variance of the mix of
        samples of these sizes.
    looks_shifted_from : float
        How far the target's mean evidence must be from that of the reference's rows of the same predicted classes, in
        standard deviations of rows, before its rows look shifted; from twice as far on they do in full.
    noise : float
        Standard errors that a difference between a target and the reference must exceed before it counts.
    floor, growth : float
        Expected error of an estimate that equals the reference's accuracy, in shares, and how fast it grows with the
        distance from it. The width of intervals is √q times that.
    moved_fully, untaught : float
        Intervals include the mean error on families left out (times 1.65, its 90 % quantile) in full where the evidence
        has moved by the first, in standard deviations, or more. Without shifted sets they include an error of the
        second for each standard deviation, up to four.
    outputs_only : float
        √q where no shifted sets were given, or none can be left out.
    class_width : float
        Width of the intervals of classes relative to the accuracy's, before the sampling error of the class.
    few_rows, small_reference : int
        Rows of a target, and of a reference, below which there is a warning.
    far_mix : float
        Share of rows that would have to change class, and standard deviation of the classes' recall on the reference,
        above which there is a warning.
    """

    calibration_edge: float = 0.005
    tilts: tuple[float, ...] = (-3.0, 1.5, 3.0)
    penalty: float = 2.0
    strictness: float = 16.0
    smoothing: float = 0.25
    prior_rows: float = 5.0
    stable_slack: float = 100.0
    looks_shifted_from: float = 0.5
    noise: float = 3.0
    floor: float = 0.03
    growth: float = 1.2
    moved_fully: float = 0.25
    untaught: float = 0.1
    outputs_only: float = 1.5
    class_width: float = 2.0
    few_rows: int = 200
    small_reference: int = 500
    far_mix: float = 0.15


SETTINGS = Settings()
