from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gdscore
from gdscore.cli.commands import app
from gdscore.demo import METHODS, TARGETS


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "digits"
    result = CliRunner().invoke(app, ["demo", "--output", str(folder)])
    assert (result.exit_code, result.stderr) == (0, "")
    return folder, result.stdout


def rows(folder: Path) -> list[dict]:
    return json.loads((folder / "demo.json").read_text())


def test_table_has_truth_estimate_interval_and_direct_estimates(shown):
    folder, text = shown
    assert [row["name"] for row in rows(folder)] == list(TARGETS)
    for row in rows(folder):
        line = next(line for line in text.splitlines() if line.split()[:1] == [row["name"]])
        for number in (row["truth"], row["accuracy"], *(row["direct"][name] for name in METHODS)):
            assert f"{number:.1%}" in line
        assert ("held" in line) == (row["low"] <= row["truth"] <= row["high"])


def test_at_most_one_line_of_warnings_a_target(shown):
    _, text = shown
    assert sum(line.startswith("warning:") for line in text.splitlines()) <= len(TARGETS)


def test_files_to_go_on_with(shown, gd, monkeypatch):
    """The commands that the demo prints run in order and give the numbers that it printed."""
    folder, text = shown
    monkeypatch.chdir(folder)
    before = {row["name"]: row for row in rows(folder)}
    commands = [
        line.partition("#")[0].split()[1:] for line in map(str.strip, text.splitlines()) if line.startswith("gdscore ")
    ]
    assert [words[0] for words in commands] == ["estimate", "label", "label"]
    for words in commands:
        assert gd(*words).exit_code in (0, 3, 4), words
    (todo, empty), (filled, labels) = map(gdscore.labeling.read_csv, ("todo.csv", commands[-1][-1]))
    assert todo.rows.tolist() == filled.rows.tolist()
    assert not any(empty)
    assert all(labels)
    for name, row in before.items():
        found = json.loads(gd("estimate", "m.gdscore", f"{name}.npz", "--json", "-").stdout)["targets"][0]
        assert found["accuracy"] == pytest.approx(row["accuracy"], abs=1e-6)
        assert "truth" not in found
        assert "labels" not in next(gdscore.io.read_outputs(f"{name}.npz")).has
    assert (folder / "report.html").stat().st_size < 1_000_000
