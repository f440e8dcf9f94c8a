"""Pages hold what the committed results give, and the check finds what does not."""

import shutil

import pytest

from benchmarks import ROOT, pages
from benchmarks.markdown import filled


def test_pages_are_up_to_date():
    assert pages.stale() == [], "run python -m benchmarks.pages"


@pytest.fixture
def copy(tmp_path):
    for page in pages.PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, tmp_path / page)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "old", "new", "found"),
    [
        ("research/lab-notebook.md", "<!-- settings:begin -->", "<!-- settings:begin -->1", "settings"),
        ("research/scores.md", "`[0.0, 0.0]` | 0", "`[0.0, 0.0]` | 1", "vectors"),
        ("README.md", "claims:begin -->", "claims:begin -->1", "claims"),
    ],
)
def test_a_changed_page_is_found(copy, page, old, new, found):
    file = copy / page
    file.write_text(file.read_text().replace(old, new, 1))
    assert (page, found) in pages.stale(copy)


def test_blocks_on_lines_and_within_one():
    text = "a <!-- x:begin -->1<!-- x:end --> b\n<!-- y:begin -->\nold\n<!-- y:end -->\n"
    expected = "a <!-- x:begin -->2<!-- x:end --> b\n<!-- y:begin -->\nnew\n<!-- y:end -->\n"
    assert filled(text, {"x": "2", "y": "new", "absent": "-"}) == expected


def test_numbers_of_models_trained_on_the_spot_may_differ_a_little():
    assert pages.same("about 75% of 600", "about 74% of 600", "example")
    assert not pages.same("about 75% of 600", "about 71% of 600", "example")
    assert not pages.same("about 75%", "nearly 75%", "example")
    assert not pages.same("about 75%", "about 74%", "settings")
