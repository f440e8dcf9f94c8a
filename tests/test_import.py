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
    """All scores but COT and COTT, whose linear program is SciPy's."""
    code = (
        "import sys, numpy as np, gdscore; z = np.random.default_rng(0).normal(size=(300, 5));"
        "names = set(gdscore.list_scores()) - {'cot', 'cott'};"
        "gdscore.score_all(gdscore.Outputs(logits=z, features=z), reference=gdscore.Outputs(logits=z, features=z,"
        "labels=np.zeros(300, dtype=int)), scores=names); print(' '.join(sys.modules))"
    )
    assert not set(run(code).split()) & set(HEAVY)


def test_adds_little_time_to_numpy():
    """0.06 s beside NumPy's 0.06 s: a ratio of processor times, whatever the machine and what else it does."""
    code = (
        "import time; clock = [time.process_time()]; import numpy; clock.append(time.process_time()); import gdscore;"
        "clock.append(time.process_time()); print((clock[2] - clock[1]) / (clock[1] - clock[0]))"
    )
    assert min(float(run(code)) for _ in range(3)) < 3


def test_every_public_name_is_there():
    import gdscore

    for name in gdscore.__all__:
        assert getattr(gdscore, name) is not None
    assert set(gdscore.__all__) == set(dir(gdscore))
    with pytest.raises(AttributeError, match="no attribute 'scor'"):
        _ = gdscore.scor
