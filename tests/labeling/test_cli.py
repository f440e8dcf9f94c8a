"""``gdscore label``: the round trip of a table, more rows with labels kept, and what is refused."""

import csv
import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gdscore
from gdscore.cli.commands import app
from tests.labeling.conftest import outputs

NAMES = ["cat", "dog", "owl", "fox"]


@pytest.fixture
def folder(tmp_path, monkeypatch, est):
    est.save(tmp_path / "m.gdscore")
    target = outputs(400, 2.0, seed=2, names=NAMES)
    gdscore.io.write_outputs(tmp_path / "new.npz", gdscore.Outputs(logits=target.arrays["logits"], class_names=NAMES))
    gdscore.io.write_outputs(tmp_path / "other.npz", outputs(400, 2.0, seed=3))
    monkeypatch.chdir(tmp_path)
    return target


@pytest.fixture
def gd():
    return lambda *args: CliRunner().invoke(app, ["label", *map(str, args)], prog_name="gdscore")


def fill(path, target, count=10**9, unsure=()):
    head, *lines = csv.reader(io.StringIO(Path(path).read_text(encoding="utf-8-sig")))
    for line in lines:
        row, order = int(line[head.index("row")]), int(line[head.index("order")])
        if order <= count:
            line[head.index("label")] = "?" if order in unsure else NAMES[target.labels[row]]
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *lines[::-1]])


def test_round_trip(folder, gd, est):
    made = gd("choose", "m.gdscore", "new.npz", "--budget", 50, "-o", "todo.csv")
    assert made.exit_code == 0, made.output
    assert "50 of 400 rows" in made.stdout
    fill("todo.csv", folder, unsure=(3,))
    found = gd("estimate", "m.gdscore", "new.npz", "todo.csv", "--json", "out.json")
    assert found.exit_code == 0, found.output
    assert "warning: 1 rows" in found.stdout
    facts = json.loads(Path("out.json").read_text())
    rows, labels = gdscore.labeling.read_csv("todo.csv")
    expected = gdscore.labeling.estimate(est, folder, rows, labels)
    assert (facts["low"], facts["high"], facts["labels"]) == (expected.low, expected.high, 49)


def test_status_and_more_rows(folder, gd):
    gd("choose", "m.gdscore", "new.npz", "--budget", 30, "-o", "todo.csv")
    fill("todo.csv", folder, 20)
    found = gd("status", "m.gdscore", "new.npz", "todo.csv", "--half-width", 0.05)
    assert found.exit_code == 0, found.output
    assert "20 of 30 rows labelled, 0 left out, 10 to go" in found.stdout
    assert "--labels todo.csv" in found.stdout
    more = gd("choose", "m.gdscore", "new.npz", "--budget", 60, "--labels", "todo.csv", "-o", "more.csv")
    assert more.exit_code == 0, more.output
    _, labels = gdscore.labeling.read_csv("more.csv")
    assert sum(map(bool, labels)) == 20
    assert all(labels[:20])
    assert "enough" in gd("status", "m.gdscore", "new.npz", "more.csv", "--half-width", 0.4).stdout
    lost = gd("choose", "m.gdscore", "new.npz", "--seed", 9, "--labels", "todo.csv", "-o", "x.csv")
    assert lost.exit_code == 2
    assert "--seed 0" in lost.stderr


def test_random_rows_show_the_sequence(folder, gd):
    gd("choose", "m.gdscore", "new.npz", "--design", "random", "-o", "todo.csv")
    fill("todo.csv", folder)
    found = gd("estimate", "m.gdscore", "new.npz", "todo.csv", "--json", "-")
    assert len(json.loads(found.stdout)["sequence"]["low"]) == 50
    assert "valid at all times" in gd("estimate", "m.gdscore", "new.npz", "todo.csv").stdout


def test_segments_of_a_table(folder, gd):
    pytest.importorskip("pyarrow")
    probabilities = np.asarray(folder.probabilities)
    lines = [[f"r{i}", "north" if i % 2 else "south", *map(repr, row.tolist())] for i, row in enumerate(probabilities)]
    with Path("new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "region", "p_0", "p_1", "p_2", "p_3"], *lines])
    options = ("--probabilities", "p_*", "--id", "name")
    made = gd("choose", "m.gdscore", "new.csv", *options, "--by", "region", "--budget", 40, "-o", "todo.csv")
    assert made.exit_code == 0, made.output
    rows, _ = gdscore.labeling.read_csv("todo.csv")
    assert {name: rows.segments.count(name) > 15 for name in ("north", "south")} == {"north": True, "south": True}
    rows.to_csv("todo.csv", [str(y) for y in folder.labels[rows.rows]])
    found = gd("estimate", "m.gdscore", "new.csv", "todo.csv", *options)
    assert found.exit_code == 0, found.output
    assert "north" in found.stdout
    assert "south" in found.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("estimate", "m.gdscore", "other.npz", "todo.csv"), "another one"),
        (("estimate", "m.gdscore", "new.npz", "todo.csv"), "at least one label"),
        (("estimate", "m.gdscore", "new.npz", "absent.csv"), "absent.csv"),
        (("choose", "m.gdscore", "new.npz", "--budget", 0, "-o", "x.csv"), "budget"),
        (("choose", "m.gdscore", "new.npz", "--budget", 401, "-o", "x.csv"), "at most 400"),
        (("choose", "m.gdscore", "new.npz", "-o", "x.txt"), ".csv"),
    ],
)
def test_refused(folder, gd, args, message):
    gd("choose", "m.gdscore", "new.npz", "--budget", 20, "-o", "todo.csv")
    result = gd(*args)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_labels_that_were_filled_in_are_never_written_over(folder, gd):
    choose = ("choose", "m.gdscore", "new.npz", "--budget", 30, "-o", "todo.csv")
    assert gd(*choose).exit_code == 0
    assert gd(*choose).exit_code == 0  # nothing is lost
    found = gd("status", "m.gdscore", "new.npz", "todo.csv")
    assert (found.exit_code, found.stdout) == (0, "0 of 30 rows labelled, 0 left out, 30 to go.\n")
    fill("todo.csv", folder, 20)
    before = Path("todo.csv").read_bytes()
    again = gd(*choose)
    assert again.exit_code == 2
    assert "has 20 labels" in again.stderr
    assert Path("todo.csv").read_bytes() == before
    assert gd(*choose, "--labels", "todo.csv").exit_code == 0
    assert sum(map(bool, gdscore.labeling.read_csv("todo.csv")[1])) == 20


