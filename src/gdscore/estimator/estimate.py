"""`Estimate`: an accuracy with its interval and warnings, and the shares by class that it is made of."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore._drift import ColumnDrift
from gdscore._files import PathLike
from gdscore._format import percent, points
from gdscore._windows import as_utc, end_of, parse_every, time_of
from gdscore.errors import GdscoreError
from gdscore.estimator.evidence import Evidence, Floats
from gdscore.estimator.settings import SETTINGS
from gdscore.estimator.table import Joint, with_means
from gdscore.frames import frame_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Severity = Literal["info", "warning", "critical"]
SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class EstimateWarning:
    """A reason to trust an estimate less.

    Attributes
    ----------
    code : str
        Name that programs can test for, such as ``few_rows`` or ``collapse``.
    severity : {"info", "warning", "critical"}
        ``critical``: the estimate may be meaningless; do not use it to end an alarm.
    message : str
        One sentence for a person.
    """

    code: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ConfidenceHistogram:
    """Rows by the probability of their predicted class, in bins of equal width.

    Attributes
    ----------
    rows, confidence : list of float
        Number of rows, and sum of their confidences, by bin.
    correct : list of float or None
        Rows predicted right by bin, where labels are known.
    """

    rows: list[float]
    confidence: list[float]
    correct: list[float] | None = None

    @property
    def edges(self) -> NDArray[Any]:
        """Bounds of the bins, one more than there are bins."""
        return np.linspace(0.0, 1.0, len(self.rows) + 1)

    def same_rows(self, rows: NDArray[Any], confidence: NDArray[Any]) -> bool:
        """Whether as many rows with the same confidences, up to rounding, are in each bin."""
        return np.array_equal(self.rows, rows) and np.allclose(self.confidence, confidence, rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class Quantity:
    """An estimated share with its interval; ``low`` and ``high`` are None where no interval was checked."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ClassEstimate:
    """Estimates for one class.

    Attributes
    ----------
    label : int
        Number of the class.
    name : str
        Its name, or its number where classes have no names.
    share, predicted : float
        Estimated share of the class among the rows, and its share among the predictions.
    recall, precision, f1 : Quantity
        Share of the rows of the class that are predicted as it; share of the predictions of the class that are right;
        harmonic mean of the two.
    """

    label: int
    name: str
    share: float
    predicted: float
    recall: Quantity
    precision: Quantity
    f1: Quantity


class _Reported:
    """What a page can be made of."""

    def to_html(self, path: PathLike, est: Any = None, **options: Any) -> None:
        """Write one HTML file that needs nothing else; several estimates are a series where all have times.

        Parameters
        ----------
        path : path
            Of the file, which appears complete or not at all.
        est : AccuracyEstimator, optional
            The fitted estimator, for what its estimates rest on.
        **options
            Of `gdscore.report.write_report`: ``model_name``, ``min_accuracy`` and others.
        """
        # The report is made of estimates; this one way back is no import, so that neither needs the other to load.
        importlib.import_module("gdscore.report").write_report(path, est, self, **options)


