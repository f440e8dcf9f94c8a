"""Shifts of texts: the same for any batch size, in the collection's own type, stronger with severity."""

import difflib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdscore.errors import GdscoreError
from gdscore.shifts.text import text_shifts, words_of

TEXTS = [
    "The plot is thin, but the actors carry it well enough to the end .",
    "I would not buy this knife again: it broke after two days!",
    "Great value and a quiet motor; my neighbours thanked me twice.",
    "",
    "word",
    "  leading and trailing   spaces\tand\nlines  ",
    "Überraschend gut, naïve café ☕ – добрый день",
    "日本語のテキスト",
    "not bad at all " * 10,
]
FAMILIES = ["dropout", "swap", "typos", "truncation", "case", "unknown_words", "repetition", "shuffle", "filler"]


@given(text=st.text())
def test_words_join_to_the_text(text):
    assert "".join(words_of(text)) == text


@given(texts=st.lists(st.text(), min_size=1, max_size=6), cut=st.integers(0, 6), seed=st.integers(0, 3))
def test_batches_do_not_matter_and_no_text_fails(texts, cut, seed):
    for shift in text_shifts(texts, severities=[1, 3, 4], seed=seed):
        whole = shift(texts)
        assert shift(texts[:cut]) + shift(texts[cut:], start=min(cut, len(texts))) == whole
        assert all(isinstance(text, str) for text in whole)


def test_names_and_repr():
    shifts = text_shifts(TEXTS, severities=[1, 4], seed=7)
    assert list(dict.fromkeys(shift.family for shift in shifts)) == FAMILIES
    assert repr(shifts[1]) == "TextShift(family='dropout', severity=4, seed=7)"
    assert not any(shift.selects_rows for shift in shifts)


def test_change_grows_with_severity():
    texts = [" ".join(TEXTS[:3])] * 20
    for family in FAMILIES:
        shifts = [shift for shift in text_shifts(texts) if shift.family == family]
        likeness = [
            np.mean(
                [
                    difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()
                    for a, b in zip(texts, s(texts), strict=True)
                ]
            )
            for s in shifts
        ]
        assert likeness[0] < 1, family
        assert all(a >= b - 0.02 for a, b in itertools.pairwise(likeness)), (family, likeness)
        assert likeness[3] < likeness[0] - 0.05, (family, likeness)


def test_same_seed_same_result_and_other_seeds_differ():
    first, again, other = ([s(TEXTS) for s in text_shifts(TEXTS, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert sum(a != b for a, b in zip(first, other, strict=True)) >= len(first) - 8


def by_family(severity, texts=TEXTS):
    return {shift.family: shift(texts) for shift in text_shifts(texts, severities=[severity])}


def test_what_each_family_keeps():
    text = " ".join(TEXTS[:3])
    shifted = {name: texts[0] for name, texts in by_family(3, [text]).items()}
    words = text.split()
    assert text.startswith(shifted["truncation"])
    assert len(shifted["truncation"].split()) == round(0.2 * len(words))
    for name in ("swap", "shuffle"):
        assert sorted(shifted[name].split()) == sorted(words)
        assert shifted[name] != text
    assert shifted["case"].lower() == text.lower()
    assert set(shifted["dropout"].split()) <= set(words)
    assert len(shifted["typos"].split()) == len(words)
    assert len(shifted["unknown_words"].split()) == len(words)
    assert set(shifted["repetition"].split()) == set(words)
    assert len(shifted["filler"].split()) == 4 * len(words)
    assert set(shifted["filler"].split()) <= set(words)


def test_unknown_words_are_the_same_in_all_texts():
    shifted = by_family(3, ["bad film bad", "a bad book"])["unknown_words"]
    first, second = (text.split() for text in shifted)
    assert first[0] == first[2] == second[1]


def test_empty_and_short_texts():
    for severity in (1, 4):
        for name, texts in by_family(severity).items():
            assert texts[3] == ""
            assert texts[4].strip(), name
    assert all(shift(["", "  "]) == ["", "  "] for shift in text_shifts(["", "  "]))


def test_long_texts():
    """Work that grew with the square of the length would take hours."""
    long = ["lorem ipsum dolor sit amet " * 20_000, "x" * 500_000]
    for shift in text_shifts(long, severities=[2]):
        assert all(shift(long)), shift


def test_collections_keep_their_type():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = by_family(2)
    series = pd.Series(TEXTS, index=range(5, 5 + len(TEXTS)), name="review")
    for shift in text_shifts(TEXTS, severities=[2]):
        assert shift(tuple(TEXTS)) == tuple(expected[shift.family])
        objects = shift(np.array(TEXTS, dtype=object))
        fixed = shift(np.array(TEXTS))
        assert (objects.dtype, fixed.dtype.kind) == (object, "U")
        assert objects.tolist() == expected[shift.family]
        shifted = shift(series)
        assert shifted.tolist() == expected[shift.family]
        assert shifted.index.equals(series.index)
        assert (shifted.name, shifted.dtype) == (series.name, series.dtype)
        shifted = shift(pl.Series("review", TEXTS))
        assert (shifted.name, shifted.dtype, shifted.to_list()) == ("review", pl.String, expected[shift.family])
        # Shifted texts are none of the categories.
        assert shift(series.astype("category")).tolist() == expected[shift.family]
        assert shift(pl.Series(TEXTS, dtype=pl.Categorical)).to_list() == expected[shift.family]
    assert series.tolist() == TEXTS


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("one text", r"but got str: give \[text"),
        ([], "at least one text"),
        (["a", None], r"row 1 is NoneType \(None\): replace missing texts"),
        (np.ones(3), "float64 of shape"),
        (np.array([["a"]]), r"shape \(1, 1\)"),
        ({"a": 1}, "but got dict: give one column"),
    ],
)
def test_bad_texts(bad, message):
    with pytest.raises(GdscoreError, match=message):
        text_shifts(bad)


def test_bad_severity():
    with pytest.raises(GdscoreError, match="`severity` to be an integer from 1 to 4, but got 9"):
        text_shifts(TEXTS, severities=[9])
