"""A network on real handwritten digits, and targets under shifts that the estimator has not seen.

Requirements met here:

- the network trains, the estimator is fitted and the targets are made on three disjoint sets of images; the targets are
  by other writers than the rest, as the rows of scikit-learn's digits are in the order of their writers;
- the estimator sees the corruptions of `gdscore.shifts` (noise, blur, weather, compression); the targets are rotated,
  moved, thickened, thinned, covered and inverted;
- nothing was chosen by looking at its results: default estimator, default network but for its regularisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdscore.outputs import Outputs

if TYPE_CHECKING:
    from gdscore.estimator import AccuracyEstimator, Estimate
    from gdscore.shifts import ShiftedSet

__all__ = ["METHODS", "TARGETS", "Digits", "Trial"]

Images = NDArray[np.float64]
KNOWN_WRITERS = 1200
REFERENCE_ROWS = 560
SEVERITIES = (1, 3, 5)
METHODS = ("cot", "atc", "doc")
"""Direct estimates to compare with, each with the temperature fitted on the same reference."""


def _rotated(degrees: float) -> Callable[[Images], Images]:
    def shift(images: Images) -> Images:
        from scipy.ndimage import rotate

        return np.asarray(np.clip(rotate(images, degrees, axes=(1, 2), reshape=False, order=1), 0, 1))

    return shift


def _moved(images: Images) -> Images:
    return np.pad(images, ((0, 0), (0, 0), (1, 0)))[:, :, :-1]


def _thicker(images: Images) -> Images:
    from scipy.ndimage import grey_dilation

    return np.asarray(grey_dilation(images, size=(1, 2, 2)))


def _thinner(images: Images) -> Images:
    from scipy.ndimage import grey_erosion

    return np.asarray(grey_erosion(images, size=(1, 2, 2)))


def _covered(images: Images) -> Images:
    covered: Images = images.copy()
    corners = np.random.default_rng(0).integers(0, 6, size=(len(images), 2))
    for image, (row, column) in zip(covered, corners, strict=True):
        image[row : row + 3, column : column + 3] = 0
    return covered


TARGETS: dict[str, Callable[[Images], Images]] = {
    "other-writers": lambda images: images,
    "rotated-15": _rotated(15),
    "rotated-30": _rotated(30),
    "moved": _moved,
    "thicker": _thicker,
    "thinner": _thinner,
    "covered": _covered,
    "inverted": lambda images: 1 - images,
}
"""Names of targets, which are also names of files, and the shift that makes each of them."""


@dataclass(frozen=True)
class Trial:
    """One target: estimates made without its labels, and the truth."""

    name: str
    outputs: Outputs
    estimate: Estimate
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

    def trial(self, name: str, estimator: AccuracyEstimator) -> Trial:
        """Estimate the accuracy on one of `TARGETS`."""
        from gdscore.estimator import direct_estimate

        outputs = self._outputs(TARGETS[name](self._new_images), self._new_labels)
        unlabelled = outputs.only({"logits", "features"})
        direct = {m: direct_estimate(m, unlabelled, reference=self.reference).accuracy for m in METHODS}
        return Trial(name, outputs, estimator.estimate(unlabelled), direct)


def _flat(images: Any) -> Any:
    return images.reshape(len(images), -1)
