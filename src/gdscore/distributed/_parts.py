"""The work of one part of a dataset, a file or a block: its state, and a report for the caller."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore.distributed import _inputs
from gdscore.errors import GdscoreError, NoRowsError
from gdscore.io.cells import Batch
from gdscore.io.columns import Columns
from gdscore.io.read import read_batches
from gdscore.outputs import Outputs
from gdscore.partial import merge_states, partial_state

__all__ = ["Report", "Truth", "Work", "block_state", "file_state", "merged_block"]


class Truth(NamedTuple):
    """Rows with labels, and those among them that are predicted correctly."""

    rows: int = 0
    correct: int = 0

    @property
    def accuracy(self) -> float | None:
        """Share of correct rows, or None without labels."""
        return self.correct / self.rows if self.rows else None


class Report(NamedTuple):
    """What the caller learns of a part: its rows, what is wrong with it (nothing: empty), its classes and labels."""

    rows: int = 0
    wrong: str = ""
    class_names: tuple[str, ...] | None = None
    truths: dict[str, Truth] = {}  # noqa: RUF012  (nobody adds to it)


@dataclass(frozen=True)
class Work:
    """Makes the state of batches.

    Attributes
    ----------
    names : callable, optional
        From a batch to the segment of each row.
    compared : bool
        Whether labels are counted; they are never part of a state.
    """

    names: Callable[[Batch], NDArray[np.str_]] | None = None
    compared: bool = False

    def __call__(self, target: Any, batches: Iterable[Batch]) -> tuple[bytes, Report]:
        rows, class_names = 0, None
        waiting: deque[NDArray[np.str_]] = deque()
        labelled: Counter[str] = Counter()
        correct: Counter[str] = Counter()

        def outputs() -> Iterator[Outputs]:
            nonlocal rows, class_names
            for batch in batches:
                out = batch.outputs
                rows, class_names = rows + len(out), out.class_names
                names = None if self.names is None else self.names(batch)
                if names is not None:
                    waiting.append(names)
                if self.compared and "labels" in out.has:
                    right = np.asarray(out.correct)
                    labelled.update({"": len(out)} if names is None else Counter(names.tolist()))
                    correct.update({"": int(right.sum())} if names is None else Counter(names[right].tolist()))
                yield out.only(out.has - {"labels"})

        def segments() -> Iterator[NDArray[np.str_]]:
            while waiting:
                yield waiting.popleft()

        state = partial_state(target, outputs(), by=None if self.names is None else segments())
        return state, Report(rows, "", class_names, {name: Truth(n, correct[name]) for name, n in labelled.items()})


def file_state(target: Any, path: str, columns: Columns, work: Work) -> tuple[bytes, Report]:
    try:
        return work(target, read_batches(path, columns=columns, progress=False))
    except NoRowsError:
        return work(target, [])
    except GdscoreError as error:
        return b"", Report(wrong=str(error) if path in str(error) else f"{error} (in {path!r})")


def block_state(table: Any, target: Any, columns: Columns, work: Work) -> Any:
    import pyarrow as pa

    wrong = []
    try:
        state, report = work(target, _inputs.arrow_batches(table, columns, "a block of the dataset"))
    except GdscoreError as error:
        (state, report), wrong = work(target, []), [str(error)]
    return pa.table({"state": pa.array([state], pa.large_binary()), "rows": [report.rows], "wrong": _texts([wrong])})


def merged_block(table: Any) -> Any:
    import pyarrow as pa

    state = merge_states(table["state"].to_pylist())
    wrong = [text for texts in table["wrong"].to_pylist() for text in texts]
    rows = sum(table["rows"].to_pylist())
    return pa.table({"state": pa.array([state], pa.large_binary()), "rows": [rows], "wrong": _texts([wrong])})


def _texts(lists: list[list[str]]) -> Any:
    import pyarrow as pa

    return pa.array(lists, pa.list_(pa.string()))
