from __future__ import annotations

import json

import pytest

import gdscore
from gdscore.cli.digits import RIVALS, SHIFTS
from tests.cli.conftest import make_quick


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the demo prints, with fewer calibration sets than it has for users."""
    from typer.testing import CliRunner

    from gdscore.cli import app

    folder = tmp_path_factory.mktemp("demo") / "digits"
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        result = CliRunner().invoke(app, ["demo", "--output", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_shows_truth_estimate_interval_and_rivals(shown):
    folder, text = shown
    rows = json.loads((folder / "demo.json").read_text())
    assert [row["name"] for row in rows] == list(SHIFTS)
    for row in rows:
        line = next(line for line in text.splitlines() if line.startswith(f"│ {row['name']}"))
        for number in (row["truth"], row["accuracy"], *(row["rivals"][name] for name in RIVALS)):
            assert f"{number:.1%}" in line
        assert ("holds" in line) == (row["low"] <= row["truth"] <= row["high"])
    assert str(folder / "report.html") in text


def test_says_who_is_nearer_to_the_truth(shown):
    folder, text = shown
    rows = json.loads((folder / "demo.json").read_text())
    errors = {name: sum(abs(row["rivals"][name] - row["truth"]) for row in rows) for name in RIVALS}
    own, best = sum(abs(row["accuracy"] - row["truth"]) for row in rows), min(errors, key=errors.get)
    winner = "the estimator" if own < errors[best] else best
    assert f"{winner} is nearer to the truth: the estimator is off by {100 * own / len(rows):.1f} points" in text


def test_leaves_files_to_go_on_with(shown, gd):
    folder, _ = shown
    rows = {row["name"]: row for row in json.loads((folder / "demo.json").read_text())}
    result = gd("estimate", folder / "digits.gdscore", folder / "negative.npz", "--json", "-")
    assert json.loads(result.stdout)["targets"][0]["accuracy"] == pytest.approx(rows["negative"]["accuracy"])
    assert "labels" not in next(gdscore.io.read_outputs(folder / "negative.npz")).has
    assert (folder / "report.html").stat().st_size < 1_000_000


def test_no_target_is_of_a_kind_that_calibration_saw(shown):
    folder, _ = shown
    families = gdscore.AccuracyEstimator.load(folder / "digits.gdscore").families_
    known = {*gdscore.shifts.corruption_names()}
    assert {f for f in families if not f.startswith("resampled-")} <= known
    assert not known & set(SHIFTS)
