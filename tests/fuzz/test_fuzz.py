"""A short run of every attack; ``make fuzz`` runs them for minutes."""

import subprocess
import sys

import pytest

from . import arrays, estimates, files, networks, saved  # noqa: F401
from .harness import ATTACKS, run

CASES = {
    "class_orders": 80,
    "networks_and_loaders": 15,
    "segments": 10,
    "estimator_files": 60,
    "estimates": 60,
    "estimates_of_kinds": 25,
    "scores": 120,
}
NEVER_REFUSED = ("estimates_of_kinds", "segments")
ENDS_THE_PROCESS = ("parquet", "arrow")
"""Arrow's faults end the process, so that these run in one of their own."""


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(ENDS_THE_PROCESS)))
def test_only_our_errors_come_out(tmp_path, name):
    outcome = run(name, tmp_path, seed=7, cases=CASES.get(name, 250))
    assert not outcome.failed, "\n".join(outcome.lines(7))
    assert outcome.refused or name in NEVER_REFUSED
    assert outcome.answered


@pytest.mark.parametrize("name", ENDS_THE_PROCESS)
def test_only_our_errors_come_out_of_a_process(name):
    command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--seed", "7", "--cases", "150"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
