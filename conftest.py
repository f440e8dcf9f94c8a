"""Test settings that doctests of the source share with the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

# Workers share the cores: more threads than those wait for each other. Read when NumPy and torch are imported.
# Those of OpenMP that wait for work sleep instead of spinning; programs that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ |= {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ}

import pytest
from hypothesis import settings

from gdscore.scores import registry

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")

# Alembic runs them, which gives them the names that they use.
collect_ignore_glob = ["src/gdscore/monitor/migrations/*"]


# They take longest, so they begin first: otherwise one worker ends with them while the others wait.
SLOW = (
    "tests/distributed/",
    "tests/test_examples.py",
    "tests/models/test_metric.py",
    "tests/monitor/test_pages.py",
    "tests/cli/test_examples.py",
    "tests/scores/test_base.py",
    "tests/shifts/test_images.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first."""
    items.sort(key=lambda item: next((k for k, name in enumerate(SLOW) if item.nodeid.startswith(name)), len(SLOW)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker for each file, so that its fixtures are made once, and one for all files that start a cluster."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = "tests/distributed/"
            return folder if nodeid.startswith(folder) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(autouse=True)
def _same_registry_afterwards() -> Iterator[None]:
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)
