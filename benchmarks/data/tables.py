"""Tables and texts with real shift for the benchmarks: read public files once, pack them, cut them into tasks.

    python -m benchmarks.data.tables pack --from data/raw    # writes data/packed/tables/*.npz and data/packed/text/*.npz
    python -m benchmarks.data.tables accuracies              # trains every model of every task and prints accuracies

The raw folder holds three public repositories, or the named files of them:

- ``tables/concept-drift``: ogozuacik/concept-drift-datasets-scikit-multiflow, ``real-world/{elec,weather}.csv``
- ``tables/feature-drift``: ZSKPP/feature-drift, ``DATA real/{Ozone,Phishing,Rialto,Spam,Wine}.zip`` and
  ``DATA real/Insects/gradual_balanced_24150.zip``
- ``reviews``: ccsasuke/man, ``data/fdu-mtl/<domain>.task.{train,test}``

Rows whose inputs repeat an earlier row are left out before anything is split. Tables stay in the order of time.
A packed table is ``features`` float64 N×D, ``labels`` int64 N and ``time`` int64 N (the row's number in the file). A packed
domain of reviews is ``bytes`` (all texts in UTF-8, one after the other), ``ends``, ``labels`` and ``test`` (bool).
"""

import argparse
import io
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from benchmarks.models.tabular import MODELS, fitted

__all__ = ["DOMAINS", "PACKED", "TABLES", "Task", "fitted", "pack", "tasks"]

PACKED = ROOT / "data" / "packed"
MOST_ROWS = 20_000
TRAINING_PERIOD = 0.3
REFERENCE_SHARE, UNSHIFTED_SHARE = 1 / 3, 1 / 6
WINDOW_ROWS, MOST_WINDOWS = 500, 10
TARGETS_PER_DOMAIN = 6

TABLES = {
    "weather": ("development", "concept-drift/real-world/weather.csv"),
    "ozone": ("development", "feature-drift/DATA real/Ozone.zip"),
    "rialto": ("development", "feature-drift/DATA real/Rialto.zip"),
    "spam": ("development", "feature-drift/DATA real/Spam.zip"),
    "phishing": ("development", "feature-drift/DATA real/Phishing.zip"),
    "wine": ("development", "feature-drift/DATA real/Wine.zip"),
    "electricity": ("report", "concept-drift/real-world/elec.csv"),
    "insects": ("report", "feature-drift/DATA real/Insects/gradual_balanced_24150.zip"),
}
CUT_TO_SIZE = ("rialto",)
DOMAINS = (
    *("apparel", "baby", "books", "camera_photo", "dvd", "electronics", "health_personal_care", "imdb"),
    *("kitchen_housewares", "magazines", "MR", "music", "software", "sports_outdoors", "toys_games", "video"),
)


@dataclass(frozen=True)
class Task:
    """A classifier's data: rows to train on, a labelled reference like them, and targets under real shift.

    ``targets`` are ``(name, inputs, labels)``; the first one is unshifted: rows of the reference's domain or period.
    ``time`` is that of the reference's rows, where there is one.
    """

    name: str
    group: str
    kind: str
    split: str
    train: tuple = field(repr=False)
    reference: tuple = field(repr=False)
    targets: list = field(repr=False)
    time: np.ndarray | None = field(default=None, repr=False)

    @property
    def models(self):
        return list(MODELS[self.kind])


