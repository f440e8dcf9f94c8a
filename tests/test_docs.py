"""Every Python example of README and docs runs, and what the pages refer to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
@pytest.mark.parametrize("page", [p for p in PAGES if examples(p)], ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for example in examples(page):
        exec(compile(example, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_named_tests_exist():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    defined = set(re.findall(r"def (test_\w+)", "\n".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))))
    assert set(re.findall(r"`(test_\w+)`", text)) <= defined


def test_every_score_has_its_row():
    import gdscore

    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \| [+−] ", text, re.MULTILINE)
    assert sorted(rows) == gdscore.list_scores()
