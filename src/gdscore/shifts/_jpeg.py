"""What JPEG loses of an image, in integer arithmetic of whole arrays: the same bits as libjpeg, without its files.

Entropy coding loses nothing, so it is left out. What is left are the steps of the standard with libjpeg's roundings:
colours to luminance and chrominance, chrominance at half the size, the discrete cosine transform of 8×8 pixels in
13-bit fixed point (C. Loeffler, A. Ligtenberg, G. Moschytz, "Practical fast 1-D DCT algorithms with 11
multiplications", ICASSP 1989), division by the quantisation table, and all of it backwards. An accelerator need not
wait for the host.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, namespace
from gdscore.shifts._resample import constant

__all__ = ["through_jpeg"]

_FIXED = 13
"""Fraction bits of the cosines."""
_MORE = 2
"""Fraction bits kept between the transform of rows and that of columns."""
_SPLIT = 7
"""Numbers are multiplied in two parts, the lower of so many bits: float32 holds integers below 2²⁴ exactly."""


def through_jpeg(pixels: Array, quality: int) -> Array:
    """Values that a decoder of the JPEG file gives, for int32 values 0 … 255 of N×C×H×W images."""
    xp = namespace(pixels)
    for_luminance, for_chrominance = _tables(quality)
    if pixels.shape[1] == 1:
        return _quantised(pixels, for_luminance)
    y, blue, red = _in_turn(pixels, _TO_YCC, (32768, 128 * 65536 + 32767, 128 * 65536 + 32767))
    y = _quantised(y, for_luminance)
    chrominance = _quantised(_halved(xp.concat([blue, red], axis=1)), for_chrominance)
    height, width = pixels.shape[-2:]
    chrominance = chrominance[..., : (height + 1) // 2, : (width + 1) // 2]
    chrominance = _doubled(chrominance)[..., :height, :width] - 128
    changes = _in_turn(chrominance, _FROM_YCC, (32768, 32768, 32768))
    return (y + xp.concat(changes, axis=1)).clip(0, 255)


# Of red, green and blue, and back: in units of 2⁻¹⁶, each rounded as libjpeg rounds it.
_TO_YCC = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
_FROM_YCC = ((0, 91881), (-22554, -46802), (116130, 0))


def _in_turn(x: Array, weights: tuple[tuple[int, ...], ...], offsets: tuple[int, ...]) -> list[Array]:
    """Weighted sums of the channels, one after the other."""
    made = []
    for row, offset in zip(weights, offsets, strict=True):
        total = offset
        for channel, weight in enumerate(row):
            total = total + x[:, channel : channel + 1] * weight
        made.append(total >> 16)
    return made


@lru_cache(maxsize=64)
def _tables(quality: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Quantisation tables of luminance and chrominance, 8×8, which Pillow writes into its files."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", quality=quality)
    found = Image.open(file).quantization  # type: ignore[attr-defined]
    luminance, chrominance = (np.array(found[i], dtype=np.int32).reshape(8, 8) for i in (0, 1))
    return luminance, chrominance


@lru_cache(maxsize=1)
def _cosines() -> NDArray[np.float32]:
    """Matrix of the transform in fixed point: libjpeg's sums of rounded constants, which are linear in the input."""
    d = np.eye(8, dtype=np.int64)
    even, odd = d[:4] + d[:3:-1], d[3::-1] - d[4:]
    out = np.empty((8, 8), dtype=np.int64)

    def times(x: NDArray[Any], factor: float) -> NDArray[Any]:
        return np.asarray(x * round(factor * 2**_FIXED))

    ends, middle = even[0] + even[3], even[1] + even[2]
    out[0], out[4] = times(ends + middle, 1), times(ends - middle, 1)
    far, near = even[0] - even[3], even[1] - even[2]
    both = times(far + near, 0.541196100)
    out[2], out[6] = both + times(far, 0.765366865), both - times(near, 1.847759065)
    a, b, c, e = odd
    all_four = times(a + b + c + e, 1.175875602)
    third, fourth = all_four - times(a + c, 1.961570560), all_four - times(b + e, 0.390180644)
    first, second = times(a + e, -0.899976223), times(b + c, -2.562915447)
    out[7] = times(a, 0.298631336) + first + third
    out[5] = times(b, 2.053119869) + second + fourth
    out[3] = times(c, 3.072711026) + second + third
    out[1] = times(e, 1.501321110) + first + fourth
    return out.astype(np.float32)


