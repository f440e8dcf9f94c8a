from __future__ import annotations

import dataclasses
import json

import pytest

import gdscore
from gdscore.io import read_outputs
from tests.cli.conftest import refused

pytestmark = pytest.mark.usefixtures("folder")
TARGETS = ("new.npz", "new.parquet", "other.npz")


def test_json_equals_the_python_api(gd, folder):
    result = gd("estimate", "m.gdscore", *TARGETS, "--json", "-")
    said = json.loads(result.stdout)
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    assert said["reference_accuracy"] == est.reference_accuracy_
    for path, target in zip(TARGETS, said["targets"], strict=True):
        assert (target.pop("name"), target.pop("when")) == (path, None)
        assert target == json.loads(json.dumps(est.estimate(read_outputs(path)).to_dict()))
    gd("estimate", "m.gdscore", *TARGETS, "--json", "out.json", "--quiet")
    assert (folder / "out.json").read_text() == result.stdout


def test_table_has_the_numbers(gd):
    result = gd("estimate", "m.gdscore", *TARGETS)
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    for path in TARGETS:
        e = est.estimate(read_outputs(path))
        row = next(line for line in result.stdout.splitlines() if path in line)
        assert f"{e.accuracy:.1%}" in row
        assert f"{e.low:.1%} to {e.high:.1%}" in row


def test_dated_folder_is_a_series_in_order(gd):
    said = json.loads(gd("estimate", "m.gdscore", "logs", "--json", "-").stdout)["targets"]
    assert [t["name"] for t in said] == ["2026-01-29", "2026-01-30", "2026-01-31T05:00"]
    assert [t["when"] for t in said] == sorted(t["when"] for t in said)


def test_exit_code_below_the_threshold(gd, folder):
    accuracy = json.loads(gd("estimate", "m.gdscore", "new.npz", "--json", "-").stdout)["targets"][0]["accuracy"]
    assert gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", str(accuracy)).exit_code == 0
    result = gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", str(accuracy + 1e-6), "--json", "out.json", "-q")
    assert (result.exit_code, result.output) == (3, "")
    assert json.loads((folder / "out.json").read_text())["below"] == ["new"]


def bounds(path: str) -> tuple[float, float, float]:
    e = gdscore.AccuracyEstimator.load("m.gdscore").estimate(read_outputs(path))
    assert e.low < e.accuracy < e.high
    return e.low, e.accuracy, e.high


@pytest.mark.parametrize(("place", "codes"), [(0, (0, 0, 3)), (1, (0, 3, 3)), (2, (3, 3, 3))])
def test_alarm_on_the_interval(gd, place, codes):
    """Just above the low end only `low` alarms, just above the estimate `estimate` too, above the high end all do."""
    threshold = bounds("new.npz")[place] + 1e-6
    for on, code in zip(("high", "estimate", "low"), codes, strict=True):
        result = gd(
            "estimate", "m.gdscore", "new.npz", "--min-accuracy", str(threshold), "--alarm-on", on, "--json", "-"
        )
        assert result.exit_code == code, on
        said = json.loads(result.stdout)
        assert (said["alarm_on"], said["below"]) == (on, ["new"] if code else [])


def test_the_table_says_what_is_compared(gd):
    low, accuracy, _ = bounds("new.npz")
    middle = str((low + accuracy) / 2)
    args = ("estimate", "m.gdscore", "new.npz", "--min-accuracy", middle)
    assert "yes" in gd(*args).stdout
    shown = gd(*args, "--alarm-on", "low").stdout
    assert "low end at least" in shown
    assert "below" in shown
    assert " at least 80%?" in gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", "0.8").stdout


def test_levels_keep_their_digits(gd, monkeypatch):
    def sure(self, outputs, *, real=gdscore.AccuracyEstimator.estimate):
        return dataclasses.replace(real(self, outputs), level=0.999)

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", sure)
    assert "99.9% interval" in gd("estimate", "m.gdscore", "new.npz").stdout


def test_report(gd, folder):
    result = gd("estimate", "m.gdscore", "new.npz", "logs", "--html", "report.html", "--min-accuracy", "0.5")
    assert result.exit_code == 0, result.output
    assert "Written: report.html" in result.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "gdscore estimate m.gdscore new.npz logs" in page
    assert "2026-01-30" in page


def test_report_has_every_score_that_needs_no_reference(gd, folder):
    assert gd("estimate", "m.gdscore", "new.npz", "--html", "report.html", "-q").output == ""
    page = (folder / "report.html").read_text(encoding="utf-8")
    scores = json.loads(page.partition('id="gdscore-data">')[2].partition("</script>")[0])["targets"][0]["scores"]
    table = gdscore.score_all(read_outputs("new.npz"), reference=read_outputs("val.npz"))
    assert set(table) - set(scores) == {"atc", "cot", "cott", "frechet"}
    assert scores == pytest.approx({name: table[name] for name in scores}, rel=1e-5)
    assert "could not be computed" not in page


def test_one_target_says_what_it_is_like(gd):
    alike = gdscore.AccuracyEstimator.load("m.gdscore").estimate(read_outputs("new.npz")).lookalikes
    shown = gd("estimate", "m.gdscore", "new.npz").stdout
    assert ", ".join(f"{a.family} ({a.accuracy:.1%})" for a in alike[:3]) in shown
    assert "Most like" not in gd("estimate", "m.gdscore", "new.npz", "other.npz").stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["m.gdscore", "new.npz", "--min-accuracy", "80"], "for 80 % give 0.8"),
        (["m.gdscore", "new.npz", "--min-accuracy", "nan"], "a share from 0 to 1"),
        (["m.gdscore", "new.npz", "--html", "x", "--json", "x"], "different files"),
        (["m.gdscore", "new.npz", "--json", "m.gdscore"], "is one of them"),
        (["new.npz", "m.gdscore"], "new.npz is something else"),
        (["missing.gdscore", "new.npz"], "missing.gdscore"),
        (["m.gdscore", "five.npz"], "five"),
        (["m.gdscore", "new.npz", "--alarm-on", "low"], "--min-accuracy"),
        (["m.gdscore", "new.npz", "--min-accuracy", "0.5", "--alarm-on", "lowest"], "'lowest'"),
    ],
)
def test_what_cannot_be_used(gd, args, words):
    import numpy as np

    np.savez("five.npz", logits=np.zeros((10, 5)))
    assert words in refused(gd("estimate", *args))
