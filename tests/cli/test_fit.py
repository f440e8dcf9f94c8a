from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import gdscore
from tests.cli.conftest import read, refused

pytestmark = pytest.mark.usefixtures("folder")


def estimate(path: str) -> dict:
    return gdscore.AccuracyEstimator.load(path).estimate(read("new.npz")).to_dict()


def families(path: str) -> set[str]:
    return set(gdscore.AccuracyEstimator.load(path).shifted_sets_.families)


def test_shifted_sets_equal_the_python_api(gd):
    result = gd("fit", "val.npz", "--shifted-sets", "shifted", "-o", "own.gdscore", "--level", "0.7")
    assert (result.exit_code, result.stderr) == (0, "")
    assert families("own.gdscore") >= {"noise", "scale", "turn"}
    sets = [gdscore.ShiftedSet(read(path), path.parent.name) for path in sorted(Path("shifted").rglob("*.npz"))]
    gdscore.AccuracyEstimator(level=0.7).fit(read("val.npz"), shifted_sets=sets).save("api.gdscore")
    assert json.dumps(estimate("own.gdscore")) == json.dumps(estimate("api.gdscore"))


def test_the_error_of_families_left_out_is_the_estimators(gd):
    shown = gd("fit", "val.npz", "--shifted-sets", "shifted", "-o", "own.gdscore", "--level", "0.7").stdout
    fitted = gdscore.AccuracyEstimator.load("own.gdscore")
    assert f"{100 * fitted.left_out_error_:.1f} points" in shown


def test_shifted_sets_of_file_names(gd, folder):
    (folder / "flat").mkdir()
    for path in (folder / "shifted").rglob("*.npz"):
        path.rename(folder / "flat" / f"{path.parent.name}-{path.name}")
    assert gd("fit", "val.npz", "--shifted-sets", "flat", "-o", "own.gdscore", "-q").output == ""
    assert families("own.gdscore") >= {"noise", "scale", "turn"}


def test_outputs_alone_give_an_estimator_with_a_warning(gd):
    assert gd("fit", "val.npz", "-o", "alone.gdscore").exit_code == 0
    assert "outputs_only" in [warning["code"] for warning in estimate("alone.gdscore")["warnings"]]


def test_the_command_that_follows_reads_such_files(gd, folder):
    val = read("val.npz")
    frame = gdscore.to_frame(gdscore.Outputs(probabilities=val.probabilities, labels=val.labels))
    frame.round(3).to_csv("rounded.csv", index=False)
    result = gd("fit", "rounded.csv", "--probabilities", "prob_*", "--label", "label", "-o", "made.gdscore")
    assert "no shifted sets" in result.stdout
    assert "warning: a row of `probabilities` sums to" in result.stdout
    following = next(line for line in result.stdout.splitlines() if line.startswith("Next:")).removeprefix("Next:")
    command, *args = shlex.split(following)
    (folder / "NEW.csv").write_bytes((folder / "rounded.csv").read_bytes())
    found = gd(*args)
    assert (command, found.exit_code) == ("gdscore", 0)
    assert "warning: a row of `probabilities` sums to" in found.stdout
    assert "Warning" not in found.stderr
    to_json = gd(*args, "--json", "-")
    assert json.loads(to_json.stdout)["targets"][0]["n_rows"] == len(val)
    assert "warning: a row of `probabilities` sums to" in to_json.stderr


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["new.npz"], "'new.npz'"),
        (["val.npz", "--shifted-sets", "nowhere"], "'nowhere'"),
        (["val.npz", "--shifted-sets", "photos"], "'photos'"),
        (["val.npz", "--shifted-sets", "logs"], "'logs/log-2026-01-29.parquet'"),
        (["val.npz", "--level", "2"], "level"),
        (["val.npz", "--class-mix", "odd"], "odd"),
        (["missing.npz"], "'missing.npz'"),
        (["few.npz"], "few.npz"),
    ],
)
def test_what_cannot_be_used(gd, folder, args, named):
    np.savez("few.npz", logits=np.full((3, 10), np.nan), labels=np.zeros(3, int))
    assert named in refused(gd("fit", *args, "-o", "made.gdscore"))
    assert not (folder / "made.gdscore").exists()
