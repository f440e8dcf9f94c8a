"""What went to the wrong place once, or was lost: versions, numbers, rows, segments; what is deleted and retired."""

import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import func, select, update
from starlette.testclient import TestClient

from gdscore import GdscoreError, GdscoreWarning, Outputs
from gdscore.estimator import ClassEstimate, Estimate, Quantity
from gdscore.monitor import Monitor, Rules
from gdscore.monitor.alarms import Outbox
from gdscore.monitor.app import create_app, render_metrics
from gdscore.monitor.auth import create_token
from gdscore.monitor.queries import explain_alarm, find_model, learned, overview, segments_of, series_points
from gdscore.monitor.rules import usual_pause
from gdscore.monitor.schema import Alarm, KeptRow, Token
from gdscore.monitor.settings import Settings
from gdscore.monitor.store import lock_model
from tests.monitor.conftest import OPEN, day, estimate, make_outputs

HERE = {"client": ("127.0.0.1", 50000), "base_url": "http://127.0.0.1"}
FLOOR = {"false_alarms_per_year": None, "min_accuracy": 0.8, "notify_within": None}


def rows_of(day_number, seed=0, rows=40):
    made = make_outputs(rows, 1.0, seed)
    ids = np.array([f"{day_number}-{k}" for k in range(rows)])
    return Outputs(logits=made.logits, features=made.features, ids=ids), ids.tolist(), np.asarray(made.labels).tolist()


# -- one current version ------------------------------------------------------------------------------------


def test_a_version_that_is_rolled_back_to_is_the_current_one_everywhere(monitor):
    monitor.register("m", version="1", rules=FLOOR, reference_rows=900)
    for n in range(10):
        monitor.add_estimate("m", estimate(0.9), day(n))
    monitor.register("m", version="2", rules={"min_accuracy": 0.3}, reference_rows=100)
    for n in range(5, 8):
        monitor.add_estimate("m", estimate(0.6), day(n))
    monitor.register("m", version="1", rules={"false_alarms_per_year": 0.1, "missing_after": 2})
    monitor.check()
    assert monitor.alarms(
        open_only=True
    ).empty  # no window is missed as the newest is months old: it came back just now
    assert monitor.rules("m").min_accuracy == 0.8
    with monitor.reading() as session:
        points = series_points(session, "m", "")
        assert points["lines"]["min_accuracy"] == 0.8
        assert [p["accuracy"] for p in points["points"]] == pytest.approx([0.9] * 10)
        assert [s["version"] for s in segments_of(session, "m")] == ["1"]
        assert [m["version"] for m in overview(session)] == ["1"]
        assert "10 of 28" in learned(session, "m") or "0 of 28" in learned(session, "m")
    assert 'gdscore_accuracy{model="m",segment=""} 0.9' in render_metrics(monitor).decode()
    # From now on it is missed, from when it was registered again.
    monitor.check(now=datetime.now(UTC) + timedelta(days=3))
    assert monitor.alarms(open_only=True).rule.tolist() == ["missing"]


def test_changed_rules_change_no_past_alarm_where_a_window_comes_late(monitor):
    monitor.register("m", rules=FLOOR)
    for n in (0, 2, 3, 4, 5, 6):
        monitor.add_estimate("m", estimate(0.7 if n == 2 else 0.9), day(n))
    before = monitor.alarms("m")[["rule", "raised", "ended"]].to_dict("records")
    assert len(before) == 1
    monitor.set_rules("m", {"min_accuracy": 0.95})
    monitor.add_estimate("m", estimate(0.96), day(1))
    assert monitor.alarms("m")[["rule", "raised", "ended"]].to_dict("records") == before


# -- numbers and rows ---------------------------------------------------------------------------------------


def test_labels_reach_no_window_of_another_model_after_retention(monitor, fitted):
    """A late window was pruned; its number went to a window of another model, and its labels with it."""
    for name in ("a", "b"):
        monitor.register(name, fitted, rules={"keep_rows": "100000d"})
    outputs, _, _ = rows_of(0)
    monitor.add("a", outputs, day(9))
    late, late_ids, late_labels = rows_of(1, seed=1)
    (window,) = monitor.add("a", late, day(1))
    assert monitor.prune("5d", now=day(10)) == 1
    (other,) = monitor.add("b", outputs, day(9))
    assert other["id"] != window["id"]
    with monitor.reading() as session:
        assert session.scalars(select(func.count()).select_from(KeptRow)).one() == 80
    assert monitor.add_row_labels("a", late_ids, late_labels)["unknown"] == 40
    assert monitor.windows("b").labelled.isna().all()


