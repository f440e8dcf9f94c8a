"""`Outputs`: the logits, features and labels of some rows, checked on construction, and what is derived from them.

Requirements met here:

- wrong arrays are an error on construction that names the row, the column or the shape;
- softmax, predictions, confidence and entropy are computed once, when first asked for, and shared by all readers;
- slicing costs nothing, so that data of any size is worked through in small pieces.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._checks import (
    MATRICES,
    OUTPUT_ARRAYS,
    PER_CLASS,
    boolean,
    check_outputs,
    check_values,
    number,
    row_checks,
)
from gdscore._classes import ClassLabels, check_class_names, class_positions, list_of, listed_names
from gdscore._hashing import id_words, label_hash, row_key, value_words
from gdscore._softmax import Softmax, above_threshold, log_probabilities, softmax
from gdscore.errors import GdscoreError, shown

__all__ = [
    "ARGMAX",
    "Outputs",
    "checked_threshold",
    "how_to_get",
    "is_decision",
    "same_class_names",
    "same_decision",
    "threshold_of",
]

ARGMAX, GIVEN, _THRESHOLD = "argmax", "given", "threshold "
"""What `Outputs.decision` begins with."""


class Outputs:
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
    inputs : array of shape (m, V), optional
        What entered the model, as numbers: encoded columns of a table, or what `from_sklearn` gives of trees. Evidence
        for an estimator where a model has no features; no score reads it.
    predictions : integer array of shape (m,), optional
        Classes that the model decided, as ``labels``, where they are not those of the largest logits. ``confidence`` is
        then the probability of the decided class, which may be below 1/K.
    threshold : float, optional
        Of a binary model that decides for class 1 where its probability is at least this; instead of ``predictions``.
    labels : integer array of shape (m,), optional
        True classes, 0 … K−1 in the order of the columns; also whole floating-point numbers, or strings that are
        among ``class_names``. Numbers are refused where classes are named by other numbers than their positions, as
        they could be names: see `with_class_names`.
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
    >>> alarm = Outputs(probabilities=np.array([0.05, 0.2, 0.7]), labels=np.array([0, 1, 1]), threshold=0.1)
    >>> alarm.predictions.tolist(), alarm.confidence.round(3).tolist(), alarm.accuracy, alarm.decision
    ([0, 1, 1], [0.95, 0.2, 0.7], 1.0, 'threshold 0.1')
    """

    def __init__(
        self,
        *,
        logits: Array | None = None,
        probabilities: Array | None = None,
        features: Array | None = None,
        inputs: Array | None = None,
        predictions: Array | None = None,
        threshold: float | None = None,
        labels: Array | None = None,
        peer_logits: Array | None = None,
        batch_logits: Array | None = None,
        rotation_logits: Array | None = None,
        ids: Array | None = None,
        class_names: Sequence[str] | None = None,
        check_logits: bool = True,
    ) -> None:
        self._check_logits = boolean("check_logits", check_logits)
        class_names = listed_names(class_names)
        named = tuple(name for name in list_of(class_names) or () if isinstance(name, str))
        classes = {"predictions": predictions, "labels": labels}
        text = {name for name, x in classes.items() if x is not None and named and _is_text(x)}
        classes |= {name: class_positions(np.asarray(classes[name]), named, None, name) for name in text}
        if predictions is not None and threshold is not None:
            raise GdscoreError(
                "Expected `predictions` or `threshold`, but got both: a threshold makes predictions of probabilities"
            )
        self._held = check_outputs(
            {
                "logits": logits,
                "probabilities": probabilities,
                "features": features,
                "inputs": inputs,
                "peer_logits": peer_logits,
                "batch_logits": batch_logits,
                "rotation_logits": rotation_logits,
                **classes,
                "ids": ids,
            },
            self._check_logits,
        )
        self._class_names = None if class_names is None else check_class_names(class_names, self.n_classes)
        for name, x in classes.items():
            if x is not None and name not in text and not ClassLabels(named, None).integers_are_positions:
                raise GdscoreError(
                    f"Expected {name} that can be read in one way, but got numbers for classes that are named by "
                    f"numbers, {shown(named)}: give names as strings, {name}.astype(str), or positions with "
                    "Outputs(…).with_class_names(names)"
                )
        self._threshold: float | None = None
        if threshold is not None:
            self._threshold = checked_threshold(threshold)
            self._held = _in_order({**self._held, "predictions": self._decided(self._threshold)})

    def _holding(self, held: Mapping[str, Array]) -> Outputs:
        """Outputs of the same classes that hold other arrays, which need no check."""
        out = Outputs.__new__(Outputs)
        out._held, out._class_names, out._check_logits = dict(held), self._class_names, self._check_logits
        out._threshold = self._threshold
        return out

    def _decided(self, threshold: float) -> Array:
        """Class of each row by a threshold on the probability of the second of two classes."""
        if self.n_classes != 2:
            came = "no probabilities" if self.n_classes is None else f"{self.n_classes} classes"
            raise GdscoreError(
                f"Expected two classes with `threshold`, the least probability of class 1 that decides for it, but got "
                f"{came}: give the decided classes as `predictions`"
            )
        if "probabilities" in self._held:
            # As given, as scikit-learn compares them; logarithms of them would be rounded.
            above = self._held["probabilities"][:, 1] >= threshold
        else:
            precision = float(namespace(self.logits).finfo(self._held["logits"].dtype).eps)
            above = above_threshold(self.logits, threshold, precision)
        xp = namespace(above)
        return xp.astype(above, xp.int32 if arrays.is_jax(above) else xp.int64)

    def __len__(self) -> int:
        return int(self._first_array.shape[0])

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self._held.items())
        return f"Outputs({shapes}; {arrays.library(self._first_array)} {self._first_array.dtype})"

    # -- what was given -----------------------------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays as given, by name."""
        return self._held

    @property
    def _first_array(self) -> Array:
        return next(iter(self._held.values()))

    @property
    def has(self) -> frozenset[str]:
        """Names of what a score can ask for: ``logits`` also where probabilities were given."""
        return frozenset({*self._held, "logits"} if "probabilities" in self._held else self._held)

    def _get(self, name: str) -> Array:
        if name not in self._held:
            raise GdscoreError(
                f"Expected `Outputs` with `{name}`, but these hold only {', '.join(self._held)}. {how_to_get([name])}"
            )
        return self._held[name]

    @property
    def n_classes(self) -> int | None:
        """K, or None where neither logits nor probabilities are held."""
        for name in PER_CLASS:
            if name in self._held:
                return int(self._held[name].shape[1])
        return None

    @property
    def n_features(self) -> int | None:
        """D, or None without features."""
        return int(self._held["features"].shape[1]) if "features" in self._held else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, or None where they were not given."""
        return self._class_names

    @property
    def decision(self) -> str:
        """How rows were decided: ``"argmax"``, ``"given"`` as predictions, or by a threshold as ``"threshold 0.1"``.

        Predictions that were given count as given also where all of them are those of the largest logits.
        """
        if "predictions" not in self._held:
            return ARGMAX
        return GIVEN if self._threshold is None else f"{_THRESHOLD}{self._threshold!r}"

    @property
    def threshold(self) -> float | None:
        """Least probability of class 1 of a binary model that decides for it; None where there is no threshold."""
        return self._threshold if "predictions" in self._held else None

    @property
    def labels(self) -> Array:
        """True classes, as given."""
        return self._get("labels")

    @property
    def peer_logits(self) -> Array:
        """Logits of the second model, as given."""
        return self._get("peer_logits")

    @property
    def batch_logits(self) -> Array:
        """Logits by the statistics of each batch, as given."""
        return self._get("batch_logits")

    @property
    def rotation_logits(self) -> Array:
        """Logits of the rotation head, as given."""
        return self._get("rotation_logits")

    @property
    def ids(self) -> Array:
        """Names of the rows, as given."""
        return self._get("ids")

    # -- derived when first asked for ---------------------------------------------------------------------

    @cached_property
    def logits(self) -> Array:
        """Logits Z in working precision; log-probabilities where probabilities were given."""
        if "probabilities" not in self._held:
            return arrays.working(self._get("logits"))
        return log_probabilities(arrays.working(self._held["probabilities"]))

    @cached_property
    def features(self) -> Array:
        """Features X in working precision."""
        return arrays.working(self._get("features"))

    @cached_property
    def inputs(self) -> Array:
        """Inputs of the model as numbers, in working precision."""
        return arrays.working(self._get("inputs"))

    @cached_property
    def _softmax(self) -> Softmax:
        return softmax(self.logits)

    @property
    def probabilities(self) -> Array:
        """S = softmax(Z), shape (m, K)."""
        return self._softmax.probabilities

    @cached_property
    def predictions(self) -> Array:
        """ŷ, the decided class of each row: given, by threshold, or argmax of the logits, the first of equals."""
        if "predictions" not in self._held:
            return self._softmax.top
        # Where reading values would wait, those out of range are reported later, and must not be used as an index.
        decided, last = self._held["predictions"], int(self.n_classes or 1) - 1
        return decided if arrays.on_host(decided) else namespace(decided).clip(decided, 0, last)

    @cached_property
    def is_top(self) -> Array:
        """Whether the decided class of each row is that of the largest logit."""
        return self.predictions == self._softmax.top

    @cached_property
    def confidence(self) -> Array:
        """c, the probability of the decided class of each row."""
        if self.decision == ARGMAX:
            return self._softmax.confidence()
        return arrays.pick(self.probabilities, self.predictions)

    @cached_property
    def one_minus_confidence(self) -> Array:
        """1 − c with full relative precision, also where c rounds to 1."""
        of_top = self._softmax.one_minus_confidence()
        # Any other class has at most ½, so that the difference keeps its digits.
        return (
            of_top if self.decision == ARGMAX else namespace(of_top).where(self.is_top, of_top, 1.0 - self.confidence)
        )

    @cached_property
    def logsumexp(self) -> Array:
        """Ln Σ exp(Z) of each row."""
        return self._softmax.logsumexp()

    @cached_property
    def entropy(self) -> Array:
        """H = −Σ S ln S of each row, with full relative precision near 0."""
        return self._softmax.entropy()

    @cached_property
    def correct(self) -> Array:
        """Whether the decided class of each row is its label."""
        return self.predictions == self.labels

    @property
    def accuracy(self) -> float:
        """Share of rows predicted correctly."""
        return float(arrays.to_numpy(self.correct).mean())

    @cached_property
    def _key(self) -> tuple[Array, Array]:
        if "ids" in self._held:
            first, second = row_key(id_words(self._held["ids"]))
            return arrays.like(first, self._first_array), arrays.like(second, self._first_array)
        return row_key(value_words(self._get("probabilities" if "probabilities" in self._held else "logits")))

    def row_keys(self) -> tuple[Array, Array]:
        """Two int32 hashes of each row: of its id, otherwise of the float32 bits of its logits."""
        return self._key

    def random_labels(self, seed: int) -> Array:
        """Label of each row drawn uniformly by the hash of ``seed`` and that row alone."""
        if self.n_classes is None:
            self._get("logits")
        return label_hash(self._key[0], seed, int(self.n_classes or 0))

    @cached_property
    def valid(self) -> Array | None:
        """0-d flag on an accelerator that all values can be used; None on the host, checked on construction."""
        if arrays.on_host(self._first_array):
            return None
        with np.errstate(all="ignore"):
            flags = [check.ok() for check in row_checks(self._held, self._check_logits)]
        return namespace(flags[0]).all(namespace(flags[0]).stack(flags))

    def check_values(self) -> None:
        """Refuse values that cannot be used; those on an accelerator, which construction does not wait for, too."""
        if self.valid is not None and not bool(self.valid):
            check_values(dict(self._held), self._check_logits)

    @cached_property
    def _marks(self) -> dict[int, Array]:
        return {}

    def mark_invalid(self, number: int) -> Array | None:
        """``number`` where values cannot be used, else 2³¹ − 1, left on the accelerator; None on the host."""
        if self.valid is not None and number not in self._marks:
            self._marks[number] = namespace(self.valid).where(self.valid, 2**31 - 1, number)
        return self._marks.get(number)

    # -- rows -----------------------------------------------------------------------------------------------

    def __getitem__(self, rows: slice | Array) -> Outputs:
        """Rows by slice, index array or mask; an empty selection is an error."""
        picked = _checked_rows(rows, len(self))
        # Ids may live elsewhere than the other arrays, so each gets the selection where it lives.
        chosen = self._holding(
            {k: a[picked if isinstance(picked, slice) else arrays.like(picked, a)] for k, a in self._held.items()}
        )
        if not len(chosen):
            raise GdscoreError(f"Expected at least one row, but {rows!r} selects none of {len(self)} rows")
        return chosen

    @staticmethod
    def concatenate(parts: Iterable[Outputs]) -> Outputs:
        """Rows of several outputs, one after the other; all must hold the same arrays, classes and decision."""
        parts = list(parts)
        if not parts:
            raise GdscoreError("Expected at least one `Outputs` to concatenate, but got none")
        for part in parts:
            if not isinstance(part, Outputs):
                raise GdscoreError(f"Expected `gdscore.Outputs` to concatenate, but got {type(part).__name__}")
        first = parts[0]
        for part in parts[1:]:
            same_decision(first.decision, part.decision)
            if part.arrays.keys() != first.arrays.keys():
                raise GdscoreError(
                    f"Expected all parts to hold {sorted(first.arrays)}, but one holds {sorted(part.arrays)}"
                )
            for name, array in first.arrays.items():
                if part.arrays[name].shape[1:] != array.shape[1:]:
                    raise GdscoreError(
                        f"Expected `{name}` of all parts to have {array.shape[1]} columns, as in the first, but one "
                        f"has {part.arrays[name].shape[1]}"
                    )
        if len(parts) == 1:
            return first
        joined = first._holding({name: arrays.concatenate([p._held[name] for p in parts]) for name in first._held})
        for part in parts:
            joined._class_names = same_class_names(joined.class_names, part.class_names)
        return joined

    def only(self, names: Collection[str]) -> Outputs:
        """Outputs with just the named arrays and the ids; probabilities and predictions belong to the logits."""
        kept = {*names, "ids"} | ({"probabilities", "predictions"} if "logits" in names else set())
        return self._holding({name: array for name, array in self._held.items() if name in kept})

    def working_copy(self) -> Outputs:
        """Copy that shares no memory with the caller's arrays, in working precision."""
        widened = {k: arrays.working(a) if k in MATRICES else a for k, a in self._held.items()}
        return self._holding({k: arrays.detached_copy(a) if a is self._held[k] else a for k, a in widened.items()})

    def to_numpy(self) -> Outputs:
        """Copy the same rows to NumPy."""
        return self._holding({name: arrays.to_numpy(array) for name, array in self._held.items()})

    def with_class_names(self, class_names: Sequence[str] | None) -> Outputs:
        """Copy of the outputs with other names of the classes; labels stay the positions that they are."""
        named = self._holding(self._held)
        named._class_names = None if class_names is None else check_class_names(class_names, self.n_classes)
        return named

    def with_arrays(self, **more: Array) -> Outputs:
        """Copy of the outputs with more arrays, or others in place of those of the same names; all are checked."""
        made = self._holding(check_outputs(_in_order({**self._held, **more}), self._check_logits))
        made._threshold = None if "predictions" in more else self._threshold
        return made

    def with_decision(self, decision: str) -> Outputs:
        """Copy whose predictions count as made by a threshold, as was noted beside them."""
        decided = self._holding(self._held)
        decided._threshold = threshold_of(decision)
        if decided.decision != decision:
            raise GdscoreError(f"Expected rows decided by {decision}, but got {decided.decision}: the data are damaged")
        return decided

    def like(self, other: Outputs) -> Outputs:
        """Put each array into the library and onto the device that ``other`` has it in."""
        return self._holding(
            {name: arrays.like(a, other._held[name]) if name in other._held else a for name, a in self._held.items()}
        )

    def with_temperature(self, temperature: float) -> Outputs:
        """Copy of the outputs with logits divided by ``temperature``, features, decisions and the rest as they are."""
        divisor = number("temperature", temperature, least=1e-30, most=1e30)
        others = {k: a for k, a in self._held.items() if k not in ("logits", "probabilities")}
        with arrays.full_precision(self.logits):
            scaled = self.logits / divisor
        if divisor < 1:  # only then can a quotient be too large
            scaled = Outputs(logits=scaled, check_logits=False)._held["logits"]
        out = self._holding({"logits": scaled, **others})
        out._check_logits = False
        return out


