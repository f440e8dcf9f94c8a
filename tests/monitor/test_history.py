import dataclasses
import itertools
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import event, select, update

import gdscore
from gdscore import Estimate, GdscoreError
from gdscore.monitor import Monitor, Rules, schema
from gdscore.monitor.queries import list_windows, overview, past_errors, series_points
from tests.monitor.conftest import START, day, estimate, fill_disk, make_outputs, sqlite_url


def test_a_window_added_twice_is_one_window(monitor, fitted):
    monitor.register("m", fitted)
    outputs = make_outputs(300, 1.2, 1, labels=False)
    first = monitor.add("m", outputs, time="2026-01-01")
    second = monitor.add("m", outputs, time="2026-01-01T00:00:00Z")
    assert [w["new"] for w in first + second] == [True, False]
    assert first[0]["id"] == second[0]["id"]
    frame = monitor.windows("m")
    expected = fitted.estimate(outputs)
    assert frame[["accuracy", "low", "high", "rows"]].values.tolist() == [
        [expected.accuracy, expected.low, expected.high, 300]
    ]
    assert frame.start[0] == START
    assert frame.end[0] == day(1)


def test_other_numbers_for_a_window_are_refused_unless_replaced(monitor):
    monitor.register("m")
    monitor.add_estimate("m", estimate(0.9), "2026-01-01")
    with pytest.raises(GdscoreError, match="replace=True"):
        monitor.add_estimate("m", estimate(0.8), "2026-01-01")
    assert not monitor.add_estimate("m", estimate(0.8), "2026-01-01", replace=True)["new"]
    assert monitor.windows("m").accuracy.tolist() == [0.8]


def test_rows_are_split_into_windows_and_segments(monitor, fitted):
    monitor.register("m", fitted, every="12h")
    outputs = make_outputs(400, 1.1, 2, labels=False)
    times = np.datetime64("2026-01-01T00:00") + np.arange(400) * np.timedelta64(3, "m")
    country = np.where(np.arange(400) % 2 == 0, "fr", "de")
    added = monitor.add("m", outputs, time=times, by={"country": country})
    assert [(w["start"][:13], w["segment"], w["rows"]) for w in added] == [
        ("2026-01-01T00", "", 240),
        ("2026-01-01T00", "country=de", 120),
        ("2026-01-01T00", "country=fr", 120),
        ("2026-01-01T12", "", 160),
        ("2026-01-01T12", "country=de", 80),
        ("2026-01-01T12", "country=fr", 80),
    ]
    german = fitted.estimate(outputs[np.flatnonzero((np.arange(400) < 240) & (country == "de"))])
    assert added[1]["accuracy"] == pytest.approx(german.accuracy, abs=1e-12)


def test_months_of_a_time_zone(monitor, fitted):
    monitor.register("m", fitted, every="month America/New_York")
    outputs = make_outputs(400, 1.1, 2, labels=False)
    times = np.datetime64("2026-03-01T02:00") + np.arange(400) * np.timedelta64(4, "h")
    added = monitor.add("m", outputs, time=times)
    bounds = ["2026-02-01T05", "2026-03-01T05", "2026-04-01T04", "2026-05-01T04", "2026-06-01T04"]
    assert [(w["start"][:13], w["end"][:13]) for w in added] == list(itertools.pairwise(bounds))
    assert [w["rows"] for w in added] == np.diff(np.searchsorted(times, np.array(bounds, dtype="M8[h]"))).tolist()
    # A person names the month, or any day in it.
    for time in ("2026-03", "2026-03-17", "2026-03-01"):
        monitor.add_labels("m", time, correct=100, rows=150)
    assert monitor.windows("m").labelled.tolist()[1] == 150
    monitor.add_estimate("m", estimate(0.9), "2026-01")
    assert monitor.windows("m").start[0] == datetime(2026, 1, 1, 5, tzinfo=UTC)


