import numpy as np
import pytest

import gdscore


def outputs(rows, noise=1.5, seed=0, ids=False, names=None):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, rows)
    x = 3 * np.eye(4)[y] + noise * rng.normal(size=(rows, 4))
    more = {"ids": np.array([f"r{k:05d}" for k in range(rows)])} if ids else {}
    return gdscore.Outputs(logits=x, labels=y, **more).with_class_names(names)


@pytest.fixture(scope="session")
def est():
    return gdscore.AccuracyEstimator().fit(outputs(1500, 1.2, seed=1))


@pytest.fixture(scope="session")
def target():
    return outputs(900, 2.0, seed=2)


@pytest.fixture(scope="session")
def named_target():
    return outputs(900, 2.0, seed=2, ids=True, names=["cat", "dog", "=owl", "don't know"])
