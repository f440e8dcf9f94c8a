"""Labels by row id: late, in parts, replaced; what is kept, how long, and what is refused."""

from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import func, select

from gdscore import GdscoreError, Outputs
from gdscore.monitor import labels as kept_rows
from gdscore.monitor.labels import read_row_labels
from gdscore.monitor.schema import KeptRow
from tests.monitor.conftest import START, day, make_outputs


def window(seed, rows=40, prefix="r", labels=True):
    """Outputs with ids, and the true classes."""
    made = make_outputs(rows, 1.2, seed)
    ids = np.array([f"{prefix}{n}" for n in range(rows)])
    outputs = Outputs(logits=made.logits, features=made.features, ids=ids)
    return outputs, ids.tolist(), np.asarray(made.labels)


def kept(monitor):
    with monitor.reading() as session:
        return session.scalars(select(func.count()).select_from(KeptRow)).one()


KEEP = "100000d"  # as the windows are of some day in the past


@pytest.fixture
def rows(monitor, fitted):
    monitor.register("m", fitted, rules={"keep_rows": KEEP})
    return monitor


def test_labels_in_parts_are_those_of_all_at_once(rows, fitted):
    outputs, ids, labels = window(0)
    by = np.where(np.arange(40) % 4 == 0, "north", "south")
    rows.add("m", outputs, day(0), {"camera": by})
    right = np.asarray(outputs.predictions) == labels
    first = rows.add_row_labels("m", ids[:10], labels[:10].tolist())
    assert (first["added"], first["replaced"], first["same"], first["unknown"]) == (10, 0, 0, 0)
    later = rows.add_row_labels("m", [*ids[5:], "nobody"], [*labels[5:].tolist(), 0])
    assert (later["added"], later["same"], later["unknown"], later["unknown_ids"]) == (30, 5, 1, ["nobody"])
    listed = rows.windows("m").set_index("segment")
    for segment, mine in (("", by != ""), ("camera=north", by == "north"), ("camera=south", by == "south")):
        assert (listed.loc[segment].labelled, listed.loc[segment].truth) == (mine.sum(), right[mine].mean())
    everything = later["windows"][0]
    assert everything["expected_of_all"] == pytest.approx(fitted.predict_correct(outputs).mean(), abs=1e-4)
    assert everything["expected"] == everything["expected_of_all"]  # all rows have labels


def test_a_later_label_replaces_an_earlier_one(rows):
    outputs, ids, _ = window(0)
    rows.add("m", outputs, day(0))
    wrong = (np.asarray(outputs.predictions) + 1) % 5
    assert rows.add_row_labels("m", ids, wrong.tolist())["windows"][0]["accuracy"] == 0
    again = rows.add_row_labels("m", ids, np.asarray(outputs.predictions).tolist())
    assert (again["replaced"], again["windows"][0]["accuracy"]) == (40, 1)
    assert rows.windows("m").truth.tolist() == [1]


def test_labels_of_many_windows_look_at_each_series_once(rows, monkeypatch):
    """A post of labels of two days of hours computed the alarms of each series forty-eight times."""
    everything = [window(n, 20, f"{n}-") for n in range(5)]
    for n, (outputs, _, _) in enumerate(everything):
        rows.add("m", outputs, day(n), {"of": ["a", "b"] * 10})
    looks, follow = [], kept_rows.follow_again
    monkeypatch.setattr(kept_rows, "follow_again", lambda *of: (looks.append(of[2]), follow(*of)))
    ids = [i for _, ids, _ in everything for i in ids]
    wrong = np.concatenate([(np.asarray(outputs.predictions) + 1) % 5 for outputs, _, _ in everything])
    assert len(rows.add_row_labels("m", ids, wrong.tolist())["windows"]) == 15
    assert looks == ["", "of=a", "of=b"]
    assert set(rows.alarms("m", open_only=True).segment) == {"", "of=a", "of=b"}


def test_labels_stay_where_a_window_is_replaced(rows):
    outputs, ids, labels = window(0)
    rows.add("m", outputs, day(0))
    rows.add_row_labels("m", ids, labels.tolist())
    other, _, _ = window(1, rows=50)
    rows.add("m", other, day(0), replace=True)
    found = rows.windows("m").iloc[0]
    assert (found.rows, found.labelled) == (50, 40)
    assert found.truth == np.mean(np.asarray(other.predictions)[:40] == labels)


def test_labels_of_rows_raise_alarms(rows):
    rows.set_rules("m", {"min_accuracy": 0.6, "min_rows": 30})
    outputs, ids, _ = window(0)
    rows.add("m", outputs, day(0))
    rows.add_row_labels("m", ids, ((np.asarray(outputs.predictions) + 1) % 5).tolist())
    assert "labels:accuracy" in rows.alarms("m").rule.tolist()


