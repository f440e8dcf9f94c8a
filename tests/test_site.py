"""Formulas, tutorials and links as the site shows them."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("latex2mathml")
pytest.importorskip("mkdocs")
pytest.importorskip("griffe")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "tex", [r"\frac{∂ℓ}{∂w_k} = x\,(s_k − y_k)", "‖v‖_p ≤ 1", r"\mathrm{softmax}(z)", r"−Σ_k s_k \ln s_k", "p < ∞"]
)
def test_formula_is_well_formed(hooks, tex):
    root = ET.fromstring(hooks.mathml(tex, "inline"))
    text = "".join(root.itertext())
    assert root.tag.endswith("math")
    assert "\\" not in text
    assert text.strip()


def test_formulas_of_a_page_are_replaced(hooks):
    page = (
        '<p>a <span class="arithmatex">\\(x &lt; 1\\)</span> b</p>'
        '<div class="arithmatex">\\[\ny = 2\n\\]</div><code>$x$</code>'
    )
    shown = hooks.on_page_content(page)
    assert shown.count("<math") == 2
    assert "arithmatex" not in shown
    assert shown.endswith("<code>$x$</code>")


def test_options_are_not_broken(hooks):
    assert hooks.on_page_content("<code>--by</code> <code>a --by</code>").count('class="option"') == 1


def test_formulas_of_docstrings(hooks):
    text = "Summary.\n\n.. math:: a_b +\n          c\n\nMore text.\n\n.. math:: d"
    obj = SimpleNamespace(docstring=SimpleNamespace(value=text))
    hooks.RestMath().on_object(obj=obj)
    assert obj.docstring.value.split() == ["Summary.", "$$a_b", "+", "c$$", "More", "text.", "$$d$$"]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "tutorials").glob("*.md")), ids=lambda path: path.stem)
def test_tutorial_runs_and_draws(hooks, path):
    for package in ("torch", "pandas", "sqlalchemy"):
        pytest.importorskip(package)
    shown = hooks.executed(path.read_text(encoding="utf-8"))
    assert "```text\n" in shown
    assert "data:image/png;base64," in shown
    assert "Traceback" not in shown


def test_output_of_a_block(hooks):
    names = {}
    assert hooks.run_python("a = 1\nprint(a)", names) == "```text\n1\n```"
    assert hooks.run_python("a + 1", names) == "```text\n2\n```"
    assert hooks.run_python("a + 1;", names) == ""


def test_a_link_out_of_the_site_names_the_file(hooks):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="howto/x.md"))
    shown = hooks.on_page_markdown("[a](../b.md) and [c](../../research/d.md#e) ([f](../../g.md))", page)
    assert shown == "[a](../b.md) and c (`research/d.md`) (f: `g.md`)"
