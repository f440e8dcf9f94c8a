"""Every shell example of README, docs and the help texts runs as printed: ```bash blocks, and lines after ``$`` of the help.

Blocks that install something, or need what a test has not, are ```console or ```sh.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from gdscore.cli.commands import app

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPERATORS = {"|", "||", "&&", ">", "<"}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def helped() -> str:
    group = get_command(app)
    texts = [group.epilog, *(command.epilog for command in group.commands.values())]
    lines = [line.removeprefix("$ ") for text in texts if text for line in text.splitlines() if line.startswith("$ ")]
    # test_demo.py runs the demo, test_check.py the check, which needs folders of images, and test_track.py what needs labels
    # that came late; between the commands of `label` a person fills in a table: tests/labeling/test_cli.py.
    elsewhere = tuple(f"gdscore {command}" for command in ("demo", "check", "label", "track"))
    return "\n".join(line for line in lines if not line.startswith(elsewhere))


SCRIPTS = [pytest.param(found, id=page.name) for page in PAGES if (found := blocks(page))]


@pytest.fixture
def shell(tmp_path):
    """Bash with this environment's gdscore and python3 on its path."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, command in (("python3", ""), ("gdscore", "-m gdscore.cli")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (bin_ / name).chmod(0o755)

    def run(script: str) -> tuple[int, str]:
        env = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, env=env)
        return done.returncode, done.stderr

    return run


def statements(script: str) -> Iterator[tuple[str, str | list[str]]]:
    """Statements with how to run them: plain gdscore commands in this process, others by the shell.

    A script with other commands than these is left whole, as its statements may depend on each other.
    """
    lines = re.findall(r"(?:[^\n]*\\\n)*[^\n]+", script)
    if not all(line.startswith("gdscore ") for line in lines):
        yield "shell", script
        return
    for line in lines:
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        yield ("shell", line) if OPERATORS & set(words) else ("gdscore", words[1:])


@pytest.fixture
def tables(folder):
    """The tables of docs/cli.md, in the current folder."""
    rng = np.random.default_rng(0)
    for name, rows in (("val.csv", 900), ("new.csv", 1200)):
        classes = rng.integers(0, 3, rows)
        odds = np.exp(2 * np.eye(3)[classes] + rng.normal(size=(rows, 3)))
        lines = ["prob_cat,prob_dog,prob_fox,animal,ts,country"]
        for i, probabilities in enumerate((odds / odds.sum(1, keepdims=True)).tolist()):
            animal = ("cat", "dog", "fox")[classes[i]]
            cells = (*map(repr, probabilities), animal, f"2026-01-{29 + i // 400}T05:00:00", ("de", "fr")[i % 2])
            lines.append(",".join(cells))
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.usefixtures("tables", "own_modules")
@pytest.mark.parametrize("scripts", [*SCRIPTS, pytest.param([helped()], id="help")])
def test_examples_run_in_the_order_printed(gd, shell, scripts):
    for how, what in itertools.chain.from_iterable(map(statements, scripts)):
        if how == "shell":
            code, errors = shell(what)
            assert code == 0, errors
        else:
            result = gd(*what)  # in this process: everything is imported once
            assert result.exit_code == 0, (what, result.stderr)
