from __future__ import annotations

import pytest

import gdscore
from gdscore.models.sampler import ContiguousShard


@pytest.mark.parametrize("rows", [0, 1, 127, 128, 1000, 1024, 5000])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_every_row_once_and_in_order(rows, replicas):
    shards = [list(ContiguousShard(range(rows), num_replicas=replicas, rank=rank)) for rank in range(replicas)]
    assert [row for shard in shards for row in shard] == list(range(rows))
    filled = [shard for shard in shards if shard]
    assert all(len(shard) % 128 == 0 for shard in filled[:-1])
    assert max(map(len, shards)) - min(map(len, shards)) < 2 * 128


def test_without_processes_it_is_everything():
    assert list(ContiguousShard("abc", multiple=2)) == [0, 1, 2]


def test_bad_input():
    with pytest.raises(gdscore.GdscoreError, match="`rank` to be in 0 … 1, but got 2"):
        ContiguousShard(range(3), num_replicas=2, rank=2)
    with pytest.raises(gdscore.GdscoreError, match="`multiple`"):
        ContiguousShard(range(3), multiple=0)
