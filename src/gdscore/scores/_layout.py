"""What all rows of a stream must have in common: classes, features, and the arrays they come in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs, same_class_names

__all__ = ["Layout", "counts_of"]

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
