"""Test settings that doctests of the source share with the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Workers share the cores: more threads than those wait for each other. Read when NumPy and torch are imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ}

import pytest
from hypothesis import settings

from gdscore.scores import registry

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def _same_registry_afterwards() -> Iterator[None]:
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)