def _checked_rows(rows: Any, length: int) -> slice | Array:
    """Slice or row numbers that fit; anything else is refused."""
    expected = f"Expected a slice, an index array or a mask of {length} rows, but got {shown(rows)}"
    if isinstance(rows, tuple):
        raise GdscoreError(f"{expected}: several rows are out[[0, 1]], columns have no index")
    try:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(length)
            # torch has no backward slices
            return slice(start, stop, step) if step > 0 else np.arange(start, stop, step)
        host = arrays.to_numpy(rows) if arrays.is_array(rows) else np.asarray(rows)
        picked = np.arange(length)[host if host.size else host.astype(np.int64)]
    except (IndexError, TypeError, ValueError) as error:
        raise GdscoreError(f"{expected}: {error}") from None
    if picked.ndim != 1:
        raise GdscoreError(expected + ("" if picked.ndim else f": use out[{rows}:{rows + 1}]"))
    # Row numbers on an accelerator stay there; torch would take 8-bit numbers for a mask.
    return rows if arrays.is_torch(rows) and str(rows.dtype) in ("torch.int32", "torch.int64") else picked


def _in_order(held: Mapping[str, Array]) -> dict[str, Array]:
    return {name: held[name] for name in OUTPUT_ARRAYS if name in held}


def checked_threshold(threshold: Any) -> float:
    """Threshold between 0 and 1 as a number; anything else is refused."""
    if isinstance(threshold, numbers.Real) and 1 < float(threshold) < 100:
        raise GdscoreError(
            f"Expected `threshold` to be a probability between 0 and 1, but got {shown(threshold)}: is it a percentage?"
        )
    return number("threshold", threshold, above=0, below=1)


