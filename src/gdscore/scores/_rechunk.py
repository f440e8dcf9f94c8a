"""Cuts a stream of rows into chunks of one size, counted from the first row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

__all__ = ["CHUNK_ROWS", "Rechunker", "stream"]

CHUNK_ROWS = 1024
"""Rows worked on at once: a multiple of GdScore's mini-batch, and small enough for a processor's cache."""


class Rechunker:
    """Keeps copies of the rows that do not fill a chunk yet."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._held: list[Outputs] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, outputs: Outputs) -> Iterator[Outputs]:
        """Chunks completed by these rows; whole chunks of a large input are passed on without a copy."""
        start = 0
        if self._count:
            start = min(self.rows - self._count, len(outputs))
            self._hold(outputs[:start])
            if self._count == self.rows:
                full = self.rest()
                self._held, self._count = [], 0
                if full is not None:
                    yield full
        while len(outputs) - start >= self.rows:
            yield outputs[start : start + self.rows]
            start += self.rows
        if start < len(outputs):
            self._hold(outputs[start:])

    def rest(self) -> Outputs | None:
        """Rows kept so far as one piece, or None."""
        if not self._held:
            return None
        if len(self._held) > 1:
            last = self._held[-1]
            self._held = [Outputs.concatenate([part.like(last) for part in self._held])]
        return self._held[0]

    def adopt(self, rest: Outputs) -> None:
        """Take over rows that nobody else will change, without a copy."""
        self._held, self._count = [rest], len(rest)

    def _hold(self, rows: Outputs) -> None:
        self._held.append(rows.held())
        self._count += len(rows)


def stream(data: Outputs | Iterable[Outputs] | None, what: str) -> Iterator[Outputs]:
    """Outputs one by one, of a single one or of any iterable; anything else, or nothing, is an error."""
    if isinstance(data, Outputs):
        yield data
        return
    if data is None or isinstance(data, (str, bytes, dict)) or not isinstance(data, Iterable):
        raise GdscoreError(f"Expected `{what}` to be `gdscore.Outputs` or a stream of them, but got {_word(data)}")
    empty = True
    for outputs in data:
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `{what}` to yield `gdscore.Outputs`, but it yielded {_word(outputs)}")
        empty = False
        yield outputs
    if empty:
        raise GdscoreError(f"Expected `{what}` to have rows, but the stream is empty")


def _word(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
