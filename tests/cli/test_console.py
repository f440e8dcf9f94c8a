"""Names and streams that are not what they should be: names cannot steer a terminal, and any stream can carry results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gdscore import cli
from gdscore.cli import commands
from gdscore.cli.console import show_table
from tests.cli.conftest import refused

pytestmark = pytest.mark.skipif(os.name != "posix", reason="file names and streams of POSIX")
EVIL = "\x1b[2J\x1b]0;owned\x07\r\u202e\u200b\x9b31m"


def run(*args, env=None, **options):
    command = [sys.executable, "-m", "gdscore.cli", *args]
    return subprocess.run(command, capture_output="stdout" not in options, env={**os.environ, **(env or {})}, **options)


def assert_plain(text: str) -> None:
    assert not [char for char in text if char != "\n" and not char.isprintable()]


def test_names_of_files_cannot_steer_a_terminal(gd, folder):
    shutil.copy("new.npz", f"{EVIL}.npz")
    np.savez(f"{EVIL}bad.npz", odd=np.zeros(3))
    shutil.copytree("shifted/noise", f"shifted/{EVIL}")
    for args in (
        ("score", f"{EVIL}.npz"),
        ("score", f"{EVIL}bad.npz", "new.npz"),
        ("score", f"missing{EVIL}"),
        ("estimate", "m.gdscore", f"{EVIL}.npz", "--min-accuracy", "1", "--html", f"{EVIL}.html"),
        ("estimate", "m.gdscore", f"{EVIL}bad.npz"),
        ("estimate", f"{EVIL}.npz", "new.npz"),
        ("fit", "val.npz", "--shifted-sets", "shifted", "-o", f"{EVIL}.gdscore"),
        ("fit", f"{EVIL}bad.npz", "-o", "x.gdscore"),
        ("extract", f"{EVIL}:load", "photos", "-o", "x.npz"),
        ("methods", EVIL),
        (EVIL,),
        ("score", f"--{EVIL}"),
        ("score", f"missing{EVIL}", "--debug"),
        ("fit", f"missing{EVIL}", "-o", "x.gdscore", "--debug"),
    ):
        result = gd(*args)
        assert_plain(result.stdout)
        assert_plain(result.stderr)
    assert json.loads(gd("score", f"{EVIL}.npz", "--json", "-").stdout)["targets"][0]["name"] == EVIL


def test_a_name_that_is_no_unicode(folder):
    shutil.copy("new.npz", b"caf\xe9.npz")
    for args in (
        ("score", b"caf\xe9.npz", "--json", "-"),
        ("estimate", "m.gdscore", b"caf\xe9.npz", "--json", "out.json"),
    ):
        done = run(*args)
        assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((folder / "out.json").read_bytes())["targets"][0]["name"] == "caf\udce9"


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(
    "args",
    [
        ("methods",),
        ("methods", "gdscore"),
        ("estimate", "m.gdscore", "é.npz", "--json", "-"),
        ("score", "é.npz"),
        ("-h",),
    ],
    ids=" ".join,
)
def test_an_ascii_terminal(folder, args):
    shutil.copy("new.npz", "é.npz")
    done = run(*args, env=ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_pipes_loops_and_long_names_are_one_line(gd, folder):
    os.mkfifo("fifo.npz")
    os.mkfifo("fifo.gdscore")
    (folder / "loop.npz").symlink_to("loop.npz")
    long = "x" * 300 + ".npz"
    for name in ("fifo.npz", "loop.npz", long, "new.npz/x.npz"):
        refused(gd("score", name), code=1)
        refused(gd("score", "new.npz", "--reference", name))
        refused(gd("estimate", "m.gdscore", name), code=1)
        refused(gd("fit", name, "-o", "x.gdscore"))
        refused(gd("fit", "val.npz", "-o", name))
        refused(gd("score", "new.npz", "--json", name))
    for name in ("fifo.gdscore", "loop.npz", long):
        refused(gd("estimate", name, "new.npz"))
        refused(gd("fit", "val.npz", "--shifted-sets", name, "-o", "x.gdscore"))
        refused(gd("extract", "network:load", "photos", "--classes", name, "-o", "x.npz"))


def test_a_row_of_a_table_is_one_line(capsys):
    show_table(["target"], [["de\nfr"]])
    assert capsys.readouterr().out.splitlines()[-1].strip() == r"de\nfr"


def test_sigterm_has_its_code_also_where_a_library_changes_it(monkeypatch):
    def app(**_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except SystemExit:
            sys.exit(1)  # as Ray does

    monkeypatch.setattr(commands, "app", app)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
