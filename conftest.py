"""Test settings that doctests of the source share with the tests."""

from __future__ import annotations

from collections.abc import Iterator

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
