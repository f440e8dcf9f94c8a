"""Names of families of shifted sets: what kinds of shift they are made of, and which are made of outputs alone."""

from __future__ import annotations

__all__ = ["DISTURBED", "RESAMPLED", "is_made_of_outputs", "is_resampled", "parts_of"]

RESAMPLED = "resampled-"
DISTURBED = "head-"


def parts_of(family: str) -> frozenset[str]:
    """Kinds of shift that a family is made of.

    Examples
    --------
    >>> sorted(parts_of("fog+gaussian_blur"))
    ['fog', 'gaussian_blur']
    """
    return frozenset(part for part in family.split("+") if part) or frozenset({family})


def is_resampled(family: str) -> bool:
    """Whether a family's sets are drawn from the reference itself.

    Examples
    --------
    >>> is_resampled("resampled-class"), is_resampled("fog")
    (True, False)
    """
    return family.startswith(RESAMPLED)


def is_made_of_outputs(family: str) -> bool:
    """Whether its inputs were not shifted: the reference's outputs were resampled, or made anew by a disturbed head.

    Examples
    --------
    >>> is_made_of_outputs("resampled-class"), is_made_of_outputs("head-noise"), is_made_of_outputs("fog")
    (True, True, False)
    """
    return family.startswith((RESAMPLED, DISTURBED))
