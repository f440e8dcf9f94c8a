"""``gdscore track``: windows of files, and labels that came later."""

import csv
import json

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import refused
from tests.data import made

DAYS = 6


def truth_of(out):
    return np.asarray(out.labels)


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def stream(folder):
    """A file of outputs by hour, and a table of labels that become known two days later; the last days have none."""
    rng = np.random.default_rng(0)
    parts = [made(240, keep=("logits", "features", "labels"), noise=1.2, seed=50 + d) for d in range(DAYS)]
    with (folder / "stream.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(
            [
                "row",
                "ts",
                *(f"z_{k}" for k in range(parts[0].n_classes)),
                *(f"x_{k}" for k in range(parts[0].n_features)),
            ]
        )
        for d, out in enumerate(parts):
            for i in rng.permutation(240).tolist():
                lines.writerow(
                    [
                        f"{d}-{i}",
                        f"2026-01-{d + 1:02}T{i % 24:02}:00",
                        *out.logits[i].tolist(),
                        *out.features[i].tolist(),
                    ]
                )
    with (folder / "labels.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", "label", "known_at", "remark"])
        for d, out in enumerate(parts[:4]):
            for i, label in enumerate(truth_of(out).tolist()):
                lines.writerow([f"{d}-{i}", label, f"2026-01-{d + 3:02}T12:00", "x"])
    return parts


COLUMNS = ("--time", "ts", "--id", "row", "--logits", "z_*", "--features", "x_*")


def test_windows_are_played_as_labels_became_known(folder, gd, stream):
    result = gd(
        "track", "m.gdscore", "stream.csv", "labels.csv", *COLUMNS, "--level", "0.8",
        "-o", "windows.csv", "--picture", "t.svg", "--save", "m.track", "--json", "out.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2026-01-06" in result.output
    assert "last known accuracy" in result.output
    assert result.output.count("note: from") == 1  # of the newest window
    assert "note: from 960 labels of 4 windows" in result.output
    assert (folder / "t.svg").read_text().startswith("<?xml")
    rows = table(folder / "windows.csv")
    assert [row["time"] for row in rows] == [f"2026-01-{d + 1:02}T00:00:00" for d in range(DAYS)]
    # Labels of day d are known from noon of day d + 2 on: at the end of that day.
    assert [int(row["labels_then"]) for row in rows] == [0, 0, 240, 480, 720, 960]
    assert [int(row["labels"]) for row in rows] == [240] * 4 + [0, 0]
    assert [float(row["truth"]) for row in rows[:4]] == pytest.approx([p.accuracy for p in stream[:4]])
    facts = json.loads((folder / "out.json").read_text())
    assert facts["errors"]["windows"] == 2
    assert [t["accuracy"] for t in facts["targets"]] == pytest.approx([float(row["accuracy"]) for row in rows])
    # The same in Python.
    track = gdscore.AccuracyTracker(gdscore.AccuracyEstimator.load("m.gdscore"), level=0.8)
    for d in range(DAYS):
        if d >= 2:
            track.add_labels(f"2026-01-{d - 1:02}", truth_of(stream[d - 2]))
        order = np.arange(240)
        out = gdscore.Outputs(logits=stream[d].logits[order], features=stream[d].features[order])
        e = track.estimate(out, time=f"2026-01-{d + 1:02}")
    assert float(rows[-1]["accuracy"]) == pytest.approx(e.accuracy, abs=1e-6)
    saved = gdscore.AccuracyTracker.load("m.track")
    assert len(saved) == DAYS


def test_dated_files_and_an_alarm(folder, gd):
    out = {
        p.stem[4:]: made(230, keep=("logits", "features"), noise=1 + 0.3 * i, seed=4 + i)
        for i, p in enumerate(sorted((folder / "logs").iterdir()))
    }
    ids = 0
    with (folder / "labels.csv").open("w") as file:
        file.write("id,label,known_at\n")
        for name, part in out.items():
            gdscore.io.write_outputs(
                folder / "logs" / f"log-{name}.parquet",
                gdscore.Outputs(logits=part.logits, features=part.features, ids=np.arange(ids, ids + 230)),
            )
            for i in range(230):
                label = (int(part.predictions[i]) + (i % 5 == 0)) % part.n_classes
                file.write(f"{ids + i},{label},{name[:10]}T23:00\n")
            ids += 230
    result = gd("track", "m.gdscore", "logs", "labels.csv", "--min-accuracy", "0.95", "--alarm-on", "estimate")
    assert result.exit_code == 3, result.output
    assert "2026-01-31T05:00" in result.stderr
    assert gd("track", "m.gdscore", "logs", "labels.csv", "--json", "-").exit_code in (0, 3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("id,label\n0-0,1\n", "there is no known_at"),
        ("id,label,known_at\n", "there are none"),
        ("id,label,known_at\n0-0,1,soon\n", "to be a time"),
        ("id,label,known_at\n0-0,1,\n", "one of them is empty"),
        ("id,label,known_at\n0-0,1\n", "values in line 2"),
        ("id,label,known_at\nelse,1,2026-01-03\n", "not there, such as 'else'"),
        ("id,label,known_at\n0-0,fox,2026-01-03\n", "to be a class"),
        ("\xff\xfe", "columns id, label and known_at"),
    ],
)
def test_tables_that_cannot_be_labels(folder, gd, stream, table, message):
    (folder / "labels.csv").write_text(table)
    assert message in refused(gd("track", "m.gdscore", "stream.csv", "labels.csv", *COLUMNS), code=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--time", "ts", "--logits", "z_*"), "--id"),
        (("--id", "row", "--logits", "z_*"), "name the column with --time"),
        ((*COLUMNS, "--level", "90"), "0.9"),
        ((*COLUMNS, "--last", "3"), "--min-accuracy or --max-drop"),
        ((*COLUMNS, "-o", "windows.txt"), ".csv"),
        ((*COLUMNS, "--picture", "t.jpg"), ".svg"),
        ((*COLUMNS, "-o", "stream.csv"), "input"),
    ],
)
def test_options_that_do_not_fit(folder, gd, stream, options, message):
    assert message in refused(gd("track", "m.gdscore", "stream.csv", "labels.csv", *options), code=2)


