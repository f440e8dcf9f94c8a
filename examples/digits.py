"""Every score on scikit-learn's handwritten digits, unshifted and under a few shifts, beside the true accuracy.

python examples/digits.py      # about 10 seconds, no network, no GPU
"""

import warnings

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.ndimage import gaussian_filter
from scipy.ndimage import rotate as turn
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import gdscore

warnings.simplefilter("ignore", gdscore.GdscoreWarning)  # 899 rows are few for some scores; all sets have as many

SHIFTS = {
    "none": lambda x, rng: x,
    "dim": lambda x, rng: 0.35 * x,
    "blur": lambda x, rng: gaussian_filter(x, sigma=(0, 0.9, 0.9)),
    "noise": lambda x, rng: np.clip(x + 0.3 * rng.normal(size=x.shape), 0, 1),
    "tilt": lambda x, rng: turn(x, 30, axes=(1, 2), reshape=False, order=1),
    "moved": lambda x, rng: np.roll(x, 1, axis=2),
    "negative": lambda x, rng: 1 - x,
}


def network(seed: int, hidden: int = 64) -> MLPClassifier:
    return MLPClassifier((hidden,), alpha=0.01, tol=1e-3, max_iter=500, random_state=seed)


def rotations(images: np.ndarray) -> np.ndarray:
    """The images turned by 0, 90, 180 and 270 degrees: shape (m, 4, 8, 8)."""
    return np.stack([np.rot90(images, k, axes=(1, 2)) for k in range(4)], axis=1)


def main() -> None:
    digits = load_digits()
    images, labels = digits.images / 16, digits.target
    train, test, train_labels, test_labels = train_test_split(images, labels, test_size=0.5, random_state=0)
    train, valid, train_labels, valid_labels = train_test_split(train, train_labels, test_size=0.4, random_state=0)

    model = network(0).fit(train.reshape(len(train), -1), train_labels)
    peer = network(1).fit(train.reshape(len(train), -1), train_labels)
    turned = rotations(train).reshape(-1, 64)
    rotation_head = network(2).fit(turned, np.tile(np.arange(4), len(train)))

    def outputs(x: np.ndarray, y: np.ndarray) -> gdscore.Outputs:
        flat = x.reshape(len(x), -1)
        said = gdscore.sklearn_outputs(model, flat, y)
        second = gdscore.sklearn_outputs(peer, flat).logits
        by_rotation = rotation_head.predict_proba(rotations(x).reshape(-1, 64)).reshape(len(x), 4, 4)
        return gdscore.Outputs(**said.arrays, peer_logits=second, rotation_logits=np.log(by_rotation + 1e-12))

    rng = np.random.default_rng(0)
    source = outputs(valid, valid_labels)
    sets = {name: outputs(shift(test, rng), test_labels) for name, shift in SHIFTS.items()}
    accuracy = {name: out.accuracy for name, out in sets.items()}
    scores = {name: gdscore.score_all(out, source=source) for name, out in sets.items()}

    table = Table(title=f"scikit-learn's digits, {len(test)} images a set; validation accuracy {source.accuracy:.1%}")
    table.add_column("score")
    for name in sets:
        table.add_column(name, justify="right")
    table.add_column("ρ", justify="right")
    table.add_row(
        "accuracy (truth)", *(f"{value:.1%}" for value in accuracy.values()), "", style="bold", end_section=True
    )
    order = sorted(scores["none"], key=lambda name: -abs(rank_correlation(name, scores, accuracy)))
    for name in order:
        sign = "↑" if gdscore.create_score(name).higher_is_better else "↓"
        values = (f"{scores[shift][name]:.3g}" for shift in sets)
        table.add_row(f"{name} {sign}", *values, f"{rank_correlation(name, scores, accuracy):+.2f}")
    console = Console(width=None if Console().is_terminal else 110)
    console.print(table)
    console.print(
        "↑ rises, ↓ falls with accuracy; ρ: Spearman's rank correlation with the true accuracy over these "
        f"{len(sets)} sets.\n"
        "atc, doc and cott are accuracies, cot and agreescore error rates; the others only order sets."
    )


def rank_correlation(name: str, scores: dict[str, gdscore.ScoreTable], accuracy: dict[str, float]) -> float:
    return float(spearmanr([scores[shift][name] for shift in accuracy], list(accuracy.values())).statistic)


if __name__ == "__main__":
    main()
