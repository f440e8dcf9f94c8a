"""One HTML file with the answer, the warnings, what the answer rests on, and how to repeat it.

Requirements met here:

- the file needs nothing else: no script, no font, no request; a policy in its head forbids them;
- every number in it is one of `Estimate.to_dict`, which it also holds as JSON;
- whatever targets, families and commands are called, their names are text and never markup;
- it stays under 1 MB: with many targets or classes it shows the ones that matter most, and says so.
"""

from __future__ import annotations

import inspect
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment
from markupsafe import Markup

import gdscore
from gdscore._checks import number
from gdscore._files import PathLike, atomic
from gdscore._format import percent, template_environment
from gdscore.errors import GdscoreError
from gdscore.report.figures import (
    DARK,
    LIGHT,
    as_svg,
    confidence_figure,
    group_styles,
    reliability_figure,
    shift_groups,
    shifted_sets_figure,
    timeline_figure,
)
from gdscore.report.targets import (
    CLASSES_AT_LEAST,
    Entry,
    Targets,
    as_json,
    as_targets,
    by_target,
    compare_with_threshold,
    critical_words,
    entries_of,
    in_order,
    scale_of,
    sentence,
    standing,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gdscore.estimator import AccuracyEstimator, Estimate

MISSING = 100
"""Targets listed that could not be estimated."""


def write_report(
    path: PathLike,
    estimator: AccuracyEstimator | None,
    targets: Targets,
    *,
    model_name: str | None = None,
    created: date | None = None,
    min_accuracy: float | None = None,
    made_by: Mapping[str, str] | None = None,
    not_estimated: Mapping[str, str] | None = None,
) -> None:
    """Write one self-contained HTML file about estimates and what they rest on.

    Parameters
    ----------
    path : path
        Of the file, which appears complete or not at all.
    estimator : AccuracyEstimator or None
        The fitted estimator that made the estimates; None for those of `gdscore.direct_estimate`.
    targets : Estimate, Target, sequence of Target, or dict
        Several that all have a time make a time series, others a comparison. A dict is what
        ``estimate(outputs, by=…)`` gives; days and times among its keys, or in pairs that are keys, are those of the
        targets.
    model_name : str, optional
        For the title.
    created : date, optional
        Date of the report, today (UTC) by default.
    min_accuracy : float, optional
        Accuracy that is asked for: the report then tells whether each target reaches it.
    made_by : mapping of str to str, optional
        What else somebody needs to repeat the report, such as the command line.
    not_estimated : mapping of str to str, optional
        Targets that could not be estimated and why, to be listed beside the others.

    Examples
    --------
    >>> import gdscore.report, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> e = gdscore.Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=500, reference_accuracy=0.95)
    >>> write_report(path, None, gdscore.report.Target("clinic B", e), min_accuracy=0.8)
    >>> path.stat().st_size < 1_000_000
    True
    """
    if estimator is not None and not hasattr(estimator, "shifted_sets_"):
        raise GdscoreError("Expected a fitted estimator: call fit, fit_predictor or load first")
    if not isinstance(created, date | None):
        raise GdscoreError(f"Expected `created` to be a date, but got {created!r}: give date(2026, 1, 31)")
    if min_accuracy is not None:
        min_accuracy = number("min_accuracy", min_accuracy, least=0, most=1)
    shown, by_time = in_order(as_targets(targets))
    if not shown:
        raise GdscoreError("Expected at least one target to report on, but there is none")
    entries = entries_of(shown, by_time)
    ranked = sorted(entries, key=lambda entry: entry.target.estimate.accuracy)
    missing = dict(not_estimated or {})
    listed = dict(islice(missing.items(), MISSING))
    text = _environment().get_template("report.html").render(
        entries=entries,
        ranked=ranked,
        rows=entries if by_time else ranked,
        ends=scale_of(shown, min_accuracy),
        detailed=[e for e in ranked if e.detailed],
        by_time=by_time,
        model_name=model_name,
        created=(created or datetime.now(UTC).date()).isoformat(),
        min_accuracy=min_accuracy,
        warnings=by_target([entry.target for entry in ranked]),
        fitted=None if estimator is None else _describe_estimator(estimator),
        figures=_figures(estimator, entries, by_time, min_accuracy),
        sentences={name: _score_sentence(name) for e in entries if e.detailed for name in _scores(e)},
        evidence_words=EVIDENCE,
        made_by=made_by or {},
        versions={"gdscore": gdscore.__version__, "Python": platform.python_version(), "NumPy": np.__version__},
        missing=listed,
        n_missing=len(missing),
        data=as_json(entries, min_accuracy, listed),
        light=LIGHT,
        dark=DARK,
        classes_at_least=CLASSES_AT_LEAST,
    )  # fmt: skip
    with atomic(path) as file:
        # Names of files that are no Unicode cannot be written as they are.
        file.write(text.encode("utf-8", "replace"))


MIX_WORDS = {
    "unknown": "that the mix of classes is not known",
    "stable": "the mix of classes of the reference",
    "estimated": "that only the mix of classes has changed",
    "given": "the mix of classes that was given",
}


EVIDENCE = {
    "confidence": ("Confidence (log-odds)", "higher", "lower"),
    "distance": ("Distance of features or inputs to those of the predicted class (logarithm)", "larger", "smaller"),
}
"""Numbers of an estimate that are no scores, in standard deviations of the reference's rows: what they are of."""


def _look(estimate: Estimate, min_accuracy: float | None) -> str:
    """Style of the number: small and grey where it may be meaningless, coloured below the threshold."""
    if critical_words(estimate):
        return "doubtful"
    return "alarm" if min_accuracy is not None and estimate.accuracy < min_accuracy else ""


@cache
def _environment() -> Environment:
    environment = template_environment(
        "gdscore.report",
        short_percent=lambda value: percent(value, short=True),
        plain=_plain_number,
        sentence=sentence,
    )
    environment.globals |= {
        "compare_with_threshold": compare_with_threshold,
        "critical": critical_words,
        "look": _look,
        "mix_words": MIX_WORDS,
        "standing": standing,
        "scores_of": _scores,
    }
    return environment


def _plain_number(value: float) -> str:
    """Number with four digits, without an exponent where that is readable.

    Examples
    --------
    >>> _plain_number(0.123456), _plain_number(58556.3), _plain_number(0.0000123)
    ('0.1235', '58,556', '1.23e-05')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _describe_estimator(estimator: AccuracyEstimator) -> dict[str, Any]:
    seen = estimator.shifted_sets_
    error = float(estimator.left_out_error_)
    return {
        "repr": repr(estimator),
        "sets": len(seen.families),
        "left_out": int(np.isfinite(np.asarray(seen.predicted)).sum()),
        "families": estimator.n_families_,
        "rows": float(np.median(seen.rows)) if len(seen.families) else 0.0,
        "error": error if math.isfinite(error) else None,
        "groups": group_styles(shift_groups(list(seen.families))),
        "reference_rows": estimator.reference_rows_,
        "reference_accuracy": estimator.reference_accuracy_,
        "decision": estimator.decision_,
    }


def _scores(entry: Entry) -> dict[str, float]:
    """Scores of an entry: those of the estimate, then those that were computed beside it."""
    target = entry.target
    return {**(target.scores or {}), **target.estimate.scores}


def _score_sentence(name: str) -> str:
    """First sentence of a score's docstring; empty for a number that is not a registered score."""
    from gdscore.scores import create_score, list_scores

    if name not in list_scores():
        return ""
    return sentence((inspect.getdoc(type(create_score(name))) or "").split("\n\n")[0].replace("`", ""))


def _figures(
    estimator: AccuracyEstimator | None, entries: Sequence[Entry], by_time: bool, min_accuracy: float | None
) -> dict[str, Any]:
    targets = [e.target for e in entries]
    made: dict[str, tuple[Figure, str]] = {}
    if estimator is not None:
        made["reliability"] = reliability_figure(estimator), "Accuracy against confidence on the reference"
        if np.isfinite(np.asarray(estimator.shifted_sets_.predicted)).any():
            made["shifted_sets"] = (
                shifted_sets_figure(estimator, targets if len(targets) == 1 else (), legend=False),
                "Estimated accuracy of shifted sets, with their family left out, against their true accuracy",
            )
        for entry in entries:
            if entry.detailed and entry.target.estimate.confidence is not None:
                title = f"Confidence on the reference and on target {entry.number}"
                made[f"confidence{entry.number}"] = confidence_figure(estimator, entry.target), title
    for name, width in (("timeline", 9.4), ("timeline-narrow", 4.6)) if by_time else ():
        figure = timeline_figure(targets, min_accuracy=min_accuracy, width=width)
        made[name] = figure, "Estimated accuracy over time"
    return {name: Markup(as_svg(figure, name, title)) for name, (figure, title) in made.items()}
