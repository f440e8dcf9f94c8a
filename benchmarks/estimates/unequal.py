"""Models that predict a rare class too often, or decide at a threshold, on an imbalanced table whose truth is known.

    python -m benchmarks.estimates.unequal        # about a minute on two cores: results/unequal.csv and a table

13 % of the rows are positive. Logistic regression and boosting are trained with balanced weights of classes, and decide
at 0.1, 0.3, 0.5 and 0.7 (`FixedThresholdClassifier`). Targets are drawn from the same population, and from ones whose
inputs have moved while the labels still follow from them (covariate shift). Beside the estimates, fitted on the
reference alone and with shifted sets, stand the accuracy on the reference ("unchanged") and mean confidence after
isotonic calibration (CBPE); NannyML's CBPE where it is installed.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, recall_score
from sklearn.model_selection import FixedThresholdClassifier

import gdscore
from benchmarks import RESULTS
from benchmarks.estimates.run import cbpe

FILE = RESULTS / "unequal.csv"
ROWS, SHIFTS, SEEDS, THRESHOLDS = 4000, (0.0, 0.25, 0.5), 3, (0.1, 0.3, 0.5, 0.7)
MODELS = {
    "logistic": lambda: LogisticRegression(class_weight="balanced"),
    "boosting": lambda: HistGradientBoostingClassifier(class_weight="balanced", max_iter=60, random_state=0),
}
FIELDS = ("model", "threshold", "shift", "seed", "measure", "estimator", "truth", "value", "low", "high")


def rows(count, shift, rng):
    """Inputs and labels; the labels follow from the inputs in the same way whatever the shift is."""
    x = rng.normal(size=(count, 6))
    x[:, 0] += shift
    odds = -2.6 + 1.2 * x[:, 0] - 0.8 * x[:, 1] + 0.6 * x[:, 2] * x[:, 3]
    return x, (rng.random(count) < 1 / (1 + np.exp(-odds))).astype(int)


def nannyml_cbpe(reference, target):
    """Accuracy by NannyML; None where it is not installed."""
    try:
        import nannyml
        import pandas as pd
    except ImportError:
        return None
    frames = []
    for out in (reference, target):
        frame = pd.DataFrame({"p": out.probabilities[:, 1], "y_pred": out.predictions})
        frames.append(frame.assign(y=out.labels) if out is reference else frame)
    made = nannyml.CBPE(
        y_pred_proba="p",
        y_pred="y_pred",
        y_true="y",
        metrics=["accuracy"],
        problem_type="classification_binary",
        chunk_number=1,
    )
    found = made.fit(frames[0]).estimate(frames[1]).filter(period="analysis").to_df()
    return float(found["accuracy"]["value"].iloc[0])


def estimates(seed):
    rng = np.random.default_rng(seed)
    train, reference = rows(ROWS, 0.0, rng), rows(ROWS, 0.0, rng)
    targets = {shift: rows(ROWS, shift, rng) for shift in SHIFTS}
    for name, make in MODELS.items():
        fitted = make().fit(*train)
        for threshold in THRESHOLDS:
            clf = FixedThresholdClassifier(fitted, threshold=threshold, response_method="predict_proba").fit(*train)
            known = gdscore.from_sklearn(clf, *reference)
            estimators = {
                "fit": gdscore.AccuracyEstimator().fit(known),
                "fit_predictor": gdscore.AccuracyEstimator().fit_predictor(clf, *reference, progress=False),
            }
            for shift, (x, y) in targets.items():
                target = gdscore.from_sklearn(clf, x, y)
                mix = np.bincount(y, minlength=2) / len(y)
                fixed = {"model": name, "threshold": threshold, "shift": shift, "seed": seed}
                truths = {
                    "accuracy": target.accuracy,
                    "precision": precision_score(y, target.predictions),
                    "recall": recall_score(y, target.predictions),
                }
                for kind, est in estimators.items():
                    for assumption, class_mix in ((kind, "unknown"), (f"{kind}, mix given", mix)):
                        e = est.estimate(target, class_mix=class_mix)
                        positive = e.per_class[1]
                        found = {"accuracy": (e.accuracy, e.low, e.high)}
                        found |= {
                            n: (q.value, q.low, q.high)
                            for n, q in (("precision", positive.precision), ("recall", positive.recall))
                        }
                        for measure, (value, low, high) in found.items():
                            yield fixed | {
                                "measure": measure,
                                "estimator": assumption,
                                "truth": truths[measure],
                                "value": value,
                                "low": low,
                                "high": high,
                            }
                others = {
                    "unchanged": known.accuracy,
                    "CBPE": cbpe(known, target),
                    "NannyML": nannyml_cbpe(known, target),
                }
                for other, value in others.items():
                    if value is not None:
                        yield fixed | {
                            "measure": "accuracy",
                            "estimator": other,
                            "truth": target.accuracy,
                            "value": value,
                            "low": "",
                            "high": "",
                        }


def table(found):
    """Error in points and, with intervals, coverage and width, by measure, estimator and shift."""
    lines = [
        "| | estimator | " + " | ".join(f"moved by {s:g}" for s in SHIFTS) + " |",
        "|---" * (2 + len(SHIFTS)) + "|",
    ]
    for measure, estimator in dict.fromkeys((r["measure"], r["estimator"]) for r in found):
        cells = []
        for shift in SHIFTS:
            own = [r for r in found if (r["measure"], r["estimator"], r["shift"]) == (measure, estimator, shift)]
            cell = f"{100 * np.mean([abs(r['value'] - r['truth']) for r in own]):.1f}"
            if own[0]["low"] != "":
                held = np.mean([r["low"] <= r["truth"] <= r["high"] for r in own])
                cell += f" / {held:.0%} / {100 * np.mean([r['high'] - r['low'] for r in own]):.0f}"
            cells.append(cell)
        lines.append(f"| {measure} | {estimator} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    found = [row for seed in range(SEEDS) for row in estimates(seed)]
    with options.output.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, FIELDS)
        writer.writeheader()
        writer.writerows({k: f"{v:.5f}" if isinstance(v, float) else v for k, v in row.items()} for row in found)
    print(table(found))


if __name__ == "__main__":
    main()
