"""`import gdscore` is light: what costs time is imported where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "jax", "scipy", "sklearn", "matplotlib", "pyarrow", "rich", "typer", "ot", "cupy", "pandas")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_loads_nothing_heavy():
    loaded = run("import sys, gdscore; print(' '.join(sys.modules))").split()
    assert not set(loaded) & set(HEAVY)


def test_scoring_numpy_arrays_loads_nothing_heavy():
    code = (
        "import sys, numpy as np, gdscore; z = np.random.default_rng(0).normal(size=(300, 5));"
        "gdscore.score_all(gdscore.Outputs(logits=z, features=z), reference=gdscore.Outputs(logits=z, features=z,"
        "labels=np.zeros(300, dtype=int))); print(' '.join(sys.modules))"
    )
    assert not set(run(code).split()) & set(HEAVY)


def test_adds_little_time_to_numpy():
    """Processor time, which does not depend on what else runs."""
    code = "import time, numpy; start = time.process_time(); import gdscore; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_every_public_name_is_there():
    import gdscore

    for name in gdscore.__all__:
        assert getattr(gdscore, name) is not None
    assert set(gdscore.__all__) == set(dir(gdscore))
    with pytest.raises(AttributeError, match="no attribute 'scor'"):
        _ = gdscore.scor
