"""A few labels: coverage and width of intervals on targets under natural shift, 1,000 draws each.

    python -m benchmarks.estimates.few_labels run --exports data/exports --packed data/packed    # 3 minutes on one core
    python -m benchmarks.estimates.few_labels run --split development --output out               # what the interval was chosen on
    python -m benchmarks.estimates.few_labels run --small --output out                           # generated data, seconds

Exports are ``.npz`` files of a network's outputs, arrays ``reference/z,y,f``, ``shift/<family>/<n>/z,y,f`` and
``target/<name>/z,y,f`` (logits, labels, features); tables and texts come from ``benchmarks/data/tables.py``. The order of rows is that
of `gdscore.labeling.choose`, which is asked for all rows; draws and intervals are the functions that `choose` and `estimate`
call, for 1,000 seeds at once. Exports of small networks, of ResNet-18 and of digits, and the development half of tables and
texts, are what the interval was chosen on; all others are reported.

Writes ``labels.csv`` (one row a pair and number of labels) and ``labels-speed.json``.
"""

import argparse
import csv
import json
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from scipy import stats

import gdscore
from benchmarks import RESULTS, ROOT
from gdscore import labeling
from gdscore.labeling.betting import wealth
from gdscore.labeling.choice import stratified_ranks
from gdscore.labeling.labelled import interval, variance_ratio

LABELS = (10, 20, 50, 100, 200)
LEVEL = 0.9
Z = stats.norm.ppf(0.5 + LEVEL / 2)
STRATA = 5
DRAWS_OF_WIDTH, CELLS = 20, 200


# -- data -----------------------------------------------------------------------------------------------------


def split_of(file):
    chosen_on = file.stem.startswith(("mnist", "usps")) or "small" in file.stem or "resnet18" in file.stem
    return "development" if chosen_on else "report"


def export_pairs(file):
    """Targets of one export, with the fitted estimator."""
    with np.load(file, allow_pickle=False) as data:

        def outputs(key):
            return gdscore.Outputs(
                logits=data[f"{key}/z"].astype(np.float32),
                features=data[f"{key}/f"].astype(np.float32),
                labels=data[f"{key}/y"].astype(np.int64),
            )

        keys = [name.removesuffix("/z") for name in data.files if name.endswith("/z")]
        sets = [gdscore.ShiftedSet(outputs(key), key.split("/")[1]) for key in keys if key.startswith("shift/")]
        estimator = gdscore.AccuracyEstimator(LEVEL).fit(outputs("reference"), shifted_sets=sets)
        name = file.stem
        benchmark = "digits" if name.startswith(("mnist", "usps")) else name.split("-")[0]
        benchmark = benchmark.rstrip("0123456789") if "sub" in benchmark else benchmark
        for key in keys:
            if key.startswith("target/"):
                yield {
                    "split": split_of(file),
                    "benchmark": benchmark,
                    "source": name,
                    "target": key.split("/")[1],
                    "estimator": estimator,
                    "outputs": outputs(key),
                }


def classifier_pairs(split, packed):
    """The same of scikit-learn classifiers on tables and texts; their estimators are fitted on the reference alone."""
    from benchmarks.data import tables

    for task in tables.tasks(split, packed):
        for model in task.models if task.kind == "table" else task.models[:1]:
            classifier = tables.fitted(task, model)
            reference = gdscore.from_sklearn(classifier, *task.reference)
            estimator = gdscore.AccuracyEstimator(LEVEL).fit(reference)
            for name, x, y in task.targets:
                yield {
                    "split": task.split,
                    "benchmark": task.group,
                    "source": f"{task.name} {model}",
                    "target": name,
                    "estimator": estimator,
                    "outputs": gdscore.from_sklearn(classifier, x, y),
                }


