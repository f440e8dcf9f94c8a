"""Image corruptions as callables ``inputs → inputs``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gdscore._arrays import Array, concatenate, full_precision, namespace, on_host
from gdscore._options import integer
from gdscore.shifts import blur, digital, noise, weather  # noqa: F401  (importing a group registers its corruptions)
from gdscore.shifts._checks import check_images, check_severity, family_of
from gdscore.shifts._random import Draws
from gdscore.shifts._registry import FAMILIES, SEVERITIES

__all__ = ["Corruption", "apply_in_turn", "corrupt", "corruption_names", "corruptions"]

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


def corrupt(images: Array, name: str, severity: int, *, seed: int = 0, start: int = 0) -> Array:
    """Images as a named corruption leaves them.

    Parameters
    ----------
    images : array of shape (N, C, H, W)
        NumPy, PyTorch, JAX or CuPy; 1 or 3 channels, at least 8×8 pixels, floats in [0, 1] or uint8. Computed where
        they live in float32; only JPEG goes through the host.
    name : str
        One of `corruption_names`.
    severity : int
        1–5 as in CIFAR-10-C (32 px) and ImageNet-C (224 px), interpolated for sizes between; 6–8 go beyond.
    seed : int
        Every image has its own random numbers, which depend on the seed, the corruption and the image's position only.
    start : int
        Position in the whole set of the first image: a set corrupted in batches is the set corrupted at once.

    Returns
    -------
    array of shape (N, C, H, W)
        In the same library, on the same device and of the same dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore import shifts
    >>> images = np.full((4, 3, 32, 32), 0.5)
    >>> foggy = shifts.corrupt(images, "fog", 3)
    >>> foggy.shape, bool((shifts.corrupt(images[2:], "fog", 3, start=2) == foggy[2:]).all())
    ((4, 3, 32, 32), True)
    """
    return Corruption(name, severity, seed)(images, start=start)


def apply_in_turn(images: Array, parts: Sequence[Corruption], start: int) -> Array:
    """Images after one or more corruptions, rounded to the dtype they came in at the end only."""
    check_images(images)
    start = integer("start", start, least=0)
    xp = namespace(images)
    whole = images.dtype == xp.uint8
    step = max(1, (_CHUNK_ON_HOST if on_host(images) else _CHUNK_ELSEWHERE) // int(np.prod(images.shape[1:])))
    done = []
    with full_precision(images):
        for first in range(0, images.shape[0], step):
            x = xp.astype(images[first : first + step], xp.float32)
            # Not a division: accelerators divide by a number as they please.
            x = x * (1 / 255) if whole else xp.clip(x, min=0.0, max=1.0)
            for part in parts:
                family = FAMILIES[part.name]
                parameters = family.parameters(part.severity, *x.shape[-2:])
                x = family.apply(x, Draws(x, part.name, part.seed, start + first), *parameters)
                x = xp.clip(x, min=0.0, max=1.0)
            done.append(xp.astype(xp.floor(x * 255.0 + 0.5) if whole else x, images.dtype))
        return concatenate(done)


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity, as a callable ``images → images``.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore import shifts
    >>> shift = shifts.Corruption("contrast", 5)
    >>> shift, shift.family, float(shift(np.eye(8)[None, None]).max().round(3))
    (Corruption('contrast', severity=5), 'contrast', 0.256)
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
        """Corrupted images; ``start`` is the position of the first one in its set."""
        return apply_in_turn(images, [self], start)

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
