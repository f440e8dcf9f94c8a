"""Ray is imported when a cluster is asked for, and not before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import gdscore
from gdscore import distributed
from gdscore.distributed import _cluster
from tests.data import made


def test_ray_is_not_imported():
    code = "import sys, gdscore, gdscore.distributed; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_ray_the_error_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    est = gdscore.AccuracyEstimator().fit(made(500, keep=("logits", "labels")))
    with pytest.raises(gdscore.GdscoreError, match=r"ray\[data\]"):
        distributed.estimate(est, tmp_path)


def test_an_address_at_which_nothing_answers_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "auto", "local"):
            _cluster._check_reachable(address)
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999", "256.0.0.1:6379"):
        with pytest.raises(gdscore.GdscoreError, match="ray start --head"):
            _cluster._check_reachable(address)


def test_a_cluster_that_wants_a_token_is_told_as_that(monkeypatch):
    def refuse(**_):
        # As Ray 2.60 does for a cluster made by `ray start --head`, after twenty seconds.
        raise ConnectionError("Failed to connect to Ray cluster") from RuntimeError(
            "RPC error: InvalidAuthToken: missing"
        )

    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(gdscore.GdscoreError, match="RAY_AUTH_MODE=token"):
        _cluster.connect("auto")


@pytest.mark.parametrize("ended_by", ["signal", "handler of Ray"])
def test_a_signal_while_ray_starts_is_the_programs(ended_by):
    def handler(*_):
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(SystemExit, match="143"), _cluster.program_sigterm():
            if ended_by == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)
            else:
                signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
