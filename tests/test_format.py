from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gdscore._format import printable


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)))
def test_nothing_that_steers_a_terminal_stays(text):
    shown = printable(text)
    assert not {unicodedata.category(char) for char in shown if char != "\n"} & {"Cc", "Cf", "Cs"}
    shown.encode("utf-8")
    assert printable(shown) == shown
