"""Windows of time and segments against plain Python."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdscore import Estimate, GdscoreError
from gdscore._stream import segment_codes
from gdscore._windows import (
    as_time,
    parse_every,
    utc_starts,
    window_columns,
    window_end,
    window_starts,
)
from gdscore.estimator.estimate import Estimates

moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@given(st.lists(moments, min_size=1), st.integers(1, 10**6))
def test_windows_are_counted_from_1970(times, seconds):
    every = timedelta(seconds=seconds)
    starts = window_starts(np.array(times, dtype="datetime64[us]"), every).tolist()
    if every % timedelta(weeks=1):
        epoch = datetime(1970, 1, 1)
        assert starts == [epoch + (t - epoch) // every * every for t in times]


@given(moments, st.integers(1, 8))
def test_weeks_begin_on_mondays(time, weeks):
    (start,) = window_starts(np.array([time], dtype="datetime64[us]"), timedelta(weeks=weeks)).tolist()
    assert start.weekday() == 0
    assert start <= time < start + timedelta(weeks=weeks)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30min", 1800),
        ("6h", 21600),
        ("1d", 86400),
        (" 2 w ", 1209600),
        ("week", 604800),
        ("2 hours", 7200),
    ],
)
def test_lengths(text, seconds):
    assert parse_every(text).length.total_seconds() == seconds
    assert parse_every(str(parse_every(text))) == parse_every(text)


@pytest.mark.parametrize(
    "text",
    ["", "d", "1m", "0d", "-1d", "1.5h", "1mo2", "1D1h", "9999999d", "nan", "1300mo", "5h Europe/Paris", "6", None, 3],
)
def test_lengths_that_are_none(text):
    with pytest.raises(GdscoreError, match="such as"):
        parse_every(text)


@given(st.lists(st.tuples(moments, st.sampled_from("abc"), st.sampled_from(["x, y", "z"])), min_size=1))
def test_rows_are_grouped_as_by_a_dictionary(rows):
    times, first, second = zip(*rows, strict=True)
    by = {"a": np.array(first), "b": np.array(second)}
    columns = window_columns(np.array(times, dtype="datetime64[us]"), by, parse_every("1d"))
    keys, codes = segment_codes(columns, len(rows))
    days = [time.replace(hour=0, minute=0, second=0, microsecond=0) for time in times]
    expected = list(zip(days, first, second, strict=True))
    assert keys == list(dict.fromkeys(expected))
    assert [keys[code] for code in codes] == expected


def test_the_first_window_begins_with_the_calendar():
    times = np.array(["0001-01-01T00:00", "0001-01-02T00:00"], dtype="datetime64[us]")
    starts = window_starts(times, timedelta(days=30))
    assert starts.tolist() == [datetime(1, 1, 1), datetime(1, 1, 1)]


# -- the calendar and time zones, against Python's datetime ------------------------------------------------------

ZONES = ["Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut"]
recent = st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1))


def local_date(time, zone):
    return time.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).date()


def midnight(day, zone):
    """Where midnight comes twice, the first; where clocks skip it, the time at which they do."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None)


