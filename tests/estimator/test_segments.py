"""Estimates of segments in one pass."""

from __future__ import annotations

import tracemalloc
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdscore

from .data import fitted, numbers, outputs

EST = fitted()
TARGET = outputs(900, 1.5, seed=9)
COUNTRIES = np.array(["at", "de", "ch"])[np.random.default_rng(0).integers(0, 3, 900)]


def assert_equal(found, expected):
    np.testing.assert_array_equal(numbers(found), numbers(expected))
    assert (found.n_rows, found.warnings) == (expected.n_rows, expected.warnings)


@given(segments=st.lists(st.integers(0, 4), min_size=60, max_size=60), sizes=st.integers(1, 60))
@settings(max_examples=20)
def test_each_is_the_estimate_of_the_segment_alone(segments, sizes):
    rows, segments = TARGET[:60], np.array(segments)
    parts = [slice(i, i + sizes) for i in range(0, 60, sizes)]
    whole = EST.estimate(rows, by=segments)
    streamed = EST.estimate((rows[p] for p in parts), by=(segments[p].tolist() for p in parts))
    assert set(whole) == set(streamed) == set(segments.tolist())
    for name in whole:
        alone = EST.estimate(rows[segments == name])
        assert_equal(whole[name], alone)
        assert_equal(streamed[name], alone)
    assert [e.accuracy for e in whole.values()] == sorted(e.accuracy for e in whole.values())


@pytest.mark.parametrize(
    "by",
    [
        COUNTRIES,
        COUNTRIES.tolist(),
        tuple(COUNTRIES),
        COUNTRIES.astype(object),
    ],
)
def test_names_of_any_kind_of_sequence(by):
    found = EST.estimate(TARGET, by=by)
    assert set(found) == {"at", "de", "ch"}
    assert sum(e.n_rows for e in found.values()) == 900


def test_data_frame_columns():
    pd = pytest.importorskip("pandas")
    days = pd.Series(pd.date_range("2024-01-01", periods=900, freq="h")).dt.floor("D")
    found = EST.estimate(TARGET, by=days)
    assert len(found) == 38
    assert pd.Timestamp("2024-01-02") in found
    assert set(EST.estimate(TARGET, by=pd.DataFrame({"country": COUNTRIES}))) == {"at", "de", "ch"}
    category = EST.estimate(TARGET, by=pd.Series(COUNTRIES, dtype="category"))
    assert set(category) == {"at", "de", "ch"}


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_times_of_numpy(unit):
    days = np.datetime64("2024-01-01") + np.arange(900) % 3
    found = EST.estimate(
        TARGET, by=np.where(np.arange(900) < 10, np.datetime64("NaT"), days).astype(f"datetime64[{unit}]")
    )
    assert {None if day is None else (day.year, day.day) for day in found} == {None, (2024, 1), (2024, 2), (2024, 3)}


def test_two_columns_as_pairs():
    found = EST.estimate(TARGET, by=list(zip(COUNTRIES.tolist(), [i % 2 for i in range(900)], strict=True)))
    assert len(found) == 6
    assert_equal(found["at", 1], EST.estimate(TARGET[(COUNTRIES == "at") & (np.arange(900) % 2 == 1)]))


def test_arrow_segments():
    pa = pytest.importorskip("pyarrow")
    names = [None if i % 3 == 0 else name for i, name in enumerate(COUNTRIES.tolist())]
    for by in (pa.array(names), pa.chunked_array([names[:500], names[500:]])):
        found = EST.estimate(TARGET, by=by)
        assert set(found) == {None, "at", "de", "ch"}
        assert found[None].n_rows == 300


def test_torch_segments():
    torch = pytest.importorskip("torch")
    assert set(EST.estimate(TARGET, by=torch.arange(900) % 3)) == {0, 1, 2}


def test_missing_names_are_one_segment():
    names = [None if i % 3 == 0 else float("nan") if i % 3 == 1 else 1.0 for i in range(900)]
    found = EST.estimate(TARGET, by=names)
    assert set(found) == {None, 1.0}
    assert found[None].n_rows == 600
    pd = pytest.importorskip("pandas")
    assert set(EST.estimate(TARGET, by=pd.array([1, None, 2] * 300, dtype="Int64"))) == {None, 1, 2}
    assert set(EST.estimate(TARGET, by=pd.to_datetime(["2024-01-01", None, None] * 300))) == {
        None,
        pd.Timestamp("2024-01-01"),
    }


def test_small_segments_are_kept_and_told():
    found = EST.estimate(TARGET, by=["large"] * 898 + ["small"] * 2)
    assert "few_rows" in {w.code for w in found["small"].warnings}
    assert "few_rows" not in {w.code for w in found["large"].warnings}
    assert found["small"].high - found["small"].low > found["large"].high - found["large"].low


