"""Files of results: they grow row by row, so that a run goes on where it was stopped, and are read as dictionaries."""

import csv
import os
import subprocess
from pathlib import Path

__all__ = ["Rows", "commit", "joined", "read"]


def commit():
    """Of the code that runs: what the environment says where there is no repository."""
    if "GDSCORE_COMMIT" in os.environ:
        return os.environ["GDSCORE_COMMIT"]
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


class Rows:
    """A CSV file that grows by one row a set and knows which sets it has.

    A `worker` of several writes ``<name>.<worker>.part`` beside it, and `joined` puts all of them into the file.
    """

    def __init__(self, file, fixed, worker=None):
        self.file, self.fixed = file if worker is None else file.with_suffix(f".{worker}.part"), fixed
        self.seen, self.columns = set(), None
        for there in {file, self.file}:
            if there.exists():
                with there.open(newline="") as lines:
                    reader = csv.DictReader(lines)
                    self.seen |= {row["set"] for row in reader}
                    if there == self.file:
                        self.columns = list(reader.fieldnames)

    def add(self, row):
        row = {key: f"{value:.7g}" if isinstance(value, float) else value for key, value in (row | self.fixed).items()}
        if self.columns is not None and set(row) != set(self.columns):
            differ = ", ".join(sorted(set(row) ^ set(self.columns)))
            raise ValueError(
                f"{self.file} has other columns ({differ}): it was made by other code; move it away to start anew."
            )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", newline="") as lines:
            writer = csv.DictWriter(lines, self.columns or list(row), lineterminator="\n")
            if self.columns is None:
                writer.writeheader()
                self.columns = list(row)
            writer.writerow(row)
        self.seen.add(row["set"])


def joined(file, names):
    """Put the rows of all workers into the file, in the order of the sets' names."""
    parts = sorted(file.parent.glob(f"{file.stem}.*.part"))
    if not parts:
        return
    place = {name: number for number, name in enumerate(names)}
    rows = []
    for part in [file, *parts]:
        if part.exists():
            with part.open(newline="") as lines:
                rows += list(csv.DictReader(lines))
    rows.sort(key=lambda row: place.get(row["set"].split("/")[0], len(place)))
    whole = file.with_suffix(".partial")
    with whole.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    whole.replace(file)
    for part in parts:
        part.unlink()


def read(file):
    """Rows of a CSV file, its numbers as floats."""

    def value(text):
        try:
            return float(text)
        except ValueError:
            return text

    with Path(file).open(newline="") as lines:
        return [
            {key: text if key in ("set", "commit") else value(text) for key, text in row.items()}
            for row in csv.DictReader(lines)
        ]
