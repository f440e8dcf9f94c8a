"""`ShiftedSet`: labelled outputs under one shift; how a predictor makes them of labelled inputs; the default shifts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import integer
from gdscore._classes import check_class_names, class_positions, listed_names
from gdscore._stream import progress_bar
from gdscore.errors import GdscoreError, shown
from gdscore.outputs import Outputs
from gdscore.shifts._families import RowShift
from gdscore.shifts.images import Composition, Corruption, compositions, corruptions

_SEVERITIES, _COMPOSITIONS = (2, 4, 6, 8), 40
"""Of the default shifts of images."""
_QUICK_SEVERITIES = (2, 5, 8)
_QUICK = (
    "gaussian_noise",
    "impulse_noise",
    "gaussian_blur",
    "zoom_blur",
    "fog",
    "contrast",
    "elastic_transform",
    "pixelate",
)


@dataclass(frozen=True)
class ShiftedSet:
    """Labelled outputs of a classifier under one shift.

    Attributes
    ----------
    outputs : Outputs
        With labels.
    family : str
        Family of shifts. Sets of one family are left out together when intervals are made; a family named after
        several, joined by ``+``, is left out with each of them.
    rows : integer array, optional
        Which rows of the reference these are shifted copies of; left out where they are rows of their own.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=5 * np.eye(3), labels=np.arange(3))
    >>> gdscore.ShiftedSet(out, family="fog").accuracy
    1.0
    """

    outputs: Outputs
    family: str
    rows: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.outputs, Outputs) or "labels" not in self.outputs.has:
            raise GdscoreError("Expected a `ShiftedSet` of `gdscore.Outputs` with labels, but there are none")
        if not isinstance(self.family, str) or not self.family:
            raise GdscoreError(f"Expected `family` to be a name, but got {self.family!r}")
        if self.rows is not None and np.shape(self.rows) != (len(self.outputs),):
            raise GdscoreError(
                f"Expected `rows` to name a row of the reference for each of {len(self.outputs)} rows, but its shape "
                f"is {np.shape(self.rows)}"
            )

    @property
    def accuracy(self) -> float:
        """True accuracy of the set."""
        return self.outputs.accuracy


def shifted_sets(
    predict: Callable[[Any], Outputs],
    inputs: Any,
    labels: Any,
    shifts: Iterable[Callable[[Any], Any]],
    *,
    batch_size: int = 512,
    progress: bool | None = None,
) -> Iterator[ShiftedSet]:
    """Shifted sets of labelled inputs, one at a time.

    Parameters
    ----------
    predict : callable
        From a batch of inputs to `Outputs`.
    inputs : array, data frame, sparse matrix or list of texts
        Labelled inputs of the reference, rows first.
    labels : integer array
        Their classes.
    shifts : iterable of callables
        From inputs to inputs. The attribute ``family`` names the family of each, otherwise the name of the function.
    batch_size : int
        Inputs given to ``predict`` at once.
    progress : bool, optional
        Progress bar on standard error; by default where that is a terminal.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> x, y = np.arange(6.0)[:, None], np.array([0, 0, 0, 1, 1, 1])
    >>> def predict(x):
    ...     return gdscore.Outputs(logits=np.hstack([0 * x, x - 2.5]))
    >>> def offset(x):
    ...     return x + 1
    >>> [(s.family, round(s.accuracy, 2)) for s in gdscore.shifts.shifted_sets(predict, x, y, [offset])]
    [('offset', 0.83)]
    """
    listed = list(shifts)
    passes = ShiftPasses(InputRows(inputs), Predictions(predict, np.asarray(labels)), listed, batch_size)
    with progress_bar(len(listed) * _length(inputs), progress) as advance:
        yield from passes.shifted_sets(advance)


class InputRows:
    """Inputs of any kind, in batches of rows."""

    def __init__(self, inputs: Any) -> None:
        self._inputs = inputs

    def __len__(self) -> int:
        return _length(self._inputs)

    def batches(self, size: int) -> Iterator[tuple[int, Any]]:
        """Position of the first row, and the rows, ``size`` at a time."""
        for start in range(0, len(self), size):
            yield start, _taken(self._inputs, slice(start, start + size))

    def batches_at_once(self, size: int) -> int:
        """Batches that are shifted at once."""
        return 1

    def selected(self, shift: Any) -> tuple[NDArray[Any], InputRows]:
        """Numbers of the rows that a shift selects, and these rows."""
        rows = np.asarray(shift.rows(self._inputs))
        return rows, InputRows(_taken(self._inputs, rows))

    def shift(self, shift: Any, batch: Any, start: int) -> Any:
        """Shifted batch, whose first row is row ``start`` of its set."""
        return apply_shift(shift, batch, start)


class Predictions:
    """Labelled outputs that a function gives for batches of inputs."""

    def __init__(self, predict: Callable[[Any], Outputs], labels: NDArray[Any]) -> None:
        self._predict, self._labels = predict, labels
        self._parts: list[Outputs] = []

    def run(self, batch: Any, rows: NDArray[Any], shift: Any) -> None:
        """Predict a batch that holds these rows of the reference, after a shift or as they are."""
        try:
            # A copy, as a predictor may use the memory of its outputs for the next batch.
            self._parts.append(_labelled(self._predict, batch, self._labels[rows]).working_copy())
        except (ValueError, TypeError, LookupError) as error:
            if shift is None:
                raise
            raise _refused(shift, error) from error

    def outputs(self) -> Outputs:
        """Outputs of all batches since the last call."""
        parts, self._parts = self._parts, []
        return Outputs.concatenate(parts)


class ShiftPasses:
    """The passes of a predictor over labelled inputs that an estimator is fitted on: images, tables and texts alike.

    ``inputs`` has the methods of `InputRows`, ``predictor`` those of `Predictions`; shifts are callables from inputs to
    inputs, or select rows.
    """

    def __init__(self, inputs: Any, predictor: Any, shifts: Sequence[Any], batch_size: int) -> None:
        self._size = integer("batch_size", batch_size, least=1)
        self.inputs, self.shifts = inputs, list(shifts)
        self.predictor = predictor

    def reference(self) -> Outputs:
        """Labelled outputs of the inputs as they are."""
        rows = np.arange(len(self.inputs))
        for start, x in self.inputs.batches(self._size):
            # A copy, as a predictor may scale its inputs in place, and they are shifted after this.
            self.predictor.run(_copied(x), rows[start : start + self._size], None)
        outputs: Outputs = self.predictor.outputs()
        return outputs

    def shifted_sets(self, advance: Callable[[int], None], only: slice = slice(None)) -> Iterator[ShiftedSet]:
        """Shifted sets in the order of the shifts, or of some of them; ``advance`` gets the number of rows done."""
        for shift, family in list(zip(self.shifts, named_families(self.shifts), strict=True))[only]:
            selects = getattr(shift, "selects_rows", False)
            rows, inputs = self.inputs.selected(shift) if selects else (np.arange(len(self.inputs)), self.inputs)
            if not len(rows):
                raise GdscoreError(f"Expected {shift!r} to select rows of the reference, but it selects none")
            ours = isinstance(shift, (Corruption, Composition))
            at_once = self._size * (inputs.batches_at_once(self._size) if ours else 1)
            for start, x in inputs.batches(at_once):
                shifted, batch_rows = x if selects else inputs.shift(shift, x, start), rows[start : start + at_once]
                for first in range(0, len(batch_rows), self._size):
                    part = slice(first, first + self._size)
                    self.predictor.run(shifted[part] if ours else shifted, batch_rows[part], None if selects else shift)
                    advance(len(batch_rows[part]))
            yield ShiftedSet(self.predictor.outputs(), family, rows)


def _labelled(predict: Callable[[Any], Outputs], batch: Any, labels: Any) -> Outputs:
    outputs = predict(batch)
    if not isinstance(outputs, Outputs):
        raise GdscoreError(
            "Expected `predict` to return `gdscore.Outputs`, an array of probabilities of shape (m, K) or an output "
            f"with `logits`, but got {type(outputs).__name__}"
        )
    if len(outputs) != len(labels):
        one_column = hasattr(batch, "columns") and len(batch.columns) == 1
        column = ": for a model of texts give the column, not the data frame" if one_column else ""
        raise GdscoreError(
            f"Expected `predict` to return a row for each of {len(labels)} inputs, but got {len(outputs)}{column}"
        )
    return outputs.with_arrays(labels=labels)


def _refused(shift: Any, error: Exception) -> GdscoreError:
    answer = str(error) if isinstance(error, GdscoreError) else f"{type(error).__name__}: {error}"
    severity, cure = "", "A shift has to return as many rows as it gets, as the model takes them"
    if hasattr(shift, "severity"):
        severity = f" of severity {shift.severity}"
        cure = (
            "Give columns of codes the type of categories, or `shifts` without this family "
            "(gdscore.shifts.default_shifts lists them)"
        )
    return GdscoreError(
        f"Expected the model to take shifted inputs too, but under the shift {named_families([shift])[0]!r}{severity} "
        f"it failed: {answer.rstrip('.:')}. {cure}"
    )


def apply_shift(shift: Any, batch: Any, start: int) -> Any:
    """Shifted batch, whose first row is row ``start`` of its set."""
    # Seeded shifts take the number of the first row, so that batches do not repeat each other's draws.
    try:
        takes_start = "start" in inspect.signature(shift).parameters
    except (TypeError, ValueError):
        takes_start = False
    if not isinstance(shift, (Corruption, Composition, RowShift)):
        # Functions of the caller's own may change what they get, which is the reference.
        batch = _copied(batch)
    return shift(batch, start=start) if takes_start else shift(batch)


def _copied(batch: Any) -> Any:
    """Copy of a batch; a tensor's without the graph it was computed by, which cannot be copied."""
    return batch.detach().clone() if hasattr(batch, "detach") else deepcopy(batch)