def generated_pairs():
    """Clusters under noise, in seconds."""
    rng = np.random.default_rng(0)

    def outputs(rows, noise):
        y = rng.integers(0, 5, rows)
        x = np.eye(5)[y] * 3 + noise * rng.normal(size=(rows, 5))
        return gdscore.Outputs(logits=2 * x, features=x, labels=y)

    estimator = gdscore.AccuracyEstimator(LEVEL).fit(outputs(1000, 1.0))
    for k, noise in enumerate((1.5, 2.5)):
        yield {
            "split": "report",
            "benchmark": "generated",
            "source": "clusters",
            "target": f"window {k + 1}",
            "estimator": estimator,
            "outputs": outputs(600, noise),
        }


# -- intervals ------------------------------------------------------------------------------------------------


def wilson(correct, n):
    p = correct / n
    centre, half = (p + Z * Z / (2 * n)) / (1 + Z * Z / n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return centre - half / (1 + Z * Z / n), centre + half / (1 + Z * Z / n)


def clopper_pearson(correct, n):
    tail = (1 - LEVEL) / 2
    count = np.arange(n + 1)
    low = np.where(count > 0, stats.beta.ppf(tail, np.maximum(count, 1), n - count + 1), 0.0)
    high = np.where(count < n, stats.beta.ppf(1 - tail, count + 1, np.maximum(n - count, 1)), 1.0)
    return low[correct.astype(int)], high[correct.astype(int)]


def ppi(right, predicted, mean, left):
    """PPI++ with its tuned power, the normal interval, and what is left of a finite population."""
    y, p = right - right.mean(axis=1, keepdims=True), predicted - predicted.mean(axis=1, keepdims=True)
    spread = (p * p).sum(axis=1)
    power = np.where(spread > 0, (y * p).sum(axis=1) / np.maximum(spread, 1e-12), 0.0)
    centre = right.mean(axis=1) - power * (predicted.mean(axis=1) - mean)
    n = right.shape[1]
    half = Z * np.sqrt(((y - power[:, None] * p) ** 2).sum(axis=1) / (n - 1) / n * left)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def five_strata(right, n, draws, rng):
    """Equal numbers of random rows in five strata of equal size, the normal interval."""
    size, each = len(right) // STRATA, n // STRATA
    mean, variance = np.zeros(draws), np.zeros(draws)
    for k in range(STRATA):
        own = right[k * size : (k + 1) * size if k < STRATA - 1 else len(right)]
        drawn = own[_random_rows(len(own), each, draws, rng)]
        weight = len(own) / len(right)
        mean += weight * drawn.mean(axis=1)
        variance += weight**2 * drawn.var(axis=1, ddof=1) / each * (1 - each / len(own))
    half = Z * np.sqrt(variance)
    return np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)


def _random_rows(rows, count, draws, rng):
    return (
        np.argpartition(rng.random((draws, rows)), count - 1, axis=1)[:, :count]
        if count < rows
        else np.tile(np.arange(rows), (draws, 1))
    )


def measured(pair, draws, seed):
    """One row for every number of labels: coverage and mean width of each method."""
    outputs, estimator = pair["outputs"], pair["estimator"]
    rows = labeling.choose(estimator, outputs, len(outputs))
    by_rank = np.argsort(rows.ranks)
    right = np.asarray(outputs.correct, dtype=np.float64)[rows.rows[by_rank]]
    predicted = rows.predicted_correct[by_rank]
    n_rows, truth = len(right), float(right.mean())
    rho = float(np.corrcoef(right, predicted)[0, 1]) if 0 < truth < 1 and predicted.std() > 0 else 0.0
    rng = np.random.default_rng(seed)
    most = min(max(LABELS), n_rows)
    spread = stratified_ranks(n_rows, most, np.arange(seed * draws, (seed + 1) * draws))
    random = rng.permuted(_random_rows(n_rows, most, draws, rng), axis=1)
    at_all_times, widths = sequence_measures(right[random], predicted[random], rows, truth)
    for n in LABELS:
        if n > n_rows:
            continue
        drawn = right[random[:, :n]]
        correct, left = drawn.sum(axis=1), (n_rows - n) / (n_rows - 1)
        ordered = right[np.sort(spread[:, :n], axis=1)]
        ends = {
            "wilson": wilson(correct, n),
            "clopper": clopper_pearson(correct, n),
            "ppi": ppi(drawn, predicted[random[:, :n]], predicted.mean(), left),
            "strata": five_strata(right, n, draws, rng),
            "gdscore": interval(ordered, n_rows, LEVEL, variance_ratio(ordered)),
        }
        line = {key: pair[key] for key in ("split", "benchmark", "source", "target")}
        line |= {"rows": n_rows, "accuracy": round(truth, 4), "rho": round(rho, 3), "labels": n}
        for name, (low, high) in ends.items():
            line[f"coverage_{name}"] = round(float(np.mean((low <= truth + 1e-9) & (truth - 1e-9 <= high))), 3)
            line[f"width_{name}"] = round(float(np.mean(high - low)), 4)
        yield line | {"coverage_sequence": round(at_all_times, 3), "width_sequence": round(widths[n], 4)}