def test_a_window_that_has_not_ended_is_replaced_by_the_next_estimate(monitor):
    monitor.register("m", every="month")
    now = datetime.now(UTC)
    first = monitor.add_estimate("m", estimate(0.9, rows=300), now)
    second = monitor.add_estimate("m", estimate(0.8, rows=600), now)  # needs no replace=True
    assert (first["so_far"], second["so_far"], second["id"], second["new"]) == (True, True, first["id"], False)
    assert monitor.windows("m")[["rows", "so_far"]].values.tolist() == [[600, True]]
    with monitor.writing() as session:  # as if the month had ended since
        session.execute(update(schema.Window).values(end=datetime.now(UTC)))
        bounds = session.execute(select(schema.Window.start, schema.Window.end)).one()
    assert not monitor.add_estimate("m", estimate(0.8, rows=600), tuple(bounds))["so_far"]
    with pytest.raises(GdscoreError, match="replace=True"):
        monitor.add_estimate("m", estimate(0.7), tuple(bounds))


def test_a_stream_gives_the_same_windows_as_its_concatenation(monitor, fitted):
    monitor.register("m", fitted)
    outputs = make_outputs(500, 1.3, 3, labels=False)
    parts = [outputs[np.arange(0, 200)], outputs[np.arange(200, 500)]]
    monitor.add("m", iter(parts), time="2026-01-01")
    assert monitor.windows("m").accuracy[0] == pytest.approx(fitted.estimate(outputs).accuracy, abs=1e-9)


def test_late_labels_and_how_good_estimates_were(monitor):
    monitor.register("m")
    truth = [0.88, 0.80, 0.91]
    for n, share in enumerate(truth):
        monitor.add_estimate("m", estimate(0.9, rows=1000), day(n))
        monitor.add_labels("m", day(n), accuracy=share, rows=1000)
    monitor.add_estimate("m", estimate(0.9), day(3))
    assert monitor.windows("m").truth.tolist()[:3] == truth
    with monitor.reading() as session:
        past = past_errors(session, "m")
    windows = monitor.windows("m")[:3]
    assert (past["windows"], past["compared"]) == (3, 2)  # before the first window nothing was known
    assert past["bias"] == pytest.approx((windows.accuracy - truth).mean())
    assert past["errors"] == pytest.approx(
        {
            "estimate": (windows.accuracy - truth)[1:].abs().mean(),
            "label_free": np.mean([0.1, 0.01]),
            "last_known": np.mean([0.08, 0.11]),
            "unchanged": np.mean([0.1, 0.01]),
        }
    )
    assert windows.label_free.tolist() == [0.9] * 3
    assert windows.last_known.tolist()[1:] == truth[:2]
    monitor.add_labels("m", day(3), make_outputs(200, 1.0, 4))
    assert monitor.windows("m").labelled.tolist()[3] == 200


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"correct": 5, "rows": 4}, "at most 4"),
        ({"correct": 1}, "rows"),
        ({"rows": 4}, "correct"),
        ({"rows": 4, "accuracy": 1.2}, "accuracy"),
        ({"rows": 4, "accuracy": 0.5, "correct": 3}, "give one"),
        ({"rows": 901, "correct": 3}, "at most 900 rows"),
    ],
)
def test_labels_that_cannot_be(local, labels, message):
    local.register("m")
    local.add_estimate("m", estimate(), day(0))
    with pytest.raises(GdscoreError, match=message):
        local.add_labels("m", day(0), **labels)


def test_labels_of_no_window(local):
    local.register("m")
    with pytest.raises(GdscoreError, match="there is none"):
        local.add_labels("m", day(0), correct=1, rows=2)


def test_a_series_of_many_windows_is_down_sampled_in_the_database(monitor):
    monitor.register("m", every="1h", rules=Rules(false_alarms_per_year=None))
    values = 0.9 - 0.001 * (np.arange(60) % 7)
    for hour, value in enumerate(values):
        monitor.add_estimate("m", estimate(float(value), rows=10 + hour), START + timedelta(hours=hour))
    with monitor.reading() as session:
        every = series_points(session, "m", "", points=100)["points"]
        few = series_points(session, "m", "", points=6)["points"]
    assert [p["accuracy"] for p in every] == pytest.approx(values.tolist())
    assert len(few) <= 6
    assert sum(p["windows"] for p in few) == 60
    assert sum(p["rows"] for p in few) == sum(range(10, 70))
    assert np.average([p["accuracy"] for p in few], weights=[p["windows"] for p in few]) == pytest.approx(values.mean())
    assert min(p["lowest"] for p in few) == pytest.approx(values.min())
    assert max(p["highest"] for p in few) == pytest.approx(values.max())
    assert not any(p["gap"] for p in every + few)