def test_labels_reach_the_windows_of_every_version(rows, fitted):
    outputs, ids, labels = window(0)
    rows.add("m", outputs, day(0))
    rows.register("m", fitted, version="2")
    rows.add("m", outputs, day(0))
    found = rows.add_row_labels("m", ids, labels.tolist())
    assert [w["version"] for w in found["windows"]] == ["1", "2"]
    one = rows.add_row_labels("m", ids, labels.tolist(), version="1")
    assert [w["version"] for w in one["windows"]] == ["1"]


def test_an_id_of_two_windows_needs_the_time(rows):
    outputs, ids, labels = window(0)
    for n in range(2):
        rows.add("m", outputs, day(n))
    with pytest.raises(GdscoreError, match="'r0' is in those of 2026-01-01 and 2026-01-02: give the time"):
        rows.add_row_labels("m", ids, labels.tolist())
    found = rows.add_row_labels("m", ids, labels.tolist(), time=day(1))
    assert [w["start"][:10] for w in found["windows"]] == ["2026-01-02"]
    assert rows.windows("m").labelled.fillna(0).tolist() == [0, 40]


def test_rows_of_times_are_split_into_their_windows(rows):
    outputs, ids, labels = window(0)
    times = np.array([START.replace(tzinfo=None) + timedelta(hours=n) for n in range(40)], dtype="datetime64[us]")
    rows.add("m", outputs, times)
    found = rows.add_row_labels("m", ids, labels.tolist())
    assert [w["labelled"] for w in found["windows"]] == [24, 16]


def test_rows_are_deleted_after_their_time_and_with_their_windows(rows):
    for n in range(3):
        outputs, _, _ = window(n, prefix=f"{n}-")
        rows.add("m", outputs, day(n))
    rows.prune_rows(day(2 + 100_000))
    assert kept(rows) == 80
    rows.prune("30d", now=day(32.5))
    rows.prune_rows(day(3))
    assert kept(rows) == 40
    rows.set_rules("m", {"keep_rows": None})
    rows.prune_rows(day(3))
    assert kept(rows) == 0


def test_nothing_is_kept_without_the_rule(monitor, fitted):
    monitor.register("m", fitted)
    outputs, ids, labels = window(0)
    monitor.add("m", outputs, day(0))
    assert kept(monitor) == 0
    with pytest.raises(GdscoreError, match="set its rule `keep_rows`"):
        monitor.add_row_labels("m", ids, labels.tolist())


def test_rows_without_or_with_equal_ids_are_refused(rows):
    with pytest.raises(GdscoreError, match="an id for each row, as the rule `keep_rows`"):
        rows.add("m", make_outputs(40, 1.0, 0, labels=False), day(0))
    outputs, ids, _ = window(0)
    same = Outputs(logits=outputs.logits, features=outputs.features, ids=np.array(["a", "a", *ids[2:]]))
    with pytest.raises(GdscoreError, match="different ids in the window of 2026-01-01T00:00, but 'a' occurs"):
        rows.add("m", same, day(0))
    assert len(rows.windows("m")) == kept(rows) == 0


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        (["r0"], [7], r"labels .*7"),
        (["r0"], ["cat"], "'cat'.*id 'r0'"),
        (["r0"], [0, 1], "as many labels as ids"),
        (["\ud800"], [0], r"printable characters, but got '.ud800'"),
        (["a\0"], [0], "printable characters"),
        (["x" * 201], [0], "1 to 200 printable"),
        (["r0"], [10**400], "labels"),
        (["r0"], [-1], "labels from 0 to 4"),
        ([], [], "as many labels as ids"),
    ],
)
def test_labels_that_cannot_be(rows, ids, labels, message):
    outputs, _, _ = window(0)
    rows.add("m", outputs, day(0))
    with pytest.raises(GdscoreError, match=message):
        rows.add_row_labels("m", ids, labels)


def test_a_file_of_too_many_labels_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_rows, "MOST_LABELS", 3)
    path = tmp_path / "a.csv"
    path.write_text("id,label\n" + "a,1\n" * 3 + "a\n")
    with pytest.raises(GdscoreError, match="values in line 5"):
        read_row_labels(path)
    path.write_text("id,label\n" + "a,1\n" * 4 + "a\n")  # the line that is wrong comes after too many
    with pytest.raises(GdscoreError, match="Expected 1 to 3 ids"):
        read_row_labels(path)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "id,label\na,cat\nb,dog\n", (["a", "b"], ["cat", "dog"])),
        ("a.csv", "\ufefflabel,more,id\r\n1,x,7\r\n\r\n", (["7"], ["1"])),
        ("a.csv", "id;label\na;b", "a first line with the columns id and label, but got ..id;label"),
        ("a.csv", "id,label\na\n", "2 values in line 2, but got"),
        ("a.csv", "", "a first line"),
        ("a.csv", "id,label\n", "1 to 100,000 ids"),
    ],
)
def test_files_of_labels(tmp_path, name, text, found):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    if isinstance(found, tuple):
        assert read_row_labels(path) == found
    else:
        with pytest.raises(GdscoreError, match=found):
            read_row_labels(path)
