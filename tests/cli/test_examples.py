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

import pytest
from typer.main import get_command

from gdscore.cli import app

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


STATEMENT = re.compile(
    r"python3 - <<'(?P<end>\w+)'\n(?P<code>.*?)^(?P=end)$|(?:[^\n]*\\\n)*[^\n]+", re.MULTILINE | re.DOTALL
)


def statements(script: str) -> Iterator[tuple[str, str | list[str]]]:
    """Statements with how to run them: Python and plain gdscore commands in this process, others by the shell.

    A script with other commands than these is left whole, as its statements may depend on each other.
    """
    found = list(STATEMENT.finditer(script))
    if not all(match[0].startswith(("gdscore ", "python3 - ")) for match in found):
        yield "shell", script
        return
    for match in found:
        if match["code"] is not None:
            yield "python", match["code"]
            continue
        words = shlex.split(match[0].replace("\\\n", " "), comments=True)
        yield ("shell", match[0]) if OPERATORS & set(words) else ("gdscore", words[1:])


@pytest.mark.usefixtures("folder", "own_modules")
@pytest.mark.parametrize("scripts", [*SCRIPTS, pytest.param([helped()], id="help")])
def test_examples_run_in_the_order_printed(gd, shell, scripts):
    for how, what in itertools.chain.from_iterable(map(statements, scripts)):
        if how == "python":
            exec(compile(what, "example", "exec"), {})
        elif how == "shell":
            code, errors = shell(what)
            assert code == 0, errors
        else:
            result = gd(*what)  # in this process: everything is imported once
            assert result.exit_code == 0, (what, result.stderr)
