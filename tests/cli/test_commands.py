from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import gdscore
from tests.cli.conftest import refused

HEAVY = ("torch", "scipy", "sklearn", "matplotlib", "pyarrow", "jinja2", "PIL")
COMMANDS = ("score", "fit", "estimate", "extract", "check", "methods", "demo")


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
    code = "import sys; from gdscore.cli.commands import app; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & set(HEAVY)


@pytest.mark.parametrize(
    "args", [["scor"], ["score"], ["score", "--nope"], ["fit", "x.npz"], ["fit", "x", "--level", "a"]]
)
def test_usage_errors_are_one_line(gd, args):
    assert re.search(r"see 'gdscore[ \w]* --help'", refused(gd(*args)))


def test_debug_shows_the_traceback_and_keeps_the_code(gd):
    result = gd("score", "missing.npz", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "missing.npz" in result.stderr.splitlines()[-1]


def test_what_nobody_foresaw_is_one_line_too(gd, folder, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("a\nbug")

    monkeypatch.setattr("gdscore.scores.list_scores", broken)
    line = refused(gd("methods"), code=1)
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
    assert done.stderr.count("\n") == 1
    assert "alarm" in done.stdout


def test_interrupted_while_the_command_is_still_imported():
    code = """
import sys
class Interrupting:
    def find_spec(self, name, *args):
        if name.startswith("gdscore.cli.") or name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from gdscore.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "gdscore: interrupted: what was not finished is not written\n"


@pytest.mark.parametrize(("where", "command"), [("make_context", "--help"), ("invoke", "methods")])
def test_interrupted_while_the_command_runs(gd, where, command, monkeypatch):
    from typer.core import TyperGroup

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(TyperGroup, where, interrupted)
    assert "interrupted: what was not finished is not written" in refused(gd(command), code=130)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_goes_away_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    started = [
        subprocess.Popen([sys.executable, "-m", "gdscore.cli", *args], stdout=writing, stderr=subprocess.PIPE)
        for args in (["--help"], ["methods", "--debug"])
    ]
    both = subprocess.Popen([sys.executable, "-m", "gdscore.cli", "nonsense"], stdout=writing, stderr=writing)
    os.close(writing)
    assert [(process.communicate()[1], process.returncode) for process in started] == [(b"", 141)] * 2
    assert both.wait() == 141