def test_a_series_has_its_gaps_its_lines_and_the_labels_of_every_version(monitor):
    monitor.register("m", rules={"min_accuracy": 0.7, "max_drop": 0.1}, reference_rows=900)
    for n in (0, 1, 2, 6, 7, 9):
        monitor.add_estimate("m", estimate(), day(n))
    monitor.add_labels("m", day(7), correct=80, rows=100)
    monitor.register("m", version="b", reference_rows=900)
    for n in (7, 8):
        monitor.add_estimate("m", estimate(), day(n))
    monitor.add_labels("m", day(7), correct=90, rows=100)
    with monitor.reading() as session:
        found = series_points(session, "m", "")
        late = series_points(session, "m", "", since=day(7))
        few = series_points(session, "m", "", points=4)
        none = series_points(session, "m", "unknown")
    assert [(p["start"][8:10], p["gap"]) for p in found["points"]] == [
        *(("01", False), ("02", False), ("03", False)),
        *(("07", True), ("08", False), ("09", False), ("10", False)),
    ]
    assert [(label["version"], label["start"][8:10], label["truth"]) for label in found["labels"]] == [
        ("1", "08", 0.8),
        ("b", "08", 0.9),
    ]
    assert [(v["version"], v["start"][8:10]) for v in found["versions"]] == [("1", "01"), ("b", "08")]
    assert [(v["version"], v["start"][8:10]) for v in late["versions"]] == [("b", "08"), ("1", "10")]
    assert found["lines"] == pytest.approx({"min_accuracy": 0.7, "max_drop": 0.8, "sequential": 0.89 - 0.02 * 2**0.5})
    assert [p["gap"] for p in few["points"]] == [False, True, False]
    assert none == {"points": [], "labels": [], "measures": [], "versions": [], "lines": {}, "alarms": []}


def test_a_series_without_windows_has_its_alarms(local):
    local.register("m", rules={"false_alarms_per_year": None, "min_accuracy": 0.8})
    local.add_estimate("m", estimate(0.5), day(0))
    with local.reading() as session:
        found, later = (series_points(session, "m", "", since=since) for since in (None, day(5)))
    assert later["points"] == []
    assert later["alarms"] == found["alarms"]
    assert [alarm["rule"] for alarm in later["alarms"]] == ["accuracy"]


def test_charts_have_the_clock_of_the_windows(local):
    local.register("m", every="1d Europe/Paris", rules={"false_alarms_per_year": None, "min_accuracy": 0.8})
    local.add_estimate("m", estimate(0.5), "2026-03-28")
    local.add_estimate("m", estimate(0.5), "2026-03-29")  # a day of 23 hours
    local.add_labels("m", "2026-03-28", accuracy=0.5, rows=100)
    with local.reading() as session:
        found = series_points(session, "m", "")
    begun = "2026-03-28T00:00:00+01:00"
    assert [(p["start"], p["end"]) for p in found["points"]] == [
        (begun, "2026-03-29T00:00:00+01:00"),
        ("2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
    ]
    alarms = {a["began"] for a in found["alarms"]}
    assert {found["labels"][0]["start"], found["versions"][0]["start"], *alarms} == {begun}


def test_charts_and_past_estimates_never_open_the_wide_table(local):
    local.register("m")
    local.add_estimate("m", estimate(), day(0))
    asked = []
    event.listen(
        local.engine, "before_cursor_execute", lambda c, cursor, sql, values, *rest: asked.append((sql, values))
    )
    with local.reading() as session:
        series_points(session, "m", "")
        past_errors(session, "m")
    with local.engine.connect() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {q}", v).fetchall() for q, v in [*asked] if "windows" in q
        ]
    assert len(plans) == 5
    assert all("COVERING INDEX ix_windows_series" in plan[0][3] for plan in plans)


def test_estimates_survive_the_database(monitor, fitted):
    monitor.register("m", fitted)
    outputs = make_outputs(300, 1.2, 1, labels=False)
    monitor.add("m", outputs, time="2026-01-01")
    with monitor.reading() as session:
        facts = session.scalars(select(schema.Window.estimate)).one()
    assert Estimate.from_dict(facts) == fitted.estimate(outputs)
    again = monitor.estimator("m")
    assert again.estimate(outputs) == fitted.estimate(outputs)


