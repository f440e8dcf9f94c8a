"""Windows of time and segments: which of them each row belongs to.

Requirements met here, for the command line, Python, Ray and the monitor alike:

- a length is a number and a unit (``30min``, ``6h``, ``1d``, ``1w``, ``1mo``, ``1q``, ``1y``) or the unit alone
  (``month``), and the name of a time zone where it is not UTC (``month Europe/Paris``);
- days, weeks (from Mondays), months, quarters and years are those of the calendar of the zone: a day has 23 or 25 hours
  where clocks change, and an hour that comes twice is two windows;
- times without a zone count as UTC; the start of a window, named by a person, is in the zone of the windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError, nearest, shown

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MONTHS = {"mo": 1, "q": 3, "y": 12}
_WORDS = {"minute": "min", "hour": "h", "day": "d", "week": "w", "month": "mo", "quarter": "q", "year": "y"}
_EVERY = re.compile(rf"([1-9]\d{{0,5}})? ?({'|'.join([*_WORDS, *_SECONDS, *_MONTHS])})s?(?: +(\S+))?")
_MEAN_MONTH = timedelta(days=365.2425 / 12)
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
_MONDAY = np.datetime64("1970-01-05", "us")
_FIRST = np.datetime64("0001-01-01", "us")
"""Earliest time that Python has."""


@dataclass(frozen=True)
class Every:
    """Length of windows, and the time zone whose clocks they follow; its text is what `parse_every` reads."""

    length: timedelta  # of months, the mean length
    months: int = 0  # months of a window, 0 where it is no number of months
    zone: str = "UTC"  # name of the time zone

    def __str__(self) -> str:
        seconds = int(self.length.total_seconds())
        count, unit = self.months, "mo"
        if not count:
            unit = next(name for name in reversed(_SECONDS) if seconds % _SECONDS[name] == 0)
            count = seconds // _SECONDS[unit]
        return f"{count}{unit}" if self.zone == "UTC" else f"{count}{unit} {self.zone}"

    @property
    def has_own_starts(self) -> bool:
        """Whether windows begin only where the calendar or the clocks of a zone say so."""
        return bool(self.months) or self.zone != "UTC"

    @property
    def tzinfo(self) -> tzinfo:
        """Zone for `datetime`."""
        return _zone(self.zone)


def parse_every(value: Any) -> Every:
    """Length of windows, of a text such as 30min, 6h, day, 1w, month or "quarter Europe/Paris", or of a timedelta.

    Examples
    --------
    >>> parse_every("6h").length, str(parse_every("month Europe/Paris"))
    (datetime.timedelta(seconds=21600), '1mo Europe/Paris')
    """
    if isinstance(value, Every):
        return value
    if isinstance(value, timedelta) and value >= timedelta(seconds=1) and not value.microseconds:
        return Every(value)
    match = _EVERY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match[1] is None and match[2] not in _WORDS):
        raise GdscoreError(
            "Expected the length of windows such as 30min, 6h, 1d, week or month, or 'month Europe/Paris' with a "
            f"time zone, but got {shown(value)}"
        )
    count, unit, zone = int(match[1] or 1), _WORDS.get(match[2], match[2]), match[3] or "UTC"
    _zone(zone)
    if unit in _MONTHS:
        months = count * _MONTHS[unit]
        if months > 1200:
            raise GdscoreError(f"Expected windows such as 1mo or 1y, of at most 100 years, but got {shown(value)}")
        return Every(months * _MEAN_MONTH, months, zone)
    length = timedelta(seconds=count * _SECONDS[unit])
    if zone != "UTC" and length % _DAY and _HOUR % length and (length % _HOUR or _DAY % length):
        raise GdscoreError(
            "Expected windows of a time zone such as 15min, 6h or 1d: parts of an hour, hours that divide a day, "
            f"or days, but got {shown(value)}"
        )
    return Every(length, 0, zone)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, available_timezones

    with suppress(OSError, ValueError, KeyError):  # KeyError: there is none of this name
        return ZoneInfo(name)
    zones = available_timezones()
    hint = nearest(name[:60], zones) if zones else "this system knows none: pip install tzdata"
    raise GdscoreError(f"Unknown time zone {name[:60]!r}: {hint}")


# -- starts and ends of windows -------------------------------------------------------------------------------


def window_starts(times: Any, every: Any = "1d") -> NDArray[Any]:
    """Start of each time's window, to be given as `by`: one estimate for each month, say.

    Weeks begin on Mondays, months are counted from January, other windows from 1970. The first window begins with the
    year 1.

    Parameters
    ----------
    times : array or column
        Times, dates or text in ISO 8601; those without a time zone count as UTC.
    every : str or timedelta
        Length of windows such as ``30min``, ``6h``, ``day``, ``week``, ``1mo``, ``quarter``, or with a time zone
        ``month Europe/Paris``.

    Returns
    -------
    array
        In UTC; for windows of a time zone, datetimes with the offset of its clocks.

    Examples
    --------
    >>> times = ["2026-01-31T05:20", "2026-01-31T23:59"]
    >>> window_starts(times).astype("datetime64[D]").astype(str).tolist()
    ['2026-01-31', '2026-01-31']
    >>> [start.isoformat() for start in window_starts(times, "month Europe/Paris")]
    ['2026-01-01T00:00:00+01:00', '2026-02-01T00:00:00+01:00']
    """
    every = parse_every(every)
    starts = utc_starts(as_times(times), every)
    if every.zone == "UTC":
        return starts
    used, place = np.unique(starts, return_inverse=True)
    local = [start.replace(tzinfo=UTC).astimezone(every.tzinfo) for start in used.tolist()]
    # With fixed offsets: of two times of one zone that clocks show alike, Python knows no difference.
    fixed = [time.replace(tzinfo=timezone(time.utcoffset() or timedelta(0))) for time in local]
    return np.array(fixed, dtype=object)[place]


def utc_starts(times: NDArray[np.datetime64], every: Every) -> NDArray[np.datetime64]:
    """Start of each time's window, both in UTC without a zone."""
    times = times.astype("datetime64[us]")
    if every.zone == "UTC":
        return np.asarray(np.maximum(_floor(times, every), _FIRST))
    zone = every.tzinfo  # not Arrow's functions: their zones keep no summer time after 2037
    walls, place = np.unique(_floor(times + _offsets(times, zone), every), return_inverse=True)
    # Clocks that were put back show a time twice: fold 0 is the first, 1 the second.
    first = np.array([_instant(wall, zone, 0) for wall in walls.tolist()], dtype="datetime64[us]")[place]
    second = np.array([_instant(wall, zone, 1) for wall in walls.tolist()], dtype="datetime64[us]")[place]
    again = (second - first >= np.timedelta64(every.length)) & (times >= second)
    return np.asarray(np.where(again, second, first))


