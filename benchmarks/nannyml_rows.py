"""NannyML's own estimates beside ours, by its library in an environment of its own.

    python -m venv .venv-nannyml && .venv-nannyml/bin/pip install nannyml
    python benchmarks/nannyml_rows.py export tables text --only seed0             # outputs of the jobs: data/nannyml/*.npz
    NML_DISABLE_USAGE_LOGGING=1 .venv-nannyml/bin/python benchmarks/nannyml_rows.py estimate   # results/estimates/nannyml.csv

`export` runs where gdscore is installed: it trains the classifiers of `estimates.py` and writes probabilities and labels of
the reference and of each target in each variant. `estimate` runs where NannyML is: its CBPE, with default settings, fitted on the
reference, gives the accuracy of each target as one chunk, and its interval is the chunk's confidence boundary (three standard errors of
sampling). Rows are those of `estimates.py`, with ``nannyml`` as their estimator. Usage statistics of NannyML are switched off.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np

EXPORTS = Path(__file__).resolve().parents[1] / "data" / "nannyml"
RESULTS = Path(__file__).resolve().parent / "results" / "estimates"
FIELDS = (
    *("suite", "source", "seed", "target", "variant", "rows", "truth", "estimator", "accuracy", "low", "high"),
    *("class", "warnings", "reference_accuracy", "reference_rows", "device", "commit"),
)


def export(names, only):
    """Probabilities and labels of every target in every variant, as `estimates.py` draws them."""
    import gdscore
    from estimates import VARIANTS, in_variant, mix_of, suites
    from tabular_data import fitted

    EXPORTS.mkdir(parents=True, exist_ok=True)
    for job in (j for name in names for j in suites()[name]() if any(text in j.name for text in only)):
        task = job.make["task"]
        classifier = fitted(task, job.make["model"], job.seed)
        reference = gdscore.from_sklearn(classifier, *task.reference)
        arrays = {"reference/p": reference.probabilities, "reference/y": reference.labels}
        for number, (name, inputs, labels) in enumerate(task.targets):
            target = "unshifted" if number == 0 else name
            outputs = gdscore.from_sklearn(classifier, inputs, labels)
            rng = np.random.default_rng([job.seed, *target.encode()])
            for variant in VARIANTS["image"] if target == "unshifted" else VARIANTS[job.kind]:
                rows = in_variant(outputs, variant, mix_of(reference), rng)
                arrays |= {f"{target}/{variant}/p": rows.probabilities, f"{target}/{variant}/y": rows.labels}
        np.savez_compressed(EXPORTS / f"{job.suite}__{job.source}__{job.seed}.npz", **arrays)
        print(job.name, flush=True)


def frame(p, y=None):
    import pandas as pd

    columns = {f"p{k}": p[:, k] for k in range(p.shape[1])}
    if p.shape[1] == 2:
        columns = {"p1": p[:, 1]}
    found = pd.DataFrame(columns | {"predicted": p.argmax(axis=1)})
    return found if y is None else found.assign(label=y)


def estimated(file):
    """One row for each target and variant of a job."""
    import nannyml

    suite, source, seed = file.stem.split("__")
    with np.load(file, allow_pickle=False) as packed:
        arrays = {key: packed[key] for key in packed.files}
    p, y = arrays.pop("reference/p"), arrays.pop("reference/y")
    classes = p.shape[1]
    binary = classes == 2
    estimator = nannyml.CBPE(
        problem_type="classification_binary" if binary else "classification_multiclass",
        y_pred_proba="p1" if binary else {k: f"p{k}" for k in range(classes)},
        y_pred="predicted",
        y_true="label",
        metrics=["accuracy"],
        chunk_number=1,
    ).fit(frame(p, y))
    shared = {"suite": suite, "source": source, "seed": seed, "estimator": "nannyml", "device": "cpu"}
    shared |= {"commit": f"nannyml {nannyml.__version__}", "reference_rows": len(y)}
    shared["reference_accuracy"] = f"{(p.argmax(axis=1) == y).mean():.5f}"
    for key in sorted(k for k in arrays if k.endswith("/p")):
        target, variant, _ = key.rsplit("/", 2)
        q, labels = arrays[key], arrays[f"{target}/{variant}/y"]
        found = estimator.estimate(frame(q)).filter(period="analysis").to_df()
        numbers = [found[("accuracy", name)].iloc[0] for name in NUMBERS]
        row = dict(zip(("accuracy", "low", "high"), (f"{min(max(v, 0), 1):.5f}" for v in numbers), strict=True))
        truth = (q.argmax(axis=1) == labels).mean()
        yield shared | row | {"target": target, "variant": variant, "rows": len(labels), "truth": f"{truth:.5f}"}


NUMBERS = ("value", "lower_confidence_boundary", "upper_confidence_boundary")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("export", "estimate"))
    parser.add_argument("suites", nargs="*", default=["tables", "text"])
    parser.add_argument(
        "--only", nargs="+", default=["seed0"], metavar="TEXT", help="jobs with one of these in their name"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "nannyml.csv")
    options = parser.parse_args()
    if options.command == "export":
        export(options.suites, options.only)
        return
    os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
    rows = []
    for file in sorted(EXPORTS.glob("*.npz")):
        rows += estimated(file)
        print(file.stem, file=sys.stderr, flush=True)
    with options.output.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