def test_numbers_of_alarms_are_not_used_again(local):
    local.register("m", rules=FLOOR)
    first = int(local.add_estimate("m", estimate(0.5), day(0)) and local.alarms().id[0])
    local.add_estimate("m", estimate(0.9), day(0), replace=True)
    assert local.alarms().empty
    local.add_estimate("m", estimate(0.5), day(1))
    assert local.alarms().id.tolist() != [first]


def test_rows_that_are_older_than_rows_are_kept_are_told(monitor, fitted):
    monitor.register("m", fitted, rules={"keep_rows": "400d"})
    outputs, ids, labels = rows_of(0)
    with pytest.warns(GdscoreWarning, match=r"the window of 2013-05-01 are not kept .*keep_rows \(400d\)"):
        monitor.add("m", outputs, "2013-05-01")
    told = monitor.add_row_labels("m", ids, labels, time="2013-05-01")
    assert told["unknown"] == 40
    assert told["expired"] == "the window of 2013-05-01 is known, but its rows have expired (keep_rows 400d)"
    assert "rows of windows that ended before" in monitor.add_row_labels("m", ids, labels)["expired"]
    recent, recent_ids, recent_labels = rows_of(1)
    monitor.add("m", recent, datetime.now(UTC) - timedelta(days=3))
    assert "expired" not in monitor.add_row_labels("m", recent_ids, recent_labels)


def test_segments_of_a_model_are_limited_before_anything_is_stored(monitor, fitted):
    monitor.register("m", fitted, rules={"max_segments": 5})
    outputs = make_outputs(60, 1.0, 0, labels=False)
    with pytest.raises(GdscoreError, match=r"at most 5 segments .*60 new ones such as 'user=0'.*there would be 60"):
        monitor.add("m", outputs, day(0), {"user": [str(k) for k in range(60)]})
    assert monitor.windows("m").empty
    monitor.add("m", outputs, day(0), {"user": [str(k % 5) for k in range(60)]})
    monitor.add("m", outputs, day(1), {"user": [str(k % 5) for k in range(60)]})
    with pytest.raises(GdscoreError, match="max_segments"):
        monitor.add_estimate("m", estimate(), day(1), segment="another")
    monitor.set_rules("m", {"max_segments": 6})
    monitor.add_estimate("m", estimate(), day(1), segment="another")


# -- deleting and retiring ----------------------------------------------------------------------------------


def test_a_window_that_is_deleted_takes_its_alarm_and_its_labels_along(monitor):
    monitor.register("m", rules=FLOOR)
    numbers = [monitor.add_estimate("m", estimate(a), day(n))["id"] for n, a in enumerate((0.9, 0.5, 0.9, 0.9))]
    monitor.add_labels("m", day(1), correct=1, rows=10)
    assert set(monitor.alarms().rule) == {"accuracy", "labels:accuracy"} or len(monitor.alarms()) == 1
    assert monitor.delete_window(numbers[1])["accuracy"] == 0.5
    assert monitor.alarms().empty
    assert monitor.windows("m").start.tolist() == [day(0), day(2), day(3)]
    with pytest.raises(GdscoreError, match="there is no window"):
        monitor.delete_window(numbers[1])
    for number in (numbers[0], numbers[2], numbers[3]):
        monitor.delete_window(number)
    with monitor.reading() as session:
        assert overview(session)[0]["last"] is None
    assert monitor.add_estimate("m", estimate(0.9), day(0))["new"]


def test_a_series_goes_on_where_retention_and_a_person_have_deleted_all_of_its_windows(monitor):
    monitor.register("m", rules=FLOOR | {"recovery": 1})
    for n in range(3):
        monitor.add_estimate("m", estimate(0.5), day(n))
    monitor.prune("1d", now=day(30))
    monitor.delete_window(int(monitor.windows("m")["id"].iloc[0]))
    assert monitor.windows("m").empty
    with monitor.reading() as session:
        assert [m["state"] for m in overview(session)] == ["alarm"]  # of the windows that retention deleted
    assert monitor.add_estimate("m", estimate(0.9), day(40))["new"]
    assert [(a.raised, a.ended) for a in monitor.alarms("m").itertuples()] == [(day(0), day(40))]


