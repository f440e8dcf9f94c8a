"""Corruptions of images, and compositions of them, as callables ``images → images``."""

from __future__ import annotations

import os
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
    is_array,
    is_numpy,
    is_torch,
    like,
    namespace,
    on_host,
    to_numpy,
)
from gdscore._checks import integer
from gdscore.errors import GdscoreError
from gdscore.shifts import _corruptions  # noqa: F401  (importing them registers them)
from gdscore.shifts._families import IMAGES, Draws

# Values worked on at once: what stays in a core's cache, or what fills an accelerator without filling its memory.
_CHUNK_ON_HOST = 1 << 18
_CHUNK_ELSEWHERE = 1 << 25

_LEAST_PIXELS = 8
_TOLERANCE = 1e-3


def corruption_names() -> list[str]:
    """Names of the 19 corruptions: noise, blur, weather, digital.

    Examples
    --------
    >>> from gdscore import shifts
    >>> shifts.corruption_names()[:4]
    ['gaussian_noise', 'shot_noise', 'impulse_noise', 'speckle_noise']
    """
    return list(IMAGES)


class _OfImages:
    """A callable ``images → images``."""

    def __call__(self, images: Array, *, start: int = 0) -> Array:
        """Corrupted images; ``start`` is the position of the first one in its set.

        A set that is corrupted in batches is then the set that is corrupted at once.
        """
        check_images(images)
        return corrupt(self, images, start)


@dataclass(frozen=True)
class Corruption(_OfImages):
    """One corruption at one severity, as a callable ``images → images``.

    Images are N×C×H×W arrays of NumPy or PyTorch with 1 or 3 channels, at least 8×8 pixels, and floats in
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
        _ = IMAGES[self.name]
        object.__setattr__(self, "severity", IMAGES.check_severities([self.severity])[0])
        object.__setattr__(self, "seed", integer("seed", self.seed, least=0))

    @property
    def family(self) -> str:
        """Name that all severities share."""
        return self.name

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        return f"Corruption({self.name!r}, severity={self.severity}{seed})"


def corruptions(
    severities: Iterable[int] = IMAGES.severities, names: Iterable[str] | None = None, *, seed: int = 0
) -> list[Corruption]:
    """All corruptions, or the named ones, at all the severities.

    Examples
    --------
    >>> from gdscore import shifts
    >>> shifts.corruptions(severities=[5], names=["fog", "snow"])
    [Corruption('fog', severity=5), Corruption('snow', severity=5)]
    """
    levels = IMAGES.check_severities(severities)
    return [Corruption(name, s, seed) for name in (corruption_names() if names is None else names) for s in levels]


@dataclass(frozen=True)
class Composition(_OfImages):
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
        Seed of the choices and of the corruptions' own random numbers.
    severities, names, lengths : iterable
        What to choose from: severities, corruptions (all), and numbers of corruptions in a row.

    Examples
    --------
    >>> from gdscore import shifts
    >>> shifts.compositions(2)
    [Composition(...), Composition(...)]
    """
    count, seed = integer("count", count, least=0), integer("seed", seed, least=0)
    levels = IMAGES.check_severities(severities)
    pool = [IMAGES[name].name for name in (corruption_names() if names is None else dict.fromkeys(names))]
    sizes = [integer("lengths", length, least=1) for length in lengths]
    if not levels or not sizes or max(sizes) > len(pool):
        raise GdscoreError(
            "Expected severities, lengths and at least as many names as the largest length, "
            f"but got severities {levels}, lengths {sizes} and {len(pool)} names"
        )
    # Hashed, not drawn from a NumPy generator, whose choices may change with its version.
    draws = Draws("compositions", seed, rows=count)
    order, level = np.argsort(draws.uniform(0, len(pool)), axis=1), draws.uniform(1, max(sizes))
    length = draws.uniform(2, 1)[:, 0]
    made = []
    for i in range(count):
        chosen = order[i, : sizes[int(length[i] * len(sizes))]]
        parts = (
            Corruption(pool[which], levels[int(u * len(levels))], (seed << 32) + i + 1)
            for which, u in zip(chosen, level[i], strict=False)
        )
        made.append(Composition(tuple(parts)))
    return made


