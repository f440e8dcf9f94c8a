"""State of a score: what all its rows have in common (`Layout`), and the form it is saved in (`SavedScore`).

A saved score is one flat dict of NumPy arrays, numbers and strings. What a score is and how far it has come has plain
names, everything else the name of its part and a dot: ``learned.threshold_``, ``stats.total``, ``pending.logits``. What
does not fit together is refused when it is read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gdscore._arrays import native
from gdscore.errors import GdscoreError, shown
from gdscore.outputs import Outputs, same_class_names

if TYPE_CHECKING:
    from gdscore.scores.base import Score

__all__ = ["Layout", "SavedScore", "check_axes", "check_restored", "counts_of", "read_options", "refuse_damaged"]

_FORMAT = "gdscore score state, version 1"
_COUNTED_IN = {"n_classes": "logits", "n_features": "features"}


def counts_of(names: Collection[str]) -> list[str]:
    """Which of ``n_classes`` and ``n_features`` the arrays of these names have."""
    return [what for what, name in _COUNTED_IN.items() if name in names]


class Layout(NamedTuple):
    """Arrays that hold what a score reads (ids included), their counts, and the names of the classes."""

    arrays: frozenset[str]
    counts: Mapping[str, int | None]
    class_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, rows: Outputs, inputs: Collection[str]) -> Layout:
        """Layout of the arrays that a score with these inputs reads."""
        counts = {what: getattr(rows, what) for what in counts_of(inputs)}
        return cls(frozenset(rows.only(inputs).arrays), counts, rows.class_names if "logits" in inputs else None)

    def check_reference(self, counts: Mapping[str, int | None]) -> None:
        """Refuse rows with other numbers of classes or features than the reference."""
        for what, expected in counts.items():
            if self.counts[what] != expected:
                raise GdscoreError(
                    f"Expected {expected} {what.removeprefix('n_')} as in the reference, but the outputs have "
                    f"{self.counts[what]}"
                )

    def joined(self, before: Layout | None) -> Layout:
        """Layout of these rows and those before, which must agree."""
        if before is None:
            return self
        for what, seen in before.counts.items():
            if self.counts.get(what) != seen:
                raise GdscoreError(
                    f"Expected {what} to stay {seen} as in the rows before, but got {self.counts.get(what)}"
                )
        if self.arrays != before.arrays:
            raise GdscoreError(
                f"Expected the arrays to stay {sorted(before.arrays)} as in the rows before, but got "
                f"{sorted(self.arrays)}"
            )
        return self._replace(class_names=same_class_names(before.class_names, self.class_names))

    def check_mergeable(self, other: Layout) -> None:
        """Refuse to merge rows of other counts or arrays."""
        for what, seen in other.counts.items():
            if self.counts.get(what) != seen:
                raise GdscoreError(f"Expected equal {what} to merge, but got {seen} and {self.counts.get(what)}")
        if self.arrays != other.arrays:
            raise GdscoreError(
                f"Expected scores of the same arrays to merge, but one has seen {sorted(other.arrays)} and the other "
                f"{sorted(self.arrays)}"
            )


@contextlib.contextmanager
def refuse_damaged() -> Iterator[None]:
    """Context in which something missing or of another kind means that the state is damaged."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise GdscoreError(f"Expected the complete state of a score, but it is damaged: {shown(error)}") from None


