"""What is exported of a trained network."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import export  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def reference(n=60, d=8, classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    return torch.randn(n, d, generator=generator) + 4 * labels[:, None], labels


def test_rows_of_the_reference_are_compared_with_the_others():
    features, labels = reference()
    found = export.Geometry(features, labels, 3).scalars(features, labels, torch.arange(60))
    for row in (0, 17):
        others = torch.arange(60) != row
        rest = export.Geometry(features[others], labels[others], 3).scalars(
            features[row : row + 1], labels[row : row + 1]
        )
        for name in ("norm", "own", "other", "near1", "near10", "agree"):
            torch.testing.assert_close(found[name][row], rest[name][0], msg=name)


def test_the_covariance_is_that_of_the_other_rows():
    # Fewer rows than features, where it matters most.
    features, labels = reference(n=12, d=20)
    copies, origin = features[:4] + 0.5, torch.arange(4)
    geometry = export.Geometry(features, labels, 3)
    found = geometry.scalars(copies, labels[:4], origin)["mahalanobis"]
    for row in range(4):
        kept, known = (x[torch.arange(12) != row] for x in (features, labels))
        means = torch.stack([kept[known == k].mean(0) for k in range(3)])
        within = (kept - means[known]).double()
        covariance = within.T @ within / 9 + 1e-3 * geometry.trace / 20 * torch.eye(20)
        gaps = (copies[row] - means).double()
        expected = torch.einsum("ki,ij,kj->k", gaps, torch.linalg.inv(covariance), gaps).min().sqrt()
        assert float(found[row]) == pytest.approx(float(expected), rel=1e-3)


def test_distances_are_what_they_are_called():
    features, labels = reference()
    rows, predicted = features[:5] + 1, torch.tensor([0, 1, 2, 0, 1])
    geometry = export.Geometry(features, labels, 4)
    found = geometry.scalars(rows, predicted)
    means = torch.stack([features[labels == k].mean(0) for k in range(3)])
    within = (features - means[labels]).double()
    within = within.T @ within / 57
    assert geometry.trace == pytest.approx(float(within.trace()))
    inverse = torch.linalg.inv(within + 1e-3 * within.trace() / 8 * torch.eye(8))
    for row in range(5):
        squared = (rows[row] - means).square().sum(1)
        torch.testing.assert_close(found["own"][row], squared[predicted[row]])
        others = [float(squared[k]) for k in range(3) if k != predicted[row]]
        assert float(found["other"][row]) == pytest.approx(min(others), rel=1e-5)
        gaps = (rows[row] - means).double()
        nearest = torch.einsum("ki,ij,kj->k", gaps, inverse, gaps).min().sqrt()
        assert float(found["mahalanobis"][row]) == pytest.approx(float(nearest), rel=1e-4)
        near = (rows[row] - features).square().sum(1).sort()
        torch.testing.assert_close(found["near10"][row], near.values[:10].mean())
        assert float(found["agree"][row]) == pytest.approx(
            float((labels[near.indices[:10]] == predicted[row]).float().mean())
        )


def test_a_file_too_large_loses_digits_of_logits_and_then_rows(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "reference_logits": rng.normal(size=(20, 3)).astype(np.float32),
        "shifted_logits": rng.normal(size=(4, 50, 3)).astype(np.float32),
        "shifted_norm": rng.normal(size=(4, 50)).astype(np.float32) * 1e5,
        "shifted_rows": np.arange(50),
    }
    sizes = {}
    for limit in (10**6, 3900, 2500):
        export.save(tmp_path / "made.npz", arrays, limit)
        assert (tmp_path / "made.npz").stat().st_size <= limit
        with np.load(tmp_path / "made.npz") as found:
            sizes[limit] = found["shifted_logits"].dtype.name, found["shifted_logits"].shape, len(found["shifted_rows"])
            # Too large for float16.
            assert found["shifted_norm"].dtype == np.float32
    assert sizes[10**6] == ("float32", (4, 50, 3), 50)
    assert sizes[3900] == ("float16", (4, 50, 3), 50)
    assert sizes[2500][0] == "float16"
    assert sizes[2500][2] == sizes[2500][1][1] < 50


def test_jobs_have_names_of_their_own():
    for jobs in export.LISTS.values():
        assert len({job.name for job in jobs}) == len(jobs)
    assert [len(jobs) for jobs in export.LISTS.values()] == [20, 12]