def read_table(file):
    """Values of a CSV or ARFF file, zipped or not, as a matrix of float64; the last column is the label."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            text = archive.read(archive.namelist()[0]).decode("latin-1")
    else:
        text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    data = next((k + 1 for k, line in enumerate(lines) if line.strip().lower() == "@data"), None)
    if data is None:
        # The header of a CSV may consist of numbers: it is the one that ends in the name of the label.
        data = int(not lines[0].rsplit(",", 1)[-1].strip().lstrip("-").replace(".", "", 1).isdigit())
    try:
        return np.loadtxt(io.StringIO("\n".join(lines[data:])), delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(f"Expected rows of numbers in {file.name}, but {error}") from None


def without_repeats(values):
    """Positions of the rows (or texts) that no earlier one equals."""
    seen, kept = set(), []
    for row, value in enumerate(values):
        key = value.tobytes() if isinstance(value, np.ndarray) else value
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def packed_table(name, raw):
    values = read_table(raw / "tables" / TABLES[name][1])
    features, (_, labels) = np.ascontiguousarray(values[:, :-1]), np.unique(values[:, -1], return_inverse=True)
    kept = without_repeats(features)
    if name in CUT_TO_SIZE and len(kept) > MOST_ROWS:
        kept = np.sort(generator(name).choice(kept, MOST_ROWS, replace=False))
    return {"features": features[kept], "labels": labels[kept].astype(np.int64), "time": kept}


def read_reviews(file):
    # Reviews contain other line breaks than \n, at which splitlines would cut them.
    rows = [line.split("\t", 1) for line in file.read_bytes().decode("utf-8", "replace").split("\n") if "\t" in line]
    return [text.strip() for _, text in rows], [int(label) for label, _ in rows]


def packed_domain(domain, raw):
    texts, labels, test = [], [], []
    # Test rows first: of a review that stands in both files, the one to train on is left out.
    for part in ("test", "train"):
        found, found_labels = read_reviews(raw / "reviews" / "data" / "fdu-mtl" / f"{domain}.task.{part}")
        texts, labels, test = texts + found, labels + found_labels, test + [part == "test"] * len(found)
    kept = without_repeats(texts)
    encoded = [texts[k].encode() for k in kept]
    return {
        "bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "ends": np.cumsum([len(text) for text in encoded]),
        "labels": np.array(labels, dtype=np.int64)[kept],
        "test": np.array(test)[kept],
    }


def pack(raw, folder=PACKED):
    """Pack all tables and all domains of reviews found below `raw`; returns the files written."""
    raw, written = Path(raw), []
    for kind, names, read in (("tables", TABLES, packed_table), ("text", DOMAINS, packed_domain)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name in names:
            file = folder / kind / f"{name}.npz"
            partial = file.with_suffix(".partial.npz")
            try:
                np.savez_compressed(partial, **read(name, raw))
                partial.replace(file)
            finally:
                partial.unlink(missing_ok=True)
            written.append(file)
    return written


def load(kind, name, folder):
    file = folder / kind / f"{name}.npz"
    if not file.is_file():
        raise FileNotFoundError(
            f"{name!r} is not packed in {folder}; first: python -m benchmarks.data.tables pack --from <raw folder>"
        )
    with np.load(file, allow_pickle=False) as packed:
        return {key: packed[key] for key in packed.files}


def table_task(name, folder):
    """Train, reference and unshifted target from the first 30 % of the time, windows of 500 rows or more from the rest."""
    data = load("tables", name, folder)
    first = int(TRAINING_PERIOD * len(data["labels"]))
    order = generator(name).permutation(first)
    cuts = np.cumsum([int(share * first) for share in (REFERENCE_SHARE, UNSHIFTED_SHARE)])
    reference, unshifted, train = map(np.sort, np.split(order, cuts))
    later = np.arange(first, len(data["labels"]))
    windows = np.array_split(later, max(1, min(MOST_WINDOWS, len(later) // WINDOW_ROWS)))

    def rows(index):
        return data["features"][index], data["labels"][index]

    targets = [("unshifted", *rows(unshifted))]
    targets += [(f"window {k + 1}", *rows(index)) for k, index in enumerate(windows)]
    return Task(name, name, "table", TABLES[name][0], rows(train), rows(reference), targets, data["time"][reference])


def load_domain(domain, folder):
    data = load("text", domain, folder)
    content, starts = data["bytes"].tobytes(), [0, *data["ends"][:-1]]
    texts = [content[a:b].decode() for a, b in zip(starts, data["ends"], strict=True)]
    return np.array(texts, dtype=object), data["labels"], data["test"]


def text_task(domain, folder):
    """Train and reference from the domain's training rows; targets: its test rows, and six other domains."""
    texts, labels, test = load_domain(domain, folder)
    rng = generator(domain)
    order = rng.permutation(np.flatnonzero(~test))
    cut = int(REFERENCE_SHARE * len(order))
    reference, train = order[:cut], order[cut:]
    targets = [(domain, list(texts[test]), labels[test])]
    others = [other for other in DOMAINS if other != domain]
    for other in sorted(rng.choice(others, TARGETS_PER_DOMAIN, replace=False).tolist()):
        found, found_labels, _ = load_domain(other, folder)
        new = ~np.isin(found, texts)
        targets.append((other, list(found[new]), found_labels[new]))
    split = "report" if DOMAINS.index(domain) % 2 else "development"
    parts = ((list(texts[index]), labels[index]) for index in (train, reference))
    return Task(f"reviews-{domain}", "reviews", "text", split, *parts, targets)


def tasks(split=None, folder=PACKED):
    """Tasks one after the other, of both splits or of one (``development`` or ``report``)."""
    if split not in (None, "development", "report"):
        raise ValueError(f"Expected the split 'development' or 'report', but got {split!r}.")
    for names, task in ((TABLES, table_task), (DOMAINS, text_task)):
        for name in names:
            made = task(name, folder)
            if split in (None, made.split):
                yield made


def print_accuracies(folder, seed):
    print("| task | split | model | train / reference / target rows | reference accuracy | target accuracies |")
    print("|---|---|---|---|---|---|")
    for task in tasks(folder=folder):
        sizes = f"{len(task.train[1])} / {len(task.reference[1])} / {' '.join(str(len(y)) for *_, y in task.targets)}"
        for model in task.models:
            classifier = fitted(task, model, seed)
            accuracies = " ".join(f"{100 * classifier.score(x, y):.1f}" for _, x, y in task.targets)
            reference = f"{100 * classifier.score(*task.reference):.1f}"
            print(f"| {task.name} | {task.split} | {model} | {sizes} | {reference} | {accuracies} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pack", "accuracies"))
    parser.add_argument("--from", dest="raw", type=Path, help="folder of the raw files, to pack")
    parser.add_argument("--packed", type=Path, default=PACKED, help="folder of the packed files (default: data/packed)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the models")
    options = parser.parse_args()
    if options.command == "accuracies":
        print_accuracies(options.packed, options.seed)
    elif options.raw is None:
        parser.error("pack needs --from <raw folder>")
    else:
        for file in pack(options.raw, options.packed):
            with np.load(file, allow_pickle=False) as packed:
                print(f"{file.parent.name}/{file.name}: {len(packed['labels'])} rows, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
