"""Estimates as metrics of an MLflow run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate

__all__ = ["log_to_mlflow"]


def log_to_mlflow(
    estimate: Estimate,
    *,
    estimator: AccuracyEstimator | None = None,
    name: str = "target",
    step: int | None = None,
    prefix: str = "gdscore",
    report: bool = True,
) -> None:
    """Log an estimate to the active MLflow run: metrics, warnings as a tag, the HTML report as an artifact.

    Parameters
    ----------
    estimate : Estimate
        What to log.
    estimator : AccuracyEstimator, optional
        The estimator that made it, for the figures of the report.
    name : str
        Name of the target in the report.
    step : int, optional
        Step of the metrics, such as the day.
    prefix : str
        Metrics are ``<prefix>.accuracy``, ``.low``, ``.high``, ``.rows``, ``.reference_accuracy`` and the scores.
    report : bool
        Whether the report is logged as ``<prefix>/<name>.html``.
    """
    try:
        import mlflow
    except ImportError as error:
        raise GdscoreError("Expected mlflow to be installed, but it is not: pip install 'gdscore[mlflow]'") from error
    numbers = {
        "accuracy": estimate.accuracy,
        "low": estimate.low,
        "high": estimate.high,
        "rows": float(estimate.n_rows),
        "reference_accuracy": estimate.reference_accuracy,
        **{f"score.{score}": value for score, value in estimate.scores.items()},
    }
    mlflow.log_metrics({f"{prefix}.{key}": value for key, value in numbers.items()}, step=step)
    mlflow.set_tag(f"{prefix}.warnings", ", ".join(w.code for w in estimate.warnings) or "none")
    if report:
        from gdscore.report import Target, write_report

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)}.html"
            write_report(path, estimator, [Target(name, estimate)])
            mlflow.log_artifact(str(path), prefix)
