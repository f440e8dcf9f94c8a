"""Names of corruptions, and their parameters by severity and image size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gdscore._arrays import Array

__all__ = ["FAMILIES", "SEVERITIES", "Family", "corruption"]

SEVERITIES = 8
"""Five of the benchmark and three beyond it."""

Levels: TypeAlias = Sequence[float] | Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Family:
    """One corruption: ``apply(images, draws, *parameters)`` on float32 images N×C×H×W in [0, 1]."""

    name: str
    apply: Callable[..., Array]
    px32: tuple[tuple[float, ...], ...]
    px224: tuple[tuple[float, ...], ...]

    @property
    def group(self) -> str:
        """Name of the file it stands in: noise, blur, weather or digital."""
        return self.apply.__module__.rpartition(".")[2]

    def parameters(self, severity: int, height: int, width: int) -> tuple[float, ...]:
        """Parameters for an image size: those of 32 px up to there, of 224 px from there, and a power law between.

        A parameter that is 0 at one of the two sizes changes linearly in the logarithm of the size instead.
        """
        share = min(max(math.log(math.sqrt(height * width) / 32) / math.log(224 / 32), 0.0), 1.0)
        small, large = self.px32[severity - 1], self.px224[severity - 1]
        return tuple(
            a if a == b else a * (b / a) ** share if a > 0 and b > 0 else a + (b - a) * share
            for a, b in zip(small, large, strict=True)
        )


FAMILIES: dict[str, Family] = {}


def corruption(*, px32: Levels, px224: Levels) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register a function under its own name, with its parameters at severities 1 … 8 for 32 px and 224 px images."""

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        tables = [tuple(p if isinstance(p, tuple) else (p,) for p in levels) for levels in (px32, px224)]
        FAMILIES[function.__name__] = Family(function.__name__, function, *tables)
        return function

    return decorate