def _floor(times: NDArray[np.datetime64], every: Every) -> NDArray[np.datetime64]:
    if every.months:
        months = times.astype("datetime64[M]").astype(np.int64) + 12 * 1970
        first = months // every.months * every.months - 12 * 1970
        return np.asarray(first.astype("datetime64[M]").astype("datetime64[us]"))
    step = np.timedelta64(every.length, "us")
    origin = _MONDAY if every.length % _WEEK == timedelta(0) else np.datetime64(0, "us")
    return np.asarray(origin + (times - origin) // step * step)


def _offsets(times: NDArray[np.datetime64], zone: tzinfo) -> NDArray[np.timedelta64]:
    """How far local clocks are from UTC: looked up by days, and by times on the days on which it changes."""

    def offset(time: datetime) -> timedelta:
        inside = min(max(time, datetime(1, 1, 3)), datetime(9999, 12, 29)).replace(tzinfo=UTC)
        return inside.astimezone(zone).utcoffset() or timedelta(0)

    days, place = np.unique(times.astype("datetime64[D]"), return_inverse=True)
    begin = [offset(datetime(day.year, day.month, day.day)) for day in days.tolist()]
    end = [offset(datetime(day.year, day.month, day.day, 23, 59, 59)) for day in days.tolist()]
    offsets = np.array(begin, dtype="timedelta64[us]")[place]
    changing = np.array([a != b for a, b in zip(begin, end, strict=True)], dtype=bool)[place]
    single, place = np.unique(times[changing], return_inverse=True)
    offsets[changing] = np.array([offset(time) for time in single.tolist()], dtype="timedelta64[us]")[place]
    return offsets


def _instant(wall: datetime, zone: tzinfo, fold: int) -> datetime:
    """Time in UTC at which clocks of a zone show another; where they skip it, the time at which they do."""
    inside = max(wall, datetime(1, 1, 3))
    return inside.replace(tzinfo=zone, fold=fold).astimezone(UTC).replace(tzinfo=None)


def window_end(start: datetime, every: Every) -> datetime:
    """End of the window of a start in UTC: the start of the next one.

    Examples
    --------
    >>> window_end(datetime(2026, 3, 28, 23), parse_every("day Europe/Paris")) - datetime(2026, 3, 28, 23)
    datetime.timedelta(seconds=82800)
    """
    if not every.has_own_starts:
        return start + every.length
    # Sure to be in the next window, but for clocks that are put back in this one.
    later = start + (32 * _DAY * every.months or every.length)
    while True:
        (next_start,) = utc_starts(np.array([later.replace(tzinfo=None)], dtype="datetime64[us]"), every).tolist()
        end: datetime = next_start.replace(tzinfo=start.tzinfo)
        if end > start:
            return end
        later += _HOUR


def end_of(start: datetime, every: Every) -> datetime:
    """End of a window by its start as people name it: in the zone of the windows, or without one as the start.

    A start that is not one of these windows is refused, where these begin only at times of a calendar or a zone.
    """
    utc = as_utc(start)
    if every.has_own_starts or start.utcoffset():
        begins = utc_starts(np.array([utc.replace(tzinfo=None)], dtype="datetime64[us]"), every)
        if begins.tolist() != [utc.replace(tzinfo=None)]:
            raise GdscoreError(
                f"Expected `every` as the windows were made, but no window of {str(every)!r} begins at "
                f"{start.isoformat()}: give their length and their time zone, such as 'month America/New_York'"
            )
    end = window_end(utc, every)
    return end.replace(tzinfo=None) if start.tzinfo is None else end.astimezone(every.tzinfo)


# -- times ----------------------------------------------------------------------------------------------------


def time_text(when: datetime) -> str:
    """Date, the time where it is not midnight, its seconds where they are not 0, and the time zone if known.

    Examples
    --------
    >>> time_text(datetime(2026, 1, 31)), time_text(datetime(2026, 1, 31, 5, 30))
    ('2026-01-31', '2026-01-31T05:30')
    """
    clock = "T%H:%M:%S" if when.second else "T%H:%M" if when.hour or when.minute else ""
    return when.strftime(f"%Y-%m-%d{clock} %Z").rstrip()


def as_utc(when: datetime) -> datetime:
    """Time in UTC; one without a time zone is taken for UTC, so that all times can be compared."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


_PERIOD = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])|-?Q([1-4])|-W(\d\d))")


def time_in_text(text: str) -> datetime | None:
    """Time that a text is in ISO 8601, or the start of its month, quarter or week: 2026-09, 2026Q3, 2026-W36.

    Examples
    --------
    >>> time_in_text("2026-09"), time_in_text("2026Q3"), time_in_text("fr")
    (datetime.datetime(2026, 9, 1, 0, 0), datetime.datetime(2026, 7, 1, 0, 0), None)
    """
    text = text.strip()
    with suppress(ValueError):
        if (match := _PERIOD.fullmatch(text)) is not None:
            year, month, quarter, week = match.groups()
            if week is not None:
                return datetime.fromisocalendar(int(year), int(week), 1)
            return datetime(int(year), int(month or 3 * int(quarter) - 2), 1)
        if re.match(r"\d{4}-\d\d-\d\d", text):  # others, such as 20260131, may be numbers
            return datetime.fromisoformat(text)
    return None


def as_time(value: Any, zone: tzinfo = UTC) -> datetime:
    """Time in UTC of a datetime, date, text, NumPy time or the start of a pandas Period; ``zone`` where it has none.

    Examples
    --------
    >>> as_time("2026-01-31T02:00+01:00").isoformat(), as_time("2026-02").isoformat()
    ('2026-01-31T01:00:00+00:00', '2026-02-01T00:00:00+00:00')
    """
    time = time_of(value)
    with suppress(
        ValueError, OverflowError
    ):  # OverflowError: the first and the last day of the calendar in another zone
        if time is None and isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
        if time is not None:
            return as_utc(time if time.tzinfo is not None else time.replace(tzinfo=zone))
    raise GdscoreError(f"Expected a time such as 2026-01-31 or 2026-01-31T05:00:00Z, but got {shown(value)}")


def as_times(values: Any) -> NDArray[np.datetime64]:
    """Times of rows in UTC, from an array or a column of a frame; numbers are refused, as their unit is not known.

    Examples
    --------
    >>> as_times(np.array(["2026-01-31T05:00", "2026-01-31T05:00+01:00"])).astype(str).tolist()
    ['2026-01-31T05:00:00.000000', '2026-01-31T04:00:00.000000']
    """
    if np.ma.isMaskedArray(values):  # what is under the mask would count
        raise GdscoreError("Expected times without a mask, but got a masked array: leave out rows without a time")
    column = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if column.dtype.kind == "M":
        far = outside_calendar(column)
        if far.any():
            row = int(far.argmax())
            raise GdscoreError(
                f"Expected times between the years 1 and 9999, but got {column[row]} in row {row}, the first of "
                f"{far.sum()} such rows: leave out rows without a time"
            )
        return column.astype("datetime64[us]")
    if column.dtype.kind not in "OUT":
        raise GdscoreError(
            "Expected `time` to be one time, a start and an end, or a time for each row, but got an array of "
            f"{column.dtype}: are these seconds? np.array(…).astype('datetime64[s]') makes times of them"
        )
    # NumPy has no zones: it would warn of those in text and in Python's times.
    return np.array([as_time(value).replace(tzinfo=None) for value in column.tolist()], dtype="datetime64[us]")


def outside_calendar(times: NDArray[np.datetime64]) -> NDArray[np.bool_]:
    """Which times Python's calendar, of the years 1 to 9999, does not have: missing ones among them."""
    years = times.astype("datetime64[Y]").astype(np.int64) + 1970  # of a missing time, far from all others
    return np.asarray((years < 1) | (years > 9999))


def time_of(value: Any) -> datetime | None:
    """Time that a value is, as people name it: a day, a time, a pandas Period or a text such as 2026-09."""
    if isinstance(value, str):
        return time_in_text(value)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()  # a number outside the calendar
    if hasattr(value, "start_time"):
        value = value.start_time.to_pydatetime()
    if isinstance(value, date) and not isinstance(value, datetime):  # pandas' timestamps are datetimes
        return datetime(value.year, value.month, value.day)
    return value if isinstance(value, datetime) and value == value else None  # NaT of pandas is not equal to itself


# -- windows and segments -------------------------------------------------------------------------------------


def window_columns(time: NDArray[np.datetime64] | None, by: Mapping[str, Any], every: Every | None) -> dict[str, Any]:
    """Columns that name the window and segment of each row: starts of windows first, where there are times."""
    return dict(by) if time is None or every is None else {"": window_starts(time, every), **by}
