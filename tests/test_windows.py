"""Windows of time and segments against plain Python."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdscore import GdscoreError
from gdscore._stream import segment_codes
from gdscore._windows import Group, group_of, parse_every, window_columns, window_starts

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
    ("text", "seconds"), [("90s", 90), ("30min", 1800), ("6h", 21600), ("1d", 86400), (" 2 w ", 1209600)]
)
def test_lengths(text, seconds):
    assert parse_every(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "d", "0d", "-1d", "1.5h", "1 month", "1D1h", "9999999d", "nan"])
def test_lengths_that_are_none(text):
    with pytest.raises(GdscoreError, match="such as"):
        parse_every(text)


@given(st.lists(st.tuples(moments, st.sampled_from("abc"), st.sampled_from(["x, y", "z"])), min_size=1))
def test_rows_are_grouped_as_by_a_dictionary(rows):
    times, first, second = zip(*rows, strict=True)
    by = {"a": np.array(first), "b": np.array(second)}
    columns = window_columns(np.array(times, dtype="datetime64[us]"), by, timedelta(days=1))
    keys, codes = segment_codes(columns, len(rows))
    days = [time.replace(hour=0, minute=0, second=0, microsecond=0) for time in times]
    expected = list(zip(days, first, second, strict=True))
    assert keys == list(dict.fromkeys(expected))
    assert [keys[code] for code in codes] == expected
    for key in keys:
        assert group_of(key, True, ["a", "b"]) == Group(key[0], f"a={key[1]}, b={key[2]}")


def test_the_first_window_begins_with_the_calendar():
    times = np.array(["0001-01-01T00:00", "0001-01-02T00:00"], dtype="datetime64[us]")
    starts = window_starts(times, timedelta(days=30))
    assert starts.tolist() == [datetime(1, 1, 1), datetime(1, 1, 1)]