def named_families(shifts: Sequence[Any]) -> list[str]:
    """Family of each shift: its ``family``, the name of its function, or a number where it has no name."""
    names = []
    for number, shift in enumerate(shifts, start=1):
        named = shift.func if isinstance(shift, partial) and not hasattr(shift, "family") else shift
        name = str(getattr(named, "family", getattr(named, "__name__", type(named).__name__)))
        names.append(f"shift {number}" if name == "<lambda>" else name)
    return names


def checked_shifts(shifts: Iterable[Any]) -> list[Callable[[Any], Any]]:
    """Shifts as a list, or an error."""
    if not isinstance(shifts, Iterable):
        raise GdscoreError(f"Expected `shifts` to be a list of callables, but got {type(shifts).__name__}")
    listed = list(shifts)
    if not listed:
        raise GdscoreError("Expected `shifts` to hold callables, but it is empty: leave it out for the default shifts")
    for shift in listed:
        if not callable(shift) and not getattr(shift, "selects_rows", False):
            raise GdscoreError(f"Expected `shifts` to be callables from inputs to inputs, but got {shift!r}")
    return listed


def as_predictor(
    predict: Any, inputs: Any, labels: Any, class_names: Any = None
) -> tuple[Callable[[Any], Outputs], NDArray[Any]]:
    """A function from inputs to `Outputs`, and the labels as numbers of classes, or names where these are given."""
    class_names = listed_names(class_names)
    y = arrays.to_numpy(labels) if arrays.is_array(labels) else np.asarray(labels)
    if y.ndim != 1 or len(y) != _length(inputs) or not len(y):
        cure = ": give np.ravel(labels)" if y.shape == (_length(inputs), 1) else ""
        raise GdscoreError(
            f"Expected one label for each of {_length(inputs)} inputs, but got an array of shape {y.shape}{cure}"
        )
    if hasattr(predict, "predict_proba") or (hasattr(predict, "predict") and not callable(predict)):
        from gdscore.sklearn import Predictor

        if class_names is not None:
            raise GdscoreError(
                "Expected `class_names` with a function, but got a classifier, which names its classes itself "
                "(classes_): leave it out"
            )
        function = Predictor(predict)
        return function, function.positions(y)
    if not callable(predict):
        raise GdscoreError(
            "Expected `predict` to be a function from inputs to outputs or a fitted scikit-learn classifier, but got "
            f"{type(predict).__name__}"
        )

    def outputs(batch: Any) -> Outputs:
        result = predict(batch)
        if arrays.is_numpy(result) and result.dtype.kind in "iubUO":
            raise GdscoreError(
                f"Expected `predict` to return probabilities, but got {result.dtype} of shape {result.shape}, as of "
                "classes: give the classifier, or its predict_proba"
            )
        if not isinstance(result, Outputs):
            logits = result.get("logits") if isinstance(result, Mapping) else getattr(result, "logits", None)
            if arrays.is_array(logits):  # a Hugging Face output
                result = Outputs(logits=logits)
            elif arrays.is_array(result):
                result = Outputs(probabilities=result)
        if class_names is not None and isinstance(result, Outputs):
            result = result.with_class_names(class_names)
        return result  # type: ignore[no-any-return]

    if y.dtype.kind in "OSUT":
        if class_names is None:
            raise GdscoreError(
                f"Expected `labels` to be classes 0 … K−1, but got {shown(str(y[0]))}: pass class_names= in the "
                "order of the model's outputs"
            )
        names = check_class_names(class_names, len(class_names))
        y = class_positions(y.astype(str), names, len(names))
    return outputs, y