def _transformed(x: Array, matrix: NDArray[np.float32], axis: int, shift: int) -> Array:
    """Matrix times every eight values along rows (−2) or columns (−1), divided by 2 to the ``shift`` and rounded."""
    xp = namespace(x)
    by = constant(np.ascontiguousarray(matrix.T if axis == -1 else matrix), x)

    def product(part: Array) -> Array:
        eights = xp.reshape(xp.astype(part, xp.float32), (-1, 8) if axis == -1 else (-1, 8, x.shape[-1]))
        return xp.astype(xp.reshape(eights @ by if axis == -1 else by @ eights, x.shape), xp.int32)

    total = product(x >> _SPLIT) << _SPLIT
    total += product(x & ((1 << _SPLIT) - 1))
    total += 1 << (shift - 1)
    total >>= shift
    return total


def _quantised(x: Array, table: NDArray[np.int32]) -> Array:
    """Images after transform, quantisation and the way back."""
    xp = namespace(x)
    height, width = x.shape[-2:]
    x = _extended(_extended(x, -height % 8, -2), -width % 8, -1) - 128
    x = _transformed(_transformed(x, _cosines(), -1, _FIXED - _MORE), _cosines(), -2, _FIXED + _MORE)
    blocks = xp.reshape(x, (*x.shape[:-2], x.shape[-2] // 8, 8, x.shape[-1] // 8, 8))
    steps = constant(np.ascontiguousarray(table[:, None, :]), x)
    # The transform is 8 times as large as the standard's.
    levels = (abs(blocks) + steps * 4) // (steps * 8)
    x = xp.reshape(xp.where(blocks < 0, -levels, levels) * steps, x.shape)
    x = _transformed(x, _cosines().T, -2, _FIXED - _MORE)
    x = _transformed(x, _cosines().T, -1, _FIXED + _MORE + 3)
    return (x + 128).clip(0, 255)[..., :height, :width]


def _extended(x: Array, by: int, axis: int) -> Array:
    """Images with the last row (−2) or column (−1) repeated."""
    if not by:
        return x
    size = x.shape[axis]
    return namespace(x).take(x, constant(np.minimum(np.arange(size + by), size - 1), x), axis=axis)


def _halved(x: Array) -> Array:
    """Means of 2×2 pixels, halves rounded down and up in turn; columns for whole blocks."""
    x = _extended(_extended(x, x.shape[-2] % 2, -2), -x.shape[-1] % 16, -1)
    total = x[..., ::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, ::2] + x[..., 1::2, 1::2]
    return (total + constant(np.tile(np.array([1, 2], dtype=np.int32), x.shape[-1] // 4), x)) >> 2


def _doubled(x: Array) -> Array:
    """Images of twice the size: every new pixel is 3/4 of the nearest old one and 1/4 of the next, each way."""
    xp = namespace(x)
    for axis, (down, up) in ((-2, (0, 0)), (-1, (8, 7))):
        size = x.shape[axis]
        before, after = (
            xp.take(x, constant(np.clip(np.arange(size) + step, 0, size - 1), x), axis=axis) for step in (-1, 1)
        )
        pair = xp.stack([x * 3 + before + down, x * 3 + after + up], axis=axis)
        shape = list(x.shape)
        shape[axis] *= 2
        x = xp.reshape(pair, tuple(shape))
    return x >> 4
