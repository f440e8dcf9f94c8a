"""Packed data sets in little room, to carry to another machine, and packed again there.

    python -m benchmarks.data.carry shrink mnist usps --to data/carry/digits --rows train=20000 test=9000 --quality 95
    python -m benchmarks.data.carry expand data/carry/digits

Shrunk, a split is one uncompressed ``<name>-<split>.npz``: ``bytes`` are image files one after the other, ``ends`` where
each ends, and ``labels``, ``classes`` and ``size`` as packed. A file is a strip of up to 64 images, one above the other,
as small images would be mostly headers: JPEG without subsampling, whose 8×8 blocks never reach into the next image, or
PNG where that is smaller; grey where all of the strip is. ``expand`` writes ``data/packed`` as if packed here, except
for what JPEG changed, and makes ``pacs`` at 64 pixels of ``pacs128`` where that is in the folder.
"""

import argparse
import io
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.data.images import PACKED
from benchmarks.data.packed import mapped, write

__all__ = ["expand", "shrink"]

STRIP = 64
# Packed at half the size as well: the name of that.
HALVES = {"pacs128": "pacs"}


def encoded(images, quality):
    """A strip of images (uint8 N×3×size×size) as the bytes of a JPEG or of a PNG, whichever is smaller."""
    if images.shape[-1] % 8:
        raise ValueError(f"Expected images of a multiple of 8 pixels, but got {images.shape[-1]}.")
    strip = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(-1, images.shape[-1], 3)
    grey = (strip == strip[..., :1]).all()
    picture = Image.fromarray(strip[..., 0] if grey else strip)
    files = io.BytesIO(), io.BytesIO()
    picture.save(files[0], "JPEG", quality=quality, subsampling=0, optimize=True, progressive=True)
    picture.save(files[1], "PNG", optimize=True)
    return min((file.getvalue() for file in files), key=len)


def decoded(content, size):
    with Image.open(io.BytesIO(content)) as picture:
        strip = np.asarray(picture.convert("RGB"))
    return strip.reshape(-1, size, size, 3).transpose(0, 3, 1, 2)


def halved(images):
    """Each pixel the mean of four."""
    n, channels, height, width = images.shape
    blocks = images.reshape(n, channels, height // 2, 2, width // 2, 2)
    return ((blocks.sum(axis=(3, 5), dtype=np.uint16) + 2) // 4).astype(np.uint8)


def shrink(names, to, *, quality=95, rows=None, splits=None, threads=None, folder=PACKED):
    """Write the splits of packed data sets into the folder `to`; `rows` maps splits to the most rows kept, drawn."""
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        files = [file for file in sorted(folder.glob(f"{name}-*.npz")) if not splits or split_of(file) in splits]
        if not files:
            raise FileNotFoundError(f"Expected packed splits of {name!r} in {folder}, but there are none.")
        for file in files:
            images, labels, classes = mapped(file)
            # In stored order, which neighbours of one class leave smaller.
            kept = np.sort(np.random.default_rng(0).permutation(len(labels))[: (rows or {}).get(split_of(file))])
            with ThreadPoolExecutor(threads) as pool:
                strips = range(0, len(kept), STRIP)
                parts = list(pool.map(lambda k, i=images, r=kept: encoded(i[r[k : k + STRIP]], quality), strips))
            written.append(to / file.name)
            np.savez(
                written[-1],
                bytes=np.frombuffer(b"".join(parts), dtype=np.uint8),
                ends=np.cumsum([len(part) for part in parts]),
                labels=labels[kept],
                classes=np.array(classes),
                size=images.shape[-1],
            )
    return written


def split_of(file):
    return file.stem.partition("-")[2]


def expand(folder, *, to=PACKED, threads=None):
    """Write packed files of everything `shrink` wrote into `folder`; returns them."""
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as carried:
            content, ends, size = carried["bytes"], carried["ends"], int(carried["size"])
            labels, classes = carried["labels"], carried["classes"].tolist()
        with ThreadPoolExecutor(threads) as pool:
            pieces = [piece.tobytes() for piece in np.split(content, ends[:-1])]
            strips = list(pool.map(decoded, pieces, [size] * len(pieces)))
            written.append(to / file.name)
            write(written[-1], chain.from_iterable(strips), (3, size, size), labels, classes)
            name, _, split = file.stem.partition("-")
            if name in HALVES:
                strips = pool.map(halved, strips)
                written.append(to / f"{HALVES[name]}-{split}.npz")
                write(written[-1], chain.from_iterable(strips), (3, size // 2, size // 2), labels, classes)
    if not written:
        raise FileNotFoundError(f"Expected files that `shrink` wrote in {folder}, but there are none.")
    return written


def counts(text):
    split, _, rows = text.partition("=")
    return split, int(rows)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    shrinking = commands.add_parser("shrink", help="write packed data sets into a small folder")
    shrinking.add_argument("names", nargs="+")
    shrinking.add_argument("--to", type=Path, required=True)
    shrinking.add_argument("--quality", type=int, default=95, help="of JPEG")
    shrinking.add_argument("--splits", nargs="+", help="only these (default: all)")
    shrinking.add_argument("--rows", nargs="+", type=counts, default=[], metavar="SPLIT=N", help="at most so many")
    expanding = commands.add_parser("expand", help="write data/packed from such a folder")
    expanding.add_argument("folder", type=Path)
    for command in (shrinking, expanding):
        command.add_argument("--packed", type=Path, default=PACKED, help="folder of the packed files")
        command.add_argument("--threads", type=int, help="(default: one for each core and some more)")
    return parser.parse_args()


def main():
    options = arguments()
    start = time.perf_counter()
    if options.command == "shrink":
        files = shrink(
            options.names,
            options.to,
            quality=options.quality,
            rows=dict(options.rows),
            splits=options.splits,
            threads=options.threads,
            folder=options.packed,
        )
    else:
        files = expand(options.folder, to=options.packed, threads=options.threads)
    for file in files:
        print(f"{file.name}: {file.stat().st_size / 2**20:.1f} MiB")
    total = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {total / 2**20:.1f} MiB, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
