"""Tables with columns of their own names, as CSV and Parquet: the same numbers as the arrays they were made of."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import read, refused
from tests.data import made

pytestmark = pytest.mark.usefixtures("folder")
CLASSES = [f"c{i}" for i in range(10)]
COLUMNS = ("--probabilities", "prob_*", "--label", "truth")


def write_csv(path: str, rows: gdscore.Outputs, labels=None) -> None:
    p = np.asarray(rows.probabilities, dtype=np.float64)
    header = [f"prob_{name}" for name in CLASSES] + ["truth", "price"]
    names = ["c0"] * len(p) if labels is None else [CLASSES[k] for k in labels]
    lines = [",".join([*map(repr, map(float, row)), name, "1.5"]) for row, name in zip(p, names, strict=True)]
    with open(path, "w") as file:  # noqa: PTH123
        file.write("\n".join([",".join(header), *lines]) + "\n")


@pytest.fixture
def tables(folder):
    (folder / "sets").mkdir()
    write_csv("val.csv", read("val.npz"), read("val.npz").labels)
    write_csv("new.csv", read("new.npz"))
    for path in sorted((folder / "shifted").rglob("*.npz")):
        write_csv(f"sets/{path.parent.name}-{path.stem}.csv", read(path), read(path).labels)


def test_fit_estimate_and_score_from_csv(gd, tables):
    result = gd("fit", "val.csv", "--shifted-sets", "sets", *COLUMNS, "-o", "csv.gdscore", "--level", "0.7")
    assert result.exit_code == 0, result.output
    found = json.loads(gd("estimate", "csv.gdscore", "new.csv", *COLUMNS, "--json", "-").stdout)["targets"][0]
    rows = read("new.npz")
    alone = gdscore.Outputs(probabilities=np.asarray(rows.probabilities, dtype=np.float64))
    expected = gdscore.AccuracyEstimator.load("csv.gdscore").estimate(alone)
    assert found["accuracy"] == pytest.approx(expected.accuracy, abs=1e-6)
    assert found["truth"]["accuracy"] == float((np.asarray(rows.predictions) == 0).mean())
    scores = json.loads(gd("score", "new.csv", *COLUMNS, "--scores", "entropy", "--json", "-").stdout)["targets"][0]
    assert scores["scores"]["entropy"] == pytest.approx(gdscore.score("entropy", alone), rel=1e-6)


def test_class_names_and_lists_of_columns(gd, tables):
    listed = ",".join(f"prob_{name}" for name in CLASSES)
    args = ("--probabilities", listed, "--label", "truth", "--class-names", ",".join(CLASSES), "--scores", "confscore")
    result = gd("score", "new.csv", *args, "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["targets"][0]["scores"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--probabilities", "nope_*"), "nope_"),
        (("--probabilities", "prob_*", "--label", "nope"), "nope"),
        (("--probabilities", "prob_*", "--class-names", "a,b"), "2"),
        (("--logits", "prob_*", "--probabilities", "prob_*"), "both"),
    ],
)
def test_what_cannot_be_used(gd, tables, args, named):
    assert named in refused(gd("score", "new.csv", *args), code=2 if named == "both" else 1)
    assert named in refused(gd("fit", "val.csv", *args, "-o", "x.gdscore"))


# -- windows of time and segments ------------------------------------------------------------------------------


@pytest.fixture
def log(tables):
    """Rows of three days and two countries in one CSV, out of order, with labels."""
    rng = np.random.default_rng(0)
    rows = made(900, keep=("logits", "labels"), noise=1.4, seed=5)
    p = np.asarray(rows.probabilities, dtype=np.float64)
    days, countries = rng.integers(29, 32, 900), rng.choice(["de", "fr"], 900)
    with open("log.csv", "w") as file:  # noqa: PTH123
        file.write(",".join([f"prob_{name}" for name in CLASSES] + ["truth", "ts", "country"]) + "\n")
        for row, label, day, country in zip(p, rows.labels, days, countries, strict=True):
            file.write(
                ",".join([*map(repr, map(float, row)), CLASSES[label], f"2026-01-{day}T05:00:00", country]) + "\n"
            )
    return gdscore.Outputs(probabilities=p, labels=rows.labels), days, countries


@pytest.fixture
def fitted(gd, tables):
    gd("fit", "val.csv", "--shifted-sets", "sets", *COLUMNS, "-o", "csv.gdscore", "--level", "0.7", "-q")
    return gdscore.AccuracyEstimator.load("csv.gdscore")


def test_windows_and_segments_equal_estimates_of_their_rows(gd, log, fitted):
    rows, days, countries = log
    args = ("estimate", "csv.gdscore", "log.csv", *COLUMNS, "--time", "ts", "--by", "country")
    result = gd(*args, "--json", "-")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["targets"]
    assert [t["when"][:10] for t in found] == sorted([f"2026-01-{day}" for day in (29, 30, 31)] * 2)
    for target in found:
        part = rows[(days == int(target["when"][8:10])) & (countries == target["segment"].removeprefix("country="))]
        assert target["n_rows"] == len(part)
        assert target["accuracy"] == pytest.approx(fitted.estimate(part).accuracy, abs=1e-6)
        assert target["truth"]["accuracy"] == pytest.approx(part.accuracy)
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert first["accuracy"] <= second["accuracy"]


def test_only_the_newest_window_alarms(gd, log, fitted):
    args = ("estimate", "csv.gdscore", "log.csv", *COLUMNS, "--time", "ts", "--every", "1d", "--min-accuracy", "1")
    result = gd(*args, "--json", "out.json", "--html", "report.html", "-q")
    assert result.exit_code == 3
    with open("out.json") as file:  # noqa: PTH123
        found = json.load(file)
    assert found["checked"] == ["2026-01-31"]
    assert [t["n_rows"] for t in found["targets"]] == np.bincount(log[1])[29:].tolist()
    weekly = json.loads(gd(*args[:-4], "--every", "1w", "--json", "-").stdout)["targets"]
    assert [(t["name"], t["n_rows"]) for t in weekly] == [("2026-01-26", 900)]


def test_months_of_a_time_zone(gd, log, fitted, folder):
    rows, days, _ = log
    args = ("estimate", "csv.gdscore", "log.csv", *COLUMNS, "--time", "ts", "--json", "-")
    monthly = json.loads(gd(*args, "--every", "month").stdout)["targets"]
    assert [(t["name"], t["n_rows"]) for t in monthly] == [("2026-01-01", len(rows))]
    eastern = json.loads(gd(*args, "--every", "month Pacific/Kiritimati", "--html", "r.html").stdout)["targets"]
    lines = (folder / "log.csv").read_text().splitlines()[1:]
    hours = np.array([int(line.split("T")[1][:2]) for line in lines])
    later = int(((days == 31) & (hours >= 10)).sum())  # the islands are 14 hours ahead of UTC
    expected = {"2026-01-01T00:00:00+14:00": len(rows) - later, "2026-02-01T00:00:00+14:00": later}
    assert {t["when"]: t["n_rows"] for t in eastern} == {when: n for when, n in expected.items() if n}


def test_csv_has_the_columns_of_the_frame(gd, log, fitted):
    rows, days, countries = log
    args = ("estimate", "csv.gdscore", "log.csv", *COLUMNS, "--time", "ts", "--by", "country", "--format", "csv")
    result = gd(*args)
    assert result.exit_code == 0, result.output
    lines = list(csv.DictReader(result.stdout.splitlines()))
    by = {"": np.datetime64("2026-01-01") + (days - 1).astype("timedelta64[D]"), "country": countries}
    expected = fitted.estimate(rows, by=by).to_frame(every="day", backend="pyarrow").to_pylist()
    assert len(lines) == len(expected) == 6
    for line, one in zip(lines, expected, strict=True):
        assert line.pop("target") == f"{one['start'].date()} {one['segment']}"
        assert {name: line[name] for name in ("start", "end")} == {n: one[n].isoformat() for n in ("start", "end")}
        assert (line["segment"], line["n_rows"], line["warnings"]) == (
            one["segment"],
            str(one["n_rows"]),
            one["warnings"],
        )
        for name in ("accuracy", "low", "high", "truth"):
            assert float(line[name]) == pytest.approx(one[name], abs=1e-6)
    assert "one of --json - and --format csv" in refused(gd(*args, "--json", "-"))


def test_a_window_that_spans_dated_files_is_one_target(gd, log, fitted, folder):
    header, *lines = (folder / "log.csv").read_text().splitlines()
    (folder / "dated").mkdir()
    for number in range(3):
        part = [header, *lines[300 * number : 300 * (number + 1)]]
        (folder / "dated" / f"2026-01-{29 + number}.csv").write_text("\n".join(part) + "\n")
    expected, found = (
        json.loads(gd("estimate", "csv.gdscore", name, *COLUMNS, "--time", "ts", "--json", "-").stdout)["targets"]
        for name in ("log.csv", "dated")
    )
    assert found == expected
    assert [t["n_rows"] for t in found] == np.bincount(log[1])[29:].tolist()


def test_segments_alone_and_several_files(gd, log, fitted):
    write_csv("plain.csv", read("new.npz"))
    result = gd("estimate", "csv.gdscore", "log.csv", "plain.csv", *COLUMNS, "--by", "country", "--json", "-")
    assert result.exit_code == 1  # one file has no such column; the other is estimated
    *segments, plain = json.loads(result.stdout)["targets"]
    assert {t["name"] for t in segments} == {"log country=de", "log country=fr"}
    assert "country" in plain["error"]


@pytest.mark.parametrize(
    "args",
    [
        ("--every", "1d"),
        ("--time", "ts", "--every", "soon"),
        ("--by", "country", "--by", "country"),
    ],
)
def test_windows_that_cannot_be_used(gd, log, fitted, args):
    refused(gd("estimate", "csv.gdscore", "log.csv", *COLUMNS, *args))
    refused(gd("estimate", "log.csv", "--method", "atc", "--reference", "val.csv", *COLUMNS, "--by", "country"))


# -- decisions -------------------------------------------------------------------------------------------------


@pytest.fixture
def fraud(folder):
    """Binary tables with a probability, a true class and what was decided."""
    for name, seed in (("known", 0), ("later", 1)):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.5, 3, 900).round(4)
        truth, decided = np.where(rng.random(900) < p, "fraud", "fine"), np.where(p >= 0.1, "fraud", "fine")
        lines = [f"{1 - a!r},{a!r},{b},{c}" for a, b, c in zip(p.tolist(), truth, decided, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["p_fine,p_fraud,truth,decided", *lines]) + "\n")


@pytest.mark.parametrize("how", [("--threshold", "0.1"), ("--prediction", "decided")])
def test_decisions_of_tables(gd, fraud, how):
    columns = ("--probabilities", "p_*", "--label", "truth", *how)
    result = gd("fit", "known.csv", *columns, "-o", "fraud.gdscore")
    assert result.exit_code == 0, result.output
    assert " ".join(how) in result.output  # of the next command
    found = json.loads(gd("estimate", "fraud.gdscore", "later.csv", *columns, "--json", "-").stdout)["targets"][0]
    with open("later.csv") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    assert found["truth"]["accuracy"] == pytest.approx(np.mean([row["decided"] == row["truth"] for row in rows]))
    assert found["accuracy"] == pytest.approx(found["truth"]["accuracy"], abs=0.06)
    scores = json.loads(gd("score", "later.csv", *columns, "--scores", "confscore", "--json", "-").stdout)
    own = [float(row[f"p_{row['decided']}"]) for row in rows]
    assert scores["targets"][0]["scores"]["confscore"] == pytest.approx(np.mean(own))
    chosen = gd("label", "choose", "fraud.gdscore", "later.csv", "--probabilities", "p_*", *how, "-o", "todo.csv")
    assert chosen.exit_code == 0, chosen.output
    without = gd("estimate", "fraud.gdscore", "later.csv", *columns[:4])
    assert "decided by the largest probability" in refused(without, code=1)


@pytest.mark.parametrize(
    ("args", "named", "code"),
    [
        (("--threshold", "10"), "percentage", 2),
        (("--threshold", "x"), "valid number", 2),
        (("--threshold", "0.1", "--prediction", "decided"), "both", 2),
        (("--prediction", "nope"), "nope", 1),
        (("--prediction", "p_fine"), "used once", 1),
    ],
)
def test_decisions_that_cannot_be_used(gd, fraud, args, named, code):
    assert named in refused(gd("score", "later.csv", "--probabilities", "p_*", *args), code=code)