def test_a_retired_model_is_watched_no_more_until_it_is_registered_again(monitor):
    monitor.register("m", rules=FLOOR | {"missing_after": 2})
    monitor.add_estimate("m", estimate(0.5), day(0))
    monitor.retire("m")
    monitor.check()
    assert monitor.alarms(open_only=True).empty
    assert monitor.alarms().end_reason.tolist() == ["retired"]
    with pytest.raises(GdscoreError, match="was retired"):
        monitor.add_estimate("m", estimate(0.9), day(1))
    monitor.register("m")
    assert monitor.alarms(open_only=True).rule.tolist() == ["accuracy"]
    assert monitor.add_estimate("m", estimate(0.9), day(1))["new"]


def test_a_model_is_deleted_with_all_that_is_its(monitor, fitted):
    for name in ("m", "n"):
        monitor.register(name, fitted, rules=FLOOR | {"keep_rows": "100000d"})
        monitor.add(name, rows_of(0)[0], day(0))
        monitor.add_estimate(name, estimate(0.5), day(1))
    monitor.register("m", version="2")
    assert monitor.delete_model("m") == 2
    assert monitor.models() == ["n"]
    assert set(monitor.windows().model) == set(monitor.alarms().model) == {"n"}
    assert monitor.estimator("n") is not None  # the same file
    with monitor.reading() as session:
        assert session.scalars(select(func.count()).select_from(KeptRow)).one() == 40


# -- classes, segments, silence -----------------------------------------------------------------------------


def with_classes(recall, accuracy=0.9):
    def one(label, name, value):
        quantity = Quantity(value, value - 0.05, min(value + 0.05, 1))
        return ClassEstimate(label, name, 0.5, 0.5, quantity, Quantity(0.9), Quantity(0.9))

    classes = [one(0, "fine", 0.95), one(1, "fraud", recall)]
    return Estimate(accuracy, 0.85, 0.95, level=0.9, n_rows=900, reference_accuracy=0.9, per_class=classes)


def test_recall_of_a_class_has_a_rule(monitor):
    rules = {"false_alarms_per_year": None, "min_recall": {"fraud": 0.7}, "min_f1": {"fraud": 0.5}, "recovery": 2}
    monitor.register("m", rules=rules)
    for n, recall in enumerate((0.8, 0.6, 0.65, 0.8, 0.8)):
        monitor.add_estimate("m", with_classes(recall), day(n))
    (alarm,) = monitor.alarms().to_dict("records")
    assert (alarm["rule"], alarm["began"], alarm["ended"]) == ("recall:fraud", day(1), day(3))
    assert "the recall of fraud of 60.0% is below 70%" in alarm["message"]
    # A late window and another name change nothing of that.
    monitor.add_estimate("m", with_classes(0.9), day(-1))
    assert monitor.alarms().rule.tolist() == ["recall:fraud"]
    monitor.set_rules("m", {"min_recall": {"fraud": None}})
    assert monitor.rules("m").min_recall == {}


def test_a_segment_has_rules_of_its_own(monitor):
    rules = {"false_alarms_per_year": None, "min_accuracy": 0.8, "segments": {"country=fr": {"min_accuracy": 0.6}}}
    monitor.register("m", rules=rules)
    for segment in ("", "country=fr", "country=de"):
        monitor.add_estimate("m", estimate(0.7), day(0), segment=segment)
    assert sorted(monitor.alarms().segment) == ["", "country=de"]
    for wrong in ({"keep_rows": "1d"}, {"min_accuracy": 2}, {"min_acuracy": 0.5}, 3):
        with pytest.raises(GdscoreError):
            monitor.set_rules("m", {"segments": {"country=fr": wrong}})


def test_silence_is_learned_from_the_pauses_between_windows():
    now = datetime(2026, 3, 2, 9, tzinfo=UTC)
    workdays = [now - timedelta(days=n) for n in range(60) if (now - timedelta(days=n)).weekday() < 5]
    assert usual_pause(workdays, timedelta(days=1)) == 6.0
    together = [now + timedelta(seconds=n) for n in range(60)]
    assert usual_pause(together, timedelta(days=1)) is None  # filled in at once
    late, every = Rules(), timedelta(days=1)
    daily = [now - timedelta(days=n) for n in range(20)]
    for hours, alarmed in ((40, False), (50, True)):
        check = late.check_missing("m", now, now + timedelta(hours=hours), every, daily)
        assert (check.status.value == "alarm") is alarmed
    one_gap = [t for t in daily if not 5 <= (now - t).days <= 9]
    assert usual_pause(one_gap, every) == 2.0  # one failure of the past is not usual


