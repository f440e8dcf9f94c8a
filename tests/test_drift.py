"""Columns of tables against those of the reference."""

import numpy as np
import pytest

import gdscore
from gdscore._drift import ColumnDrift, TableProfile
from gdscore.frames import frame_of

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")


def table(rows, seed, moved=0.0):
    """Columns of every kind; ``moved`` moves income and city, and nothing else."""
    rng = np.random.default_rng(seed)
    day = np.datetime64("2026-01-01") + rng.integers(0, 50, rows).astype("timedelta64[D]")
    found = pd.DataFrame(
        {
            "age": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(40, 10, rows)),
            "income": rng.gamma(2, 1000, rows) * (1 + moved),
            "city": rng.choice(["a", "b", None], rows, p=[0.5 - moved / 4, 0.3 + moved / 4, 0.2]),
            "one": 1.0,
            "few": rng.integers(0, 3, rows),
            "day": day.astype("datetime64[ns]"),
        }
    )
    found.insert(0, 7, rng.random(rows) < 0.5)  # names of columns need not be text
    return found


def test_columns_that_moved_are_named():
    profile = TableProfile.of(table(3000, 0))
    assert profile.names == ("7", "age", "income", "city", "one", "few", "day")
    assert profile.counts.sum(axis=1).tolist() == [3000] * 7
    assert profile.counts[1, -1] == np.isnan(table(3000, 0)["age"]).sum()
    tenths = profile.counts[2, 1:11]
    assert (tenths.min() > 295, tenths.sum()) == (True, 3000)
    quiet = [profile.moved(profile.count(profile.bins(table(2000, seed)))) for seed in range(1, 21)]
    assert sum(map(len, quiet)) <= 2
    moved = profile.moved(profile.count(profile.bins(table(2000, 1, 0.5))))
    assert {drift.name for drift in moved} == {"income", "city"}
    new = table(2000, 2, 0.5)
    drift = next(d for d in moved if d.name == "city")
    assert 0.1 < drift.statistic < 0.3
    new["one"] = 2.0
    new["few"] = "text"
    with pytest.raises(gdscore.GdscoreError, match="numbers in column 'few'"):
        profile.bins(new)
    new["few"] = 1
    assert profile.moved(profile.count(profile.bins(new)))[0] == ColumnDrift("one", pytest.approx(1.0))
    with pytest.raises(gdscore.GdscoreError, match="'income' is missing"):
        profile.bins(new.drop(columns="income"))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_of_times_is_no_drift(unit):
    profile, new = TableProfile.of(table(3000, 0)), table(2000, 1)
    new["day"] = new["day"].astype(f"datetime64[{unit}]")
    assert profile.bins(new).tolist() == profile.bins(table(2000, 1)).tolist()
    new["day"] += np.timedelta64(4000, "D")
    assert profile.moved(profile.count(profile.bins(new)))[0] == ColumnDrift("day", pytest.approx(1.0))


def test_columns_of_another_type_than_before():
    old = pd.DataFrame({"code": ["1", "2"] * 50, "new": [True, False] * 50})
    profile = TableProfile.of(old)
    with pytest.raises(gdscore.GdscoreError, match="text in column 'code' of `inputs` as before, but got numbers"):
        profile.bins(old.assign(code=old["code"].astype(int)))
    assert set(profile.bins(old.assign(code=np.nan))[:, 0]) == {12}
    some = old["new"].astype("boolean").mask(np.arange(100) < 10)
    for same in (some, some.astype(object).where(some.notna(), None), old["new"].astype(object).mask(some.isna())):
        assert profile.bins(old.assign(new=same))[:, 1].tolist() == [12] * 10 + profile.bins(old)[10:, 1].tolist()
        assert TableProfile.of(old.assign(new=same)).bins(old)[:, 1].tolist() == profile.bins(old)[:, 1].tolist()
    assert set(profile.bins(old.assign(new=None))[:, 1]) == {12}


def test_the_statistic_of_a_column_is_cramers_v():
    """Of the bins in which both samples are counted, by the definition."""
    profile = TableProfile.of(np.random.default_rng(0).normal(size=(500, 1)))
    target = np.random.default_rng(1).normal(0.5, 1.2, size=(400, 1))
    counts = profile.count(profile.bins(target))
    both = np.stack([profile.counts[0], counts[0]]).astype(float)
    both = both[:, both.sum(axis=0) > 0]
    expected = both.sum(axis=1, keepdims=True) * both.sum(axis=0) / both.sum()
    (drift,) = profile.moved(counts)
    assert drift.statistic == pytest.approx(np.sqrt((np.square(both - expected) / expected).sum() / both.sum()))


@pytest.mark.parametrize("backend", ["polars", "pyarrow"])
def test_profiles_of_other_libraries_are_the_same(backend):
    pytest.importorskip(backend)
    frame = table(300, 0).drop(columns=[7, "day"])
    columns = {name: [None if value != value else value for value in frame[name].tolist()] for name in frame}
    other = frame_of(columns, backend)
    np.testing.assert_array_equal(TableProfile.of(other).counts, TableProfile.of(frame).counts)


def test_what_is_no_table_has_no_profile():
    assert TableProfile.of(["a text", "another"]) is None
    assert TableProfile.of(np.zeros((5, 3, 8, 8))) is None
    assert TableProfile.of(np.zeros((5, 301))) is None


def test_columns_of_lists_have_no_drift():
    old = {"a": np.arange(50.0), "lists": [[1, 2]] * 50}
    for frame in (pd.DataFrame(old), pl.DataFrame(old), pl.DataFrame(old).with_columns(s=pl.struct("a"))):
        assert TableProfile.of(frame).names == ("a",)
