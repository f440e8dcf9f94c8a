from __future__ import annotations

import json

import numpy as np
import pytest

import gdscore
from gdscore.io import read_outputs, write_outputs
from tests.cli.conftest import LABELLED, read, refused
from tests.data import made

pytestmark = pytest.mark.usefixtures("folder")
TARGETS = ("new.npz", "new.parquet", "other.npz")
DAYS = ["2026-01-29", "2026-01-30", "2026-01-31T05:00"]


def out(folder) -> dict:
    return json.loads((folder / "out.json").read_text())


def test_json_equals_the_python_api(gd, folder):
    result = gd("estimate", "m.gdscore", *TARGETS, "--json", "-")
    found = json.loads(result.stdout)
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    for path, target in zip(TARGETS, found["targets"], strict=True):
        assert (target.pop("name"), target.pop("when")) == (path, None)
        assert target == json.loads(json.dumps(est.estimate(read_outputs(path)).to_dict()))
    assert (found["status"], found["exit_code"], found["rule"]) == ("fine", 0, None)
    gd("estimate", "m.gdscore", *TARGETS, "--json", "out.json", "--quiet")
    assert (folder / "out.json").read_text() == result.stdout


def test_class_mix_of_the_targets(gd):
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    mix = np.arange(1, 11) / 55
    for given, known in (("stable", "stable"), (",".join(map(str, mix)), mix), ("unknown", "unknown")):
        found = json.loads(gd("estimate", "m.gdscore", "new.npz", "--class-mix", given, "--json", "-").stdout)
        assert (
            found["targets"][0]["accuracy"]
            == est.set_params(class_mix=known).estimate(read_outputs("new.npz")).accuracy
        )
        assert found["targets"][0]["class_mix"] == (known if isinstance(known, str) else "given")


def test_table_has_the_numbers(gd):
    result = gd("estimate", "m.gdscore", *TARGETS)
    est = gdscore.AccuracyEstimator.load("m.gdscore")
    for path in TARGETS:
        e = est.estimate(read_outputs(path))
        row = next(line for line in result.stdout.splitlines() if path in line)
        assert f"{e.accuracy:.1%}" in row
        assert f"{e.low:.1%} to {e.high:.1%}" in row
    assert f"missed by {100 * est.left_out_error_:.1f} points on average" in result.stdout


def test_a_dated_folder_is_a_series_in_order(gd):
    found = json.loads(gd("estimate", "m.gdscore", "logs", "--json", "-").stdout)["targets"]
    assert [t["name"] for t in found] == DAYS
    assert [t["when"] for t in found] == sorted(t["when"] for t in found)


def test_labels_give_the_truth_and_nothing_else(gd):
    labelled = made(300, keep=LABELLED, noise=1.4, seed=8)
    write_outputs("labelled.npz", labelled)
    write_outputs("unlabelled.npz", labelled.only({"logits", "features"}))
    with_labels, without = json.loads(
        gd("estimate", "m.gdscore", "labelled.npz", "unlabelled.npz", "--json", "-").stdout
    )["targets"]
    truth = with_labels.pop("truth")
    assert {**with_labels, "name": ""} == {**without, "name": ""}
    assert truth == {
        "accuracy": labelled.accuracy,
        "error": without["accuracy"] - labelled.accuracy,
        "interval_held": without["low"] <= labelled.accuracy <= without["high"],
    }
    row = next(line for line in gd("estimate", "m.gdscore", "labelled.npz").stdout.splitlines() if "labelled" in line)
    assert f"{labelled.accuracy:.1%}" in row
    assert f"{100 * truth['error']:+.1f}" in row
    assert ("held" if truth["interval_held"] else "missed") in row


@pytest.mark.parametrize("method", ["confscore", "doc", "atc", "cot", "cott"])
def test_direct_estimates_equal_the_python_api(gd, method):
    result = gd("estimate", "new.npz", "--method", method, "--reference", "val.npz", "--json", "-")
    found = json.loads(result.stdout)
    expected = gdscore.direct_estimate(method, read("new.npz"), reference=read("val.npz"))
    assert (found["estimator"], found["method"]) == (None, method)
    for name in ("accuracy", "low", "high"):
        assert found["targets"][0][name] == pytest.approx(getattr(expected, name))