def test_an_id_of_two_rows_is_refused(folder, gd, stream):
    text = (folder / "stream.csv").read_text().replace("1-7,", "0-3,")
    (folder / "stream.csv").write_text(text)
    assert "'0-3' names two (2026-01-01, 2026-01-02)" in refused(
        gd("track", "m.gdscore", "stream.csv", "labels.csv", *COLUMNS), code=2
    )


def test_labels_that_are_nan_in_parquet_are_not_known_yet(folder, gd, stream):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"id": ["0-0", "0-1"], "label": [1.0, float("nan")], "known_at": ["2026-01-03"] * 2}
    parquet.write_table(pa.table(columns), folder / "labels.parquet")
    result = gd("track", "m.gdscore", "stream.csv", "labels.parquet", *COLUMNS, "-o", "w.csv")
    assert result.exit_code == 0, result.output
    assert table(folder / "w.csv")[0]["labels"] == "1"


def test_corrected_labels_and_parquet(folder, gd, stream):
    import pandas as pd

    labels = pd.read_csv(folder / "labels.csv", dtype=str)
    wrong = labels.assign(label="0", known_at="2026-01-02T12:00")
    both = pd.concat([labels, wrong]).drop(columns="remark")
    both.to_parquet(folder / "labels.parquet", index=False)
    assert gd("track", "m.gdscore", "stream.csv", "labels.parquet", *COLUMNS, "-o", "w.csv").exit_code == 0
    rows = table(folder / "w.csv")
    assert [float(row["truth"]) for row in rows[:4]] == pytest.approx([p.accuracy for p in stream[:4]])
