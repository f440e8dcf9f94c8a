"""Random generators of torch, NumPy and Python: drawn from without a change to the caller's states.

Models that draw random numbers in evaluation mode, and loaders that shuffle, draw them from a stream that continues
from batch to batch, while the generators are as before whenever the caller's code runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch

__all__ = ["RandomStream", "seed_generators"]


def seed_generators(seed: int, cuda: Sequence[int]) -> None:
    """Seed torch's generators of the host and of these CUDA devices.

    `torch.manual_seed` would seed every device there is, also those whose state is not saved.
    """
    torch.default_generator.manual_seed(seed)
    for index in cuda:
        torch.cuda.default_generators[index].manual_seed(seed)


class RandomStream:
    """Context in which torch, NumPy and Python draw from a stream of its own; the caller's states come back.

    The first time it starts at the caller's states, and each further time where it stopped.

    Parameters
    ----------
    cuda : sequence of int
        CUDA devices whose generators count, beside those of the host.
    derived : bool
        Seed torch's part by a number derived from the caller's state instead, so that two streams that start at one
        state do not give the same numbers.
    """

    def __init__(self, cuda: Sequence[int] = (), *, derived: bool = False) -> None:
        self._cuda, self._derived = cuda, derived
        self._own: tuple[Any, ...] | None = None
        self._callers: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._callers = self._states()
        if self._own is not None:
            self._set(self._own)
        elif self._derived:
            seed_generators(int(torch.randint(2**62, (), device="cpu")) ^ 0x1E3779B97F4A7C15, self._cuda)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own = self._states()
        self._set(self._callers)

    def _states(self) -> tuple[Any, ...]:
        numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator that a model may use
        return torch.get_rng_state(), [torch.cuda.get_rng_state(i) for i in self._cuda], numpy, random.getstate()

    def _set(self, states: tuple[Any, ...]) -> None:
        host, devices, numpy, python = states
        torch.set_rng_state(host)
        for index, state in zip(self._cuda, devices, strict=True):
            torch.cuda.set_rng_state(state, index)
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)
