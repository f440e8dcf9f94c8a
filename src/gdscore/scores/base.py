"""`Score`: one number for a set of rows, from a stream, in constant memory.

A method is written as three small steps over NumPy-like arrays: `measure` turns a chunk of rows into statistics,
`combine` adds two statistics up, `result` makes a number of them. `Method` has these steps and takes them for every
chunk. Everything else is done here for all methods:

- states merge, can be saved as plain arrays and numbers, and are refused where options, fits or arrays differ;
- a number that is not finite never leaves a score: `finish` refuses it, and `compute` goes through `finish`.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._arrays import Array
from gdscore._stream import kind_of
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.outputs import Outputs, how_to_get
from gdscore.scores._state import Layout, SavedScore, check_restored, counts_of, refuse_damaged
from gdscore.scores.method import Method
from gdscore.scores.together import fit_together

__all__ = ["Score", "Stats"]

Stats: TypeAlias = dict[str, Array]
HostStats: TypeAlias = dict[str, NDArray[Any]]


class Score(Method):
    """Base class of all scores; subclasses override the methods of the first part of `Method`.

    Attributes
    ----------
    name : str
        Name in the registry.
    formula : str
        What the number is, in one line of plain text.
    inputs : frozenset of str
        Arrays that the `Outputs` given to `update` must hold.
    reference_inputs : frozenset of str
        Arrays that the reference given to `fit` must hold; empty where no reference is needed.
    learned : dict of str
        Attributes that `fit` sets, whose names end in ``_``, each with a letter for each of its axes: K for classes, D
        for features, others for any length.
    higher_is_better : bool
        Whether the number rises with accuracy. May depend on the options of the instance.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> z = np.random.default_rng(0).normal(size=(300, 4))
    >>> first, second = (gdscore.create_score("confscore").update(gdscore.Outputs(logits=part)) for part in (z, 2 * z))
    >>> first.merge(second).n_rows, second.n_rows
    (600, 300)
    >>> round(first.compute(), 4)
    0.5849
    """

    def __init__(self) -> None:
        self.reference_shape: dict[str, int | None] = {}
        self.reset()

    @property
    def needs(self) -> frozenset[str]:
        """Everything the caller must have: arrays of the outputs, ``reference`` and ``reference_labels``."""
        reference = {"reference"} if self.reference_inputs else set()
        return self.inputs | reference | ({"reference_labels"} if "labels" in self.reference_inputs else set())

    @property
    def options(self) -> dict[str, Any]:
        """Options by name, as the constructor was given them."""
        return {name: getattr(self, name) for name in option_names(type(self))}

    @property
    def fitted(self) -> bool:
        """Whether the score has the reference it needs."""
        return all(hasattr(self, name) for name in self.learned)

    @property
    def n_classes(self) -> int:
        """Classes K of the rows seen; an error before the first."""
        return self._seen("n_classes")

    @property
    def n_features(self) -> int:
        """Features D of the rows seen; an error before the first."""
        return self._seen("n_features")

    def _seen(self, what: str) -> int:
        value = self._counts.get(what)
        if value is None:
            raise GdscoreError(f"Expected `{self.name}` to have seen rows with {what}, but it has not")
        return value

    def reset(self) -> Score:
        """Forget all rows; options and fit stay."""
        self._forget_rows()
        self._layout: Layout | None = None
        return self

    @property
    def _counts(self) -> Mapping[str, int | None]:
        return self._layout.counts if self._layout else {}

    def fit(self, reference: Outputs | Iterable[Outputs]) -> Score:
        """Learn from the reference, where the score needs one; forgets all rows."""
        failure = fit_together([self], reference).get(self.name)
        if failure:
            raise GdscoreError(failure)
        return self

    def update(self, outputs: Outputs) -> Score:
        """Take in more rows."""
        self.check_rows(outputs)
        for chunk in self._pending.push(outputs.only(self.inputs)):
            self.add_chunk(chunk)
        return self

    def compute(self) -> float:
        """Return the number for all rows seen, with a warning where it needs one; the state stays as it is."""
        value = self.finish(self.statistics())
        message = self.warning()
        if message:
            warnings.warn(f"{self.name}: {message}", GdscoreWarning, stacklevel=2)
        return value

    def finish(self, stats: HostStats) -> float:
        """Return the number that `statistics` give, without warnings; one that is not finite is an error."""
        try:
            with np.errstate(all="ignore"):
                value = float(self.result(stats))
        except (np.linalg.LinAlgError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise GdscoreError(self.overflow_message())
        return value

    def overflow_message(self) -> str:
        """Error for numbers that are finite, but too large for the sums and products of the score."""
        named = "` or `".join(sorted(self.inputs - {"labels"}))
        return (
            f"`{self.name}` cannot be computed: values of `{named}` are so large that sums or products of them "
            "overflow; look for exploding activations, or divide the values by a constant in reference and target"
        )

    def merge(self, other: Score) -> Score:
        """Take in the rows another score of the same options and fit has seen; ``other`` stays as it is."""
        self._check_mergeable(other)
        if other._layout is not None:
            self._layout = other._layout.joined(self._layout)
        if other.n_rows:
            self._merge_rows(other)
        return self

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and learned, as a flat dict of NumPy arrays, numbers and strings."""
        parts: dict[str, Mapping[str, Any]] = {
            "shape": self._counts,
            "reference_shape": self.reference_shape,
            "learned": {key: getattr(self, key) for key in self.learned if self.fitted},
            "stats": {key: arrays.to_numpy(value) for key, value in (self._stats or {}).items()},
            **{label: rows.to_numpy().arrays for label, rows in self._kept_rows().items() if rows is not None},
        }
        names = self._layout.arrays if self._layout else frozenset()
        saved = SavedScore(
            self.name, self.options, self._counted, self._chunks, self._first_invalid(), frozenset(names), parts
        )
        return saved.flat()

    def load_state_dict(self, state: Mapping[str, Any]) -> Score:
        """Go on from a saved state of the same name and options; nothing changes when it is another."""
        saved = SavedScore.read(state)
        saved.check_belongs_to(self.name, self.options, self.learned)
        parts = saved.parts
        with refuse_damaged():
            kept = {k: Outputs(**v, check_logits=False) for k, v in parts.items() if k in ("pending", "pool")}
            layout = Layout(saved.arrays, dict(parts["shape"])) if saved.arrays else None
            learned, stats = saved.numbers("learned"), saved.numbers("stats")
            check_restored(self, saved, layout, learned, stats, kept)
        self.reset()
        for entry, value in learned.items():
            setattr(self, entry, value)
        self._stats = stats or None
        self._layout = layout
        self.reference_shape = dict(parts["reference_shape"])
        self._counted, self._chunks = saved.rows, saved.chunks
        self._invalid = None if saved.invalid is None else np.asarray(saved.invalid)
        self._restore_rows(kept)
        return self

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options}), {self.n_rows} rows"

    # -- how it works ---------------------------------------------------------------------------------------

    def check_rows(self, outputs: Outputs) -> None:
        """Check that rows fit this score and those before them; nothing changes when they do not."""
        if not isinstance(outputs, Outputs):
            raise GdscoreError(f"Expected `gdscore.Outputs`, but got {kind_of(outputs)}")
        missing = sorted(self.inputs - outputs.has)
        if missing:
            raise GdscoreError(
                f"`{self.name}` needs `{'`, `'.join(missing)}`, but the outputs hold only "
                f"{', '.join(outputs.arrays)}. {how_to_get(missing)}"
            )
        if not self.fitted:
            labelled = "labelled " if "labels" in self.reference_inputs else ""
            raise GdscoreError(
                f"`{self.name}` needs {labelled}reference data: call fit(reference) first, or pass reference="
            )
        layout = Layout.of(outputs, self.inputs)
        layout.check_reference(self.reference_shape)
        self._layout = layout.joined(self._layout)

    def compared_with_reference(self) -> list[str]:
        """Which of ``n_classes`` and ``n_features`` must be the reference's."""
        return counts_of(self.inputs & self.reference_inputs)

    def _check_mergeable(self, other: Score) -> None:
        if other is self:
            raise GdscoreError(
                f"Expected another `{self.name}` to merge, but got the same one: its rows would count twice"
            )
        if type(other) is not type(self):
            raise GdscoreError(f"Expected another `{self.name}` to merge, but got {type(other).__name__}")
        if self.options != other.options:
            raise GdscoreError(f"Expected equal options to merge, but got {self.options} and {other.options}")
        for name in self.learned:
            here, there = getattr(self, name, None), getattr(other, name, None)
            if not np.array_equal(np.asarray(here), np.asarray(there)):
                raise GdscoreError(f"Expected scores fitted on the same reference to merge, but `{name}` differs")
        if self._layout is not None and other._layout is not None:
            other._layout.check_mergeable(self._layout)


def option_names(cls: type[Score]) -> list[str]:
    """Names of a score's options: the parameters of its constructor."""
    return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
