"""The recipes and validation accuracies of trained networks as one table, from the records that ``train.py`` left.

python benchmarks/training_table.py                        # of data/checkpoints, to benchmarks/results/training.csv
python benchmarks/training_table.py out/records --output out/training.csv
"""

import argparse
import json
from pathlib import Path

from tables import RESULTS, write
from train import CHECKPOINTS

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


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=CHECKPOINTS, help="of the records <network>-seed<k>.json"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "training.csv")
    options = parser.parse_args(given)
    rows = list(training_rows(options.folder))
    if not rows:
        parser.error(f"no record <network>-seed<k>.json in {options.folder}")
    write(options.output, rows)
    print(f"{options.output}: {len(rows)} networks")


if __name__ == "__main__":
    main()