@pytest.mark.parametrize(
    "by",
    [
        COUNTRIES[:-1],
        [],
        "at",
        b"at",
        5,
        np.zeros((900, 2)),
        [["at"]] * 900,
        [{}] * 900,
        [np.zeros(2)] * 900,
        object(),
    ],
)
def test_bad_segments(by):
    with pytest.raises(gdscore.GdscoreError, match="by"):
        EST.estimate(TARGET, by=by)


@pytest.mark.parametrize("by", [[COUNTRIES[:450]], [COUNTRIES[:450]] * 3, COUNTRIES, 3, [], "ab"])
def test_segments_that_do_not_fit_the_stream(by):
    with pytest.raises(gdscore.GdscoreError, match="by"):
        EST.estimate([TARGET[:450], TARGET[450:]], by=by)


def test_empty_stream():
    with pytest.raises(gdscore.GdscoreError, match="empty"):
        EST.estimate([], by=[])


def test_segments_of_a_score():
    est = fitted(method="entropy")
    found = est.estimate([TARGET[:400], TARGET[400:]], by=[COUNTRIES[:400], COUNTRIES[400:]])
    for name, e in found.items():
        assert e.accuracy == pytest.approx(est.estimate(TARGET[name == COUNTRIES]).accuracy, abs=1e-9)


def test_many_segments_in_little_memory():
    target, count = outputs(300, 1.2, seed=4), 100
    tracemalloc.start()
    found = EST.estimate(target, by=np.arange(300) % count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == count
    assert sum(e.n_rows for e in found.values()) == 300
    assert peak < count * 30_000


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_tidy_frame(backend):
    """One row for each window and segment, in order of time, with the same types whatever is missing."""
    nw = pytest.importorskip("narwhals")
    pytest.importorskip(backend)
    times = np.datetime64("2026-01-20T12:00") + np.arange(900) * np.timedelta64(1, "h")
    by = {"": gdscore.window_starts(times, "month"), "country": COUNTRIES}
    found = EST.estimate(TARGET, by=by)
    frame = nw.from_native(found.to_frame(every="month", backend=backend))
    assert frame.columns == ["start", "end", "segment", "n_rows", "accuracy", "low", "high", "truth", "warnings"]
    assert frame["start"].to_list() == [datetime(2026, 1, 1)] * 3 + [datetime(2026, 2, 1)] * 3
    assert frame["end"].to_list() == [datetime(2026, 2, 1)] * 3 + [datetime(2026, 3, 1)] * 3
    for row in frame.iter_rows(named=True):
        country = row["segment"].removeprefix("country=")
        e = found[row["start"], country]
        rows = TARGET[(by[""] == np.datetime64(row["start"])) & (country == COUNTRIES)]
        assert (row["n_rows"], row["accuracy"], row["low"], row["high"]) == (e.n_rows, e.accuracy, e.low, e.high)
        assert row["truth"] == pytest.approx(rows.accuracy)
        assert row["warnings"] == " ".join(w.code for w in e.warnings)
    plain = nw.from_native(EST.estimate(TARGET.only({"logits", "features"}), by=COUNTRIES).to_frame(backend=backend))
    assert plain.schema == frame.schema
    assert plain["segment"].to_list() == list(EST.estimate(TARGET, by=COUNTRIES))
    assert plain["truth"].null_count() == plain["start"].null_count() == 3 or backend == "pandas"


def test_a_tidy_frame_of_periods_and_time_zones():
    pd = pytest.importorskip("pandas")
    times = pd.Series(pd.date_range("2026-03-20", periods=900, freq="h"))
    months = EST.estimate(TARGET, by=times.dt.to_period("M")).to_frame(backend="pandas")
    assert months["end"].tolist() == [pd.Timestamp("2026-04-01"), pd.Timestamp("2026-05-01")]
    zoned = EST.estimate(TARGET, by=gdscore.window_starts(times, "month Europe/Paris")).to_frame("month Europe/Paris")
    assert zoned["start"].tolist() == [pd.Timestamp("2026-02-28T23:00Z"), pd.Timestamp("2026-03-31T22:00Z")]
    assert zoned["end"].tolist() == [pd.Timestamp("2026-03-31T22:00Z"), pd.Timestamp("2026-04-30T22:00Z")]
    with pytest.raises(gdscore.GdscoreError, match="did you mean 'polars'"):
        EST.estimate(TARGET, by=COUNTRIES).to_frame(backend="polar")


def test_a_segment_that_a_score_cannot_be_computed_of_is_named():
    est = fitted(method="dispersion")
    target = outputs(200, 1.4, seed=3)
    with pytest.raises(gdscore.GdscoreError, match="segment 'small'.*at least two predicted classes"):
        est.estimate(target, by=["large"] * 199 + ["small"])
