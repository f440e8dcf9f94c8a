"""Data the tests share: a classifier with class structure, in the arrays of any library."""

from __future__ import annotations

import time

import numpy as np

import gdscore

LIBRARIES = ("numpy", "torch", "jax")
TARGET_SCORES = tuple(n for n in gdscore.list_scores() if n != "projnorm")


def arrays_of(rows: int, classes: int = 10, features: int = 16, seed: int = 0, noise: float = 1.0) -> dict:
    """Arrays of a linear classifier on Gaussian clusters: accuracy falls as the noise grows."""
    fixed = np.random.default_rng(99)
    centres = fixed.normal(size=(classes, features)) * 1.5
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    x = np.maximum(centres[labels] + noise * rng.normal(size=(rows, features)), 0)
    relu = np.maximum(centres, 0)
    z = 0.4 * (x @ relu.T - 0.5 * np.square(relu).sum(1))
    peer = z + 0.7 * rng.normal(size=z.shape)
    rotation = np.eye(4)[None] + rng.normal(size=(rows, 4, 4))
    return {
        "logits": z.astype(np.float32),
        "features": x.astype(np.float32),
        "peer_logits": peer.astype(np.float32),
        "rotation_logits": rotation.astype(np.float32),
        "batch_logits": (0.8 * z + 0.5 * rng.normal(size=z.shape)).astype(np.float32),
        "labels": labels,
    }


def made(rows: int, library: str = "numpy", *, keep: tuple[str, ...] | None = None, **kwargs) -> gdscore.Outputs:
    given = arrays_of(rows, **kwargs)
    return gdscore.Outputs(**{k: to_library(v, library) for k, v in given.items() if keep is None or k in keep})


def to_library(x: np.ndarray, library: str):
    if library == "torch":
        import torch

        return torch.from_numpy(np.array(x))
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(x)
    return x


def batches(out: gdscore.Outputs, size: int) -> list[gdscore.Outputs]:
    return [out[i : i + size] for i in range(0, len(out), size)]


def ready(name: str, reference: gdscore.Outputs | None = None, **options) -> gdscore.Score:
    """Score of that name, fitted where it has to be."""
    score = gdscore.create_score(name, **options)
    return score.fit(reference) if score.reference_inputs else score


def growth(run, small: int, large: int) -> float:
    """How many times the processor time of ``run(size)`` grows: a ratio, whatever the machine and what else it does."""

    def seconds(size):
        started = time.process_time()
        run(size)
        return time.process_time() - started

    return min(seconds(large) for _ in range(3)) / min(seconds(small) for _ in range(3))


def forms(probabilities):
    """The same rows as probabilities and as logits, in each precision and library."""
    z = np.log(probabilities)
    return {
        "float64": gdscore.Outputs(probabilities=probabilities),
        "float32": gdscore.Outputs(probabilities=probabilities.astype(np.float32)),
        "logits": gdscore.Outputs(logits=z),
        "float32 logits": gdscore.Outputs(logits=(z + 7).astype(np.float32)),
        "torch logits": gdscore.Outputs(logits=to_library(z.astype(np.float32), "torch")),
    }


def tied_rows(seed):
    """Probabilities of reference and target with few distinct rows, as those of a tree, and labels of the reference."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 6))
    leaves = rng.integers(1, 20, size=(int(rng.integers(2, 9)), classes)).astype(float)
    leaves /= leaves.sum(axis=1, keepdims=True)
    leaves = np.concatenate([leaves, np.roll(leaves, 1, axis=1)])
    reference = leaves[rng.integers(len(leaves), size=400)]
    target = leaves[rng.choice(len(leaves), size=600, p=rng.dirichlet(np.ones(len(leaves))))]
    return reference, np.array([rng.choice(classes, p=row) for row in reference]), target
