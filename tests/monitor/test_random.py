"""Random histories are as the plain model of them says; the long version is in `random_history.py`."""

import pytest

from tests.monitor.random_history import run


@pytest.mark.parametrize("seed", range(2))
def test_a_random_history_is_as_the_plain_model_of_it(url, seed):
    run(url, seed, 80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_long_random_history_with_kills(tmp_path, seed):
    run(f"sqlite:///{tmp_path}/history.db", seed, 1000, kills=20)
