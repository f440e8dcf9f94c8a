"""The whole benchmark in a few minutes on a CPU, with data that comes with scikit-learn: make bench-small.

    python -m benchmarks.paper.small                        # two minutes on two cores; out/bench-small
    python -m benchmarks.paper.small --severities 5 --corruptions fog --figures options choices

Handwritten digits of 8 px (1,797 of them, UCI) are drawn at 32 px and packed, two small networks are trained, and the
same cells, ablations, tables and figures are made as for CIFAR-10, of five corruptions.
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks import ROOT
from benchmarks.data.images import PACKED
from benchmarks.data.packed import write
from benchmarks.models.sources import SOURCES
from benchmarks.paper import ablations, cells, figures, tables
from gdscore import shifts

SOURCE = "ucidigits-small"
TEST_ROWS = 600
OUTPUT = ROOT / "out" / "bench-small"


def pack_digits(*, folder=PACKED):
    """scikit-learn's digits as a packed data set of 32 px, shuffled by a seed, the last rows for testing."""
    digits = load_digits()
    grey = torch.from_numpy(digits.images / digits.images.max()).float()[:, None]
    large = torch.nn.functional.interpolate(grey, size=(32, 32), mode="bilinear", align_corners=False)
    images = (255 * large).round().to(torch.uint8).repeat(1, 3, 1, 1).numpy()
    order = np.random.default_rng(0).permutation(len(images))
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", order[:-TEST_ROWS]), ("test", order[-TEST_ROWS:])):
        labels = digits.target[rows]
        write(folder / f"ucidigits-{split}.npz", images[rows], (3, 32, 32), labels, [str(k) for k in range(10)])


def arguments(given):
    source = SOURCES[SOURCE]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="at most so many of each set (default: all)")
    parser.add_argument("--severities", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--corruptions", nargs="+", default=list(source.corruptions), metavar="NAME")
    parser.add_argument("--ablations", nargs="+", default=["all"], metavar="ABLATION")
    parser.add_argument("--figures", nargs="*", default=["scatter", "options", "choices", "pitfalls"], metavar="FIGURE")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time, each in its own process")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(given)
    unknown = set(options.corruptions) - set(shifts.corruption_names())
    if unknown:
        parser.error(f"no corruption {sorted(unknown)}; there are {', '.join(shifts.corruption_names())}")
    return options


def main(given=None):
    options = arguments(given)
    pack_digits()
    source = dataclasses.replace(SOURCES[SOURCE], corruptions=tuple(options.corruptions))
    shared = {"device": "cpu", "rows": options.rows, "severities": options.severities, "jobs": options.jobs}
    cells.run([source], argparse.Namespace(**shared, parts=cells.PARTS, output=options.output / "cells"))
    folders = {"output": options.output / "ablations", "corruptions": options.corruptions}
    asked = {"ablations": options.ablations, "protocol": "deployed"}
    ablations.run([source], argparse.Namespace(**shared, **folders, **asked))
    where = ["--cells", str(options.output / "cells"), "--ablations", str(options.output / "ablations")]
    tables.main([*where, "--output", str(options.output), "--pages"])
    if options.figures:
        drawn = ["--tables", str(options.output), "--output", str(options.output / "figures"), "--source", SOURCE]
        figures.main([*options.figures, *where, *drawn])


if __name__ == "__main__":
    main()
