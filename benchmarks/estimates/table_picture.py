"""Draw docs/images/table.png: the table of a target, predicted × true, before and after raking, and the truth.

    python -m benchmarks.estimates.table_picture

The network, its shifted sets and the target are those of `gdscore demo`, on scikit-learn's digits: other writers, turned
by 10 degrees. Of the digits 5 to 9 every fifth image is kept, so that the class mix differs from the reference's.
"""

import argparse
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import ROOT
from benchmarks.plotting import panels, plain, save
from gdscore.demo import Digits
from gdscore.estimator.table import Joint

__all__ = ["main", "tables"]

PICTURE = ROOT / "docs" / "images" / "table.png"
TARGET, RARE, KEPT = "small-rotation", range(5, 10), 5
LEAST = 0.0025  # smaller entries have no number


def tables():
    """The table as rows show it, raked to the true class mix, and counted with the labels."""
    digits = Digits()
    est = gdscore.AccuracyEstimator().fit(digits.reference, shifted_sets=digits.shifted_sets(), progress=False)
    rows = digits.trial(TARGET, est).outputs
    kept = [np.flatnonzero(rows.labels == k)[:: KEPT if k in RARE else 1] for k in range(10)]
    target = rows[np.sort(np.concatenate(kept))]
    mix = np.bincount(target.labels, minlength=10) / len(target)
    ((_, evidence),) = est.state().update(target).by_segment()
    correction = est.fitted_.correction
    truth = np.zeros((10, 10))
    np.add.at(truth, (target.predictions, target.labels), 1 / len(target))
    return {
        "as the rows show it": correction.cells(evidence).joint(),
        "raked to the class mix given": correction.assumptions(evidence, mix)["given"][0].joint(),
        "counted with the labels": Joint(truth),
    }


def drawn(found):
    """Figure with a panel for each table: percent of all rows, and the class mix below."""
    with plain():
        figure, axes = panels(1, len(found), width=10.2, height=4.3, sharey=True)
        for ax, (title, joint) in zip(axes[0], found.items(), strict=True):
            right = np.eye(10, dtype=bool)
            ax.grid(visible=False)
            for wrong, colours in ((True, "Oranges"), (False, "Blues")):
                part = np.ma.masked_where(right == wrong, np.sqrt(joint.table))
                ax.imshow(part, cmap=colours, vmin=0, vmax=0.28 if wrong else 0.6)
            for (i, j), share in np.ndenumerate(joint.table):
                if share >= LEAST:
                    ax.text(j, i, f"{100 * share:.{0 if share >= 0.095 else 1}f}", ha="center", va="center", fontsize=6)
            ax.set_xticks(range(10), [f"{k}\n{100 * share:.0f}" for k, share in enumerate(joint.mix)])
            ax.set_yticks(range(10))
            ax.tick_params(length=0)
            ax.set_xlabel("true class, and its share of the rows, %")
            ax.set_title(f"{title}:\naccuracy {joint.accuracy:.1%}", fontsize=9)
        axes[0, 0].set_ylabel("predicted class")
        return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    save(drawn(tables()), options.output)


if __name__ == "__main__":
    main()
