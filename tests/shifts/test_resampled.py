from __future__ import annotations

import numpy as np
import pytest

import gdscore
from gdscore.shifts import perturbed, resampled
from tests.data import made

REFERENCE = made(1500, noise=2.0, keep=("logits", "features", "labels"))


class TestResampled:
    def test_families_take_turns_and_sizes_are_kept(self):
        sets = list(resampled(REFERENCE, 9, rows=400))
        assert [s.family.removeprefix("resampled-") for s in sets[:5]] == [
            "class",
            "cluster",
            "confidence",
            "correctness",
            "none",
        ]
        assert {len(s.outputs) for s in sets} == {400}

    def test_same_seed_same_sets(self):
        a, b, c = ([s.accuracy for s in resampled(REFERENCE, 12, seed=seed)] for seed in (3, 3, 4))
        assert a == b != c

    def test_each_kind_changes_what_it_says(self):
        sets = list(resampled(REFERENCE, 80))
        by = {kind: [s for s in sets if s.family.endswith(kind)] for kind in ("class", "confidence", "correctness")}
        mixes = [np.bincount(s.outputs.labels, minlength=10) / len(s.outputs) for s in by["class"]]
        assert max(mix.max() for mix in mixes) > 0.3
        assert np.ptp([float(s.outputs.confidence.mean()) for s in by["confidence"]]) > 0.2
        assert 0.1 < np.ptp([s.accuracy for s in by["correctness"]]) < 0.3

    def test_rows_are_the_reference_rows(self):
        known = {tuple(row) for row in REFERENCE.logits}
        chosen = next(iter(resampled(REFERENCE, 1))).outputs
        assert all(tuple(row) in known for row in chosen.logits)

    def test_reference_without_errors_or_features(self):
        right = gdscore.Outputs(logits=REFERENCE.logits, labels=REFERENCE.predictions)
        assert len(list(resampled(right, 4))) == 4

    def test_unknown_kind(self):
        with pytest.raises(gdscore.GdscoreError, match="Unknown kind 'classs'"):
            list(resampled(REFERENCE, 1, kinds=("classs",)))


class TestPerturbed:
    def head(self):
        rng = np.random.default_rng(0)
        x, w, b = rng.normal(size=(600, 6)), rng.normal(size=(6, 4)), rng.normal(size=4)
        labels = (x @ w + b + rng.gumbel(size=(600, 4))).argmax(1)
        return gdscore.Outputs(logits=x @ w + b, features=x, labels=labels), w, b

    def test_logits_are_made_by_the_head(self):
        reference, w, b = self.head()
        for s in perturbed(reference, (w, b), 12):
            np.testing.assert_allclose(s.outputs.features @ w + b, s.outputs.logits, rtol=1e-9)
            np.testing.assert_array_equal(s.outputs.labels, reference.labels)

    def test_accuracy_falls_with_strength(self):
        reference, w, b = self.head()
        sets = [s for s in perturbed(reference, (w, b), 120) if s.family == "head-noise"]
        assert sets[0].accuracy > sets[-1].accuracy + 0.1

    def test_head_of_another_model(self):
        reference, w, b = self.head()
        with pytest.raises(gdscore.GdscoreError, match="another model's"):
            next(perturbed(reference, (2 * w, b), 1))
        with pytest.raises(gdscore.GdscoreError, match=r"shape \(6, 4\), but got \(4, 6\)"):
            next(perturbed(reference, (w.T, b), 1))
        with pytest.raises(gdscore.GdscoreError, match="length 4"):
            next(perturbed(reference, (w, b[:2]), 1))
        with pytest.raises(gdscore.GdscoreError, match="pair"):
            next(perturbed(reference, w, 1))

    def test_no_bias_and_other_libraries(self):
        import torch

        rng = np.random.default_rng(0)
        x, w = rng.normal(size=(100, 5)), rng.normal(size=(5, 3))
        reference = gdscore.Outputs(
            logits=torch.from_numpy(x @ w), features=torch.from_numpy(x), labels=torch.zeros(100, dtype=torch.int64)
        )
        assert len(list(perturbed(reference, (torch.from_numpy(w), None), 6))) == 6


def test_shifted_set_needs_labels_and_a_family():
    with pytest.raises(gdscore.GdscoreError, match="with labels"):
        gdscore.ShiftedSet(made(5, keep=("logits",)), "fog")
    with pytest.raises(gdscore.GdscoreError, match="`family`"):
        gdscore.ShiftedSet(made(5), "")
