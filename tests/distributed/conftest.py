"""A cluster of three nodes on this machine, started once for all tests of this folder."""

from __future__ import annotations

import os
import signal

import pytest

# Read by Ray's processes when they start.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_enable_metrics_collection": "0",
}

STORE = 80 << 20


@pytest.fixture(scope="session")
def cluster():
    import warnings

    import ray
    from ray.cluster_utils import Cluster

    # A shell's background jobs ignore Ctrl-C and hand that down to the workers: the tests may run in one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
        )
        for _ in range(2):
            nodes.add_node(num_cpus=1, object_store_memory=STORE)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
    yield nodes
    ray.shutdown()
    nodes.shutdown()
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(items):
    """Ray warns about its own settings, and about sockets that it leaves to the garbage collector."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            for filtered in ("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray", "ignore::ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(filtered))
