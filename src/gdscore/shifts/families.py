"""Names of shift families: which families a composed one is made of."""

from __future__ import annotations

__all__ = ["parts_of"]


def parts_of(family: str) -> frozenset[str]:
    """Families that a family is made of.

    Examples
    --------
    >>> sorted(parts_of("fog+gaussian_blur"))
    ['fog', 'gaussian_blur']
    """
    return frozenset(part for part in family.split("+") if part) or frozenset({family})
