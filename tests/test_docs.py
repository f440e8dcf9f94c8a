"""Every Python example of README and docs runs in the order printed; links and named tests are there.

Tutorials run in test_site.py, as the site runs them.
"""

from __future__ import annotations

import importlib
import re
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

from tests.readme import examples, readers_model

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESEARCH = sorted((ROOT / "research").glob("*.md"))


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if examples(p) and p.parent.name != "tutorials"], ids=lambda p: p.name
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # where dataclasses look up the types of their fields
    if page.name == "README.md":
        pytest.importorskip("torch")
        vars(module).update(readers_model())
    for example in examples(page):
        exec(compile(example, page.name, "exec"), vars(module))


@pytest.mark.parametrize("page", PAGES + RESEARCH, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        place = page.parent / target
        assert target.startswith("http") or place.exists(), target


@pytest.mark.parametrize("page", PAGES + RESEARCH, ids=lambda p: p.name)
def test_named_tests_are_there(page):
    for file, name in re.findall(r"`tests/([\w/]+)\.py::([\w:]+)`", page.read_text(encoding="utf-8")):
        module = importlib.import_module(f"tests.{file.replace('/', '.')}")
        assert callable(attrgetter(name.replace("::", "."))(module)), name


def test_the_site_stays_short():
    """22,000 words without the generated reference; bars of tables and marks of blocks are none."""
    pages = [page for page in PAGES[2:] if page.parent.name != "api" and page.name != "architecture.md"]
    texts = [re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8")) for page in pages]
    assert len(pages) > 35
    assert sum(bool(re.search(r"\w", word)) for text in texts for word in text.split()) <= 22_000


def test_every_warning_is_listed():
    """A row of docs/messages.md for each code that an estimate may carry."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "gdscore").rglob("*.py")]
    calls = re.findall(r"EstimateWarning\(\s*((?:[^\n]*?)\"[a-z_]+\"[^\n]*)", "\n".join(sources))
    codes = {code for call in calls for code in re.findall(r'"([a-z_]+)"', call)} - {
        "critical",
        "warning",
        "info",
        "warnings",
    }
    table = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8").partition("## Errors")[0]
    assert len(codes) > 15
    assert codes <= set(re.findall(r"`([a-z_]+)`", table))
