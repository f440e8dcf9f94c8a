from __future__ import annotations

import re
import subprocess
import sys

import pytest

import gdscore
from tests.cli.conftest import refused

HEAVY = ("torch", "scipy", "sklearn", "matplotlib", "pyarrow", "jinja2", "PIL")
COMMANDS = ("score", "fit", "estimate", "extract", "methods", "demo")


def test_without_command_shows_help(gd):
    result = gd()
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)


def test_version(gd):
    assert gd("--version").stdout == f"gdscore {gdscore.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(gd, command):
    result = gd(command, "--help")
    assert result.exit_code == 0
    assert f"$ gdscore {command}" in result.stdout


def test_help_is_quick_to_import():
    code = "import sys, gdscore.cli; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & set(HEAVY)


@pytest.mark.parametrize(
    "args", [["scor"], ["score"], ["score", "--nope"], ["fit", "x.npz"], ["fit", "x", "--level", "a"]]
)
def test_usage_errors_are_one_line(gd, args):
    assert re.search(r"see 'gdscore[ \w]* --help'", refused(gd(*args)))


def test_debug_shows_the_traceback_and_keeps_the_code(gd):
    result = gd("score", "missing.npz", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "missing.npz" in result.stderr.splitlines()[-1]


def test_what_nobody_foresaw_is_one_line_too(gd, folder, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("a\nbug")

    monkeypatch.setattr("gdscore.scores.score_all", broken)
    line = refused(gd("score", "new.npz"), code=1)
    assert "ZeroDivisionError: a bug" in line
    assert "--debug" in line


def test_no_colour_in_a_pipe(gd, folder):
    result = gd("score", "new.npz")
    assert "\x1b" not in result.output


def test_runs_as_a_process(folder):
    done = subprocess.run(
        [sys.executable, "-m", "gdscore.cli", "estimate", "m.gdscore", "new.npz", "--min-accuracy", "0.99"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert done.stderr == ""
    assert "below" in done.stdout