def parts_of(family: str) -> frozenset[str]:
    """Families that a family is made of.

    Examples
    --------
    >>> sorted(parts_of("fog+gaussian_blur"))
    ['fog', 'gaussian_blur']
    """
    return frozenset(part for part in family.split("+") if part) or frozenset({family})


def _length(inputs: Any) -> int:
    """Number of rows."""
    if hasattr(inputs, "shape"):
        return int(inputs.shape[0])
    return len(inputs)


def _taken(inputs: Any, rows: slice | NDArray[Any]) -> Any:
    """InputRows by slice or index array, as the same kind of inputs."""
    if hasattr(inputs, "iloc"):
        return inputs.iloc[rows]
    if hasattr(inputs, "tocsr"):
        # Several sparse formats cannot be indexed.
        return inputs.tocsr()[rows].asformat(inputs.format)
    if hasattr(inputs, "combine_chunks") and not isinstance(rows, slice):
        # Tables of Arrow take positions by a method of their own.
        return inputs.take(rows)
    if isinstance(inputs, (list, tuple)) and not isinstance(rows, slice):
        return [inputs[i] for i in rows]
    return inputs[rows]


def default_shifts(inputs: Any, *, time: Any = None, seed: int = 0) -> list[Any]:
    """Shifts for images, tables or texts.

    Images: the 19 corruptions at four severities and 40 compositions of them. Tables and texts: all families at four
    severities (`table_shifts`, `text_shifts`). The same on every device.

    Parameters
    ----------
    inputs : array, data frame, sparse matrix or list of texts
        Inputs of the reference; images are N×C×H×W.
    time : array of shape (N,), optional
        Time of each row of a table: periods of the reference become shifted sets too.
    seed : int
        Seed of random shifts.

    Examples
    --------
    >>> import numpy as np
    >>> from gdscore.shifts import default_shifts
    >>> len(default_shifts(np.zeros((10, 3, 32, 32)))), default_shifts(["a good book", "a bad one"])[0].family
    (116, 'dropout')
    """
    kind = _kind_of(inputs)
    if time is not None and kind != "table":
        raise GdscoreError(f"Expected `time` with a table only, but `inputs` are of the kind {kind}: leave it out")
    if kind == "images":
        return [*corruptions(_SEVERITIES, seed=seed), *compositions(_COMPOSITIONS, seed=seed)]
    if kind == "text":
        from gdscore.shifts.text import text_shifts

        return list(text_shifts(inputs, seed=seed))
    from gdscore.shifts.tables import table_shifts

    return list(table_shifts(inputs, time=time, seed=seed))