@given(st.lists(recent, min_size=1, max_size=20), st.sampled_from(ZONES))
def test_days_weeks_and_months_of_a_zone_begin_at_its_midnight(times, zone):
    array = np.array(times, dtype="datetime64[us]")
    firsts = {
        "day": lambda day: day,
        "week": lambda day: day - timedelta(days=day.weekday()),
        "month": lambda day: day.replace(day=1),
        "quarter": lambda day: date(day.year, 1 + (day.month - 1) // 3 * 3, 1),
        "year": lambda day: date(day.year, 1, 1),
    }
    for unit, first in firsts.items():
        expected = [midnight(first(local_date(time, zone)), zone) for time in times]
        assert utc_starts(array, parse_every(f"{unit} {zone}")).tolist() == expected
        named = window_starts(array, f"{unit} {zone}").tolist()
        assert [as_time(start).replace(tzinfo=None) for start in named] == expected


@given(recent, st.sampled_from([*ZONES, "UTC"]), st.sampled_from(["15min", "hour", "6h", "day", "week", "2mo", "1q"]))
def test_windows_follow_each_other_without_gaps(time, zone, length):
    every = parse_every(f"{length} {zone}")
    (start,) = utc_starts(np.array([time], dtype="datetime64[us]"), every).tolist()
    end = window_end(start, every)
    assert start <= time < end
    nearly = np.array([start, end - timedelta(microseconds=1), end], dtype="datetime64[us]")
    assert utc_starts(nearly, every).tolist() == [start, start, end]


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_days_on_which_clocks_change(day, hours):
    start = midnight(date.fromisoformat(day), "Europe/Paris")
    assert window_end(start, parse_every("day Europe/Paris")) - start == timedelta(hours=hours)
    minutes = np.datetime64(start, "us") + np.arange(60 * hours) * np.timedelta64(1, "m")
    by_hour = window_starts(minutes, "hour Europe/Paris")
    assert len(dict.fromkeys(by_hour)) == hours  # the hour that comes twice is two windows
    quarters = [start.hour for start in dict.fromkeys(window_starts(minutes, "6h Europe/Paris"))]
    assert quarters == [0, 6, 12, 18]


def test_zones_that_are_none():
    with pytest.raises(GdscoreError, match=r"Unknown time zone 'Europe/Pariss': did you mean 'Europe/Paris'"):
        parse_every("day Europe/Pariss")
    with pytest.raises(GdscoreError, match="Unknown time zone"):
        parse_every("day ../../etc/passwd")


def test_times_of_any_kind():
    expected = datetime(2026, 9, 1, tzinfo=UTC)
    pd = pytest.importorskip("pandas")
    for given_time in ("2026-09", "2026-09-01", pd.Period("2026-09"), np.datetime64("2026-09"), date(2026, 9, 1)):
        assert as_time(given_time) == expected
    assert as_time("2026-W36") == datetime(2026, 8, 31, tzinfo=UTC)
    assert as_time("2026-09-01", ZoneInfo("Europe/Paris")) == expected - timedelta(hours=2)
    column = pd.Series(pd.to_datetime(["2026-09-30 23:30"])).dt.tz_localize("UTC")
    assert window_starts(column, "month Europe/Paris")[0].isoformat() == "2026-10-01T00:00:00+02:00"


@pytest.mark.parametrize("every", ["1h", "day", "week", "month", "quarter", "day Europe/Paris", "quarter Europe/Paris"])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_missing_times_are_in_no_window(every, unit):
    times = np.array(["2026-01-05", "NaT", "2026-05-05", "NaT"], dtype=f"datetime64[{unit}]")
    message = r"got NaT in row 1, the first of 2 such rows: leave out rows without a time"
    pd = pytest.importorskip("pandas")
    for given_times in (times, pd.Series(times)):
        with pytest.raises(GdscoreError, match=message):
            window_starts(given_times, every)


@pytest.mark.parametrize("dtype", ["datetime64[s]", str, object])
def test_masked_times_are_refused(dtype):
    masked = np.ma.masked_array(np.array(["2026-01-01", "1999-01-01"], dtype=dtype), mask=[False, True])
    with pytest.raises(GdscoreError, match="without a mask"):
        window_starts(masked, "1d")


@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_times_of_polars_and_of_arrow(zone):
    pl, pa, pd = (pytest.importorskip(name) for name in ("polars", "pyarrow", "pandas"))
    times = [datetime(2026, 1, 1, 5), datetime(2026, 1, 2, 23, 30)]
    series = pl.Series(times, dtype=pl.Datetime("us", zone))
    backed = pd.Series(times, dtype=pd.ArrowDtype(pa.timestamp("us", zone)))
    for given_times in (series, backed):
        found = window_starts(given_times, "1d").astype(str).tolist()
        assert [day[:10] for day in found] == ["2026-01-01", "2026-01-02"]
    assert window_starts(pl.Series([t.date() for t in times]), "1d").astype(str)[1].startswith("2026-01-02")


def test_times_far_away_do_not_wrap_around():
    with pytest.raises(GdscoreError, match="between the years 1 and 9999, but got 300000-01-01 in row 0"):
        window_starts(np.array(["300000-01-01"], dtype="datetime64[D]"), "month")


@pytest.mark.parametrize("length", ["day", "6h", "month"])
@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Apia"])
def test_ends_of_windows_of_a_zone_in_a_frame(length, zone):
    """The months of New York ended at 00:00 UTC."""
    every = f"{length} {zone}"
    starts = window_starts(np.arange("2026-01-01", "2027-06-01", 2, dtype="datetime64[h]"), every)
    used = sorted(set(starts.tolist()))
    e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=9, reference_accuracy=0.9)
    found = Estimates(dict.fromkeys(used, e), {})
    table = found.to_frame(every=every, backend="pyarrow").to_pylist()
    assert [row["end"] for row in table[:-1]] == [row["start"] for row in table[1:]]
    with pytest.raises(GdscoreError, match="`every` as the windows were made.*'month America/New_York'"):
        found.to_frame(every=length, backend="pyarrow")


def test_other_starts_than_those_of_the_windows():
    e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=9, reference_accuracy=0.9)
    with pytest.raises(GdscoreError, match="no window of '1mo' begins at 2026-01-05T00:00:00"):
        Estimates({"2026-01-05": e}, {}).to_frame(every="month")
    (row,) = Estimates({"2026-01-05": e}, {}).to_frame(every="1d", backend="pyarrow").to_pylist()
    assert row["end"].isoformat() == "2026-01-06T00:00:00"