def corrupt(shift: Any, images: Array, start: int) -> Array:
    """Images that were checked before, after one or more corruptions, rounded to their dtype at the end only.

    Nothing here waits for an accelerator.
    """
    parts = shift.parts if isinstance(shift, Composition) else (shift,)
    start = integer("start", start, least=0)
    if is_numpy(images):
        return _on_host(images, parts, start)
    if on_host(images):
        # NumPy shares the memory, and threads that each take images of their own are faster than torch's.
        tensor = images.detach()
        return like(_on_host(to_numpy(tensor), parts, start), tensor).to(tensor.dtype)
    with full_precision(images):
        step = _images_per_chunk(images, _CHUNK_ELSEWHERE)
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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        with ThreadPoolExecutor(cores or 1) as pool:
            list(pool.map(work, firsts))
    return out


def _images_per_chunk(images: Array, values: int) -> int:
    return max(1, values // int(np.prod(images.shape[1:])))


def _corrupted(images: Array, parts: Sequence[Corruption], start: int) -> Array:
    xp = namespace(images)
    integers = images.dtype == xp.uint8
    x = xp.astype(images, xp.float32)
    x = x * (1 / 255) if integers else x.clip(0.0, 1.0)
    for part in parts:
        family = IMAGES[part.name]
        parameters = family.parameters(part.severity, *x.shape[-2:])
        draws = Draws(part.name, part.seed, start, x.shape[0], like=x)
        x = family.function(x, draws, *parameters).clip(0.0, 1.0)
    return xp.astype(xp.floor(x * 255.0 + 0.5) if integers else x, images.dtype)


def check_images(images: Array) -> None:
    """Refuse what is not a batch of images N×C×H×W in [0, 1] or uint8."""
    if not (is_numpy(images) or is_torch(images)):
        cure = ": give numpy.asarray(images)" if is_array(images) else ""
        raise GdscoreError(f"Expected images as an array of NumPy or PyTorch, but got {type(images).__name__}{cure}")
    shape = tuple(images.shape)
    check_image_shape(shape)
    if not shape[0]:
        raise GdscoreError(f"Expected at least one image, but got an empty batch of shape {shape}")
    xp = namespace(images)
    if images.dtype != xp.uint8:
        if not xp.isdtype(images.dtype, "real floating"):
            raise GdscoreError(f"Expected images of floats in [0, 1] or of uint8, but got {images.dtype}")
        # Threads of torch that wait for each other cost more than they save here.
        host = to_numpy(images) if on_host(images) else images
        with full_precision(host):
            _check_range(host)


def check_image_shape(shape: tuple[int, ...]) -> None:
    """Refuse shapes that the corruptions are not made for."""
    if len(shape) != 4:
        hint = "; add the batch axis with images[None]" if len(shape) == 3 else ""
        raise GdscoreError(f"Expected images of shape (N, C, H, W), but got shape {shape}{hint}")
    if shape[1] not in (1, 3):
        hint = ""
        if shape[3] in (1, 3):
            hint = "; it looks like channels last: transpose to (N, C, H, W) with axes (0, 3, 1, 2)"
        raise GdscoreError(f"Expected images of 1 or 3 channels, (N, C, H, W), but got shape {shape}{hint}")
    if min(shape[2:]) < _LEAST_PIXELS:
        raise GdscoreError(f"Expected images of at least 8×8 pixels, but got {shape[2]}×{shape[3]}")


def _check_range(images: Array) -> None:
    xp = namespace(images)
    # One copy to the host, for which an accelerator is waited for once.
    low, high = map(float, to_numpy(xp.stack([xp.min(images), xp.max(images)])))
    if low != low or high != high:
        bad = xp.any(xp.reshape(images != images, (images.shape[0], -1)), axis=1)
        raise GdscoreError(
            f"Expected images without NaN, but image {int(xp.argmax(xp.astype(bad, xp.int32)))} has some"
        )
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        hint = "undo the normalisation first, corrupt, then normalise" if low < 0 else "divide by 255 or pass uint8"
        raise GdscoreError(f"Expected values in [0, 1], but they go from {low:.4g} to {high:.4g}: {hint}")