def sequence_measures(right, predicted, rows, truth):
    """Share of runs in which the sequence never excludes the truth, and mean width after each number of labels."""
    mean, n_rows = rows.mean_predicted_correct, rows.n_rows
    missed = np.zeros(len(right), dtype=bool)
    for reached in wealth(right, right, predicted, mean, n_rows, np.array([[truth]]), LEVEL):
        missed |= reached[:, 0] >= 1 / (1 - LEVEL)
    some, shares = slice(0, DRAWS_OF_WIDTH), np.linspace(0, 1, CELLS + 1)[None]
    kept, widths = np.ones((DRAWS_OF_WIDTH, CELLS + 1), dtype=bool)[: len(right)], {}
    for t, reached in enumerate(wealth(right[some], right[some], predicted[some], mean, n_rows, shares, LEVEL)):
        kept &= reached < 1 / (1 - LEVEL)
        if t + 1 in LABELS:
            widths[t + 1] = float(np.mean((kept.sum(axis=1) + 1) / CELLS))
    return float(1 - missed.mean()), widths


def speed(rows):
    """Seconds and peak of allocated memory of `choose` on a stream of so many rows of ten classes, and of a tenth."""

    def part(seed):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 10, 10_000)
        return gdscore.Outputs(
            logits=(2.5 * np.eye(10)[y] + rng.normal(size=(10_000, 10))).astype(np.float32), labels=y
        )

    estimator = gdscore.AccuracyEstimator(LEVEL).fit(part(0))
    found = {"rows": rows, "budget": 200}
    for name, parts in (("tenth", rows // 100_000), ("all", rows // 10_000)):
        tracemalloc.start()
        start = time.perf_counter()
        labeling.choose(estimator, lambda parts=parts: (part(k) for k in range(1, parts + 1)), 200)
        found[f"seconds_{name}"] = round(time.perf_counter() - start, 2)
        found[f"peak_mb_{name}"] = round(tracemalloc.get_traced_memory()[1] / 1e6, 1)
        tracemalloc.stop()
    return found


# -- results --------------------------------------------------------------------------------------------------


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def run(options):
    pairs, draws = [], 1000
    if options.small:
        pairs, draws = list(generated_pairs()), 100
    else:
        for file in sorted(options.exports.glob("*.npz")):
            pairs += export_pairs(file) if split_of(file) == options.split else ()
        pairs += classifier_pairs(options.split, options.packed)
    rows = []
    for seed, pair in enumerate(pairs):
        rows += measured(pair, draws, seed)
        print(f"{seed + 1}/{len(pairs)} {pair['source']} {pair['target']}", file=sys.stderr)
    write(options.output / "labels.csv", rows)
    found = speed(100_000 if options.small else 1_000_000)
    (options.output / "labels-speed.json").write_text(json.dumps(found, indent=2) + "\n")


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run",))
    parser.add_argument("--exports", type=Path, default=ROOT / "data" / "exports")
    parser.add_argument("--packed", type=Path, default=ROOT / "data" / "packed")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--split", choices=("development", "report"), default="report")
    parser.add_argument("--small", action="store_true", help="generated data instead of files")
    options = parser.parse_args(given)
    warnings.simplefilter("ignore", gdscore.GdscoreWarning)
    run(options)


if __name__ == "__main__":
    main()
