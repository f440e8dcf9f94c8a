"""Corruptions of images, and compositions of them, as callables ``images → images``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import (
    Array,
    concatenate,
    full_precision,
    is_numpy,
    is_torch,
    like,
    namespace,
    on_host,
    to_numpy,
)
from gdscore._checks import integer
from gdscore.errors import GdscoreError
from gdscore.shifts import blur, digital, noise, weather  # noqa: F401  (importing a group registers its corruptions)
from gdscore.shifts._corruption import FAMILIES, SEVERITIES, Draws, check_severity, cores, family_of
from gdscore.shifts._image_checks import check_images

__all__ = [
    "Composition",
    "Corruption",
    "compositions",
    "corrupt",
    "corruption_names",
    "corruptions",
]

# Values worked on at once: what stays in a core's cache, or what fills an accelerator without filling its memory.
_CHUNK_ON_HOST = 1 << 18
_CHUNK_ELSEWHERE = 1 << 25


def corruption_names() -> list[str]:
    """Names of the 19 corruptions: noise, blur, weather, digital.

    Examples
    --------
    >>> from gdscore import shifts
    >>> shifts.corruption_names()[:4]
    ['gaussian_noise', 'shot_noise', 'impulse_noise', 'speckle_noise']
    """
    groups = ("noise", "blur", "weather", "digital")
    return sorted(FAMILIES, key=lambda name: groups.index(FAMILIES[name].group))


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity, as a callable ``images → images``.

    Images are N×C×H×W arrays of NumPy, PyTorch, JAX or CuPy with 1 or 3 channels, at least 8×8 pixels, and floats in
    [0, 1] or uint8. The result has the same library, device and dtype. It is computed there in float32.

    Parameters
    ----------
    name : str
        One of `corruption_names`.
    severity : int
        1–5 as in CIFAR-10-C (32 px) and ImageNet-C (224 px), interpolated for sizes between; 6–8 go beyond.
    seed : int
        Every image has its own random numbers, which depend on the seed, the corruption and the image's position only.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore import shifts
    >>> fog = shifts.Corruption("fog", 3)
    >>> fog, fog.family
    (Corruption('fog', severity=3), 'fog')
    >>> images = np.full((4, 3, 32, 32), 0.5)
    >>> foggy = fog(images)
    >>> foggy.shape, bool((fog(images[2:], start=2) == foggy[2:]).all())
    ((4, 3, 32, 32), True)
    """

    name: str
    severity: int
    seed: int = 0

    def __post_init__(self) -> None:
        family_of(self.name)
        object.__setattr__(self, "severity", check_severity(self.severity))
        object.__setattr__(self, "seed", integer("seed", self.seed, least=0))

    @property
    def family(self) -> str:
        """Name that all severities share."""
        return self.name

    def __call__(self, images: Array, *, start: int = 0) -> Array:
        """Corrupted images; ``start`` is the position of the first one in its set.

        A set that is corrupted in batches is then the set that is corrupted at once.
        """
        check_images(images)
        return corrupt(self, images, start)

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        return f"Corruption({self.name!r}, severity={self.severity}{seed})"


def corruptions(
    severities: Iterable[int] = range(1, SEVERITIES + 1), names: Iterable[str] | None = None, *, seed: int = 0
) -> list[Corruption]:
    """All corruptions, or the named ones, at all the severities.

    Examples
    --------
    >>> from gdscore import shifts
    >>> len(shifts.corruptions()), shifts.corruptions(severities=[5], names=["fog"])
    (152, [Corruption('fog', severity=5)])
    """
    severities = list(severities)
    return [Corruption(name, s, seed) for name in (corruption_names() if names is None else names) for s in severities]


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
        check_images(images)
        return corrupt(self, images, start)

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


def corrupt(shift: Corruption | Composition, images: Array, start: int) -> Array:
    """Images that were checked before, after one or more corruptions, rounded to their dtype at the end only.

    Nothing here waits for an accelerator.
    """
    parts = shift.parts if isinstance(shift, Composition) else (shift,)
    start = integer("start", start, least=0)
    if is_torch(images) and on_host(images):
        # NumPy shares the memory, and threads that each take images of their own are faster than torch's.
        given = images.detach()
        changed = _on_host(to_numpy(given), parts, start)
        return namespace(images).astype(like(changed, given), images.dtype, copy=False)
    if is_numpy(images):
        return _on_host(images, parts, start)
    with full_precision(images):
        step = _images_per_chunk(images, _CHUNK_ON_HOST if on_host(images) else _CHUNK_ELSEWHERE)
        firsts = range(0, images.shape[0], step)
        return concatenate([_corrupted(images[first : first + step], parts, start + first) for first in firsts])


def _on_host(images: NDArray[Any], parts: Sequence[Corruption], start: int) -> NDArray[Any]:
    """NumPy images, in chunks that threads share: NumPy computes outside of Python's lock."""
    out = np.empty(images.shape, images.dtype)
    step = _images_per_chunk(images, _CHUNK_ON_HOST)

    def work(first: int) -> None:
        with full_precision(images):
            out[first : first + step] = _corrupted(images[first : first + step], parts, start + first)

    firsts = range(0, len(images), step)
    if len(firsts) == 1:
        work(0)
    else:
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(work, firsts))
    return out


def _images_per_chunk(images: Array, values: int) -> int:
    return max(1, values // int(np.prod(images.shape[1:])))


def _corrupted(images: Array, parts: Sequence[Corruption], start: int) -> Array:
    xp = namespace(images)
    integers = images.dtype == xp.uint8
    x = xp.astype(images, xp.float32)
    # Not a division: accelerators divide by a number as they please.
    x = x * (1 / 255) if integers else x.clip(0.0, 1.0)
    for part in parts:
        family = FAMILIES[part.name]
        parameters = family.parameters(part.severity, *x.shape[-2:])
        x = family.apply(x, Draws(x, part.name, part.seed, start), *parameters).clip(0.0, 1.0)
    return xp.astype(xp.floor(x * 255.0 + 0.5) if integers else x, images.dtype)
