"""How good are estimates? The library's estimator and the direct ones, on families left out and on natural shifts.

    python benchmarks/estimates.py                  # from the committed cells, seconds on a CPU
    python benchmarks/estimates.py --cells out/cells --output out --page ""

Reads what ``cells.py`` wrote: ``shifted_sets/<source>.csv``, shifted copies of the source's held-out data, to calibrate on,
and ``deployed``, ``mixed``, the sets to judge, whose labels serve for the truth alone. Writes
``benchmarks/results/estimates.csv``, one row a set and estimator; ``estimates-summary.csv``, one row for each benchmark, kind of shift
and estimator; and the tables of ``docs/estimator.md``.

- Corruptions: a family is left out of calibration, with every composition it is part of, and its sets of the test data
  are estimated; family by family.
- Natural pairs, subpopulations, label shift and unshifted test sets: calibrated on everything.
- Own estimates: by regressor, without a second opinion, with that of the model itself by batch statistics (``+
  itself``; not for class mixes, whose cells do not have it), of a second model (``+ peer``), and of both.
- Direct estimates: with temperature, intervals of sampling alone, as `gdscore.direct_estimate` gives them.

What the regressor ``cautious`` looks at was chosen on other networks and splits: ``choosing.py``.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from gdscore.estimator import Calibration, Judge
from gdscore.estimator.cautions import about_scores
from gdscore.estimator.direct import DIRECT, ERROR_RATES, sampling_error
from gdscore.estimator.sizes import SizeEffect
from gdscore.shifts.families import parts_of
from tables_page import fill, markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
POPULATION = {"cot": "cot@T", "nuclear": "nuclear", "confscore": "confscore@T", "frechet": "frechet"}
ITSELF, PEER = {"selfscore": "selfscore"}, {"agreescore": "soft"}
OPINIONS = {"": {}, " + itself": ITSELF, " + peer": PEER, " + both": ITSELF | PEER}
REGRESSORS = ("cautious", "nearest")
# As the library chooses them: ATC is there as a view of its own.
OWN = {
    f"{regressor}{name}": (regressor, POPULATION | ({"atc": "atc@T"} if regressor == "cautious" else {}) | more)
    for regressor in REGRESSORS
    for name, more in OPINIONS.items()
}
# A temperature changes no predicted class, so none of AgreeScore.
TEMPERED = {name: name if name == "agreescore" else f"{name}@T" for name in DIRECT}
# Rows that transport scores of the cells are computed on, as in panel.py, which needs PyTorch.
TRANSPORT_ROWS = 4000
LEVEL = 0.9
SETS = {
    ("cifar10", "corruption"): "CIFAR-10 ResNet-18, {} corrupted test sets, family left out",
    ("pacs", "natural"): "PACS, {} pairs (ResNet-18 from scratch, 64 px)",
    ("digits", "natural"): "digits, {} pairs (small CNN)",
    ("cifar100sub", "natural"): "CIFAR-100, subclasses not trained on, {} splits (ResNet-18)",
    ("all", "natural"): "natural, all benchmarks, {} pairs",
    ("cifar10", "label-shift"): "CIFAR-10, {} Dirichlet mixes of the test set's classes",
    ("digits", "label-shift"): "digits, {} class mixes",
    ("cifar100sub", "label-shift"): "CIFAR-100, {} class mixes",
    ("cifar10", "unshifted"): "CIFAR-10, {} unshifted test set",
    ("digits", "unshifted"): "digits, {} unshifted test sets",
    ("cifar100sub", "unshifted"): "CIFAR-100, {} unshifted test sets",
}


def read(file):
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def family(row):
    """Kinds of shift of a shifted set; those of a composition are in the name of the set."""
    if ":" not in row["set"]:
        return row["family"]
    return "+".join(part.rsplit("-", 1)[0] for part in row["set"].split(":")[1].split("+"))


def fitted(rows, columns, regressor, *, without=None):
    """What is learned from a table of shifted sets, without those that a family has part in."""
    rows = [row for row in rows if without is None or without not in parts_of(family(row))]
    accuracy = np.array([float(row["accuracy"]) for row in rows])
    table = Calibration(
        families=[family(row) for row in rows],
        accuracy=accuracy,
        rows=np.array([int(row["n"]) for row in rows]),
        scores={name: np.array([float(row[column]) for row in rows]) for name, column in columns.items()},
        sizes=SizeEffect(
            float(rows[0]["frechet_bias"]), reference_rows=int(np.median([int(row["n"]) for row in rows]))
        ),
    )
    return Judge(table, regressor)


def judged(judge, row, columns):
    """Accuracy with its bounds, and whether the scores are so far apart that the estimator would warn."""
    values, rows = {name: float(row[column]) for name, column in columns.items()}, int(row["n"])
    accuracy, low, high = judge.judge(values, rows, LEVEL)
    itself = [a for a, name in zip(judge.table.accuracy, judge.table.families, strict=True) if name == "resampled-none"]
    warned = bool(about_scores(judge.opinions(values, rows), float(np.mean(itself)) - accuracy))
    return {"accuracy": accuracy, "low": low, "high": high, "disagree": float(warned)}


def direct(name, row):
    """Accuracy by one score of a cell, with its interval, as `gdscore.direct_estimate` makes it."""
    value, rows = float(row[TEMPERED[name]]), int(row["n"])
    accuracy = min(max(1 - value if name in ERROR_RATES else value, 0.0), 1.0)
    error = sampling_error(accuracy, min(rows, TRANSPORT_ROWS) if name in ("cot", "cott") else rows, LEVEL)
    return {"accuracy": accuracy, "low": max(0.0, accuracy - error), "high": min(1.0, accuracy + error)}


def estimates(cells, source):
    """One row for every set that the source meets and every estimator."""
    meta = read(cells / "shifted_sets" / f"{source}.csv")
    targets = read(cells / "deployed" / f"{source}.csv") + read(cells / "mixed" / f"{source}.csv")
    known = frozenset().union(*(parts_of(family(row)) for row in meta))
    whole = {name: fitted(meta, columns, regressor) for name, (regressor, columns) in OWN.items()}
    for group in dict.fromkeys(row["family"] for row in targets):
        kind = "corruption" if group in known else group if group in ("unshifted", "label-shift") else "natural"
        judges = whole
        if group in known:
            judges = {name: fitted(meta, c, regressor, without=group) for name, (regressor, c) in OWN.items()}
        for row in (row for row in targets if row["family"] == group):
            said = {
                name: judged(judges[name], row, columns)
                for name, (_, columns) in OWN.items()
                if set(columns.values()) <= set(row)
            }
            said |= {TEMPERED[name]: direct(name, row) for name in DIRECT}
            for name, numbers in said.items():
                about = {"source": source, "kind": kind, "set": row["set"], "n": int(row["n"]), "estimator": name}
                numbers = {"truth": float(row["accuracy"])} | numbers
                rounded = {key: round(float(value), 5) for key, value in numbers.items()}
                yield about | rounded | ({} if "disagree" in rounded else {"disagree": ""})


def benchmark_of(source):
    data = source.split("-")[0]
    return "digits" if data in ("mnist", "mnistm", "usps") else data.rstrip("0123456789") if "sub" in data else data


def summary(rows):
    """Mean absolute error, bias, coverage and width in points, by benchmark, kind of shift and estimator."""
    named = [(benchmark_of(row["source"]), row) for row in rows]
    named += [("all", row) for row in rows if row["kind"] == "natural"]
    groups = {}
    for benchmark, row in named:
        groups.setdefault((benchmark, row["kind"]), []).append(row)
    for (benchmark, kind), members in groups.items():
        for estimator in (*OWN, *TEMPERED.values()):
            own = [row for row in members if row["estimator"] == estimator]
            if not own:
                continue
            truth, said, low, high = (
                np.array([row[key] for row in own]) for key in ("truth", "accuracy", "low", "high")
            )
            numbers = {"mae": np.abs(said - truth).mean(), "bias": (said - truth).mean()}
            numbers |= {"coverage": np.mean((low <= truth) & (truth <= high)), "width": (high - low).mean()}
            numbers["disagree"] = np.mean([row["disagree"] for row in own]) if estimator in OWN else np.nan
            yield (
                {"benchmark": benchmark, "kind": kind, "estimator": estimator, "sets": len(own)}
                | {key: round(100 * float(value), 3) for key, value in numbers.items()}
            )


def page_tables(lines):
    """A table for each regressor and one of the direct estimators, as Markdown."""
    found = {(line["benchmark"], line["kind"], line["estimator"]): line for line in lines}

    def titled(key):
        return SETS[key].format(found[(*key, next(iter(OWN)))]["sets"])

    def covered(line):
        share = line["coverage"]
        return f"{share:.0f} %" if line["sets"] > 25 else f"{share * line['sets'] / 100:.0f} of {line['sets']}"

    def signed(value):
        return f"{value:+.1f}".replace("-", "−") if round(value, 1) else "0.0"

    def numbers(line, *more):
        return " / ".join([f"{line['mae']:.1f}", signed(line["bias"]), covered(line), *more])

    tables = {}
    for regressor in REGRESSORS:
        each = [[found.get((*key, f"{regressor}{name}")) for name in OPINIONS] for key in SETS]
        rows = [
            [titled(key), *(numbers(line, f"{line['width']:.1f}") if line else "" for line in lines)]
            for key, lines in zip(SETS, each, strict=True)
        ]
        tables[regressor] = markdown(["sets", *(name[3:] or "alone" for name in OPINIONS)], rows)
    others = []
    for key in SETS:
        each = [found[(*key, column)] for column in TEMPERED.values()]
        widths = [line["width"] for line in each]
        others.append([titled(key), *map(numbers, each), f"{min(widths):.1f} to {max(widths):.1f}"])
    return tables | {"direct": markdown(["sets", *(f"`{name}`" for name in TEMPERED), "widths"], others)}


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=RESULTS / "cells")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", default=str(ROOT / "docs" / "estimator.md"), help="page to fill; empty for none")
    options = parser.parse_args(given)
    sources = sorted(file.stem for file in (options.cells / "shifted_sets").glob("*.csv"))
    rows = [row for source in sources for row in estimates(options.cells, source)]
    lines = list(summary(rows))
    write(options.output / "estimates.csv", rows)
    write(options.output / "estimates-summary.csv", lines)
    if options.page:
        fill(Path(options.page), page_tables(lines))
    for line in lines:
        if line["estimator"] == next(iter(OWN)):
            print(
                f"\n{line['benchmark'] + ' ' + line['kind']:<24} {line['sets']:>3} sets  error   bias  covered  width"
            )
        print(
            f"  {line['estimator']:<32} {line['mae']:>5.1f}  {line['bias']:>+5.1f}  {line['coverage']:>5.0f} %  {line['width']:>5.1f}"
        )


if __name__ == "__main__":
    main()
