"""The experiment of the demo: a network on real handwritten digits, and shifts that calibration has not seen.

Requirements met here:

- the network trains, the estimator calibrates and the targets come from three disjoint sets of images; the targets are
  by other writers than the rest, as the rows of scikit-learn's digits are in the order of their writers;
- calibration sees the corruptions of `gdscore.shifts` (noise, blur, weather, compression); the targets are turned,
  moved, thickened, thinned, covered and inverted;
- nothing here was chosen by looking at its results: default estimator, default network but for its regularisation.
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

__all__ = ["RIVALS", "Digits", "Trial"]

Images = NDArray[np.float64]
KNOWN_WRITERS = 1200
RIVALS = ("cot", "cott", "atc", "doc")
"""Direct estimates to compare with, each with the temperature fitted on the same validation images."""


def _turned(degrees: float) -> Callable[[Images], Images]:
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


SHIFTS: dict[str, Callable[[Images], Images]] = {
    "other writers": lambda images: images,
    "turned by 15°": _turned(15),
    "turned by 30°": _turned(30),
    "moved by a pixel": _moved,
    "thicker strokes": _thicker,
    "thinner strokes": _thinner,
    "partly covered": _covered,
    "negative": lambda images: 1 - images,
}


@dataclass(frozen=True)
class Trial:
    """One target: what was estimated without its labels, and the truth."""

    name: str
    outputs: Outputs
    estimate: Estimate
    rivals: dict[str, float]

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
        train, self._valid, train_labels, self._valid_labels = train_test_split(
            images[:KNOWN_WRITERS],
            labels[:KNOWN_WRITERS],
            test_size=0.4,
            random_state=0,
            stratify=labels[:KNOWN_WRITERS],
        )
        self._new, self._new_labels = images[KNOWN_WRITERS:], labels[KNOWN_WRITERS:]
        self._network = MLPClassifier((64,), alpha=0.01, tol=1e-3, max_iter=500, random_state=0)
        self._network.fit(_flat(train), train_labels)
        self.train_rows = len(train)
        self.reference = self._outputs(self._valid, self._valid_labels)

    def _outputs(self, images: Any, labels: Any = None) -> Outputs:
        from gdscore.sklearn import sklearn_outputs

        return sklearn_outputs(self._network, _flat(images), labels)

    def calibrated(self, progress: bool | None) -> AccuracyEstimator:
        """Estimator calibrated on corrupted copies of the validation images."""
        from gdscore.estimator import AccuracyEstimator

        images = self._valid[:, None].astype(np.float32)
        return AccuracyEstimator().fit_predictor(self._outputs, images, self._valid_labels, progress=progress)

    def trial(self, name: str, estimator: AccuracyEstimator) -> Trial:
        """Estimate the accuracy under one of `SHIFTS`."""
        from gdscore.estimator import direct_estimate

        said = self._outputs(SHIFTS[name](self._new), self._new_labels)
        unlabelled = said.only({"logits", "features"})
        rivals = {rival: direct_estimate(rival, unlabelled, reference=self.reference).accuracy for rival in RIVALS}
        return Trial(name, said, estimator.estimate(unlabelled), rivals)


def _flat(images: Any) -> Any:
    return images.reshape(len(images), -1)
