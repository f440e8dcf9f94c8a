"""benchmarks/estimates/few_labels.py: runs in small and draws as the public API does; the committed results reach their goals."""

import numpy as np

from benchmarks.estimates import few_labels
from benchmarks.estimates.few_labels_page import BENCHMARKS, relative_widths, reported
from benchmarks.row_files import read
from gdscore import labeling


def test_small(tmp_path):
    few_labels.main(["run", "--small", "--output", str(tmp_path)])
    rows = read(tmp_path / "labels.csv")
    assert [row["labels"] for row in rows] == [*few_labels.LABELS] * 2
    for row in rows:
        assert row["coverage_gdscore"] >= 0.8
        assert 0 < row["width_gdscore"] < 1.2 * row["width_wilson"]
        assert row["coverage_sequence"] >= 0.8


def test_intervals_are_those_of_the_public_api():
    pair = next(few_labels.generated_pairs())
    outputs, estimator = pair["outputs"], pair["estimator"]
    everything = labeling.choose(estimator, outputs, len(outputs))
    right = np.asarray(outputs.correct)[everything.rows[np.argsort(everything.ranks)]]
    for seed in range(3):
        ranks = few_labels.stratified_ranks(len(outputs), 20, np.array([seed]))
        low, high = few_labels.interval(right[np.sort(ranks, axis=1)], len(outputs), few_labels.LEVEL)
        rows = labeling.choose(estimator, outputs, 20, seed=seed)
        found = labeling.estimate(estimator, outputs, rows, np.asarray(outputs.labels)[rows.rows])
        assert (found.low, found.high) == (low[0], high[0])


def test_oracles():
    from scipy.stats import binomtest

    for correct, n in ((0, 10), (7, 10), (50, 50), (33, 100)):
        for method, name in ((few_labels.wilson, "wilson"), (few_labels.clopper_pearson, "exact")):
            low, high = method(np.array([correct]), n)
            expected = binomtest(correct, n).proportion_ci(few_labels.LEVEL, name)
            np.testing.assert_allclose((low[0], high[0]), (expected.low, expected.high), atol=1e-12)


def test_goals_hold_in_the_committed_results():
    rows = reported(few_labels.RESULTS / "labels.csv")
    for n in few_labels.LABELS:
        own = [row for row in rows if row["labels"] == n]
        for name in BENCHMARKS:
            assert np.mean([row["coverage_gdscore"] for row in own if row["benchmark"] == name]) >= 0.89
            assert np.mean([row["coverage_sequence"] for row in own if row["benchmark"] == name]) >= 0.90
        assert relative_widths(own).max() <= 1.15
    assert relative_widths([row for row in rows if row["labels"] == 50]).mean() <= 0.95
