"""`Outputs`: the logits, features and labels of some rows, checked on construction.

Requirements met here:

- whatever is wrong with the arrays is refused on construction, with the row, the column or the shape that is wrong;
- slicing costs nothing, so that data of any size is worked through in small pieces.

What is derived from the arrays, such as the softmax, is in `_derived`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._derived import DerivedArrays
from gdscore._options import boolean, number
from gdscore._validation import check_class_names, check_outputs, check_rows
from gdscore.errors import GdscoreError, shown

__all__ = ["Outputs", "same_class_names"]


class Outputs(DerivedArrays):
    r"""Outputs of a classifier for m rows: arrays of NumPy, PyTorch, JAX or CuPy, kept where they live.

    Every array is optional, but at least one must be given. `Score.inputs` names those that a score needs.

    Parameters
    ----------
    logits : array of shape (m, K), optional
        Scores before the softmax, K ≥ 2. float16, bfloat16, float32 or float64, any strides.
    probabilities : array of shape (m, K), (m, 1) or (m,), optional
        For models that give nothing else, instead of ``logits``: their logarithm serves as logits, and a zero
        counts as the smallest normal float32, 1.2e-38. Rows that sum to 1 within 0.02 are divided by their sum, with
        a warning where it is more than 0.001. A single column is the probability of class 1 of a binary model.
    features : array of shape (m, D), optional
        What enters the last linear layer.
    labels : integer array of shape (m,), optional
        True classes, 0 … K−1.
    peer_logits : array of shape (m, K), optional
        Logits of a second, independently trained model on the same rows.
    batch_logits : array of shape (m, K), optional
        Logits of the same model with BatchNorm's statistics of each batch instead of the stored ones.
    rotation_logits : array of shape (m, 4, 4), optional
        Logits of a rotation head: row × rotation shown × rotation predicted.
    ids : integer or string array of shape (m,), optional
        Names of the rows, of any library. Random labels are tied to them; without ids they are tied to the logits.
    class_names : sequence of K str, optional
        Names of the classes in the order of the columns.
    check_logits : bool, default True
        Refuse logits of which every row lies between 0 and 1 and sums to 1, as these are probabilities given by
        mistake. False lets real logits of that kind through.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore import Outputs
    >>> out = Outputs(logits=np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), labels=np.array([0, 1, 1]))
    >>> len(out), out.n_classes, out.predictions.tolist(), round(out.accuracy, 3)
    (3, 2, [0, 1, 0], 0.667)
    >>> out[1:].confidence.round(3).tolist()
    [0.731, 0.953]
    """

    def __init__(
        self,
        *by_position: NoReturn,
        logits: Array | None = None,
        probabilities: Array | None = None,
        features: Array | None = None,
        labels: Array | None = None,
        peer_logits: Array | None = None,
        batch_logits: Array | None = None,
        rotation_logits: Array | None = None,
        ids: Array | None = None,
        class_names: Sequence[str] | None = None,
        check_logits: bool = True,
    ) -> None:
        if by_position:
            raise GdscoreError(
                f"Expected arrays by name, but got {len(by_position)} by position: Outputs(logits=…, labels=…)"
            )
        self._check_logits = boolean("check_logits", check_logits)
        self._given = check_outputs(
            {
                "logits": logits,
                "probabilities": probabilities,
                "features": features,
                "peer_logits": peer_logits,
                "batch_logits": batch_logits,
                "rotation_logits": rotation_logits,
                "labels": labels,
                "ids": ids,
            },
            self._check_logits,
        )
        self._class_names = None if class_names is None else check_class_names(class_names, self.n_classes)

    def _holding(self, given: Mapping[str, Array]) -> Outputs:
        """Outputs of the same classes that hold other arrays, which need no check."""
        out = Outputs.__new__(Outputs)
        out._given, out._class_names, out._check_logits = dict(given), self._class_names, self._check_logits
        return out

    def __len__(self) -> int:
        return int(self._first_array.shape[0])

    def __getitem__(self, rows: slice | Array) -> Outputs:
        """Rows by slice, index array or mask; an empty selection is an error."""
        picked = check_rows(rows, len(self))
        # Ids may live elsewhere than the other arrays, so each gets the selection where it lives.
        chosen = self._holding(
            {k: a[picked if isinstance(picked, slice) else arrays.like(picked, a)] for k, a in self._given.items()}
        )
        if not len(chosen):
            raise GdscoreError(f"Expected at least one row, but {rows!r} selects none of {len(self)} rows")
        return chosen

    @staticmethod
    def concatenate(parts: Iterable[Outputs]) -> Outputs:
        """Rows of several outputs, one after the other; all must hold the same arrays and classes."""
        parts = list(parts)
        if not parts:
            raise GdscoreError("Expected at least one `Outputs` to concatenate, but got none")
        for part in parts:
            if not isinstance(part, Outputs):
                raise GdscoreError(f"Expected `gdscore.Outputs` to concatenate, but got {type(part).__name__}")
        first = parts[0]
        for part in parts[1:]:
            if part.arrays.keys() != first.arrays.keys():
                raise GdscoreError(
                    f"Expected all parts to hold {sorted(first.arrays)}, but one holds {sorted(part.arrays)}"
                )
            if (part.n_classes, part.n_features) != (first.n_classes, first.n_features):
                raise GdscoreError(
                    f"Expected all parts to have {first.n_classes} classes and {first.n_features} features, "
                    f"but one has {part.n_classes} and {part.n_features}"
                )
        if len(parts) == 1:
            return first
        joined = first._holding({name: arrays.concatenate([p._given[name] for p in parts]) for name in first._given})
        for part in parts:
            joined._class_names = same_class_names(joined.class_names, part.class_names)
        return joined

    def only(self, names: Collection[str]) -> Outputs:
        """Outputs with just the named arrays and the ids; probabilities count as logits."""
        kept = {*names, "ids"} | ({"probabilities"} if "logits" in names else set())
        return self._holding({name: array for name, array in self._given.items() if name in kept})

    def working_copy(self) -> Outputs:
        """Copy that shares no memory with the caller's arrays, in working precision."""
        widened = {k: a if k in ("labels", "ids") else arrays.working(a) for k, a in self._given.items()}
        return self._holding({k: arrays.detached_copy(a) if a is self._given[k] else a for k, a in widened.items()})

    def to_numpy(self) -> Outputs:
        """Copy the same rows to NumPy."""
        return self._holding({name: arrays.to_numpy(array) for name, array in self._given.items()})

    def like(self, other: Outputs) -> Outputs:
        """Put each array into the library and onto the device that ``other`` has it in."""
        there = other._given
        return self._holding({k: arrays.like(a, there[k]) if k in there else a for k, a in self._given.items()})

    def with_temperature(self, temperature: float) -> Outputs:
        """Copy of the outputs with logits divided by ``temperature``, features and the rest as they are."""
        divisor = number("temperature", temperature, least=1e-30, most=1e30)
        others = {k: a for k, a in self._given.items() if k not in ("logits", "probabilities")}
        with arrays.full_precision(self.logits):
            scaled = self.logits / divisor
        if divisor < 1:  # only then can a quotient be too large
            scaled = Outputs(logits=scaled, check_logits=False)._given["logits"]
        out = self._holding({"logits": scaled, **others})
        out._check_logits = False
        return out

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self._given.items())
        return f"Outputs({shapes}; {arrays.library(self._first_array)} {self._first_array.dtype})"


def same_class_names(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Class names of rows that belong together; other names, or another order, are an error."""
    if first is not None and second is not None and first != second:
        cure = ": give the first as class_names (--class-names)" if sorted(first) == sorted(second) else ""
        raise GdscoreError(
            f"Expected rows of the same classes in the same order, but their class names are {shown(first)} and "
            f"{shown(second)}{cure}"
        )
    return first or second
