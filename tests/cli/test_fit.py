from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gdscore
from gdscore.cli.fit import _left_out, _read_head, _upright
from tests.cli.conftest import LABELLED, head_of_made, read, refused
from tests.data import made

pytestmark = pytest.mark.usefixtures("folder", "few_sets")


def estimate(path: str) -> dict:
    return gdscore.AccuracyEstimator.load(path).estimate(read("new.npz")).to_dict()


def own_kinds(path: str) -> list[str]:
    """Families without those that the estimator adds."""
    return [f for f in gdscore.AccuracyEstimator.load(path).families_ if not f.startswith("resampled-")]


def test_head_equals_the_python_api(gd):
    result = gd("fit", "val.npz", "--head", "head.npz", "-o", "head.gdscore", "--seed", "3")
    assert (result.exit_code, result.stderr) == (0, "")
    gdscore.AccuracyEstimator(seed=3).fit(read("val.npz"), head=head_of_made()).save("api.gdscore")
    # The head in the file has its other orientation, whose product may differ in the last digit.
    for name in ("accuracy", "low", "high"):
        assert estimate("head.gdscore")[name] == pytest.approx(estimate("api.gdscore")[name])


def test_head_with_a_second_model(gd):
    """Sets made by disturbing features have no logits of the second model."""
    gdscore.io.write_outputs("peer.npz", made(200, keep=(*LABELLED, "peer_logits")))
    result = gd("fit", "peer.npz", "--head", "head.npz", "-o", "peer.gdscore")
    assert (result.exit_code, result.stderr) == (0, "")
    assert 0 <= estimate("peer.gdscore")["accuracy"] <= 1  # a target without a second model, too


def test_head_of_every_form(gd):
    weight, bias = head_of_made()
    rows = read("val.npz")
    np.savez("upright.npz", head_weight=weight, head_bias=bias)
    np.savez("both.npz", **rows.arrays, head_weight=weight, head_bias=bias)
    for head, reference in ((Path("head.npz"), "val.npz"), (Path("upright.npz"), "val.npz"), (None, "both.npz")):
        found = _read_head(head, reference, rows)
        assert found is not None
        np.testing.assert_array_equal(found[0], weight)
        np.testing.assert_array_equal(found[1], bias)
    assert _read_head(None, "val.npz", rows) is None
    assert _read_head(None, "*.npz", rows) is None


def test_square_head_is_turned_as_the_logits_say():
    weight = np.random.default_rng(0).normal(size=(4, 4))
    x = np.random.default_rng(1).normal(size=(50, 4))
    rows = gdscore.Outputs(logits=x @ weight, features=x)
    for given in (weight, weight.T):
        np.testing.assert_array_equal(_upright(given, None, rows)[0], weight)


def test_shifted_sets_of_sub_folders(gd):
    result = gd("fit", "val.npz", "--shifted-sets", "shifted", "-o", "own.gdscore", "--level", "0.7")
    assert "Calibrated on 3 kinds of shifts; the reference of 200 rows" in result.stdout
    assert own_kinds("own.gdscore") == ["noise", "scale", "turn"]
    sets = [gdscore.ShiftedSet(read(path), path.parent.name) for path in sorted(Path("shifted").rglob("*.npz"))]
    gdscore.AccuracyEstimator(0.7).fit(read("val.npz"), shifted_sets=sets).save("api.gdscore")
    assert json.dumps(estimate("own.gdscore")) == json.dumps(estimate("api.gdscore"))


def test_says_how_well_families_left_out_are_predicted(gd):
    shown = gd("fit", "val.npz", "--shifted-sets", "shifted", "-o", "own.gdscore", "--level", "0.7").stdout
    seen = gdscore.AccuracyEstimator.load("own.gdscore").calibration_
    judged = np.isfinite(seen.predicted) & np.array([not f.startswith("resampled-") for f in seen.families])
    points = 100 * np.abs(seen.predicted - seen.accuracy)[judged].mean()
    kinds = len({f for f, j in zip(seen.families, judged, strict=True) if j})
    words = f"Families left out are predicted to within {points:.1f} points on average over {judged.sum()} sets of {kinds} kinds"
    assert words in shown
    assert "outputs alone" not in shown
    assert "made of outputs alone" in gd("fit", "val.npz", "-o", "alone.gdscore").stdout


def test_families_that_were_never_left_out_do_not_count():
    seen = SimpleNamespace(
        families=["fog", "fog+rain", "snow"],
        accuracy=np.array([0.5, 0.6, 0.7]),
        predicted=np.array([0.52, np.nan, 0.66]),
    )
    said = _left_out(SimpleNamespace(calibration_=seen, outputs_only_=False))
    assert said == "Families left out are predicted to within 3.0 points on average over 2 sets of 2 kinds."
    seen.predicted[:] = np.nan
    assert "cannot be told" in _left_out(SimpleNamespace(calibration_=seen, outputs_only_=False))


def test_shifted_sets_of_file_names(gd, folder):
    (folder / "flat").mkdir()
    for path in (folder / "shifted").rglob("*.npz"):
        path.rename(folder / "flat" / f"{path.parent.name}-{path.name}")
    assert gd("fit", "val.npz", "--shifted-sets", "flat", "-o", "own.gdscore", "-q").output == ""
    assert own_kinds("own.gdscore") == ["noise", "scale", "turn"]


def test_outputs_alone_give_an_estimator_that_says_so(gd):
    assert gd("fit", "val.npz", "-o", "alone.gdscore").exit_code == 0
    assert any("outputs alone" in warning for warning in estimate("alone.gdscore")["warnings"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["new.npz"], "Expected labels in 'new.npz', but it holds only features, logits: add"),
        (["val.npz", "--head", "val.npz"], "Expected an array `weight` in 'val.npz'"),
        (["val.npz", "--head", "odd.npz"], "W of `head`"),
        (["val.npz", "--head", "other-head.npz"], "another model's"),
        (["val.npz", "--shifted-sets", "nowhere"], "Expected a folder of labelled files, but 'nowhere' is none"),
        (["val.npz", "--shifted-sets", "photos"], "but found none"),
        (["val.npz", "--shifted-sets", "logs"], "Expected labels in 'logs/log-2026-01-29.parquet'"),
        (["val.npz", "--shifted-sets", "shifted", "--head", "head.npz"], "but got both"),
        (["val.npz", "--level", "2"], "`level`"),
    ],
)
def test_what_cannot_be_used(gd, folder, args, words):
    np.savez("odd.npz", weight=np.zeros((3, 4)))
    np.savez("other-head.npz", weight=np.ones((16, 10)))
    assert words in refused(gd("fit", *args, "-o", "made.gdscore"))
    assert not (folder / "made.gdscore").exists()
