"""Every command and path of the benchmarks that a text names is there, and none finds another through the search path."""

import ast
import re
import subprocess

import pytest

from benchmarks import ROOT

LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
# What was true of older versions, and paths below tests/.
HISTORY = ("CHANGELOG.md", "benchmarks/results/", "tests/")
TEXTS = [name for name in LISTED if name.endswith((".py", ".md", ".ipynb", ".yml", ".cff", ".toml", "Makefile"))]
TEXTS = [name for name in TEXTS if (ROOT / name).exists() and not name.startswith(HISTORY)]
BENCHMARKS = [name for name in LISTED if re.fullmatch(r"benchmarks/.*\.py", name) and (ROOT / name).exists()]

pytestmark = pytest.mark.skipif(not LISTED, reason="no repository")


def test_commands_are_modules_that_run():
    named = {}
    for name in TEXTS:
        for module in re.findall(r"python3? -m (benchmarks[\w.]*\w)", (ROOT / name).read_text()):
            named.setdefault(module, name)
    assert len(named) > 20
    for module, name in named.items():
        file = ROOT / f"{module.replace('.', '/')}.py"
        assert file.exists(), f"{name} names {module}"
        assert '__name__ == "__main__"' in file.read_text(), f"{name}: {module} is no command"


def test_paths_are_there():
    for name in TEXTS:
        for path in re.findall(r"(?<![\w/.])benchmarks/[\w/.-]*\w", (ROOT / name).read_text()):
            assert (ROOT / path).exists(), f"{name} names {path}"


def test_every_command_is_in_the_readme():
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    for name in BENCHMARKS:
        text = (ROOT / name).read_text()
        if '__name__ == "__main__"' in text:
            assert name.removesuffix(".py").replace("/", ".") in readme, name


def test_packages_are_found_as_packages():
    assert BENCHMARKS
    for name in BENCHMARKS:
        text = (ROOT / name).read_text()
        assert "sys.path" not in text, name
        if name.endswith("__init__.py"):
            assert ast.get_docstring(ast.parse(text)), name