# -- a person on call ---------------------------------------------------------------------------------------


def test_an_alarm_is_explained(monitor, fitted):
    monitor.register("m", fitted, rules=FLOOR | {"min_accuracy": 0.8})
    for n in range(6):
        bad = n >= 4
        monitor.add_estimate("m", estimate(0.6 if bad else 0.9, rows=500 if bad else 900), day(n))
        monitor.add_estimate("m", estimate(0.4 if bad else 0.9), day(n), segment="country=fr")
        monitor.add_estimate("m", estimate(0.89 if bad else 0.9), day(n), segment="country=de")
    monitor.add_labels("m", day(5), correct=50, rows=100)
    number = next(int(a.id) for a in monitor.alarms().itertuples() if a.segment == "" and a.rule == "accuracy")
    with monitor.reading() as session:
        facts = explain_alarm(session, number)
        with pytest.raises(GdscoreError, match="there is no alarm"):
            explain_alarm(session, 999)
    assert [s["segment"] for s in facts["segments"]] == ["country=fr", "", "country=de"]
    assert facts["segments"][0]["before"] == pytest.approx(0.9)
    assert (facts["rows"], facts["rows_before"]) == (500, 900)
    assert (facts["labels"], facts["correct"]) == (100, 50)
    with TestClient(create_app(monitor, OPEN), **HERE) as client:
        assert client.get(f"/api/v1/alarms/{number}").json()["segments"] == facts["segments"]
        assert client.get("/api/v1/alarms/999").status_code == 404


def test_an_alarm_of_labels_is_explained_by_labels(monitor):
    """The estimates did not see the drop, and fell most where nothing is wrong."""
    monitor.register("m", rules=FLOOR | {"tracking": False})
    for n in range(3):
        for segment, accuracy, correct in (("", 0.9, 70), ("of=a", 0.88, 90), ("of=b", 0.9, 40), ("of=c", 0.5, None)):
            monitor.add_estimate("m", estimate(accuracy if n == 2 else 0.9), day(n), segment)
            if correct is not None:
                monitor.add_labels("m", day(n), correct=correct if n == 2 else 90, rows=100, segment=segment)
    alarms = monitor.alarms("m")
    number = int(alarms[(alarms.rule == "labels:accuracy") & (alarms.segment == "")]["id"].iloc[0])
    with TestClient(create_app(monitor, OPEN), **HERE) as client:
        facts = client.get(f"/api/v1/alarms/{number}").json()
        page = client.get(f"/alarms/{number}").text
    worst, *others = facts["segments"]
    assert (facts["segments_by"], worst["segment"], worst["rows"]) == ("labels", "of=b", 100)
    assert (worst["accuracy"], worst["before"]) == pytest.approx((0.4, 0.9))
    assert worst["low"] < 0.4 < worst["high"]
    assert [s["segment"] for s in others] == ["", "of=a"]  # of=c has no labels
    assert "of=b leads" in page
    assert "Accuracy by labels and interval" in page


def test_acknowledged_and_snoozed_alarms_are_silent_for_prometheus(monitor):
    monitor.register("m", rules=FLOOR)
    monitor.add_estimate("m", estimate(0.5), day(0))
    number = int(monitor.alarms().id[0])

    def loud():
        text = render_metrics(monitor).decode()
        assert 'gdscore_open_alarms{model="m",segment=""} 1.0' in text
        return 'gdscore_unacknowledged_alarms{model="m",segment=""} 1.0' in text

    assert loud()
    monitor.snooze(number, datetime.now(UTC) + timedelta(hours=1))
    assert not loud()
    monitor.snooze(number, datetime.now(UTC) - timedelta(hours=1))
    assert loud()
    monitor.acknowledge(number, "Ada")
    assert not loud()
    Outbox(monitor).register_targets({"x": "webhook example.org"})
    assert 'gdscore_notices_waiting{target="webhook example.org"} 0.0' in render_metrics(monitor).decode()


