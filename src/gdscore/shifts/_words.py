"""Families of shifts for texts, each a function on the list of a text's words.

A word keeps the white space that follows it, so that an unchanged list joins to the unchanged text. Characters of
scripts without spaces (Chinese, Japanese) are words of their own.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gdscore.shifts._context import Context, Families
from gdscore.shifts._rows import Numbers, RowDraws

__all__ = ["TEXT", "TextReference", "shift_text", "words_of"]

TEXT = Families()

_NO_SPACES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"^\s+|[{_NO_SPACES}]\s*|[^\s{_NO_SPACES}]+\s*")
_MOST_LETTERS = 64
_MOST_WORDS = 20_000


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
    changed: list[str] = TEXT.function(family)(words, reference, _OneText(context, row))
    result = "".join(changed)
    return result if text[-1].isspace() else result.rstrip()


@TEXT.family(0.1, 0.35, 0.65, 0.9)
def dropout(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Leave out a share of the words, but never all of them."""
    u = draws.uniform(0, len(words))
    kept = np.flatnonzero((u >= draws.level) | (u == u.max()))
    return [words[i] for i in kept]


@TEXT.family(0.1, 0.3, 0.6, 1.0)
def swap(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Exchange a share of the words with the word that follows."""
    words = _spaced(words)
    hit = draws.hit(len(words) // 2)
    for i in 2 * np.flatnonzero(hit):
        words[i], words[i + 1] = words[i + 1], words[i]
    return words


@TEXT.family(0.1, 0.35, 0.7, 1.0)
def typos(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Misspell a share of the words: a letter is replaced, left out or inserted, or two letters exchanged."""
    count = len(words)
    where, kind, letter = (draws.uniform(layer, count) for layer in (1, 2, 3))
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


@TEXT.family(0.3, 0.6, 0.8, 0.95)
def truncation(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Cut off a share of the words at the end; at least one stays."""
    return words[: max(1, round((1 - draws.level) * len(words)))]


@TEXT.family(0.1, 0.3, 0.6, 1.0)
def case(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Write a share of the words in capitals, or in small letters where they are capitals already."""
    hit = draws.hit(len(words))
    return [(w.lower() if w == w.upper() else w.upper()) if h else w for w, h in zip(words, hit, strict=True)]


@TEXT.family(0.1, 0.35, 0.65, 0.95)
def unknown_words(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Replace a share of the vocabulary by made-up words, the same word by the same one in all texts."""
    result = []
    for word in words:
        bare = word.rstrip()
        rank, made_up = _made_up(bare, reference.letters, draws.seed)
        result.append(made_up + word[len(bare) :] if rank < draws.level else word)
    return result


@TEXT.family(0.15, 0.5, 1.5, 4.0)
def repetition(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Repeat words right after themselves: on average ``level`` copies of each, from none to twice as many."""
    words = _spaced(words)
    copies = 1 + np.floor(2 * draws.level * draws.uniform(0, len(words)) + draws.uniform(1, len(words)))
    return [word for word, count in zip(words, copies.astype(int), strict=True) for _ in range(count)]


@TEXT.family(2.0, 5.0, 20.0, 1e9)
def shuffle(words: list[str], reference: TextReference, draws: _OneText) -> list[str]:
    """Move every word by up to ``level`` places; at severity 4 the order is random."""
    words = _spaced(words)
    places = np.argsort(np.arange(len(words)) + draws.level * draws.uniform(0, len(words)), kind="stable")
    return [words[i] for i in places]


@TEXT.family(0.3, 1.0, 3.0, 8.0)
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
    u = RowDraws("vocabulary", seed, start=key).uniform(0, 1 + max(3, min(len(word), 12)))[0]
    return float(u[0]), "".join(letters[int(v * len(letters))] for v in u[1:])
