"""Sixty days of digits for `gdscore monitor demo`: a slow shift, a sudden one, another class mix, late labels."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdscore._files import atomic
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.io import write_outputs
from gdscore.outputs import Outputs
from gdscore.shifts import default_shifts

if TYPE_CHECKING:
    from gdscore.monitor import Monitor

__all__ = ["fill_demo"]

DAYS = 60
ROWS = 400
LABEL_DELAY = 7


def fill_demo(monitor: Monitor, folder: Path | None = None) -> None:
    """Fill a history with the last sixty days of three models on scikit-learn's digits; labels come a week late.

    The outputs of the newest window of each model and its labels are written into ``folder``, so that somebody can
    label fifty of its rows.
    """
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    if set(_STORIES) & set(monitor.models()):
        raise GdscoreError("Expected a history without the demo, but it is there: give another file")
    rng = np.random.default_rng(0)
    data = load_digits()
    images, labels = (data.images / 16.0).astype(np.float32), data.target
    order = rng.permutation(len(labels))
    train, reference, live = order[:500], order[500:1100], order[1100:]
    model = LogisticRegression(max_iter=300, C=0.3).fit(images[train].reshape(-1, 64), labels[train])

    def predict(batch: NDArray[Any]) -> Outputs:
        flat = np.asarray(batch, dtype=np.float64).reshape(len(batch), -1)
        return Outputs(logits=model.decision_function(flat), features=flat)

    inputs = images[reference][:, None]
    shifts = list(default_shifts(inputs))[::3]  # a third of them, as a demo must not keep people waiting
    estimator = AccuracyEstimator().fit_predictor(predict, inputs, labels[reference], shifts=shifts, progress=False)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for name, story in _STORIES.items():
        monitor.register(name, estimator)
        labelled: list[Outputs] = []
        for day in range(DAYS):
            shares, shift = story(day)
            picked = rng.choice(live, ROWS, p=shares[labels[live]] / shares[labels[live]].sum())
            outputs = predict(shift(images[picked], rng))
            start = today - timedelta(days=DAYS - day)
            by = {"camera": np.where(np.arange(ROWS) % 3 == 0, "north", "south")} if name == "digits-sudden" else None
            monitor.add(name, outputs, start, by)
            labelled.append(Outputs(logits=outputs.logits, labels=labels[picked]))
            if day >= LABEL_DELAY:
                monitor.add_labels(name, start - timedelta(days=LABEL_DELAY), labelled[day - LABEL_DELAY])
        if folder is not None:
            write_outputs(folder / f"{name}.npz", outputs)
            with atomic(folder / f"{name}-labels.csv", "w") as file:
                file.write("row,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels[picked])))


Shift = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]
_EQUAL = np.full(10, 0.1)


def _unshifted(images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    return images


def _noise(scale: float) -> Shift:
    def shift(images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        return np.clip(images + scale * rng.normal(size=images.shape), 0, 1)

    return shift


def _faint(images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    return np.clip(0.5 * images + 0.12 * rng.normal(size=images.shape), 0, 1)


def _slow(day: int) -> tuple[NDArray[Any], Shift]:
    return _EQUAL, _noise(max(0, day - 15) * 0.009)


def _sudden(day: int) -> tuple[NDArray[Any], Shift]:
    return _EQUAL, _faint if 32 <= day < 46 else _unshifted


def _other_mix(day: int) -> tuple[NDArray[Any], Shift]:
    shares = np.array([4, 1, 3, 1, 3, 1, 3, 1, 1, 1], dtype=np.float64)
    return (shares / shares.sum() if day >= 30 else _EQUAL), _unshifted


_STORIES: dict[str, Callable[[int], tuple[NDArray[Any], Shift]]] = {
    "digits-slow": _slow,
    "digits-sudden": _sudden,
    "digits-class-mix": _other_mix,
}