def test_retention_keeps_the_newest_window(monitor):
    monitor.register("m")
    for n in range(10):
        monitor.add_estimate("m", estimate(), day(n))
    assert monitor.prune("3d", now=day(10)) == 6
    assert len(monitor.windows("m")) == 4
    assert monitor.prune("1d", now=day(1000)) == 3
    assert monitor.windows("m").start.tolist() == [day(9)]


def test_what_retention_has_deleted_is_not_added_again(monitor):
    """A nightly job adds all its files again; old windows must neither come back nor raise their alarms again."""
    monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    windows = {day(n): estimate(0.5 if n == 2 else 0.9) for n in range(10)}
    for _ in range(3):
        added = [monitor.add_estimate("m", made, start) for start, made in windows.items()]
        monitor.prune("3d", now=day(10))
        assert len(monitor.windows("m")) == 4
        assert len(monitor.alarms("m")) == 0
    assert [w.get("too_old", False) for w in added] == [True] * 6 + [False] * 4
    assert not any(w["new"] for w in added)


def test_versions(monitor, fitted):
    monitor.register("m", fitted, version="1")
    monitor.register("m", fitted, version="1", every="6h")
    monitor.add_estimate("m", estimate(), day(0))
    monitor.register("m", version="2")
    monitor.add_estimate("m", estimate(), day(0))
    assert monitor.windows("m").version.tolist() == ["1", "2"]
    assert monitor.estimator("m") is None
    with pytest.raises(GdscoreError, match="register it with one"):
        monitor.add("m", make_outputs(10, 1, 1), time=day(1))


def test_an_unknown_model_names_the_nearest(local):
    local.register("animals")
    with pytest.raises(GdscoreError, match="animals"):
        local.add_estimate("anmals", estimate(), day(0))


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\\b", "x" * 201, "a\nb", "a\0b", 7])
def test_names_that_are_refused(local, name):
    with pytest.raises(GdscoreError):
        local.register(name)


@pytest.mark.parametrize("time", ["yesterday", None, 7, ("2026-01-02", "2026-01-01"), np.datetime64("NaT")])
def test_times_that_are_refused(local, time):
    local.register("m")
    with pytest.raises(GdscoreError):
        local.add_estimate("m", estimate(), time)


def test_names_are_data_in_sql(monitor):
    name = "'; DROP TABLE windows; --"
    monitor.register(name)
    monitor.add_estimate(name, estimate(), day(0), segment="x' OR '1'='1")
    assert monitor.windows(name, segment="x' OR '1'='1").model.tolist() == [name]
    with pytest.raises(GdscoreError, match="Unknown model"):
        monitor.windows("x' OR '1'='1")


def test_a_window_of_the_future_is_refused(local, fitted):
    local.register("m", fitted)
    soon = datetime.now(UTC) + timedelta(hours=20)  # clocks differ, and so do zones
    local.add_estimate("m", estimate(), soon)
    with pytest.raises(GdscoreError, match="has begun"):
        local.add_estimate("m", estimate(), soon + timedelta(days=1))
    times = np.full(30, "2026-01-01T05:00", dtype="datetime64[us]")
    times[7] = np.datetime64("2126-01-01")
    with pytest.raises(GdscoreError, match="2126-01-01 00:00:00"):
        local.add("m", make_outputs(30, 1.0, 0), times)
    assert len(local.windows("m")) == 1


def test_times_with_a_zone_are_those_of_utc(local, fitted):
    import pandas as pd

    local.register("m", fitted, every="1h")
    # The night in which clocks in Berlin go back: 02:30 comes twice, and the day has 25 hours.
    night = pd.date_range("2025-10-26", periods=25, freq="h", tz="Europe/Berlin")
    added = local.add("m", make_outputs(25, 1.0, 0), night)
    assert [w["start"] for w in added] == [f"{t:%Y-%m-%dT%H}:00:00+00:00" for t in night.tz_convert("UTC")]


def test_a_version_that_is_registered_again_gets_the_windows(monitor):
    rules = Rules(None, min_accuracy=0.8)
    for version in ("1", "2"):
        monitor.register("m", version=version, rules=rules)
        monitor.add_estimate("m", estimate(0.7), day(int(version)))
    monitor.register("m", rules={"missing_after": 3})  # changes the rules of version 2
    assert (monitor.version("m"), monitor.rules("m").missing_after) == ("2", 3)
    monitor.register("m", version="1")
    assert monitor.version("m") == "1"
    assert monitor.alarms(open_only=True).version.tolist() == ["1"]  # its problem has not ended
    monitor.add_estimate("m", estimate(0.6), day(3))
    assert monitor.windows("m").version.tolist() == ["1", "2", "1"]
    assert monitor.alarms(open_only=True).version.tolist() == ["1"]
    with monitor.reading() as session:
        assert [m["version"] for m in overview(session)] == ["1"]


