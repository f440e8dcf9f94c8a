"""The recipes and validation accuracies of trained networks as one table, from the records that ``benchmarks/models/train.py`` left.

    python -m benchmarks.models.training_table                        # of data/checkpoints, to benchmarks/results/training.csv
    python -m benchmarks.models.training_table out/records --output out/training.csv

Networks that the table has and the folder has not stay in it.
"""

import argparse
import csv
import json
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.models.train import CHECKPOINTS
from benchmarks.paper.tables import write

__all__ = ["training_rows"]

COLUMNS = ("data", "split", "network", "seed", "epochs", "batch", "rate", "augment", "optimizer", "schedule", "rows")
DEFAULTS = {"optimizer": "sgd", "schedule": "onecycle"}


def training_rows(folder):
    """One row a network, by name and seed."""
    for file in sorted(folder.glob("*-seed*.json")):
        record = json.loads(file.read_text())
        recipe = DEFAULTS | record["recipe"]
        found = {key: record[key] for key in ("validation_accuracy", "seconds", "device")}
        yield {key: recipe[key] for key in COLUMNS} | found


def name_of(row):
    return *(row[key] for key in ("data", "split", "network")), int(row["seed"])


def table_rows(file):
    """Rows of a table that is there already, as texts."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=CHECKPOINTS, help="of the records <network>-seed<k>.json"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "training.csv")
    options = parser.parse_args(given)
    found = list(training_rows(options.folder))
    if not found:
        parser.error(f"no record <network>-seed<k>.json in {options.folder}")
    rows = {name_of(row): row for row in (*table_rows(options.output), *found)}
    write(options.output, [rows[name] for name in sorted(rows)])
    print(f"{options.output}: {len(rows)} networks")


if __name__ == "__main__":
    main()
