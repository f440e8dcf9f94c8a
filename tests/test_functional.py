"""Functions of arrays against the classes over a grid of options, and against NumPy and SciPy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy

import gdscore
from gdscore import functional
from tests.data import LIBRARIES, TARGET_SCORES, arrays_of, to_library

pytestmark = pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")

TARGET, REFERENCE = arrays_of(400, noise=2.0), arrays_of(300, seed=5)
Z, X, LABELS = (TARGET[name].astype(np.float64) for name in ("logits", "features", "labels"))
S = scipy.special.softmax(Z, axis=1)
RZ, RX, RY = REFERENCE["logits"], REFERENCE["features"], REFERENCE["labels"]
OPTIONS = {
    "gdscore": [{}, {"p": 1, "batch_size": None}, {"loss": "entropy"}, {"label_rule": "true"}],
    "atc": [{}, {"score": "confidence"}, {"variant": "published"}],
    "agreescore": [{}, {"soft": True}],
    "frechet": [{}, {"squared": False}],
    "cot": [{}, {"k": 100}],
}
CASES = [(name, options) for name in TARGET_SCORES for options in OPTIONS.get(name, [{}])]


def arguments(name, options, library):
    score = gdscore.create_score(name, **options)
    own = {key: to_library(TARGET[key], library) for key in score.inputs}
    return own | {f"reference_{key}": to_library(REFERENCE[key], library) for key in score.reference_inputs}


@pytest.mark.parametrize(
    ("name", "options", "library"),
    [*((name, options, "numpy") for name, options in CASES), *(("cot", {}, library) for library in LIBRARIES[1:])],
)
def test_equals_the_class(name, options, library):
    given = arguments(name, options, library)
    value = getattr(functional, name)(**given, **options)
    own = {key: array for key, array in given.items() if not key.startswith("reference_")}
    known = {key.removeprefix("reference_"): array for key, array in given.items() if key not in own}
    score = gdscore.create_score(name, **options)
    if known:
        score.fit(gdscore.Outputs(**known))
    assert type(value) is float
    assert value == score.update(gdscore.Outputs(**own)).compute()


def frechet(x, y):
    apart = np.square(x.mean(0) - y.mean(0)).sum()
    first, second = np.cov(x.T), np.cov(y.T)
    return apart + np.trace(first + second - 2 * np.real(scipy.linalg.sqrtm(first @ second)))


def atc(scores, known, error):
    return (scores > np.sort(known)[round(error * len(known)) - 1]).mean()


RS = scipy.special.softmax(RZ.astype(np.float64), axis=1)
ERROR = (RS.argmax(1) != RY).mean()
ORACLES = {
    "confscore": (functional.confscore(Z), S.max(1).mean()),
    "entropy": (functional.entropy(Z), scipy.stats.entropy(S, axis=1).mean()),
    "nuclear": (functional.nuclear(Z), np.linalg.norm(S, "nuc") / np.sqrt(400 * 10)),
    "gradnorm": (functional.gradnorm(Z, X), (np.abs(X).sum(1) * np.abs(S - 0.1).sum(1)).mean()),
    "agreescore": (
        functional.agreescore(Z, TARGET["peer_logits"]),
        (S.argmax(1) != TARGET["peer_logits"].argmax(1)).mean(),
    ),
    "doc": (
        functional.doc(Z, RZ, RY),
        1 - ERROR - RS.max(1).mean() + S.max(1).mean(),
    ),
    "frechet": (functional.frechet(X, RX), frechet(RX.astype(np.float64), X)),
    "atc": (
        functional.atc(Z, RZ, RY, score="confidence"),
        atc(S.max(1), RS.max(1), ERROR),
    ),
    "gdscore": (
        functional.gdscore(Z, X, p=1, batch_size=None, label_rule="pseudo"),
        np.abs(X.T @ (S - np.eye(10)[S.argmax(1)]) / 400).sum(),
    ),
    "rotation": (
        functional.rotation(TARGET["rotation_logits"]),
        (TARGET["rotation_logits"].argmax(2) != np.arange(4)).mean(),
    ),
    "probabilities": (functional.confscore(probabilities=S), S.max(1).mean()),
}


@pytest.mark.parametrize("name", ORACLES)
def test_equals_numpy_and_scipy(name):
    value, expected = ORACLES[name]
    assert value == pytest.approx(expected, rel=1e-5, abs=3e-3 if name == "atc" else 0)


def test_every_score_of_arrays_has_a_function():
    assert functional.__all__ == dir(functional) == sorted(TARGET_SCORES)
    with pytest.raises(AttributeError, match="no function 'projnorm'"):
        _ = functional.projnorm


@pytest.mark.parametrize("name", TARGET_SCORES)
def test_help_names_every_argument(name):
    function = getattr(functional, name)
    text = inspect.getdoc(function)
    described = [
        part.strip() for line in text.splitlines() if " : " in line for part in line.split(" : ")[0].split(",")
    ]
    for argument in inspect.signature(function).parameters:
        assert argument in described
    assert "Returns\n-------\nfloat" in text


def test_needed_arrays_come_by_position():
    assert functional.atc(Z, RZ, RY) == functional.atc(logits=Z, reference_logits=RZ, reference_labels=RY)
    assert functional.gdscore(Z, X) == functional.gdscore(logits=Z, features=X)
    with pytest.raises(gdscore.GdscoreError, match="functional.atc: too many positional arguments"):
        functional.atc(Z, RZ, RY, "confidence")


def test_a_score_that_is_registered_later():
    @gdscore.register_score("margin")
    class Margin(gdscore.MeanScore):
        def __init__(self, scale: float = 1.0) -> None:
            self.scale = scale
            super().__init__()

        def row_values(self, chunk):
            return self.scale * (2 * chunk.confidence - 1)

    assert functional.margin(Z, scale=2.0) == pytest.approx(2 * (2 * S.max(1) - 1).mean())


def test_mistakes_are_named():
    with pytest.raises(gdscore.GdscoreError, match="'scor': did you mean 'score'"):
        functional.atc(Z, scor="confidence")
    with pytest.raises(gdscore.GdscoreError, match="functional.confscore: too many positional arguments"):
        functional.confscore(Z, X)
    with pytest.raises(gdscore.GdscoreError, match="`gdscore` needs `features`"):
        functional.gdscore(Z)
    with pytest.raises(gdscore.GdscoreError, match="`atc` needs labelled reference data"):
        functional.atc(Z)