def test_names_that_look_the_same_are_the_same(monitor):
    one, two = "caf\u00e9", "cafe\u0301"
    monitor.register(two)
    monitor.register(one, rules={"min_accuracy": 0.7})
    monitor.add_estimate(two, estimate(0.9), day(0), segment=two)
    assert not monitor.add_estimate(one, estimate(0.9), day(0), segment=one)["new"]
    monitor.add_labels(two, day(0), correct=9, rows=10, segment=two)
    assert monitor.windows(two)[["model", "segment", "truth"]].values.tolist() == [[one, one, 0.9]]
    assert monitor.rules(two).min_accuracy == 0.7


def test_a_chart_shows_one_version_of_each_window(monitor):
    """A new version that is run over the same days is not averaged with the old one."""
    for version, accuracy, days in (("1", 0.8, range(10)), ("2", 0.9, range(6, 12))):
        monitor.register("m", version=version)
        for n in days:
            monitor.add_estimate("m", estimate(accuracy), day(n))
    with monitor.reading() as session:
        points = series_points(session, "m", "")["points"]
        few = series_points(session, "m", "", points=3)["points"]
        shown = list_windows(session, "m", "", one_version=True)
        listed = list_windows(session, "m", "")
    assert [p["accuracy"] for p in points] == [0.8] * 6 + [0.9] * 6
    assert sum(p["windows"] for p in few) == 12
    assert [w["version"] for w in shown] == ["1"] * 6 + ["2"] * 6
    assert len(listed) == 16


def test_an_unknown_version_names_those_that_exist(local):
    local.register("m", version="2024-05")
    with pytest.raises(GdscoreError, match=r"Unknown version '2024-06' of the model 'm': did you mean '2024-05'"):
        local.add_estimate("m", estimate(), day(0), version="2024-06")


def test_an_estimator_is_given_to_the_newest_version(local, fitted):
    local.register("m")
    local.register("m", version="b", every="6h")
    local.set_estimator("m", fitted)
    assert local.estimator("m", "b") is not None
    assert local.estimator("m", "1") is None


@pytest.mark.parametrize("read", ["windows", "alarms", "delete_model", "version"])
def test_reading_an_unknown_model_is_an_error(local, read):
    local.register("churn")
    with pytest.raises(GdscoreError, match="did you mean 'churn'"):
        getattr(local, read)("chrun")


def test_opening_a_history_writes_nothing(tmp_path):
    Monitor(sqlite_url(tmp_path)).close()
    before = (tmp_path / "history.db").read_bytes()
    Monitor(sqlite_url(tmp_path)).close()
    assert (tmp_path / "history.db").read_bytes() == before


def test_opening_and_reading_wait_for_no_writer(monitor, url):
    monitor.register("m")
    with monitor.writing() as session:
        session.execute(update(schema.Model).values(version="2"))
        reader = Monitor(url)
        assert reader.windows("m").empty
        reader.close()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "history.db").write_bytes(b"hello " * 1000)
    with pytest.raises(GdscoreError, match="not a database"):
        Monitor(sqlite_url(tmp_path))


def test_a_full_disk_is_told_and_loses_nothing(local):
    local.register("m")
    local.add_estimate("m", estimate(), day(0))
    fill_disk(local)
    with pytest.raises(GdscoreError, match="disk is full"):
        for n in range(1, 200):
            local.add_estimate("m", estimate(), day(n))
    kept = local.windows("m")
    assert kept.start.tolist() == [day(n) for n in range(len(kept))]


def test_a_model_registered_by_many_at_once_is_one_model(monitor, fitted):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: monitor.register("m", fitted), range(16)))
    assert monitor.windows("m").empty


@pytest.mark.parametrize("bad", ["sqlite://", "mysql://x/y", "nonsense", "postgresql://u:hunter2@127.0.0.1:1/x"])
def test_databases_that_are_refused_without_their_password(bad):
    with pytest.raises(GdscoreError) as caught:
        Monitor(bad)
    assert "hunter2" not in str(caught.value)


