"""Every example of the help texts and of docs/cli.md runs as printed."""

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
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def helped() -> str:
    group = get_command(app)
    texts = [group.epilog, *(command.epilog for command in group.commands.values())]
    lines = [line.removeprefix("$ ") for text in texts for line in text.splitlines() if line.startswith("$ ")]
    return "\n".join(line for line in lines if not line.startswith("gdscore demo"))  # test_demo.py runs that


@pytest.fixture
def shell(tmp_path):
    """Bash with this environment's gdscore and python3 on its path."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "python3").symlink_to(sys.executable)
    (bin_ / "gdscore").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gdscore.cli "$@"\n')
    (bin_ / "gdscore").chmod(0o755)

    def run(line: str) -> tuple[int, str]:
        env = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env)
        return done.returncode, done.stderr

    return run


@pytest.fixture
def own_modules(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("network", None)


@pytest.mark.parametrize("script", [*BLOCKS, helped()], ids=lambda text: text.split("\n")[0][:40])
def test_example_runs_as_printed(folder, own_modules, gd, shell, script):
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "gdscore" and not {"|", "||", "&&"} & set(words):
            result = gd(*words[1:])  # in this process: PyTorch is imported once
            code, said = result.exit_code, result.stderr
        else:
            code, said = shell(line)
        assert (code, said) == (0, ""), line


def test_every_command_is_in_the_page():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"gdscore {name}" in text for name in get_command(app).commands)
