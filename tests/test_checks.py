"""Checks of options: what a message says was expected."""

import pytest

from gdscore import GdscoreError
from gdscore._checks import number


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, "a number, but got 'a'"),
        ({"above": 0}, "a number larger than 0, but got 'a'"),
        ({"least": 0, "below": 1}, "a number at least 0 and smaller than 1, but got 'a'"),
        ({"above": 0, "most": 1}, "a number larger than 0 and at most 1, but got 'a'"),
    ],
)
def test_numbers_are_refused_with_their_bounds(bounds, expected):
    with pytest.raises(GdscoreError, match=f"^Expected `x` to be {expected}$"):
        number("x", "a", **bounds)
