"""Constants of the estimator, in one place; ``benchmarks/choosing.py`` compares them with others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Constants of `AccuracyEstimator`.

    Attributes
    ----------
    constant : float
        Evidence whose standard deviation on the reference is smaller than this does not vary, and is left out.
    reach : float
        Rows count as at most this far from the reference's mean evidence, in standard deviations of its rows.
    calibration_edge : float
        Calibrated confidences are kept this far from 0 and 1.
    mixes, most_mixes : int
        Random class mixes in which shifted sets are used for fitting, besides their own: of all sets together at least,
        and of each set at most.
    concentration : float
        Of the Dirichlet distribution that those mixes are drawn from; smaller values give more uneven mixes.
    penalty : float
        Ridge penalty of the correction, in sets.
    floor : float
        Expected error where the estimate has not moved, in shares and up to the factor √q.
    moved_fully, untaught : float
        From this movement of the evidence on, in standard deviations, an interval holds 1.65 times the mean error on
        families left out; without shifted sets it holds so much of an error for each standard deviation, up to four.
    class_width : float
        Width of the intervals of classes relative to the accuracy's, before the sampling error of the class.
    outputs_only : float
        Error relative to its expectation where no shifted sets were given, or none can be left out.
    moved : float
        How far the target's mean evidence must be from that of the reference's rows of the same predicted classes, in
        standard deviations of rows, before its rows look shifted; from twice as far on they do in full.
    noise : float
        Standard errors that a difference between a target and the reference must exceed before it counts.
    small_way : float
        How far two assumptions about the class mix must differ on the shifted sets, in shares, before these teach which
        one to follow.
    confidence_groups, cell_rows : int
        Groups of confidence in which the mixture of the reference's classes is compared with a target: at most so many,
        and so few that a predicted class has so many rows of the reference in each on average.
    smoothing : float
        Rows like those of any class that are added to each class of the reference there.
    prior_rows : float
        Rows in the reference's class mix that are added to a target when its mix is estimated.
    mixture_steps : int
        Steps of expectation-maximisation at most.
    doubt : float
        What samples of these sizes differ by chance counts so many times beside it: where rows are few, nothing tells
        whether only the class mix has moved.
    strictness, most_strictness : float
        What a class mix does not explain of a target's movement counts so many times against the estimate that only the
        mix has moved: at least, which holds without shifted sets, and at most.
    few_rows : int
        Rows of a target below which there is a warning.
    small_reference : int
        Rows of the reference below which there is a warning.
    easy_reference : float
        Accuracy on the reference above which it shows too few errors to learn from.
    small_loss, reaction : float
        A model's confidence does not react where a shifted set loses at least so much accuracy, in shares, and the
        evidence moves by less than this for all of it, in standard deviations of rows.
    collapse : float
        Effective number of predicted classes, relative to the reference's, below which predictions have collapsed.
    far_mix, explained : float
        Share of rows that would have to change class before there is a warning, and share of a target's movement that a
        class mix must explain for it to be of no concern.
    exposed : float
        Standard deviation of the reference's accuracy over random class mixes above which a target that has moved
        gets a warning.
    weak_evidence : float
        Error on families left out, relative to half the width of an interval, beyond which there is a warning.
    """

    constant: float = 1e-3
    reach: float = 20.0
    calibration_edge: float = 0.005
    mixes: int = 2000
    most_mixes: int = 256
    concentration: float = 0.5
    penalty: float = 2.0
    floor: float = 0.03
    moved_fully: float = 0.25
    untaught: float = 0.1
    class_width: float = 2.0
    outputs_only: float = 1.5
    moved: float = 0.5
    noise: float = 3.0
    small_way: float = 0.01
    confidence_groups: int = 10
    cell_rows: int = 20
    smoothing: float = 0.02
    prior_rows: float = 2.0
    mixture_steps: int = 300
    doubt: float = 0.25
    strictness: float = 4.0
    most_strictness: float = 32.0
    few_rows: int = 200
    small_reference: int = 500
    easy_reference: float = 0.995
    small_loss: float = 0.05
    reaction: float = 1.0
    collapse: float = 0.5
    far_mix: float = 0.15
    explained: float = 0.5
    exposed: float = 0.1
    weak_evidence: float = 1.5


SETTINGS = Settings()
