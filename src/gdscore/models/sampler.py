"""Rows of a dataset for each process: consecutive, and each exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch.distributed as dist
from torch.utils.data import Sampler

from gdscore._options import integer
from gdscore.errors import GdscoreError

__all__ = ["ContiguousShard"]


class ContiguousShard(Sampler[int]):
    """Consecutive rows for each process, without the padding and interleaving of `DistributedSampler`.

    All shards but the last that has rows are multiples of ``multiple``, so that mini-batches of that size are those
    of one process. Where there are fewer blocks of that size than processes, some shards are empty.

    Parameters
    ----------
    dataset : sized
        What the loader reads.
    multiple : int, default 128
        Rows of a block that stays together: GdScore's ``batch_size``.
    num_replicas, rank : int, optional
        Number of processes and this one's; by default those of `torch.distributed`, or a single one.

    Examples
    --------
    >>> from gdscore.models.sampler import ContiguousShard
    >>> [len(ContiguousShard(range(1000), num_replicas=3, rank=rank)) for rank in range(3)]
    [256, 384, 360]
    """

    def __init__(
        self, dataset: Sized, *, multiple: int = 128, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        running = dist.is_available() and dist.is_initialized()
        if num_replicas is None:
            num_replicas = dist.get_world_size() if running else 1
        if rank is None:
            rank = dist.get_rank() if running else 0
        multiple = integer("multiple", multiple, least=1)
        num_replicas = integer("num_replicas", num_replicas, least=1)
        if not 0 <= rank < num_replicas:
            raise GdscoreError(f"Expected `rank` to be in 0 … {num_replicas - 1}, but got {rank!r}")
        rows = len(dataset)
        blocks = -(-rows // multiple)
        start, stop = (min(r * blocks // num_replicas * multiple, rows) for r in (rank, rank + 1))
        self._rows = range(start, stop)

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
