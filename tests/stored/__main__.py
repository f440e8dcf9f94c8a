"""``python -m tests.stored`` writes a file of each kind by this version, and what they answer, to be committed at a release."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

import gdscore
from gdscore._files import read_arrays, write_arrays

FOLDER = Path(__file__).parent


def outputs(seed: int, noise: float, rows: int = 400) -> gdscore.Outputs:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    logits = 3 * np.eye(3)[labels] + noise * rng.normal(size=(rows, 3))
    return gdscore.Outputs(logits=logits, features=logits[:, :2], labels=labels, class_names=["a", "b", "c"])


def files(folder: Path) -> None:
    """An estimator, a target's state, a tracker and the state of a score."""
    sets = [gdscore.ShiftedSet(outputs(10 * k + n, 1 + 0.3 * n), f"family {k}") for k in range(3) for n in range(3)]
    est = gdscore.AccuracyEstimator().fit(outputs(100, 1.0, 600), shifted_sets=sets, progress=False)
    est.save(folder / "estimator.file")
    (folder / "state.file").write_bytes(est.state().update(outputs(101, 1.5)).to_bytes())
    track = gdscore.AccuracyTracker(est)
    for week in range(4):
        time = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(weeks=week)
        window = outputs(200 + week, 1.0 + 0.2 * week)
        track.estimate(window, time=time)
        track.add_labels(time=time, labels=window.labels)
    track.save(folder / "tracker.file")
    score = gdscore.create_score("atc").fit(outputs(100, 1.0)).update(outputs(101, 1.5))
    write_arrays(folder / "score.npz", score.state_dict())


def answers(folder: Path) -> dict[str, list[float]]:
    """What the files of a version answer."""
    est = gdscore.AccuracyEstimator.load(folder / "estimator.file")
    target, state = est.estimate(outputs(102, 1.5)), est.estimate(est.state((folder / "state.file").read_bytes()))
    track = gdscore.AccuracyTracker.load(folder / "tracker.file")
    tracked = track.estimate(outputs(300, 1.8), time=datetime(2026, 2, 9, tzinfo=UTC))
    score = gdscore.restore_score(read_arrays(folder / "score.npz"))
    estimates = {"estimator": target, "state": state, "tracker": tracked}
    return {name: [e.accuracy, e.low, e.high] for name, e in estimates.items()} | {"score": [score.compute()]}


if __name__ == "__main__":
    made = FOLDER / gdscore.__version__
    made.mkdir(exist_ok=True)
    files(made)
    (made / "answers.json").write_text(json.dumps(answers(made), indent=1) + "\n", encoding="utf-8")