def quick_shifts(*, seed: int = 0) -> list[Corruption]:
    """Shifts of images for a quick fit: eight corruptions at three severities, a fifth of the default ones.

    Examples
    --------
    >>> from gdscore.shifts import quick_shifts
    >>> len(quick_shifts()), quick_shifts()[0].family
    (24, 'gaussian_noise')
    """
    return corruptions(_QUICK_SEVERITIES, _QUICK, seed=seed)


def _kind_of(inputs: Any) -> str:
    """``images``, ``table`` or ``text``, whose default shifts can be used; an error for anything else."""
    if hasattr(inputs, "ndim") and hasattr(inputs, "shape") and len(inputs.shape) == 4:
        return "images"
    if _is_text(inputs):
        return "text"
    two = hasattr(inputs, "shape") and len(inputs.shape) == 2
    if two and (
        arrays.is_array(inputs) or hasattr(inputs, "columns") or hasattr(inputs, "tocsr") or hasattr(inputs, "schema")
    ):
        return "table"
    raise GdscoreError(
        "Expected images of shape (N, C, H, W), a table (2-D array, data frame or sparse matrix) or a list of texts, "
        f"but got {_described(inputs)}"
    )


def _described(inputs: Any) -> str:
    """What came instead, and what to do with it."""
    name = type(inputs).__name__
    if hasattr(inputs, "collect"):
        return f"{name}: call .collect() on it first"
    if isinstance(inputs, np.matrix):
        return f"{name}: give np.asarray(inputs)"
    if isinstance(inputs, str):
        return f"{name}: give [text, …]"
    if hasattr(inputs, "to_pylist"):
        return f"{name}: give inputs.to_pylist()"
    if isinstance(inputs, (list, tuple)) and len(inputs):
        name = f"{name} of {type(inputs[0]).__name__}"
        if isinstance(inputs[0], (list, tuple, np.ndarray)):
            return f"{name}: give np.array(inputs)"
    shape = tuple(inputs.shape) if hasattr(inputs, "shape") else None
    if shape is not None and len(shape) == 1:
        return f"{name} of shape {shape}: a table of one column has two dimensions, as inputs.reshape(-1, 1) gives"
    came = name if shape is None else f"{name} of shape {shape}"
    return f"{came}: for other inputs give `shifts`, callables from inputs to inputs"


def _is_text(inputs: Any) -> bool:
    """Whether there is a text among the first; `text_shifts` refuses rows that are missing or something else."""
    if isinstance(inputs, (str, bytes)):
        return False
    if isinstance(inputs, Sequence) and not hasattr(inputs, "shape"):
        first: Any = inputs[:100]
    elif hasattr(inputs, "shape") and len(inputs.shape) == 1:
        first = list(inputs.iloc[:100] if hasattr(inputs, "iloc") else inputs[:100])
    else:
        return False
    return any(isinstance(value, str) for value in first)