@pytest.fixture
def table(folder):
    """The target as a CSV file with names, regions and texts."""
    lines = [
        [f"r{i}", "north" if i % 2 else "south", f"=text {i},\n“two lines”", *map(repr, row.tolist())]
        for i, row in enumerate(np.asarray(folder.probabilities))
    ]
    with Path("new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "region", "text", *(f"p_{name}" for name in NAMES)], *lines])
    return folder


def printed(result):
    """Command that a person is told to run next."""
    assert result.exit_code == 0, result.output
    text = result.stdout.replace("\n", " ")
    return shlex.split(text[text.rindex("gdscore label ") :])[2:]


OPTIONS = ("--probabilities", "p_*", "--id", "name", "--class-names", ",".join(NAMES))


def test_next_commands_run_as_printed(table, gd):
    made = gd("choose", "m.gdscore", "new.csv", *OPTIONS, "--by", "region", "--show", "text", "-o", "my todo.csv")
    fill("my todo.csv", table, 45)
    found = gd(*printed(made))
    assert found.exit_code == 0, found.output
    assert "45" in found.stdout
    status = gd("status", "m.gdscore", "new.csv", "my todo.csv", "--half-width", 0.03, *OPTIONS)
    more = printed(status)
    assert more[-4:] == ["--by", "region", "--show", "text"]
    assert gd(*more).exit_code == 0
    rows, labels = gdscore.labeling.read_csv("MORE.csv")
    assert (len(rows) > 50, sum(map(bool, labels))) == (True, 45)


def test_other_columns_are_shown(table, gd):
    assert gd("choose", "m.gdscore", "new.csv", *OPTIONS, "--show", "text,region", "-o", "todo.csv").exit_code == 0
    lines = list(csv.DictReader(io.StringIO(Path("todo.csv").read_bytes().decode("utf-8-sig"), newline="")))
    for line in lines:
        row = int(line["row"])
        assert line["text"] == f"'=text {row},\n“two lines”"  # no spreadsheet takes it for a formula
        assert line["region"] == ("north" if row % 2 else "south")
    fill("todo.csv", table)
    assert gd("estimate", "m.gdscore", "new.csv", "todo.csv", *OPTIONS).exit_code == 0
    absent = gd("choose", "m.gdscore", "new.csv", *OPTIONS, "--show", "txt", "-o", "x.csv")
    assert (absent.exit_code, "txt" in absent.stderr) == (2, True), absent.output
    with pytest.raises(gdscore.GdscoreError, match="'Label' is one"):
        gdscore.labeling.read_csv("todo.csv")[0].to_csv("x.csv", show={"Label": lines})


def test_a_forgotten_id_is_named(table, gd):
    gd("choose", "m.gdscore", "new.csv", *OPTIONS, "-o", "todo.csv")
    fill("todo.csv", table)
    without = [option for option in OPTIONS if option not in ("--id", "name")]
    forgotten = gd("estimate", "m.gdscore", "new.csv", "todo.csv", *without)
    assert (forgotten.exit_code, "--id COLUMN" in forgotten.stderr) == (2, True), forgotten.output
    gd("choose", "m.gdscore", "new.csv", *without, "-o", "other.csv")
    fill("other.csv", table)
    added = gd("estimate", "m.gdscore", "new.csv", "other.csv", *OPTIONS)
    assert (added.exit_code, "leave out the column of ids" in added.stderr) == (2, True), added.output


def test_report_of_labels(table, gd):
    gd("choose", "m.gdscore", "new.csv", *OPTIONS, "--by", "region", "-o", "todo.csv")
    fill("todo.csv", table)
    found = gd("estimate", "m.gdscore", "new.csv", "todo.csv", *OPTIONS, "--html", "r.html", "--json", "out.json")
    assert found.exit_code == 0, found.output
    assert "Written: r.html" in found.stdout
    text = Path("r.html").read_text()
    assert "Accuracy estimated from 50 labels" in text
    assert all(name in text for name in ("all rows", "north", "south"))
    assert "<h2>Details" not in text