def test_report(gd, folder):
    args = ("new.npz", "logs", "--html", "report.html", "--min-accuracy", "0.1", "--model-name", "my model")
    result = gd("estimate", "m.gdscore", *args, "--webhook", "http://127.0.0.1:9/secret", "--json", "out.json")
    assert result.exit_code == 0, result.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="gdscore-data">')[2].partition("</script>")[0])["targets"]
    assert [t["name"] for t in data] == ["new", *DAYS]
    assert [t["estimate"]["accuracy"] for t in data] == [t["accuracy"] for t in out(folder)["targets"]]
    assert "my model" in page
    assert "secret" not in page
    direct = gd("estimate", "new.npz", "--method", "atc", "--reference", "val.npz", "--html", "direct.html")
    assert direct.exit_code == 0, direct.output
    assert (folder / "direct.html").exists()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["m.gdscore", "new.npz", "--min-accuracy", "80"], "--min-accuracy"),
        (["m.gdscore", "new.npz", "--min-accuracy", "nan"], "--min-accuracy"),
        (["m.gdscore", "new.npz", "--max-drop", "-0.1"], "--max-drop"),
        (["m.gdscore", "new.npz", "--html", "x.pdf"], "x.pdf"),
        (["m.gdscore", "new.npz", "--html", "x.html", "--json", "x.html"], "x.html"),
        (["m.gdscore", "new.npz", "--json", ""], "empty"),
        (["m.gdscore", "new.npz", "--json", "m.gdscore"], "'m.gdscore'"),
        (["new.npz", "m.gdscore"], "swap"),
        (["new.npz", "other.npz"], "'new.npz'"),
        (["new.npz"], "TARGET"),
        (["missing.gdscore", "new.npz"], "missing.gdscore"),
        (["m.gdscore", "new.npz", "--alarm-on", "low"], "--min-accuracy"),
        (["m.gdscore", "new.npz", "--last", "2"], "--last"),
        (["m.gdscore", "new.npz", "--min-accuracy", "0.5", "--last", "0"], "last"),
        (["m.gdscore", "new.npz", "--min-accuracy", "0.5", "--since", "soon"], "'soon'"),
        (["m.gdscore", "new.npz", "--min-accuracy", "0.5", "--since", "2026-01-01", "--last", "2"], "both"),
        (["m.gdscore", "new.npz", "--min-accuracy", "0.5", "--alarm-on", "lowest"], "'lowest'"),
        (["m.gdscore", "new.npz", "--webhook", "file:///etc/passwd"], "http"),
        (["m.gdscore", "new.npz", "--webhook", "http://"], "http"),
        (["m.gdscore", "new.npz", "--reference", "val.npz"], "--method"),
        (["new.npz", "--method", "cot"], "--reference"),
        (["new.npz", "--method", "nope", "--reference", "val.npz"], "'nope'"),
        (["new.npz", "--method", "cot", "--reference", "new.npz"], "labels"),
        (["m.gdscore", ""], "''"),
        (["m.gdscore", "new.npz", "--class-mix", "stabel"], "'stabel'"),
        (["m.gdscore", "new.npz", "--class-mix", "0.5,0.5"], "10 classes"),
        (["m.gdscore", "new.npz", "--class-mix", "0.5,x"], "'0.5,x'"),
        (["new.npz", "--method", "cot", "--reference", "val.npz", "--class-mix", "stable"], "--class-mix"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_cannot_be_used(gd, args, named):
    assert named in refused(gd("estimate", *args))


# -- a target that cannot be estimated keeps none of the others from being written -----------------------------


@pytest.fixture
def logs(folder):
    """Three good days, an empty one, and one of another model."""
    np.savez(folder / "empty.npz", logits=np.zeros((0, 10)), features=np.zeros((0, 16)))
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pa.list_(pa.float32())
    pq.write_table(
        pa.table({"logits": pa.array([], kind), "features": pa.array([], kind)}), folder / "logs" / "2026-02-01.parquet"
    )
    other = gdscore.Outputs(logits=np.zeros((30, 10)), features=np.zeros((30, 3)))
    write_outputs(folder / "logs" / "2026-02-02.parquet", other)
    return folder


ARGS = ("estimate", "m.gdscore", "logs", "--json", "out.json", "--html", "report.html")


def test_the_others_are_written(gd, logs):
    result = gd(*ARGS)
    assert result.exit_code == 1
    found = out(logs)
    assert found["not_estimated"] == ["2026-02-01", "2026-02-02"]
    assert (found["status"], found["exit_code"]) == ("error", 1)
    assert [t["name"] for t in found["targets"]] == [*DAYS, *found["not_estimated"]]
    assert all(0 <= t["accuracy"] <= 1 for t in found["targets"][:3])
    assert [set(t) for t in found["targets"][3:]] == [{"name", "when", "error"}] * 2
    for day in found["not_estimated"]:
        assert "not estimated" in next(line for line in result.stdout.splitlines() if day in line)
        assert day in result.stderr
    assert (logs / "report.html").exists()


def test_an_alarm_beats_an_error(gd, logs):
    result = gd(*ARGS, "--min-accuracy", "1", "--since", "2026-01-01", "--quiet")
    assert result.exit_code == 3
    found = out(logs)
    assert found["alarms"] == DAYS
    assert (found["status"], found["not_estimated"]) == ("alarm", ["2026-02-01", "2026-02-02"])
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize("bad", ["missing.npz", "empty.npz", "damaged.npz", "nan.npz", "three.npz", "x.txt", "nowhere"])
def test_one_bad_file_keeps_the_alarm_of_a_good_one(gd, logs, bad):
    (logs / "damaged.npz").write_bytes((logs / "new.npz").read_bytes()[:500])
    (logs / "x.txt").write_text("x")
    np.savez("nan.npz", logits=np.full((9, 10), np.nan), features=np.zeros((9, 16)))
    np.savez("three.npz", logits=np.zeros((9, 3)))
    for order in (["new.npz", bad], [bad, "new.npz"]):
        result = gd("estimate", "m.gdscore", *order, "--json", "out.json", "--min-accuracy", "1", "-q")
        assert result.exit_code == 3
        found = out(logs)
        assert found["alarms"] == ["new"]
        assert len(found["not_estimated"]) == 1
        assert result.stderr.count("\n") == 2
        assert refused(gd("estimate", "m.gdscore", *order, "-q"), code=1)


def test_an_unforeseen_exception_of_one_target(gd, folder, monkeypatch):
    def broken(self, state, real=gdscore.AccuracyEstimator.estimate):
        if state.n_rows == 140:
            raise np.linalg.LinAlgError("SVD did not converge")
        return real(self, state)

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", broken)
    result = gd("estimate", "m.gdscore", "other.npz", "new.npz", "--json", "out.json", "-q")
    assert "LinAlgError" in refused(result, code=1)
    assert out(folder)["not_estimated"] == ["other"]


def test_nothing_could_be_estimated(gd, logs):
    args = ("estimate", "m.gdscore", "logs/2026-02-01.parquet", "empty.npz", "--json", "out.json", "--html", "r.html")
    refused(gd(*args, "-q"), code=1)
    assert [list(t) for t in out(logs)["targets"]] == [["name", "when", "error"]] * 2
    assert not (logs / "r.html").exists()


def test_many_reasons_stay_one_readable_line(gd, folder):
    for day in range(1, 8):
        np.savez(f"2026-02-0{day}.npz", logits=np.zeros((9, 3)), features=np.zeros((9, day)))
    line = refused(
        gd("estimate", "m.gdscore", *(f"2026-02-0{day}.npz" for day in range(1, 8)), "new.npz", "-q"), code=1
    )
    assert len(line) < 1500


def test_a_report_that_cannot_be_written_hides_no_alarm(gd, folder, monkeypatch):
    def broken(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gdscore.report.write_report", broken)
    args = ("estimate", "m.gdscore", "new.npz", "--html", "r.html", "--json", "out.json", "-q")
    refused(gd(*args), code=1)
    assert gd(*args, "--min-accuracy", "1").exit_code == 3
    assert out(folder)["alarms"] == ["new"]


def test_reading_takes_one_pass(gd, monkeypatch):
    reads = []

    def counted(paths, real=gdscore.io.read_batches, **options):
        reads.append(paths)
        return real(paths, **options)

    monkeypatch.setattr("gdscore.io.read_batches", counted)
    gd("estimate", "m.gdscore", "new.npz", "--html", "report.html")
    assert len(reads) == 1