def threshold_of(decision: str) -> float | None:
    """Threshold that `Outputs.decision` names; None where it names none."""
    return float(decision.removeprefix(_THRESHOLD)) if decision.startswith(_THRESHOLD) else None


def is_decision(decision: str, classes: int) -> bool:
    """Whether it is what `Outputs.decision` can be for so many classes."""
    if decision in (ARGMAX, GIVEN):
        return True
    try:
        threshold = threshold_of(decision)
    except ValueError:
        return False
    return classes == 2 and threshold is not None and 0 < threshold < 1


def _is_text(labels: Any) -> bool:
    if not arrays.is_numpy(labels) or labels.ndim != 1:
        return False
    return labels.dtype.kind == "U" or (labels.dtype.kind in "OT" and all(isinstance(x, str) for x in labels.tolist()))


def how_to_get(names: Iterable[str]) -> str:
    """One sentence for each array on where it comes from."""
    return " ".join(f"`{name}`: {OUTPUT_ARRAYS[name].how_to_get}." for name in names if name in OUTPUT_ARRAYS)


def same_class_names(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Class names of rows that belong together; other names, or another order, are an error."""
    if first is not None and second is not None and first != second:
        cure = ": give the first as class_names (--class-names)" if sorted(first) == sorted(second) else ""
        raise GdscoreError(
            f"Expected rows of the same classes in the same order, but their class names are {shown(first)} and "
            f"{shown(second)}{cure}"
        )
    return first or second


def same_decision(expected: str, decision: str, where: str = "the rows before") -> None:
    """Refuse rows that were decided in another way than others they belong to."""
    if expected != decision:
        cure = "give `predictions` or `threshold` (--prediction, --threshold) with all of them or with none"
        raise GdscoreError(
            f"Expected rows decided as in {where}, by {_worded(expected)}, but these are decided by "
            f"{_worded(decision)}: {cure}"
        )


def _worded(decision: str) -> str:
    return {ARGMAX: "the largest probability (argmax)", GIVEN: "predictions that were given"}.get(decision, decision)
