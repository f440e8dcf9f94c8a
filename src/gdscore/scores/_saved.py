"""The form a score is saved in: one flat dict of NumPy arrays, numbers and strings.

What a score is and how far it has come stands under plain names, everything else under the name of its part and a dot:
``learned.threshold_``, ``stats.total``, ``pending.logits``. Nothing here knows how a score works.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from gdscore.errors import GdscoreError

__all__ = ["SavedScore", "whole"]

_FORMAT = "gdscore score state, version 1"


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Context in which something missing or of another kind means that the state is damaged."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise GdscoreError(f"Expected the whole state of a score, but it is damaged: {error}") from None


class SavedScore(NamedTuple):
    """Contents of a saved score; ``parts`` are dicts of arrays and numbers, of which empty ones are not written."""

    name: str
    options: Mapping[str, Any]
    rows: int
    chunks: int
    unsound: int | None
    parts: Mapping[str, Mapping[str, Any]]

    def flat(self) -> dict[str, Any]:
        """Write it as a flat dict."""
        return {
            "format": _FORMAT,
            "name": self.name,
            "options": json.dumps(self.options),
            "rows": self.rows,
            "chunks": self.chunks,
            "unsound": -1 if self.unsound is None else self.unsound,
            **{f"{part}.{key}": value for part, entries in self.parts.items() for key, value in entries.items()},
        }

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> SavedScore:
        """Read a flat dict; another format, or one that lacks something, is an error."""
        if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
            found = state.get("format") if isinstance(state, Mapping) else type(state).__name__
            raise GdscoreError(f"Expected a {_FORMAT}, but got {found!r}")
        parts: dict[str, dict[str, Any]] = {}
        for key, value in state.items():
            if "." in key:
                part, entry = key.split(".", 1)
                parts.setdefault(part, {})[entry] = value
        with whole():
            name, options = str(state["name"]), json.loads(state["options"])
            rows, chunks, unsound = (int(state[key]) for key in ("rows", "chunks", "unsound"))
            for part in ("shape", "reference_shape"):
                parts[part] = {entry: int(value) for entry, value in parts.get(part, {}).items()}
        return cls(name, options, rows, chunks, unsound if unsound >= 0 else None, parts)

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
