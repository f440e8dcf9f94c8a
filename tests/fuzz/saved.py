"""Saved estimators and score states, damaged or edited by hand."""

import numpy as np

import gdscore
from gdscore._files import arrays_to_bytes, read_arrays, write_arrays

from .harness import attack
from .values import damaged, odd, pick, tampered


def made(rows, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    logits = rng.standard_normal((rows, 3)) * (1 + shift) + 1.5 * np.eye(3)[labels]
    return gdscore.Outputs(
        logits=logits,
        features=logits @ rng.standard_normal((3, 5)),
        labels=labels,
        peer_logits=logits + 0.5,
        batch_logits=logits - 0.5,
        rotation_logits=rng.standard_normal((rows, 4, 4)),
    )


@attack
def estimator_files(folder):
    """Files of fitted estimators: flipped bits, cuts, and fields that were changed with valid checksums."""
    reference, target = made(300, 0), made(100, 1, 0.5)
    path = folder / "m.gdscore"
    raws = []
    for rows in (reference, gdscore.Outputs(logits=reference.logits, labels=reference.labels)):
        shifted = [
            gdscore.ShiftedSet(made(80, seed, 0.3 * seed).only(rows.has), f"family {seed % 5}") for seed in range(15)
        ]
        estimator = gdscore.AccuracyEstimator()
        estimator.fit(reference=rows, shifted_sets=shifted, progress=False)
        estimator.save(path)
        raws.append(path.read_bytes())

    def case(rng):
        raw = pick(rng, raws)
        if rng.integers(3):
            write_arrays(path, tampered(read_arrays(raw), rng))
        else:
            path.write_bytes(damaged(raw, rng))
        estimate = gdscore.AccuracyEstimator.load(path).estimate(target)
        numbers = [estimate.accuracy, estimate.low, estimate.high, estimate.level]
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1, "an interval without its estimate"
        return numbers

    return case


@attack
def score_states(folder):
    """Files of states of scores, with flipped bits and cuts, and what is no state at all."""
    reference, target = made(120, 0), made(150, 1, 0.5)
    states = {}
    for name in gdscore.list_scores():
        if name != "projnorm":
            score = gdscore.create_score(name)
            if "reference" in score.needs:
                score.fit(reference)
            states[name] = arrays_to_bytes(score.update(target).state_dict())

    def case(rng):
        name = pick(rng, sorted(states))
        state = odd(rng) if not rng.integers(10) else read_arrays(damaged(states[name], rng))
        score = gdscore.restore_score(state)
        if rng.integers(2):
            score.update(target)
        if rng.integers(2):
            score.merge(gdscore.restore_score(read_arrays(states[name])))
        return [score.compute()]

    return case
