"""`Outputs`: what a classifier said about some rows.

Requirements met here:

- whatever is wrong with the arrays is said at the door, with the row, the column or the shape that is wrong;
- on an accelerator nothing waits for the device: unsound values are remembered and reported by the scores;
- softmax, arg-max, confidence and entropy are computed once and shared by everyone who holds the object;
- slicing costs nothing, so that data of any size is worked through in small pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._hashing import id_words, label_hash, row_key, value_words
from gdscore._softmax import Softmax, log_probabilities, softmax
from gdscore._validation import check_outputs, check_rows, row_checks
from gdscore.errors import GdscoreError

__all__ = ["Outputs"]


class Outputs:
    r"""What a classifier said about m rows: arrays of NumPy, PyTorch, JAX or CuPy, kept where they live.

    Every array is optional, but each score says which ones it needs and at least one must be given.

    Parameters
    ----------
    logits : array of shape (m, K), optional
        Scores before the softmax, K ≥ 2. float16, bfloat16, float32 or float64, any strides.
    probabilities : array of shape (m, K), (m, 1) or (m,), optional
        For models that give nothing else, instead of ``logits``: their logarithm serves as logits, and a zero
        counts as the smallest normal float32, 1.2e-38. A single column is the probability of class 1 of a binary model.
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
    ids : integer or NumPy string array of shape (m,), optional
        Names of the rows, of any library. Random labels are tied to them; without ids they are tied to the logits.

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

    _given: dict[str, Array]

    def __init__(
        self,
        *,
        logits: Array | None = None,
        probabilities: Array | None = None,
        features: Array | None = None,
        labels: Array | None = None,
        peer_logits: Array | None = None,
        batch_logits: Array | None = None,
        rotation_logits: Array | None = None,
        ids: Array | None = None,
    ) -> None:
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
            }
        )

    @classmethod
    def _trusted(cls, given: Mapping[str, Array]) -> Outputs:
        out = cls.__new__(cls)
        out._given = dict(given)
        return out

    # -- rows ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._reference.shape[0])

    def __getitem__(self, rows: slice | Array) -> Outputs:
        """Rows by slice, index array or mask; an empty selection is an error."""
        picked = rows if isinstance(rows, slice) else check_rows(rows, len(self))
        if isinstance(picked, slice) and picked.step is not None and picked.step < 1:
            picked = np.arange(len(self))[picked].copy()  # torch has no backward slices
        # Ids may live elsewhere than the other arrays, so each gets the selection where it lives.
        chosen = Outputs._trusted(
            {k: a[picked if isinstance(picked, slice) else arrays.like(picked, a)] for k, a in self._given.items()}
        )
        if not len(chosen):
            raise GdscoreError(f"Expected at least one row, but {rows!r} selects none of {len(self)} rows")
        return chosen

    @staticmethod
    def concatenate(parts: Sequence[Outputs]) -> Outputs:
        """Rows of several outputs, one after the other; all must hold the same arrays."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            raise GdscoreError("Expected at least one `Outputs` to concatenate, but got none")
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
        names = first._given
        return Outputs._trusted({name: arrays.concatenate([p._given[name] for p in parts]) for name in names})

    def only(self, names: Collection[str]) -> Outputs:
        """Outputs with just the named arrays and the ids; probabilities count as logits."""
        kept = {*names, "ids"} | ({"probabilities"} if "logits" in names else set())
        return Outputs._trusted({name: array for name, array in self._given.items() if name in kept})

    def held(self) -> Outputs:
        """Copy that shares no memory with the caller's arrays, in working precision."""
        widened = {k: a if k in ("labels", "ids") else arrays.working(a) for k, a in self._given.items()}
        return Outputs._trusted({k: arrays.detached_copy(a) if a is self._given[k] else a for k, a in widened.items()})

    def to_numpy(self) -> Outputs:
        """Copy the same rows to NumPy."""
        return Outputs._trusted({name: arrays.to_numpy(array) for name, array in self._given.items()})

    def like(self, other: Outputs) -> Outputs:
        """Put each array into the library and onto the device that ``other`` has it in."""
        there = other._given
        return Outputs._trusted({k: arrays.like(a, there[k]) if k in there else a for k, a in self._given.items()})

    # -- what was given -----------------------------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays as given, by name."""
        return self._given

    @property
    def _reference(self) -> Array:
        return next(iter(self._given.values()))

    @property
    def has(self) -> frozenset[str]:
        """Names of what a score can ask for: ``logits`` also where probabilities were given."""
        return frozenset({*self._given, "logits"} if "probabilities" in self._given else self._given)

    def _get(self, name: str) -> Array:
        if name not in self._given:
            raise GdscoreError(f"Expected `Outputs` with `{name}`, but these hold only {', '.join(self._given)}")
        return self._given[name]

    @property
    def n_classes(self) -> int | None:
        """K, or None where neither logits nor probabilities are held."""
        for name in ("logits", "probabilities", "peer_logits", "batch_logits"):
            if name in self._given:
                return int(self._given[name].shape[1])
        return None

    @property
    def n_features(self) -> int | None:
        """D, or None without features."""
        return int(self._given["features"].shape[1]) if "features" in self._given else None

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

    # -- derived, once ------------------------------------------------------------------------------------

    @cached_property
    def logits(self) -> Array:
        """Logits Z in working precision; log-probabilities where probabilities were given."""
        if "probabilities" not in self._given:
            return arrays.working(self._get("logits"))
        return log_probabilities(arrays.working(self._given["probabilities"]))

    @cached_property
    def features(self) -> Array:
        """Features X in working precision."""
        return arrays.working(self._get("features"))

    @cached_property
    def _softmax(self) -> Softmax:
        return softmax(self.logits)

    @property
    def probabilities(self) -> Array:
        """S = softmax(Z), shape (m, K)."""
        return self._softmax.probabilities

    @property
    def predictions(self) -> Array:
        """ŷ = argmax of the logits, the first of equals."""
        return self._softmax.predictions

    @cached_property
    def confidence(self) -> Array:
        """c, the largest probability of each row."""
        return self._softmax.confidence()

    @cached_property
    def doubt(self) -> Array:
        """1 − c with full relative precision, also where c rounds to 1."""
        return self._softmax.doubt()

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
        """Whether each prediction equals the label."""
        return self.predictions == self.labels

    @property
    def accuracy(self) -> float:
        """Share of rows predicted correctly."""
        return float(arrays.to_numpy(self.correct).mean())

    @cached_property
    def _key(self) -> tuple[Array, Array]:
        if "ids" in self._given:
            key = row_key(id_words(self._given["ids"]))
            first, second = (arrays.like(k, self._reference) for k in key)
        else:
            values = self._given.get("probabilities", self._given.get("logits"))
            if values is None:
                values = self._get("logits")
            first, second = row_key(value_words(values))
        return first, second

    def row_keys(self) -> tuple[Array, Array]:
        """Two int32 hashes of each row: of its id, otherwise of the float32 bits of its logits."""
        return self._key

    def random_labels(self, seed: int) -> Array:
        """Label of each row drawn uniformly by the hash of ``seed`` and that row alone."""
        if self.n_classes is None:
            self._get("logits")
        return label_hash(self._key[0], seed, int(self.n_classes or 0))

    @cached_property
    def sound(self) -> Array | None:
        """0-d flag on an accelerator that all values are usable; None on the host, where the door checked."""
        if arrays.on_host(self._reference):
            return None
        flags = [check.ok() for check in row_checks(self._given)]
        return namespace(flags[0]).all(namespace(flags[0]).stack(flags))

    @cached_property
    def _marks(self) -> dict[int, Array]:
        return {}

    def mark_unsound(self, number: int) -> Array | None:
        """``number`` where values cannot be used, else 2³¹ − 1, left on the accelerator; None on the host."""
        if self.sound is not None and number not in self._marks:
            self._marks[number] = namespace(self.sound).where(self.sound, 2**31 - 1, number)
        return self._marks.get(number)

    def with_temperature(self, temperature: float) -> Outputs:
        """Copy of the outputs with logits divided by ``temperature``, features and the rest as they are."""
        if not 1e-30 <= temperature <= 1e30:
            raise GdscoreError(f"Expected `temperature` to be a number from 1e-30 to 1e30, but got {temperature!r}")
        others = {k: a for k, a in self._given.items() if k not in ("logits", "probabilities")}
        scaled = self.logits / temperature
        if temperature < 1e-3:  # only then can a quotient be too large
            scaled = Outputs(logits=scaled)._given["logits"]
        return Outputs._trusted({"logits": scaled, **others})

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self._given.items())
        return f"Outputs({shapes}; {arrays.library(self._reference)} {self._reference.dtype})"
