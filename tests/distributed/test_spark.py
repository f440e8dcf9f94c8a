"""The recipe for Spark in docs/distributed.md, where Spark and Java are there."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest

import gdscore

sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed: pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def test_map_in_arrow(tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    z = 3 * np.eye(4)[rng.integers(0, 4, 3000)] + rng.normal(size=(3000, 4))
    out = gdscore.Outputs(logits=z, labels=(z + rng.normal(size=z.shape)).argmax(1))
    est = gdscore.AccuracyEstimator().fit(out)
    for number in range(3):
        rows = z[1000 * number : 1000 * number + 1000]
        pq.write_table(pa.table({"logits": list(rows)}), tmp_path / f"{number}.parquet")

    def states(batches):
        state = est.state()
        for batch in batches:
            if batch.num_rows:
                state.update(gdscore.from_frame(pa.Table.from_batches([batch]), logits="logits"))
        yield pa.record_batch({"state": [state.to_bytes()]})

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = spark.read.parquet(str(tmp_path)).select("logits").mapInArrow(states, "state binary").collect()
    finally:
        spark.stop()
    whole = est.state()
    for row in rows:
        whole.merge(est.state(row.state))
    assert est.estimate(whole) == est.estimate(out)