def test_acknowledging_waits_for_a_writer_of_the_model_and_not_the_other_way_round(monitor, url):
    """PostgreSQL ended one of the two, as the alarm was locked before its model."""
    monitor.register("m", rules=FLOOR)
    monitor.add_estimate("m", estimate(0.5), day(0))
    number, seen = int(monitor.alarms()["id"].iloc[0]), []
    other = Monitor(url)
    with other.writing() as session:
        model = lock_model(session, find_model(session, "m").id)
        thread = threading.Thread(target=lambda: seen.append(monitor.acknowledge(number, "Ada")))
        thread.start()
        thread.join(0.3)
        session.execute(update(Alarm).where(Alarm.model_id == model.id).values(latest=0.4))
    thread.join()
    other.close()
    assert [alarm["latest"] for alarm in seen] == [0.4]


def test_tokens_of_one_model_and_tokens_that_expire(monitor):
    for name in ("m", "n"):
        monitor.register(name, rules=FLOOR)
        monitor.add_estimate(name, estimate(0.5), day(0))
    mine = {"authorization": f"Bearer {create_token(monitor, 'job', 'write', model='m')}"}
    short = create_token(monitor, "short", expires="1s")
    with TestClient(create_app(monitor, Settings()), **HERE) as client:
        of = {a["model"]: a["id"] for a in client.get("/api/v1/alarms?model=m", headers=mine).json()}
        other = next(int(a.id) for a in monitor.alarms().itertuples() if a.model == "n")
        for path, status in {
            "/api/v1/models/m/windows": 200,
            "/models/m": 200,
            f"/alarms/{of['m']}": 200,
            "/windows/1": 200,
            "/api/v1/models/n/windows": 403,
            "/models/n": 403,
            "/windows/2": 403,
            f"/api/v1/alarms/{other}": 403,
            "/api/v1/alarms": 403,
            "/api/v1/alarms?model=n": 403,
            "/api/v1/models": 403,
            "/metrics": 403,
            "/": 403,
            # A name that the route does not look at opens nothing.
            "/api/v1/models?model=m": 403,
            "/alarms?model=m": 403,
            "/metrics?model=m": 403,
            "/?model=m": 403,
        }.items():
            assert client.get(path, headers=mine).status_code == status, path
        for path in ("/api/v1/models", "/api/v1/models?model=m"):
            assert client.post(path, json={"name": "n"}, headers=mine).status_code == 403
        assert client.post(f"/api/v1/alarms/{of['m']}/acknowledge", headers=mine).json()["acknowledged_by"] == "job"
        assert client.post(f"/api/v1/alarms/{other}/acknowledge", headers=mine).status_code == 403
        with monitor.writing() as session:
            session.execute(update(Token).where(Token.name == "short").values(expires_at=day(0)))
        assert client.get("/api/v1/models", headers={"authorization": f"Bearer {short}"}).status_code == 401


def test_without_tokens_nobody_is_answered_also_behind_a_proxy_on_this_machine(local):
    local.register("m")
    with TestClient(create_app(local), **HERE) as client:
        for path in ("/api/v1/models", "/metrics"):
            assert client.get(path).status_code == 401
        assert client.post("/api/v1/models", json={"name": "x"}).status_code == 401


def test_errors_of_http_have_the_words_of_http(monitor, fitted):
    monitor.register("m")
    body = {"time": "2026-01-01", "accuracy": 0.9, "low": 0.8, "high": 1, "n_rows": 100, "reference_accuracy": 0.9}
    with TestClient(create_app(monitor, OPEN), **HERE) as client:
        errors = [client.post("/api/v1/models/m/windows?time=2026-01-01", json={"probabilities": [[0.5, 0.5]]}).json()]
        client.post("/api/v1/models/m/estimates", json=body)
        errors.append(client.post("/api/v1/models/m/estimates", json=body | {"accuracy": 0.85}).json())
        monitor.set_estimator("m", fitted)
        errors.append(client.post("/api/v1/models/m/windows", json={"logits": [[0.5, 0.5, 0, 0, 0]]}).json())
        csv = {"content-type": "text/csv"}
        errors.append(client.post("/api/v1/models/m/windows?time=2026-01-01", content="a,b\n1,2\n", headers=csv).json())
        monitor.retire("m")
        errors.append(client.post("/api/v1/models/m/estimates", json=body | {"time": "2026-01-09"}).json())
    assert [set(error) >= {"error"} for error in errors] == [True] * 5
    for error in errors:
        for foreign in ("--", "=True", "time=)", "gdscore monitor", "version="):
            assert foreign not in error["error"], error
    assert "`replace` set to true" in errors[1]["error"]
