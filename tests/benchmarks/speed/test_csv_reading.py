"""The benchmark of CSV beside Parquet, in small."""

import pytest

from benchmarks.speed import csv_reading


def test_both_kinds_give_the_same_rows(tmp_path):
    pytest.importorskip("pyarrow")
    results = []
    for suffix in csv_reading.SUFFIXES:
        csv_reading.write(tmp_path / f"x{suffix}", 3000, 4)
        results.append(csv_reading.estimate(tmp_path / f"x{suffix}", 3000))
    assert results[0]["accuracy"] == results[1]["accuracy"]
    assert all(result["rows_per_second"] > 0 for result in results)
