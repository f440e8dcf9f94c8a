"""The benchmark of many rows on Ray, in small and without a cluster."""

import pytest

import gdscore
from benchmarks.speed import ray_scale
from gdscore.io import read_outputs

pytest.importorskip("pyarrow")


def test_parts_have_their_rows_and_differ(tmp_path):
    for number in range(2):
        ray_scale.make_part(tmp_path, number, 2 * ray_scale.BLOCK_ROWS // 10)
    first, second = (next(read_outputs(tmp_path / f"part-0000{n}.parquet", batch_rows=5000)) for n in range(2))
    assert len(first) == 5000
    assert (first.logits[0] != second.logits[0]).any()


def test_merging_counts_states():
    est = gdscore.AccuracyEstimator().fit(ray_scale.rows_of(2000, 1, labels=True))
    found = ray_scale.merging(est, 150, 20_000)
    assert found["states"] == 150
    assert found["processor_seconds"] > 0
