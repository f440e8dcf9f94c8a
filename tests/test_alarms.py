"""Alarm rules: which status an estimate gets, which targets are checked, and what is told."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdscore import GdscoreError
from gdscore._alarms import AlarmOn, AlarmRule, RuleResult, Status, checked_targets, summarize, worst_status
from gdscore.estimator import EstimateWarning

DAY = datetime(2026, 1, 31)
shares = st.floats(0, 1)


def estimate(accuracy=0.8, low=0.7, high=0.9, reference=0.9, warnings=()):
    found = [EstimateWarning(code, severity, code) for code, severity in warnings]
    return SimpleNamespace(
        accuracy=accuracy, low=low, high=high, reference_accuracy=reference, n_rows=500, warnings=found
    )


@given(st.lists(shares, min_size=3, max_size=3), shares, st.sampled_from(AlarmOn))
def test_an_alarm_is_a_value_below_the_floor(values, floor, on):
    low, accuracy, high = sorted(values)
    compared = {AlarmOn.LOW: low, AlarmOn.ESTIMATE: accuracy, AlarmOn.HIGH: high}[on]
    status = AlarmRule(floor, alarm_on=on).check("a", estimate(accuracy, low, high)).status
    if high - low > 0.5 and low < floor - 1e-9 <= high:
        assert status is Status.NOT_ENOUGH_DATA
    else:
        assert status is (Status.ALARM if compared < floor - 1e-9 else Status.FINE)


@given(shares, shares, shares, shares)
def test_of_two_rules_the_stricter_holds(accuracy, reference, least, drop):
    given_estimate = estimate(accuracy, accuracy, accuracy, reference)
    status = AlarmRule(least, drop).check("a", given_estimate).status
    assert (status is Status.ALARM) == (accuracy < least or accuracy < reference - drop)


@pytest.mark.parametrize("on", AlarmOn)
@pytest.mark.parametrize("field", ["accuracy", "low", "high", "reference"])
def test_nan_never_passes(on, field):
    values = {field: math.nan} if field == "reference" else dict.fromkeys(("accuracy", "low", "high"), math.nan)
    rule = AlarmRule(max_drop=0.5, alarm_on=on) if field == "reference" else AlarmRule(0.0, alarm_on=on)
    assert rule.check("a", estimate(**values)).status is Status.ALARM


@pytest.mark.parametrize(
    ("floor", "rows", "low", "status"),
    [
        (0.75, 199, 0.7, Status.NOT_ENOUGH_DATA),
        (0.85, 199, 0.7, Status.NOT_ENOUGH_DATA),  # below the floor, which is inside the interval
        (0.75, 199, 0.76, Status.FINE),
        (0.95, 199, 0.7, Status.ALARM),
        (0.75, 200, 0.7, Status.FINE),
        (0.85, 200, 0.7, Status.ALARM),
        (0.75, 900, 0.39, Status.NOT_ENOUGH_DATA),
    ],
)
def test_few_rows_or_a_wide_interval_around_the_floor_are_not_enough_data(floor, rows, low, status):
    found = estimate(low=low)
    found.n_rows = rows
    check = AlarmRule(floor).check("a", found)
    assert check.status is status
    assert bool(check.reason) == (status is not Status.FINE)


@pytest.mark.parametrize(
    ("code", "severity", "status"),
    [
        ("collapse", "critical", Status.ALARM),
        ("other_model", "critical", Status.ALARM),
        ("outputs_only", "warning", Status.FINE),
        ("class_mix", "info", Status.FINE),
    ],
)
def test_a_critical_warning_is_an_alarm(code, severity, status):
    check = AlarmRule(0.1).check_all("a", estimate(warnings=[(code, severity)]))
    assert check.status is status
    assert (code in check.reason) == (status is Status.ALARM)
    assert AlarmRule(0.1).check("a", estimate(warnings=[(code, severity)])).status is Status.FINE
    assert "below" in AlarmRule(0.85).check_all("a", estimate(warnings=[(code, severity)])).reason


def test_order_of_statuses():
    names = ["alarm", "error", "not enough data", "fine"]
    checks = [RuleResult(name, Status(name), name) for name in names]
    for i, name in enumerate(names):
        assert worst_status(checks[i:][::-1]).value == name
    assert worst_status([]) is Status.FINE


def test_the_summary_is_one_line_of_the_worst():
    checks = [RuleResult(f"t{i}", Status.ALARM, f"t{i}: low") for i in range(9)] + [
        RuleResult("x", Status.ERROR, "x: damaged")
    ]
    line = summarize(checks)
    assert "\n" not in line
    assert "t0: low" in line
    assert "damaged" not in line
    assert summarize([RuleResult("a", Status.FINE)]) == ""


@given(st.lists(st.one_of(st.none(), st.integers(0, 9))), st.integers(1, 12))
def test_the_newest_times_are_checked(days, last):
    times = [None if day is None else DAY + timedelta(days=day) for day in days]
    checked = checked_targets(times, last=last)
    newest = sorted({day for day in days if day is not None})[-last:]
    assert checked == [day is None or day in newest for day in days]
    assert checked_targets(times) == checked_targets(times, last=1)


def test_since_goes_with_any_time_zone():
    west = timezone(timedelta(hours=-5))
    times = [DAY, DAY.replace(tzinfo=west), None]
    assert checked_targets(times, since=DAY + timedelta(hours=1)) == [False, True, True]
    assert checked_targets(times) == [False, True, True]


def test_what_cannot_be_used():
    for wrong in (
        lambda: AlarmRule(),
        lambda: AlarmRule(1.5),
        lambda: AlarmRule(max_drop=-0.1),
        lambda: AlarmRule(math.nan),
        lambda: checked_targets([DAY], last=0),
        lambda: checked_targets([DAY], last=1, since=DAY),
    ):
        with pytest.raises(GdscoreError):
            wrong()


def test_a_drop_that_is_exactly_met_is_no_alarm():
    for reference in range(101):
        for drop in range(reference + 1):
            met = estimate((reference - drop) / 100, reference=reference / 100)
            assert AlarmRule(max_drop=drop / 100).check("a", met).status is Status.FINE
            below = estimate((reference - drop) / 100 - 1e-6, reference=reference / 100)
            assert AlarmRule(max_drop=drop / 100).check("a", below).status is Status.ALARM
