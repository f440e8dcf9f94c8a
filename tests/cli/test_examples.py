"""Every shell example of README, docs and the help texts runs as printed: ```bash blocks, and lines after ``$`` of the help.

Blocks that install something, or need what a test has not, are ```console or ```sh.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from gdscore.cli import app

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OPERATORS = {"|", "||", "&&", ">", "<"}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def helped() -> str:
    group = get_command(app)
    texts = [group.epilog, *(command.epilog for command in group.commands.values())]
    lines = [line.removeprefix("$ ") for text in texts if text for line in text.splitlines() if line.startswith("$ ")]
    # test_demo.py runs the demo; between the commands of `label` a person fills in a table: tests/labeling/test_cli.py.
    return "\n".join(line for line in lines if not line.startswith(("gdscore demo", "gdscore label")))


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


@pytest.fixture
def own_modules(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("network", None)


def plain_commands(script: str) -> list[list[str]] | None:
    """Words of each line, where all lines are single gdscore commands."""
    try:
        lines = [words for line in script.splitlines() if (words := shlex.split(line, comments=True))]
    except ValueError:
        return None
    return lines if all(words[0] == "gdscore" and not OPERATORS & set(words) for words in lines) else None


@pytest.mark.usefixtures("folder", "own_modules")
@pytest.mark.parametrize("scripts", [*SCRIPTS, pytest.param([helped()], id="help")])
def test_examples_run_in_the_order_printed(gd, shell, scripts):
    for script in scripts:
        commands = plain_commands(script)
        if commands is None:
            code, errors = shell(script)
            assert code == 0, errors
            continue
        for words in commands:
            result = gd(*words[1:])  # in this process: PyTorch is imported once
            assert result.exit_code == 0, (words, result.stderr)
