"""How good are estimates? The library's estimator and the direct ones, on families left out and on natural shifts.

    python benchmarks/estimates.py                  # from the committed cells, seconds on a CPU
    python benchmarks/estimates.py --cells out/cells

Reads what ``cells.py`` wrote: ``metasets/<source>.csv``, shifted copies of the source's held-out data, to calibrate on,
and ``deployed``, ``mixed``, the sets to judge, whose labels serve for the truth alone. Writes
``benchmarks/results/estimates.csv``, one row a set, and a summary.

- Corruptions: a family is left out of calibration, with every composition it is part of, and its sets of the test data
  are estimated; family by family.
- Natural pairs, subpopulations, label shift and unshifted test sets: calibrated on everything.

The recipe (scores, ten neighbours) was chosen on PACS and the digits; CIFAR-100 subpopulations had no part in it.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from gdscore.estimator import Calibration, Judge
from gdscore.estimator.interval import parts_of
from gdscore.estimator.sizes import SizeEffect

RESULTS = Path(__file__).resolve().parent / "results"
COLUMNS = {"cot": "cot@T", "nuclear": "nuclear", "confscore": "confscore@T", "frechet": "frechet", "agreescore": "soft"}
ALONE = ("cot", "nuclear", "confscore", "frechet")
DIRECT = {"cot@T": -1, "cott@T": 1, "atc@T": 1, "doc@T": 1, "confscore@T": 1, "agreescore": -1}
CHOSEN_ON = ("pacs", "mnist", "mnistm", "usps")


def read(file):
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def family(row):
    """Kinds of shift of a meta-set; those of a composition are in the name of the set."""
    if ":" not in row["set"]:
        return row["family"]
    return "+".join(part.rsplit("-", 1)[0] for part in row["set"].split(":")[1].split("+"))


LEVEL = 0.9


def fitted(rows, scores, *, without=None):
    """What is learned from a table of meta-sets, without those that a family has part in."""
    rows = [row for row in rows if without is None or without not in parts_of(family(row))]
    accuracy = np.array([float(row["accuracy"]) for row in rows])
    table = Calibration(
        families=[family(row) for row in rows],
        accuracy=accuracy,
        rows=np.array([int(row["n"]) for row in rows]),
        scores={name: np.array([float(row[COLUMNS[name]]) for row in rows]) for name in scores},
        sizes=SizeEffect(
            float(rows[0]["frechet_bias"]), reference_rows=int(np.median([int(row["n"]) for row in rows]))
        ),
    )
    return Judge(table)


def judged(judge, row, scores):
    values = {name: float(row[COLUMNS[name]]) for name in scores}
    return dict(zip(("accuracy", "low", "high"), judge.judge(values, int(row["n"]), LEVEL), strict=True))


def estimates(cells, source, peer):
    """One row for every set that the source meets."""
    scores = list(COLUMNS) if peer else list(ALONE)
    meta = read(cells / "metasets" / f"{source}.csv")
    targets = read(cells / "deployed" / f"{source}.csv") + read(cells / "mixed" / f"{source}.csv")
    known = frozenset().union(*(parts_of(family(row)) for row in meta))
    whole = fitted(meta, scores)
    for name in dict.fromkeys(row["family"] for row in targets):
        judge = fitted(meta, scores, without=name) if name in known else whole
        kind = "corruption" if name in known else name if name in ("unshifted", "label-shift") else "natural"
        for row in targets:
            if row["family"] != name:
                continue
            found = judged(judge, row, scores)
            line = {"source": source, "kind": kind, "set": row["set"], "n": row["n"], "peer": peer}
            line |= {"truth": float(row["accuracy"])} | found
            line |= {
                column: float(row[column]) if sign > 0 else 1 - float(row[column]) for column, sign in DIRECT.items()
            }
            yield line


def benchmark_of(source):
    data = source.split("-")[0]
    return "digits" if data in ("mnist", "mnistm", "usps") else data.rstrip("0123456789") if "sub" in data else data


def summary(rows):
    """Mean absolute error, bias, coverage and width in points, by benchmark, kind of shift and second model."""
    groups = {}
    for row in rows:
        groups.setdefault((benchmark_of(row["source"]), row["kind"], row["peer"]), []).append(row)
    for (benchmark, kind, peer), members in groups.items():
        truth = np.array([r["truth"] for r in members])
        said, low, high = (np.array([r[key] for r in members]) for key in ("accuracy", "low", "high"))
        line = {"benchmark": benchmark, "kind": kind, "peer": peer, "sets": len(members)}
        line |= {"mae": 100 * np.abs(said - truth).mean(), "bias": 100 * (said - truth).mean()}
        line |= {"coverage": 100 * np.mean((low <= truth) & (truth <= high)), "width": 100 * (high - low).mean()}
        for column in DIRECT:
            line[f"{column} mae"] = 100 * np.abs(np.array([r[column] for r in members]) - truth).mean()
        line["chosen on"] = members[0]["source"].split("-")[0] in CHOSEN_ON
        yield {key: round(value, 2) if isinstance(value, float) else value for key, value in line.items()}


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.5f}" if isinstance(value, float) else value for key, value in row.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=RESULTS / "cells")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    sources = sorted(file.stem for file in (options.cells / "metasets").glob("*.csv"))
    rows = [row for source in sources for peer in (False, True) for row in estimates(options.cells, source, peer)]
    lines = list(summary(rows))
    write(options.output / "estimates.csv", rows)
    write(options.output / "estimates-summary.csv", lines)
    for line in lines:
        print(
            f"{line['benchmark']:>11} {line['kind']:<11} {'second model' if line['peer'] else 'alone':<12} {line['sets']:>3} sets: "
            f"off by {line['mae']:.1f} (bias {line['bias']:+.1f}), {line['coverage']:.0f} % covered, width {line['width']:.0f}; "
            + ", ".join(f"{column} {line[f'{column} mae']:.1f}" for column in DIRECT)
        )


if __name__ == "__main__":
    main()
