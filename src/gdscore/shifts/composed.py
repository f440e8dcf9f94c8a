"""Compositions of image corruptions as callables ``inputs → inputs``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gdscore._arrays import Array
from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.shifts._checks import check_severity, family_of
from gdscore.shifts._random import Draws
from gdscore.shifts.images import Corruption, apply_in_turn, corruption_names

__all__ = ["Composition", "compositions"]


@dataclass(frozen=True)
class Composition:
    """Several corruptions, one after the other, as a callable ``images → images``.

    Its family is named after its parts: whoever leaves out ``fog`` leaves out every composition with fog in it.

    Examples
    --------
    >>> from gdscore import shifts
    >>> mist = shifts.Composition((shifts.Corruption("fog", 2), shifts.Corruption("pixelate", 4)))
    >>> mist, mist.family
    (Composition(fog 2 → pixelate 4), 'fog+pixelate')
    """

    parts: tuple[Corruption, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts or not all(isinstance(part, Corruption) for part in parts):
            raise GdscoreError(f"Expected `parts` to be one or more `Corruption`, but got {self.parts!r}")
        object.__setattr__(self, "parts", parts)

    def __call__(self, images: Array, *, start: int = 0) -> Array:
        """Corrupted images; ``start`` is the position of the first one in its set."""
        return apply_in_turn(images, self.parts, start)

    def __repr__(self) -> str:
        return f"Composition({' → '.join(f'{p.name} {p.severity}' for p in self.parts)})"

    @property
    def family(self) -> str:
        """Names of the parts, joined by ``+``."""
        return "+".join(part.name for part in self.parts)


def compositions(
    count: int = 100,
    seed: int = 0,
    *,
    severities: Iterable[int] = range(1, 6),
    names: Iterable[str] | None = None,
    lengths: Iterable[int] = (2, 3),
) -> list[Composition]:
    """Random compositions of two or three different corruptions, each a family of its own named after its parts.

    Parameters
    ----------
    count : int
        How many; a smaller count is the beginning of a larger one.
    seed : int
        Of the choices and of the corruptions' own random numbers.
    severities, names, lengths : iterable
        What to choose from: severities, corruptions (all), and numbers of corruptions in a row.

    Examples
    --------
    >>> from gdscore import shifts
    >>> shifts.compositions(2)
    [Composition(...), Composition(...)]
    """
    count, seed = integer("count", count, least=0), integer("seed", seed, least=0)
    levels = [check_severity(s) for s in severities]
    pool = [family_of(name).name for name in (corruption_names() if names is None else dict.fromkeys(names))]
    sizes = [integer("lengths", length, least=1) for length in lengths]
    if not levels or not sizes or max(sizes) > len(pool):
        raise GdscoreError(
            "Expected severities, lengths and at least as many names as the largest length, "
            f"but got severities {levels}, lengths {sizes} and {len(pool)} names"
        )
    # Hashed, not drawn from a NumPy generator, whose choices may change with its version.
    draws = Draws(np.empty((count, 1, 1, 1)), "compositions", seed, 0)
    order, level = np.argsort(draws.per_image(0, len(pool)), axis=1), draws.per_image(1, max(sizes))
    length = draws.per_image(2)[:, 0]
    made = []
    for i in range(count):
        chosen = order[i, : sizes[int(length[i] * len(sizes))]]
        parts = (
            Corruption(pool[which], levels[int(u * len(levels))], (seed << 32) + i + 1)
            for which, u in zip(chosen, level[i], strict=False)
        )
        made.append(Composition(tuple(parts)))
    return made
