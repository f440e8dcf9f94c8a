"""One HTML file that answers, warns, shows where the answer comes from, and can be repeated.

Requirements met here:

- the file stands alone: no script, no font, no request; a policy in its head forbids them;
- every number in it is one of `Estimate.to_dict`, which it also holds as JSON;
- whatever targets, families and commands are called, their names are text and never markup;
- it stays under 1 MB: with many targets or classes it shows the ones that matter most, and says so.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import gdscore
from gdscore._options import number
from gdscore.errors import GdscoreError
from gdscore.files import PathLike, atomic
from gdscore.report.accuracies import timeline_figure
from gdscore.report.calibrating import calibration_figure, chosen_score, left_out, prediction_figure
from gdscore.report.confidences import confidence_figure, reference_error, reliability_figure
from gdscore.report.entries import MISSING, WORST, Entry, as_json, entries_of, warnings_of
from gdscore.report.style import DARK, LIGHT, as_svg, family_styles
from gdscore.report.target import Targets, as_targets, in_order
from gdscore.report.words import percent, plain, score_rows, sentence, standing, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gdscore.estimator import AccuracyEstimator

__all__ = ["write_report"]


def write_report(
    path: PathLike,
    estimator: AccuracyEstimator,
    targets: Targets,
    *,
    min_accuracy: float | None = None,
    made_by: Mapping[str, str] | None = None,
    not_estimated: Mapping[str, str] | None = None,
) -> None:
    """Write one self-contained HTML file about estimates and where they come from.

    Parameters
    ----------
    path : path
        Of the file; it is there whole or not at all.
    estimator : AccuracyEstimator
        The fitted estimator that made the estimates.
    targets : Estimate, Target or sequence of Target
        What was estimated. Several that all have a time make a time series, others a comparison.
    min_accuracy : float, optional
        Accuracy that is asked for: the report then says whether each target reaches it.
    made_by : mapping of str to str, optional
        What else somebody needs to repeat the report, such as the command line.
    not_estimated : mapping of str to str, optional
        Targets that could not be estimated and why, to be listed beside the others.

    Examples
    --------
    >>> import numpy as np, gdscore.report, pathlib, tempfile
    >>> rng = np.random.default_rng(0)
    >>> def said(rows, noise):
    ...     y = rng.integers(0, 3, rows)
    ...     x = np.eye(3)[y] * 3 + noise * rng.normal(size=(rows, 3))
    ...     return gdscore.Outputs(logits=2 * x, features=x, labels=y)
    >>> est = gdscore.AccuracyEstimator(regressor="atc").fit(reference=said(500, 1.0), head=(2 * np.eye(3), None))
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> target = gdscore.report.Target("clinic B", est.estimate(said(500, 1.5)))
    >>> write_report(path, est, target, min_accuracy=0.8)
    >>> "clinic B" in path.read_text()
    True
    """
    if not hasattr(estimator, "calibration_"):
        raise GdscoreError("Expected a fitted estimator: call fit, fit_predictor or load first")
    if min_accuracy is not None:
        min_accuracy = number("min_accuracy", min_accuracy, least=0, most=1)
    shown, by_time = in_order(as_targets(targets))
    if not shown:
        raise GdscoreError("Expected at least one target to report on, but there is none")
    entries = entries_of(shown, by_time)
    scores = score_rows(estimator, [e.target for e in entries if e.detailed])
    missing = dict(not_estimated or {})
    listed = dict(islice(missing.items(), MISSING))
    skipped = {name: why for t in shown if t.scores is not None for name, why in t.scores.skipped.items()}
    text = _environment().get_template("report.html").render(
        entries=entries,
        detailed=[e for e in entries if e.detailed],
        by_time=by_time,
        estimator=estimator,
        min_accuracy=min_accuracy,
        warnings=warnings_of(entries),
        score=chosen_score(estimator),
        left_out=left_out(estimator),
        reference_error=reference_error(estimator),
        families=family_styles(estimator.calibration_.families),
        figures=_figures(estimator, entries, by_time, min_accuracy),
        scores=scores,
        skipped={name: why for name, why in skipped.items() if name not in {row.name for row in scores}},
        made_by=made_by or {},
        versions={"gdscore": gdscore.__version__, "Python": platform.python_version(), "NumPy": np.__version__},
        missing=listed,
        n_missing=len(missing),
        data=as_json(entries, min_accuracy, listed),
        light=LIGHT,
        dark=DARK,
        worst=WORST,
    )  # fmt: skip
    with atomic(path) as file:
        # Names of files that are no Unicode cannot be written as they are.
        file.write(text.encode("utf-8", "replace"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gdscore.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "percent1": lambda value: f"{value:.1%}",
        "plain": plain,
        "thousands": lambda value: f"{value:,.0f}",
        "sentence": sentence,
    }
    environment.globals |= {"verdict": verdict, "standing": standing}
    return environment


def _figures(
    estimator: AccuracyEstimator, entries: Sequence[Entry], by_time: bool, min_accuracy: float | None
) -> dict[str, Any]:
    targets = [e.target for e in entries]
    score = chosen_score(estimator)
    marked = [t for t in targets if score in t.estimate.scores]
    made: dict[str, tuple[Figure, str]] = {
        "calibration": (
            calibration_figure(estimator, marked, score, legend=False),
            f"{score} against the true accuracy of the shifted sets, with the estimate",
        ),
        "prediction": (
            prediction_figure(estimator, targets, legend=False),
            "Accuracy predicted without a shifted set's family against its true accuracy",
        ),
        "reliability": (reliability_figure(estimator), "Accuracy against confidence on the reference"),
    }
    if by_time:
        for name, width in (("timeline", 9.4), ("timeline-narrow", 4.6)):
            made[name] = (
                timeline_figure(targets, min_accuracy=min_accuracy, width=width),
                "Estimated accuracy over time",
            )
    for entry in entries:
        if entry.detailed and entry.target.estimate.confidence is not None:
            title = f"Confidence on the reference and on target {entry.number}"
            made[f"confidence{entry.number}"] = confidence_figure(estimator, entry.target), title
    return {name: Markup(as_svg(figure, name, title)) for name, (figure, title) in made.items()}
