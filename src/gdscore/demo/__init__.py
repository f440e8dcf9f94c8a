"""A network on real handwritten digits, and targets of the kind that people meet.

Requirements met here:

- the network trains, the estimator is fitted and the targets are made on three disjoint sets of images; the targets are
  by other writers than the rest, as the rows of scikit-learn's digits are in the order of their writers;
- the estimator sees the corruptions of `gdscore.shifts` (noise, blur, weather, compression); no target is one of them
  alone;
- nothing was chosen by looking at its results: the targets were fixed before the first estimate was computed, with the
  default estimator and the default network but for its regularisation. The last target is there because the estimator
  cannot know it: nothing that the shifted sets teach resembles an inverted image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.labeling import LabelledEstimate
    from gdscore.shifts import ShiftedSet

__all__ = ["BEYOND", "BUDGET", "METHODS", "TARGETS", "Digits", "Trial", "with_labels"]

Images = NDArray[np.float64]
KNOWN_WRITERS = 1200
REFERENCE_ROWS = 560
SEVERITIES = (1, 3, 5)
METHODS = ("cot", "atc")
"""Direct estimates to compare with, each with the temperature fitted on the same reference."""


def _worse_camera(images: Images) -> Images:
    from scipy.ndimage import gaussian_filter

    blurred = gaussian_filter(images, sigma=(0, 0.5, 0.5))
    noisy = blurred + 0.1 * np.random.default_rng(0).normal(size=images.shape)
    return np.asarray(np.clip(np.round(noisy * 7) / 7, 0, 1))  # eight levels of grey


def _rotated(images: Images) -> Images:
    from scipy.ndimage import rotate

    return np.asarray(np.clip(rotate(images, 10, axes=(1, 2), reshape=False, order=1), 0, 1))


TARGETS: dict[str, tuple[str, Callable[[Images], Images]]] = {
    "other-writers": ("digits of people whom the network has not seen", lambda images: images),
    "worse-camera": ("the same, blurred, noisy and with eight levels of grey", _worse_camera),
    "less-light": ("the same at half the brightness", lambda images: 0.5 * images),
    "small-rotation": ("the same, turned by 10 degrees", _rotated),
    "other-mix": ("the same without three of four of the digits 0 to 4", lambda images: images),
    "inverted": ("the same in white on black: beyond what the shifted sets teach", lambda images: 1 - images),
}
"""Names of targets, which are also names of files, what they are, and the shift that makes each of them."""

BEYOND = "inverted"
"""Target that the estimator cannot know, named before it was estimated."""

BUDGET = 50
"""Labels for each of the two targets whose estimates are farthest from the truth."""


@dataclass(frozen=True)
class Trial:
    """One target: estimates made without its labels, and the truth."""

    name: str
    outputs: Outputs
    estimate: Estimate
    known_mix: Estimate
    """The estimate where the shares of the digits are known."""
    direct: dict[str, float]

    @property
    def truth(self) -> float:
        """True accuracy."""
        return self.outputs.accuracy

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.estimate.low <= self.truth <= self.estimate.high


class Digits:
    """Digits of scikit-learn, split by writers, and a network trained on some of them."""

    def __init__(self) -> None:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
        from sklearn.neural_network import MLPClassifier

        digits = load_digits()
        images, labels = digits.images / 16, digits.target
        train, self._images, train_labels, self._labels = train_test_split(
            images[:KNOWN_WRITERS],
            labels[:KNOWN_WRITERS],
            test_size=REFERENCE_ROWS,
            random_state=0,
            stratify=labels[:KNOWN_WRITERS],
        )
        self._new_images, self._new_labels = images[KNOWN_WRITERS:], labels[KNOWN_WRITERS:]
        self._network = MLPClassifier((64,), alpha=0.01, tol=1e-3, max_iter=500, random_state=0)
        self._network.fit(_flat(train), train_labels)
        self.train_rows = len(train)
        self.reference = self._outputs(self._images, self._labels)

    def _outputs(self, images: Any, labels: Any) -> Outputs:
        from gdscore.sklearn import from_sklearn

        out = from_sklearn(self._network, _flat(images), labels)
        # As models write them: half the size, and what is read back is what was estimated.
        return Outputs(logits=out.logits.astype("float32"), features=out.features.astype("float32"), labels=labels)

    def shifted_sets(self) -> list[ShiftedSet]:
        """Outputs on corrupted copies of the reference images, in the order in which their files are read."""
        from gdscore.shifts import ShiftedSet, corruption_names, corruptions

        images = self._images[:, None].astype(np.float32)
        shifts = corruptions(SEVERITIES, sorted(corruption_names()))
        return [ShiftedSet(self._outputs(shift(images), self._labels), shift.family) for shift in shifts]

    def trial(self, name: str, est: AccuracyEstimator) -> Trial:
        """Estimate the accuracy on one of `TARGETS`."""
        from gdscore.estimator import direct_estimate

        rows = np.arange(len(self._new_labels))
        if name == "other-mix":
            rows = rows[(self._new_labels >= 5) | (rows % 4 == 0)]
        outputs = self._outputs(TARGETS[name][1](self._new_images[rows]), self._new_labels[rows])
        unlabelled = outputs.only({"logits", "features"})
        mix = np.bincount(self._new_labels[rows], minlength=10) / len(rows)
        direct = {m: direct_estimate(m, unlabelled, reference=self.reference).accuracy for m in METHODS}
        return Trial(name, outputs, est.estimate(unlabelled), est.estimate(unlabelled, class_mix=mix), direct)


def with_labels(trial: Trial, est: AccuracyEstimator, table: Path) -> LabelledEstimate:
    """Estimate of a target with labels of `BUDGET` of its rows, which are written as a table for `gdscore label`."""
    from gdscore import labeling

    unlabelled = trial.outputs.only({"logits", "features"})
    rows = labeling.choose(est, unlabelled, budget=BUDGET)
    labels = trial.outputs.labels[rows.rows]
    rows.to_csv(table, labels)
    return labeling.estimate(est, unlabelled, rows, labels)


def _flat(images: Any) -> Any:
    return images.reshape(len(images), -1)
