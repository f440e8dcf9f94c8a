"""`DerivedArrays`: arrays of the same rows as given, and what is derived from them.

Requirements met here:

- softmax, arg-max, confidence and entropy are computed when first asked for and shared by all who hold the object;
- on an accelerator nothing waits for the device: invalid values are remembered there and reported by the scores;
- an array that was not given is an error that tells where to get it from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from gdscore import _arrays as arrays
from gdscore._arrays import Array, namespace
from gdscore._hashing import id_words, label_hash, row_key, value_words
from gdscore._row_checks import row_checks
from gdscore._softmax import Softmax, log_probabilities, softmax
from gdscore.errors import GdscoreError

__all__ = ["DerivedArrays", "how_to_get"]

_HOW_TO_GET = {
    "logits": "Outputs(logits=…) or Outputs(probabilities=…)",
    "features": "what enters the last linear layer: Outputs(features=…), or gdscore.models.extract(model, loader)",
    "labels": "the true classes: Outputs(labels=…)",
    "peer_logits": "logits of a second model: Outputs(peer_logits=…), or models.extract(model, loader, peer=second)",
    "batch_logits": "logits with BatchNorm's statistics of the batch: models.extract(model, loader, batchnorm='both')",
    "rotation_logits": "logits of a rotation head: models.extract(model, loader, rotation_head=head)",
    "ids": "names of the rows: Outputs(ids=…)",
}
"""For each array where a caller gets it from."""


class DerivedArrays:
    """Arrays by name that `Outputs` has checked, and the quantities that scores compute from them."""

    _given: dict[str, Array]
    _class_names: tuple[str, ...] | None
    _check_logits: bool

    # -- what was given -----------------------------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays as given, by name."""
        return self._given

    @property
    def _first_array(self) -> Array:
        return next(iter(self._given.values()))

    @property
    def has(self) -> frozenset[str]:
        """Names of what a score can ask for: ``logits`` also where probabilities were given."""
        return frozenset({*self._given, "logits"} if "probabilities" in self._given else self._given)

    def _get(self, name: str) -> Array:
        if name not in self._given:
            raise GdscoreError(
                f"Expected `Outputs` with `{name}`, but these hold only {', '.join(self._given)}. {how_to_get([name])}"
            )
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
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, or None where they were not given."""
        return self._class_names

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
    def one_minus_confidence(self) -> Array:
        """1 − c with full relative precision, also where c rounds to 1."""
        return self._softmax.one_minus_confidence()

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
            first, second = row_key(id_words(self._given["ids"]))
            return arrays.like(first, self._first_array), arrays.like(second, self._first_array)
        return row_key(value_words(self._get("probabilities" if "probabilities" in self._given else "logits")))

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
        flags = [check.ok() for check in row_checks(self._given, self._check_logits)]
        return namespace(flags[0]).all(namespace(flags[0]).stack(flags))

    @cached_property
    def _marks(self) -> dict[int, Array]:
        return {}

    def mark_invalid(self, number: int) -> Array | None:
        """``number`` where values cannot be used, else 2³¹ − 1, left on the accelerator; None on the host."""
        if self.valid is not None and number not in self._marks:
            self._marks[number] = namespace(self.valid).where(self.valid, 2**31 - 1, number)
        return self._marks.get(number)


def how_to_get(names: Iterable[str]) -> str:
    """One sentence for each array on where it comes from."""
    return " ".join(f"`{name}`: {_HOW_TO_GET[name]}." for name in names if name in _HOW_TO_GET)