def read_options(state: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and options of the score that a state belongs to."""
    with refuse_damaged():
        name, options = str(state["name"]), json.loads(str(state["options"]))
        if not isinstance(options, dict):
            raise TypeError(f"the options are {shown(options)}")
    return name, options


def check_axes(found: Mapping[str, Any], expected: Mapping[str, str], counts: Mapping[str, int | None]) -> None:
    """Refuse arrays of other names or shapes than expected.

    Parameters
    ----------
    found : dict of arrays and numbers
    expected : dict of str
        One letter for each axis of the array of that name: K for classes, L for K + 1, D for features; other letters
        stand for any length, the same wherever they occur. A capital I before them means integers.
    counts : dict of int
        ``n_classes`` and ``n_features``, where they are known.
    """
    if set(found) != set(expected):
        raise KeyError(f"{sorted(found)} in place of {sorted(expected)}")
    lengths: dict[str, int | None] = {"K": counts.get("n_classes"), "D": counts.get("n_features")}
    lengths["L"] = None if lengths["K"] is None else lengths["K"] + 1
    for name, axes in expected.items():
        array, letters = np.asarray(found[name]), axes.removeprefix("I")
        if array.ndim != len(letters) or (axes != letters and array.dtype.kind != "i"):
            raise ValueError(f"{name} of shape {array.shape} and type {array.dtype}")
        for letter, length in zip(letters, array.shape, strict=True):
            if (lengths.get(letter) or length) != length:
                raise ValueError(f"{name} of shape {array.shape}")
            lengths[letter] = length


class SavedScore(NamedTuple):
    """Contents of a saved score; ``parts`` are dicts of arrays and numbers, of which empty ones are not written."""

    name: str
    options: Mapping[str, Any]
    rows: int
    chunks: int
    invalid: int | None
    arrays: frozenset[str]
    parts: Mapping[str, Mapping[str, Any]]

    def flat(self) -> dict[str, Any]:
        """Write it as a flat dict."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "options": json.dumps(self.options),
            "rows": self.rows,
            "chunks": self.chunks,
            "invalid": -1 if self.invalid is None else self.invalid,
            "arrays": " ".join(sorted(self.arrays)),
            **{f"{part}.{key}": value for part, entries in self.parts.items() for key, value in entries.items()},
        }

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> SavedScore:
        """Read a flat dict; another format, or one that lacks something, is an error."""
        found = str(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
        if found != _FORMAT:
            raise GdscoreError(f"Expected a {_FORMAT}, but got {shown(found)}")
        parts: dict[str, dict[str, Any]] = {}
        for key, value in state.items():
            if "." in str(key):
                part, entry = str(key).split(".", 1)
                parts.setdefault(part, {})[entry] = value
        name, options = read_options(state)
        with refuse_damaged():
            rows, chunks, invalid = (int(state[key]) for key in ("rows", "chunks", "invalid"))
            if rows < 0 or chunks < 0:
                raise ValueError(f"{rows} rows in {chunks} chunks")
            names = frozenset(str(state["arrays"]).split())
            for part in ("shape", "reference_shape"):
                parts[part] = {entry: int(value) for entry, value in parts.get(part, {}).items()}
        return cls(name, options, rows, chunks, invalid if invalid >= 0 else None, names, parts)

    def numbers(self, part: str) -> dict[str, Any]:
        """Entries of a part as numbers and arrays of numbers; anything else is an error."""
        found: dict[str, Any] = {}
        for key, value in self.parts.get(part, {}).items():
            array = np.asarray(value)
            if array.dtype.kind not in "fiub":
                raise TypeError(f"{part}.{key} is {shown(value)}")
            found[key] = float(array) if array.ndim == 0 and part == "learned" else native(array)
        return found

    def check_belongs_to(self, name: str, options: Mapping[str, Any], learned: Collection[str]) -> None:
        """Refuse it for a score of another name, of other options or one that learns something else."""
        if self.name != name:
            raise GdscoreError(f"Expected a state of `{name}`, but got one of `{self.name}`")
        if self.options != json.loads(json.dumps(options)):
            raise GdscoreError(
                f"Expected a state of `{name}` with options {options}, but it was saved with {self.options}"
            )
        found = self.parts.get("learned", {})
        if found and set(found) != set(learned):
            raise GdscoreError(f"Expected a state of `{name}` with {sorted(learned)}, but got {sorted(found)}")


def check_restored(
    score: Score,
    saved: SavedScore,
    layout: Layout | None,
    learned: Mapping[str, Any],
    stats: Mapping[str, Any],
    kept: Mapping[str, Outputs],
) -> None:
    """Refuse parts of a state that do not fit together."""
    rows = saved.rows or bool(kept)
    if learned or (rows and score.learned):
        check_axes(learned, score.learned, saved.parts["reference_shape"])
    if not set(saved.parts["reference_shape"]) <= set(counts_of(score.inputs)):
        raise ValueError(f"a reference with {sorted(saved.parts['reference_shape'])}")
    if rows and (layout is None or set(layout.counts) != set(counts_of(score.inputs))):
        raise ValueError(f"rows of {sorted(saved.arrays)} with {sorted(saved.parts['shape'])}")
    for part in kept.values():
        if Layout.of(part, score.inputs)[:2] != (layout and layout[:2]):
            raise ValueError(f"rows of {sorted(part.arrays)}")
    if "pending" in kept and len(kept["pending"]) >= score.chunk_rows:
        raise ValueError(f"{len(kept['pending'])} rows that fill a chunk")
    if saved.rows and not stats and "pool" not in kept:
        raise ValueError(f"{saved.rows} rows without statistics")
    allowed = [axes for axes in score.stat_axes() if set(axes) == set(stats)] or score.stat_axes()
    if stats and allowed:
        check_axes(stats, allowed[0], layout.counts if layout else {})