def test_the_next_window_of_a_series_takes_six_statements(local):
    """One finds the model, one its labels, one locks it, one reads the series, and two write the window and the series."""
    local.register("m")
    local.add_estimate("m", estimate(), day(0))
    asked = []
    event.listen(local.engine, "before_cursor_execute", lambda c, cursor, sql, *rest: asked.append(sql.split()[0]))
    local.add_estimate("m", estimate(), day(1))
    assert [word for word in asked if word != "BEGIN"] == ["SELECT"] * 4 + ["INSERT", "UPDATE"]


def _write(url, worker, days, barrier):
    monitor = Monitor(url)
    barrier.wait()
    for n in range(days):
        monitor.add_estimate("shared", estimate(), day(n))  # the same window of all writers
        monitor.add_estimate("own", estimate(), day(n), segment=f"writer {worker}")
    monitor.close()


def test_eight_writers_lose_nothing_and_double_nothing(url):
    monitor = Monitor(url)
    monitor.register("shared")
    monitor.register("own")
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(8)
    monitor.close()
    writers = [context.Process(target=_write, args=(url, k, 12, barrier)) for k in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    monitor = Monitor(url)
    assert len(monitor.windows("shared")) == 12
    assert monitor.windows("own").groupby("segment").size().tolist() == [12] * 8
    monitor.close()


def test_an_empty_history_has_the_same_columns(local):
    local.register("m", rules=Rules(None, min_accuracy=0.8))
    empty = [list(frame.columns) for frame in (local.windows(), local.alarms())]
    local.add_estimate("m", estimate(0.5), day(0))
    assert [list(frame.columns) for frame in (local.windows(), local.alarms())] == empty


def test_a_new_database_file_is_for_its_owner_only(tmp_path):
    Monitor(sqlite_url(tmp_path)).close()
    assert (tmp_path / "history.db").stat().st_mode & 0o077 == 0


def test_an_alarm_never_ends_before_it_began(monitor):
    monitor.register("m", rules=Rules(None, min_accuracy=0.8))
    monitor.register("m", version="2")
    soon = datetime.now(UTC) + timedelta(hours=12)
    monitor.add_estimate("m", estimate(0.5), soon, version="1")
    alarm = monitor.alarms("m").iloc[0]
    assert alarm.ended >= alarm.began


def test_labels_of_rows_that_a_window_no_longer_has_are_gone(local):
    local.register("m")
    local.add_estimate("m", estimate(), day(0))
    rows = int(local.windows("m").rows[0])
    local.add_labels("m", day(0), correct=rows - 1, rows=rows)
    local.add_estimate("m", dataclasses.replace(estimate(), n_rows=rows // 2), day(0), replace=True)
    assert local.windows("m").labelled.isna().all()


def test_an_alarm_names_the_columns_that_moved(monitor):
    from sklearn.linear_model import LogisticRegression

    from gdscore.monitor.queries import explain_alarm

    def frame(rows, seed, moved=0.0):
        x = np.random.default_rng(seed).normal(size=(rows, 3))
        y = (x[:, 0] + x[:, 1] > 0).astype(int)
        return pd.DataFrame(np.add(x, [0, moved, 0]), columns=["age", "income", "height"]), y

    x, y = frame(800, 0)
    model = LogisticRegression().fit(x, y)
    held, truth = frame(800, 1)
    est = gdscore.AccuracyEstimator().fit_predictor(model, held, truth, progress=False)
    monitor.register("m", est, rules={"min_accuracy": 0.99, "min_rows": 1, "max_width": 1.0})
    far, _ = frame(400, 2, moved=3.0)
    outputs = gdscore.from_sklearn(model, far)
    monitor.add("m", outputs, day(0), {"of": np.arange(400) % 2}, inputs=far)
    number = int(monitor.alarms("m").id.iloc[0])
    with monitor.reading() as session:
        assert explain_alarm(session, number)["columns"][0]["name"] == "income"
    with pytest.raises(GdscoreError, match="same 400 rows"):
        monitor.add("m", outputs, day(1), inputs=far[:10])
    with pytest.raises(GdscoreError, match="got a stream"):
        monitor.add("m", iter([outputs]), day(1), inputs=far)
    assert len(monitor.windows("m")) == 3