@dataclass(frozen=True, repr=False)
class Estimate(_Reported):
    """Accuracy on the population that the target's rows come from.

    Attributes
    ----------
    accuracy, low, high : float
        Estimate and interval, in [0, 1].
    level : float
        Share of such intervals that are meant to hold the true accuracy.
    n_rows : int
        Rows of the target.
    reference_accuracy : float
        Accuracy on the reference data.
    class_mix : str
        What was assumed of the target's mix of classes: ``unknown``, ``stable``, ``estimated`` or ``given``.
    method : str
        ``correctness``, ``check`` (of `models.check`), ``tracked`` (of `AccuracyTracker`), or the name of the score
        whose straight line was used.
    assumptions : dict of str to float
        Accuracy under each assumption about the class mix: ``unknown``, ``stable`` (the reference's) and ``estimated``
        (only the mix has moved). Empty, as are ``fits``, where a check network tells the classes of rows.
    fits : dict of str to float
        How well ``stable`` and ``estimated`` fit the outputs, from 0 to 1: 1 where the class mix explains all of how
        far the target is from the reference.
    class_mix_estimate : list of float
        Shares of the classes that explain the outputs best; those of the target if only its class mix has moved.
    per_class : list of ClassEstimate
        Share, recall, precision and F1 of each class.
    f1 : Quantity or None
        Macro F1, the mean over classes.
    warnings : list of EstimateWarning
        Reasons to trust the estimate less, most severe first.
    scores : dict of str to float
        Numbers of the target that the estimate was made of.
    confidence : ConfidenceHistogram or None
        Confidences of the target's rows, by bins.
    left_out_error : float or None
        Mean absolute error of estimates of shifted sets whose family was left out; None without them.
    brier : Quantity or None
        Brier score of the model's probabilities, as scikit-learn's ``brier_score_loss`` defines it; None where the
        method is a score, and where a check network is part of the estimate.
    drift : list of ColumnDrift
        Columns of the inputs that are farthest from the reference's, where inputs were given: an explanation, which no
        number above depends on.
    answers : dict of str to float
        Weights of the answers that an estimate of `gdscore.AccuracyTracker` rests on; empty without labels.
    label_free : Quantity or None
        The estimate without labels, where labels are part of this one.
    """

    accuracy: float
    low: float
    high: float
    level: float
    n_rows: int
    reference_accuracy: float
    class_mix: str = "unknown"
    method: str = "correctness"
    assumptions: dict[str, float] = field(default_factory=dict)
    fits: dict[str, float] = field(default_factory=dict)
    class_mix_estimate: list[float] = field(default_factory=list)
    per_class: list[ClassEstimate] = field(default_factory=list)
    f1: Quantity | None = None
    warnings: list[EstimateWarning] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    confidence: ConfidenceHistogram | None = None
    left_out_error: float | None = None
    brier: Quantity | None = None
    drift: list[ColumnDrift] = field(default_factory=list)
    answers: dict[str, float] = field(default_factory=dict)
    label_free: Quantity | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.accuracy <= self.high <= 1:  # also where one of them is NaN
            raise GdscoreError(
                f"Expected 0 ≤ low ≤ accuracy ≤ high ≤ 1, but got {self.low}, {self.accuracy}, {self.high}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dicts."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`.

        Examples
        --------
        >>> e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=900, reference_accuracy=0.9, f1=Quantity(0.8, 0.7, 0.9))
        >>> Estimate.from_dict(e.to_dict()) == e
        True
        """
        try:
            made = dict(facts)
            for name in (f.name for f in fields(cls) if str(f.type).startswith("Quantity")):
                made[name] = None if facts.get(name) is None else Quantity(**facts[name])
            classes: list[dict[str, Any]] = [
                {k: Quantity(**v) if isinstance(v, Mapping) else v for k, v in one.items()}
                for one in facts.get("per_class", ())
            ]
            made["per_class"] = [ClassEstimate(**one) for one in classes]
            made["warnings"] = [EstimateWarning(**warning) for warning in facts.get("warnings", ())]
            made["drift"] = [ColumnDrift(**one) for one in facts.get("drift", ())]
            if facts.get("confidence") is not None:
                made["confidence"] = ConfidenceHistogram(**facts["confidence"])
            return cls(**made)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, GdscoreError):
                raise
            raise GdscoreError(f"Expected what `Estimate.to_dict` gives, but got something else: {error}") from error

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the interval, the accuracy and the accuracy on the reference.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; new ones of ``matplotlib.pyplot`` by default.
        """
        if ax is None:
            from matplotlib import pyplot as plt

            _, ax = plt.subplots(figsize=(6, 1.4), layout="constrained")
        interval = f"{percent(self.level, short=True)} interval"
        ax.plot([self.low, self.high], [0, 0], color="#b23c17", linewidth=6, alpha=0.35, label=interval)
        ax.plot([self.accuracy], [0], marker="o", color="#b23c17", linestyle="none", label="estimated accuracy")
        ax.axvline(self.reference_accuracy, color="#646b75", linestyle="--", linewidth=1, label="on the reference")
        ax.set(xlim=(0, 1), yticks=[], xlabel=f"accuracy ({_rows(self.n_rows)})")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
        return ax

    @property
    def headline(self) -> str:
        """What a person should read first: the gravest warning where one is critical, otherwise the accuracy."""
        critical = next((w for w in self.warnings if w.severity == "critical"), None)
        return self._accuracy_text() if critical is None else f"critical: {critical.message}"

    def _accuracy_text(self) -> str:
        return (
            f"about {self.accuracy:.1%} accurate, between {self.low:.1%} and {self.high:.1%} "
            f"({percent(self.level, short=True)} interval, {_rows(self.n_rows)}); "
            f"it was {self.reference_accuracy:.1%} on the reference data"
        )

    def __repr__(self) -> str:
        codes = f", warnings={' '.join(w.code for w in self.warnings)}" if self.warnings else ""
        return (
            f"Estimate(accuracy={self.accuracy:.4f}, {percent(self.level, short=True)} interval "
            f"{self.low:.4f} to {self.high:.4f}, n_rows={self.n_rows}{codes})"
        )

    def __str__(self) -> str:
        critical = [w for w in self.warnings if w.severity == "critical"]
        # A critical warning says that the number may be meaningless: it comes first, and the number after it.
        lines = [f"{_label(w)}: {w.message}" for w in critical] + [
            f"if that is not so, {self._accuracy_text()}" if critical else self._accuracy_text()
        ]
        if self.answers:
            ordered = sorted(self.answers.items(), key=lambda item: -item[1])
            parts = [f"{percent(round(w, 2), short=True)} {name}" for name, w in ordered if w >= 0.045]
            lines.append(f"rests on {', '.join(parts)}")
        elif self.left_out_error is not None and all(w.code != "weak_evidence" for w in self.warnings):
            lines.append(f"shifts left out of the fit were missed by {points(self.left_out_error)} on average")
        return "\n".join(lines + [f"{_label(w)}: {w.message}" for w in self.warnings if w not in critical])

    def _repr_html_(self) -> str:
        bar = "position:absolute;top:0;height:12px;"
        width = max(self.high - self.low, 0.004)
        items = "".join(f"<li>{html.escape(f'{_label(w)}: {w.message}')}</li>" for w in self.warnings)
        return (
            f"<div><b>{self.accuracy:.1%}</b> accurate, {self.low:.1%} to {self.high:.1%} "
            f"({percent(self.level, short=True)} interval, {_rows(self.n_rows)}); "
            f"reference {self.reference_accuracy:.1%}"
            '<div style="position:relative;height:12px;width:320px;max-width:100%;background:rgba(128,128,128,.15)">'
            f'<div style="{bar}left:{self.low:.1%};width:{width:.1%};background:rgba(178,60,23,.35)"></div>'
            f'<div style="{bar}left:{self.accuracy:.1%};width:3px;background:#b23c17"></div>'
            f'<div style="{bar}left:{self.reference_accuracy:.1%};border-left:2px dashed currentColor"></div></div>'
            f"{f'<ul>{items}</ul>' if items else ''}</div>"
        )


class Estimates(_Reported, dict[Any, Estimate]):
    """Estimates by segment or window, worst first: a dict that can become a table.

    Attributes
    ----------
    truth : dict
        Accuracy by the labels of each segment; None where it has none.
    names : tuple of str
        Names of the columns that segments are made of, where they are known.

    Examples
    --------
    >>> e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=900, reference_accuracy=0.9)
    >>> estimates = Estimates({("2026-01", "fr"): e}, {("2026-01", "fr"): 0.8}, ("", "country"))
    >>> estimates.to_frame(every="month", backend="pyarrow").to_pylist()[0]["end"].isoformat()
    '2026-02-01T00:00:00'
    """

    def __init__(
        self, estimates: Mapping[Any, Estimate], truth: Mapping[Any, float | None], names: Sequence[str] = ()
    ) -> None:
        super().__init__(estimates)
        self.truth, self.names = dict(truth), tuple(names)

    def to_frame(self, every: Any = None, backend: str | None = None) -> Any:
        """Table with a row for each segment: windows in order of time, otherwise the worst first.

        Columns: ``start`` and ``end`` of the window (empty without times), ``segment``, ``n_rows``, ``accuracy``,
        ``low``, ``high``, ``truth`` (empty where it is not known) and ``warnings``, their codes.

        Parameters
        ----------
        every : str or timedelta, optional
            Length of windows as they were made, such as ``month`` or ``month Europe/Paris``, for their ends.
        backend : {"pandas", "polars", "pyarrow"}, optional
            Library of the data frame; the first of these that is installed by default.
        """
        return table_of([(*self._place(key, every), e, self.truth.get(key)) for key, e in self.items()], backend)

    def _place(self, key: Any, every: Any) -> tuple[datetime | None, datetime | None, str]:
        parts = key if isinstance(key, tuple) else (key,)
        times = [time_of(part) for part in parts]
        at = next((i for i, time in enumerate(times) if time is not None), len(parts))
        start = times[at] if at < len(parts) else None
        end = None if start is None or every is None else end_of(start, parse_every(every))
        if every is None and start is not None and hasattr(parts[at], "end_time"):  # a pandas Period
            end = (parts[at] + 1).start_time.to_pydatetime()
        names = self.names if len(self.names) == len(parts) else [""] * len(parts)
        rest = [f"{n}={p}" if n else str(p) for i, (n, p) in enumerate(zip(names, parts, strict=True)) if i != at]
        return start, end, ", ".join(rest)


Row: TypeAlias = tuple[datetime | None, datetime | None, str, Estimate, float | None]
"""Start and end of a window, segment, estimate and truth."""


def columns_of_rows(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Columns of the table of estimates, those of windows in order of time."""
    order = sorted(rows, key=lambda row: as_utc(row[0] or datetime.min))
    starts, ends, segments, estimates, truths = zip(*order, strict=True)
    # Offsets of clocks change with the season: one column has one zone.
    zoned = any(time is not None and time.tzinfo is not None for time in starts)
    times = [[as_utc(t) if zoned and t is not None else t for t in column] for column in (starts, ends)]
    numbers = {name: [getattr(e, name) for e in estimates] for name in ("n_rows", "accuracy", "low", "high")}
    codes = [" ".join(w.code for w in e.warnings) for e in estimates]
    return {
        "start": times[0],
        "end": times[1],
        "segment": list(segments),
        **numbers,
        "truth": list(truths),
        "warnings": codes,
    }


def table_of(rows: Sequence[Row], backend: str | None) -> Any:
    """Data frame of estimates, whose columns have the same types whatever is missing."""
    import narwhals as nw

    columns = columns_of_rows(rows)
    zone = "UTC" if any(t is not None and t.tzinfo is not None for t in columns["start"]) else None
    time, real = nw.Datetime("us", zone), nw.Float64()
    types: dict[str, Any] = dict.fromkeys(("start", "end"), time)
    types |= {**dict.fromkeys(("accuracy", "low", "high", "truth"), real), "n_rows": nw.Int64()}
    types |= dict.fromkeys(("segment", "warnings"), nw.String())
    return frame_of(columns, backend, {name: types[name] for name in columns})


def expected_brier(
    evidence: Evidence, probability: Floats, accuracy: float, low: float, high: float, level: float
) -> Quantity:
    """Brier score where rows are right with these probabilities, by bins, moved to an accuracy.

    The ends are those at accuracies twice as far away as the ends of its interval, with the sampling error.
    """
    counts = evidence.histogram.sum(axis=0)
    share, losses = counts / evidence.rows, evidence.losses / np.maximum(counts, 1)  # means of each bin
    wider = accuracy + SETTINGS.class_width * (np.array([low, high]) - accuracy)
    accuracies, bins = np.clip([accuracy, *wider], 0, 1), len(share)
    moved = with_means(np.tile(probability, 3), np.repeat(np.arange(3), bins), accuracies, np.tile(share, 3))
    correct = share * moved.reshape(3, bins)
    value, *ends = (correct @ losses[0] + (share - correct) @ losses[1]).tolist()
    squares = float(correct[0] @ losses[0] ** 2 + (share - correct[0]) @ losses[1] ** 2)
    noise = quantile_of(level) * math.sqrt(max(squares - value**2, 0) / evidence.rows)
    below, above = math.hypot(max(value - min(ends), 0.0), noise), math.hypot(max(max(ends) - value, 0.0), noise)
    scale = 0.5 if len(evidence.histogram) == 2 else 1.0  # of two classes it counts one, as in scikit-learn
    return Quantity(scale * value, scale * max(value - below, 0.0), scale * min(value + above, 2.0))


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"


def most_severe_first(warnings: Iterable[EstimateWarning]) -> list[EstimateWarning]:
    """Warnings by severity, otherwise in their order."""
    return sorted(warnings, key=lambda w: SEVERITIES.index(w.severity))


def _label(warning: EstimateWarning) -> str:
    return "note" if warning.severity == "info" else warning.severity


def quantile_of(level: float) -> float:
    """Standard normal quantile of a two-sided interval."""
    return NormalDist().inv_cdf(0.5 + min(level, 1 - 1e-9) / 2)


def sampling_error(share: Any, rows: Any, level: float) -> Any:
    """Half-width of a normal interval for a share observed on so many rows; never 0, as no share is certain."""
    shrunk = (share * rows + 1) / (rows + 2)
    return quantile_of(level) * np.sqrt(shrunk * (1 - shrunk) / rows)


def class_estimates(
    joint: Joint, rows: int, low: float, high: float, level: float, names: tuple[str, ...] | None
) -> tuple[list[ClassEstimate], Quantity]:
    """Estimates of each class; their intervals move with one that is wider than the accuracy's by a constant."""
    a = joint.accuracy
    value = joint.measures()
    lower = joint.scaled(max(a - SETTINGS.class_width * (a - low), 0.0)).measures()
    upper = joint.scaled(min(a + SETTINGS.class_width * (high - a), 1.0)).measures()
    sizes = np.stack([joint.mix, joint.predicted, joint.mix + joint.predicted]) * rows
    noise = sampling_error(value, np.maximum(sizes, 1), level)
    lowest = np.maximum(value - np.hypot(np.maximum(value - lower, 0), noise), 0)
    highest = np.minimum(value + np.hypot(np.maximum(upper - value, 0), noise), 1)
    columns = np.stack([value, lowest, highest], axis=2).tolist()
    shares = zip(joint.mix.tolist(), joint.predicted.tolist(), strict=True)
    per_class = [
        ClassEstimate(k, str(k) if names is None else names[k], *both, *(Quantity(*c[k]) for c in columns))
        for k, both in enumerate(shares)
    ]
    f1, below, above = float(value[2].mean()), float(lower[2].mean()), float(upper[2].mean())
    return per_class, Quantity(f1, min(f1, below), max(f1, above))
