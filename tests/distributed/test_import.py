"""Ray is imported when a cluster is asked for, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gdscore
from gdscore import distributed
from tests.data import made


def test_ray_is_not_imported():
    code = "import sys, gdscore, gdscore.partial, gdscore.distributed; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_ray_the_error_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    est = gdscore.AccuracyEstimator().fit(made(500, keep=("logits", "labels")))
    with pytest.raises(gdscore.GdscoreError, match=r"ray\[data\]"):
        distributed.estimate(est, tmp_path)
