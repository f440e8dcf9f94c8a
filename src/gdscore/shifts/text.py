"""Shifts of texts as callables ``texts → texts``, to calibrate a classifier of texts on.

A family is a function on the list of a text's words. A word keeps the white space that follows it, so that an unchanged
list joins to the unchanged text. Characters of scripts without spaces (Chinese, Japanese) are words of their own.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from gdscore._checks import integer
from gdscore.errors import GdscoreError
from gdscore.shifts._families import Context, Draws, Families, Numbers, RowShift

TEXT = Families(severities=4)

_NO_SPACES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"^\s+|[{_NO_SPACES}]\s*|[^\s{_NO_SPACES}]+\s*")
_MOST_LETTERS = 64
_MOST_WORDS = 20_000


class TextShift(RowShift):
    """One shift family of texts at one severity, as a callable ``texts → texts``; made by `text_shifts`."""

    def __call__(self, texts: Any, *, start: int = 0) -> Any:
        """Shifted texts, in a collection of the same type; ``start`` is the position of the first one in its set."""
        listed = _checked(texts)
        context = TEXT.context(self.family, self.severity, self.seed, start, len(listed))
        changed = [shift_text(self.family, text, row, self.reference, context) for row, text in enumerate(listed)]
        return _like(changed, texts)


def text_shifts(texts: Any, *, severities: Iterable[int] = (1, 2, 3, 4), seed: int = 0) -> list[TextShift]:
    """Shifts for texts, which learn letters and words from the reference.

    Every text has random numbers of its own, which depend on the seed, the family, the text's position in its set and
    the position of the word: a set shifted in batches is the set shifted at once.

    Parameters
    ----------
    texts : list, tuple, array or Series of str
        Texts of the reference. Shifted batches have the same type; a Series of categories becomes one of strings.
    severities : iterable of int
        1 (accuracy hardly changes) to 4 (accuracy falls a lot, where the model looks at what the family changes: a
        model that counts words does not see their order or case).
    seed : int
        Seed of all random numbers.

    Returns
    -------
    list of TextShift
        With the families ``dropout``, ``swap``, ``typos``, ``truncation``, ``case``, ``unknown_words``,
        ``repetition``, ``shuffle`` and ``filler``.

    Examples
    --------
    >>> from gdscore.shifts.text import text_shifts
    >>> texts = ["a quiet, warm and clever film", "dull from the first minute to the last"]
    >>> shifts = text_shifts(texts, severities=[3])
    >>> shifts[3], shifts[3](texts)
    (TextShift(family='truncation', severity=3, seed=0), ['a', 'dull from'])
    >>> shifts[0](texts[1:], start=1) == shifts[0](texts)[1:]
    True
    """
    levels, seed = TEXT.check_severities(severities), integer("seed", seed, least=0)
    listed = _checked(texts)
    if not listed:
        raise GdscoreError("Expected `texts` to hold at least one text of the reference, but it is empty")
    reference = TextReference(listed)
    return [TextShift(name, severity, seed, reference) for name in TEXT for severity in levels]


def _checked(texts: Any) -> list[str]:
    """Texts as a list of str."""
    if isinstance(texts, (list, tuple)):
        listed = list(texts)
    elif isinstance(texts, np.ndarray) and texts.ndim == 1 and texts.dtype.kind in "OUT":
        listed = texts.tolist()
    elif isinstance(texts, (str, bytes, np.ndarray)):
        got = f"{texts.dtype} of shape {texts.shape}" if isinstance(texts, np.ndarray) else type(texts).__name__
        raise GdscoreError(f"Expected `texts` to be a list, 1-D array or Series of str, but got {got}: give [text, …]")
    else:
        try:
            listed = nw.from_native(texts, series_only=True).to_list()
        except TypeError:
            raise GdscoreError(
                f"Expected `texts` to be a list, array or Series of str, but got {type(texts).__name__}: "
                "give one column, or list(texts)"
            ) from None
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise GdscoreError(
                f"Expected every text to be a str, but row {row} is {type(text).__name__} ({text!r}): "
                "replace missing texts by an empty one"
            )
    return listed


def _like(changed: list[str], texts: Any) -> Any:
    if isinstance(texts, list):
        return changed
    if isinstance(texts, tuple):
        return tuple(changed)
    if isinstance(texts, np.ndarray):
        return np.array(changed, dtype=object if texts.dtype.kind == "O" else texts.dtype.kind)
    series = nw.from_native(texts, series_only=True)
    # Shifted texts are none of the categories.
    categories = series.dtype in (nw.Categorical, nw.Enum)
    if series.implementation.is_pandas_like():
        dtype = texts.dtype.categories.dtype if categories else texts.dtype
        return type(texts)(changed, index=texts.index, name=texts.name, dtype=dtype)
    dtype = nw.String if categories else series.dtype
    return nw.new_series(series.name, changed, dtype, backend=series.implementation).to_native()


def words_of(text: str) -> list[str]:
    """Words of a text, each with the white space that follows it."""
    return _WORD.findall(text)


class TextReference:
    """Letters and words of the reference's texts: what typing errors and insertions are drawn from."""

    def __init__(self, texts: list[str]) -> None:
        step = max(1, len(texts) // 2000)
        words = [word.rstrip() for text in texts[::step] for word in words_of(text[:20_000])]
        words = [word for word in words if word][:: max(1, len(words) // _MOST_WORDS)]
        letters = Counter(c for word in words for c in word if c.isalpha()).most_common(_MOST_LETTERS)
        self.words = words or ["text"]
        self.letters = "".join(sorted(letter for letter, _ in letters)) or "abcdefghijklmnopqrstuvwxyz"


class _OneText:
    """Random numbers of one text: fields with an entry for each of its words."""

    def __init__(self, context: Context, row: int) -> None:
        self._context = context
        self._row = row
        self.level = context.level
        self.seed = context.seed

    def uniform(self, layer: int, count: int) -> Numbers:
        return self._context.rows.uniform_at(layer, np.full(count, self._row), np.arange(count))

    def hit(self, count: int) -> NDArray[np.bool_]:
        """Which words a share ``level`` of them hits."""
        return self.uniform(0, count) < self.level


def shift_text(family: str, text: str, row: int, reference: TextReference, context: Context) -> str:
    """Text after the shift; ``row`` is its position in the batch."""
    words = words_of(text)
    if not any(word.strip() for word in words):
        return text
    changed: list[str] = TEXT[family].function(words, reference, _OneText(context, row))
    result = "".join(changed)
    return result if text[-1].isspace() else result.rstrip()


@TEXT.family((0.1, 0.35, 0.65, 0.9))
def dropout(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Leave out a share of the words, but never all of them."""
    u = draws.uniform(0, len(words))
    kept = np.flatnonzero((u >= draws.level) | (u == u.max()))
    return [words[i] for i in kept]


@TEXT.family((0.1, 0.3, 0.6, 1.0))
def swap(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Exchange a share of the words with the word that follows."""
    words = _spaced(words)
    hit = draws.hit(len(words) // 2)
    for i in 2 * np.flatnonzero(hit):
        words[i], words[i + 1] = words[i + 1], words[i]
    return words


@TEXT.family((0.1, 0.35, 0.7, 1.0))
def typos(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Misspell a share of the words: a letter is replaced, left out or inserted, or two letters exchanged."""
    count = len(words)
    where, kind, letter = draws.uniform(1, count), draws.uniform(2, count), draws.uniform(3, count)
    words = list(words)
    for i in np.flatnonzero(draws.hit(count)):
        word = words[i].rstrip()
        at, new = int(where[i] * len(word)), reference.letters[int(letter[i] * len(reference.letters))]
        edits = (
            word[:at] + new + word[at + 1 :],
            word[:at] + word[at + 1 :] if len(word) > 1 else new,
            word[:at] + new + word[at:],
            word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
        )
        words[i] = edits[int(kind[i] * len(edits))] + words[i][len(word) :]
    return words


@TEXT.family((0.3, 0.6, 0.8, 0.95))
def truncation(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Cut off a share of the words at the end; at least one stays."""
    return words[: max(1, round((1 - draws.level) * len(words)))]


@TEXT.family((0.1, 0.3, 0.6, 1.0))
def case(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Write a share of the words in capitals, or in small letters where they are capitals already."""
    hit = draws.hit(len(words))
    return [(w.lower() if w == w.upper() else w.upper()) if h else w for w, h in zip(words, hit, strict=True)]


@TEXT.family((0.1, 0.35, 0.65, 0.95))
def unknown_words(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Replace a share of the vocabulary by made-up words, the same word by the same one in all texts."""
    result = []
    for word in words:
        bare = word.rstrip()
        rank, made_up = _made_up(bare, reference.letters, draws.seed)
        result.append(made_up + word[len(bare) :] if rank < draws.level else word)
    return result


@TEXT.family((0.15, 0.5, 1.5, 4.0))
def repetition(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Repeat words right after themselves: on average ``level`` copies of each, from none to twice as many."""
    words = _spaced(words)
    copies = 1 + np.floor(2 * draws.level * draws.uniform(0, len(words)) + draws.uniform(1, len(words)))
    return [word for word, count in zip(words, copies.astype(int), strict=True) for _ in range(count)]


@TEXT.family((2.0, 5.0, 20.0, 1e9))
def shuffle(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Move every word by up to ``level`` places; at severity 4 the order is random."""
    words = _spaced(words)
    places = np.argsort(np.arange(len(words)) + draws.level * draws.uniform(0, len(words)), kind="stable")
    return [words[i] for i in places]


@TEXT.family((0.3, 1.0, 3.0, 8.0))
def filler(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Insert ``level`` times as many words as the text has, drawn from the reference's texts, at random places."""
    words = _spaced(words)
    count = max(1, round(draws.level * len(words)))
    chosen = (draws.uniform(1, count) * len(reference.words)).astype(np.int64)
    places = np.concatenate([np.arange(len(words)), draws.uniform(2, count) * len(words) - 0.5])
    mixed = words + [f"{reference.words[i]} " for i in chosen]
    return [mixed[i] for i in np.argsort(places, kind="stable")]


def _spaced(words: list[str]) -> list[str]:
    """Words with a space after the last one, which may now be followed by another."""
    return words if words[-1][-1].isspace() else [*words[:-1], words[-1] + " "]


@lru_cache(maxsize=1 << 16)
def _made_up(word: str, letters: str, seed: int) -> tuple[float, str]:
    """Number in (0, 1) that belongs to a word, and a word of random letters that is about as long."""
    key = zlib.crc32(word.lower().encode("utf-8", "surrogatepass"))
    u = Draws("vocabulary", seed, start=key).uniform(0, 1 + max(3, min(len(word), 12)))[0]
    return float(u[0]), "".join(letters[int(v * len(letters))] for v in u[1:])
