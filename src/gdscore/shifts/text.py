"""Shifts of texts as callables ``texts → texts``, to calibrate a classifier of texts on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np

from gdscore._options import integer
from gdscore.errors import GdscoreError
from gdscore.shifts._context import check_severities
from gdscore.shifts._words import TEXT, TextReference, shift_text

__all__ = ["TextShift", "text_shifts"]


@dataclass(frozen=True, eq=False)
class TextShift:
    """One shift family at one severity, as a callable ``texts → texts``; made by `text_shifts`.

    Attributes
    ----------
    family : str
        Name that all severities share.
    severity : int
        1 (mild) to 4 (strong).
    seed : int
        Of the random numbers of the texts.
    """

    family: str
    severity: int
    seed: int = 0
    reference: Any = field(default=None, repr=False)

    selects_rows: ClassVar[bool] = False

    def __call__(self, texts: Any, *, start: int = 0) -> Any:
        """Shifted texts, in a collection of the same type; ``start`` is the position of the first one in its set."""
        given = _checked(texts)
        context = TEXT.context(self.family, self.severity, self.seed, start, len(given))
        changed = [shift_text(self.family, text, row, self.reference, context) for row, text in enumerate(given)]
        return _like(changed, texts)


def text_shifts(texts: Any, *, severities: Iterable[int] = (1, 2, 3, 4), seed: int = 0) -> list[TextShift]:
    """Shifts for texts, which learn letters and words from the reference.

    Every text has random numbers of its own, which depend on the seed, the family, the text's position in its set and
    the position of the word: a set shifted in batches is the set shifted at once.

    Parameters
    ----------
    texts : list, tuple, array or Series of str
        Texts of the reference. Shifted batches have the same type.
    severities : iterable of int
        1 (accuracy hardly changes) to 4 (accuracy falls a lot, where the model looks at what the family changes: a
        model that counts words does not see their order or case).
    seed : int
        Of all random numbers.

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
    levels, seed = check_severities(severities), integer("seed", seed, least=0)
    given = _checked(texts)
    if not given:
        raise GdscoreError("Expected `texts` to hold at least one text of the reference, but it is empty")
    reference = TextReference(given)
    return [TextShift(name, severity, seed, reference) for name in TEXT for severity in levels]


def _checked(texts: Any) -> list[str]:
    """Texts as a list of str."""
    if isinstance(texts, (list, tuple)):
        given = list(texts)
    elif isinstance(texts, np.ndarray) and texts.ndim == 1 and texts.dtype.kind in "OUT":
        given = texts.tolist()
    elif isinstance(texts, (str, bytes, np.ndarray)):
        got = f"{texts.dtype} of shape {texts.shape}" if isinstance(texts, np.ndarray) else type(texts).__name__
        raise GdscoreError(f"Expected `texts` to be a list, 1-D array or Series of str, but got {got}: give [text, …]")
    else:
        try:
            given = nw.from_native(texts, series_only=True).to_list()
        except TypeError:
            raise GdscoreError(
                f"Expected `texts` to be a list, array or Series of str, but got {type(texts).__name__}: "
                "give one column, or list(texts)"
            ) from None
    for row, text in enumerate(given):
        if not isinstance(text, str):
            raise GdscoreError(
                f"Expected every text to be a str, but row {row} is {type(text).__name__} ({text!r}): "
                "replace missing texts by an empty one"
            )
    return given


def _like(changed: list[str], texts: Any) -> Any:
    if isinstance(texts, list):
        return changed
    if isinstance(texts, tuple):
        return tuple(changed)
    if isinstance(texts, np.ndarray):
        return np.array(changed, dtype=object if texts.dtype.kind == "O" else texts.dtype.kind)
    series = nw.from_native(texts, series_only=True)
    if series.implementation.is_pandas_like():
        return type(texts)(changed, index=texts.index, name=texts.name, dtype=texts.dtype)
    return nw.new_series(series.name, changed, series.dtype, backend=series.implementation).to_native()
