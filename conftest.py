from __future__ import annotations

import pytest
from hypothesis import settings

from gdscore.scores import registry

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def _same_registry_afterwards():
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)
