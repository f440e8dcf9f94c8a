"""COT: confidence optimal transport."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore._checks import choice, integer
from gdscore.outputs import Outputs
from gdscore.scores._sample import SampleScore
from gdscore.scores._transport import Transport, solved
from gdscore.scores.base import HostStats, Stats
from gdscore.scores.nuclear import few_rows_for_classes
from gdscore.scores.registry import register_score

PUBLISHED_BATCH = 10_000


def class_counts(labels: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
    """Rows of each true class, shape (K,)."""
    return np.bincount(labels, minlength=n_classes).astype(np.float64)


def mix_of_rows(class_weights: NDArray[Any], rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Class mix that so many rows can have, as the released code makes it: rounded down, the remainder drawn."""
    counts = np.floor(class_weights * rows + 1e-9)
    counts += rng.multinomial(rows - int(counts.sum()), class_weights)
    return np.asarray(counts / rows)


class Solved(NamedTuple):
    """The plan of some distinct rows of probabilities, how often each occurs, and their decided classes if given."""

    plan: Transport
    rows: NDArray[Any]
    counts: NDArray[Any]
    decided: NDArray[Any] | None = None

    def of_class(self, where: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.float64]:
        """Probability of the class that each of these rows is sent to; of its decided class where that is less."""
        probability: NDArray[np.float64] = self.rows[where, classes].astype(np.float64)
        if self.decided is None:
            return probability
        return np.asarray(np.minimum(probability, self.rows[where, self.decided[where]]), dtype=np.float64)

    @property
    def cost(self) -> float:
        """Cost of the plan."""
        if self.decided is None:
            return self.plan.cost
        return float(self.plan.mass @ (1 - self.of_class(self.plan.rows, self.plan.classes)))


@register_score("cot")
class COT(SampleScore):
    r"""Cost of transporting the predictions to the reference's class mix (Lu et al., NeurIPS 2023): an error rate.

    .. math:: \min_\pi \sum_{ik} \pi_{ik}\, \tfrac12\|S_i - e_k\|_1, \quad \sum_k \pi_{ik} = \tfrac1m,
              \quad \sum_i \pi_{ik} = q_k

    with q the share of each class among the reference's labels. Falls with accuracy. Solved as an m×K problem, to a
    certified millionth of the cost, on the k rows of smallest hash; `sampling_error` bounds what more rows than that
    leave open. Where rows were not decided by the largest logit, a row costs at least 1 − c, with c the probability of
    the decided class: it costs more than that anyway where this is the largest.

    Parameters
    ----------
    k : int, default 10000
        Rows kept.
    seed : int, default 0
        Of the published variant's draws.
    variant : str, default "default"
        ``published``: q is rounded down to multiples of 1/m and the remainder drawn from q; above 10,000 rows the mean
        over ⌈m/10000⌉ samples of 10,000 rows drawn with replacement. Keeps all distinct rows.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> val = gdscore.Outputs(logits=2 * np.eye(4), labels=np.array([0, 1, 2, 3]))
    >>> one_sided = gdscore.Outputs(logits=np.array([[9.0, 0, 0, 0]] * 40))
    >>> round(gdscore.score("cot", one_sided, reference=val), 3)
    0.75
    """

    formula = "least cost of moving the rows of S to class vertices e_k in the reference's class mix, cost 1 - S_k"
    good_for = (
        "a class mix like the reference's: it sees predictions that pile up in few classes, whatever their confidence"
    )
    fails_when = "the true mix of classes has changed: the change is counted as error"
    optional_inputs = frozenset({"predictions", "ids"})
    reference_inputs = frozenset({"logits", "labels"})
    learned: ClassVar[tuple[str, ...]] = ("class_weights_",)
    higher_is_better = False

    def __init__(self, *, k: int = 10_000, seed: int = 0, variant: str = "default") -> None:
        self.k = integer("k", k, least=1)
        self.seed = integer("seed", seed, least=0)
        self.variant = choice("variant", variant, ("default", "published"))
        self.sample_limit = math.inf if variant == "published" else k
        super().__init__()

    def measure_reference(self, chunk: Outputs) -> Stats:
        """Rows of each class."""
        return {"class_counts": class_counts(arrays.to_numpy(chunk.labels), chunk.logits.shape[1])}

    def learn(self, stats: HostStats) -> None:
        """Share of each class."""
        self.class_weights_ = stats["class_counts"] / stats["class_counts"].sum()

    def result(self, stats: HostStats) -> float:
        """Cost of the best transport."""
        return float(np.mean([plan.cost for plan in self._plans(stats)]))

    def _plans(self, stats: HostStats) -> list[Solved]:
        """Transports, with the rows and weights each was solved for: one, or several in the published variant."""
        rows, counts, decided = stats["rows"], stats["counts"].astype(np.float64), stats.get("decided")
        total = int(counts.sum())
        if self.variant == "default":
            return [self._transport(rows, counts, decided, self.class_weights_)]
        rng = np.random.default_rng(self.seed)
        if total <= PUBLISHED_BATCH:
            return [self._transport(rows, counts, decided, mix_of_rows(self.class_weights_, total, rng))]
        plans = []
        for _ in range(math.ceil(total / PUBLISHED_BATCH)):
            drawn = rng.multinomial(PUBLISHED_BATCH, counts / total)
            weights = mix_of_rows(self.class_weights_, PUBLISHED_BATCH, rng)
            decided_drawn = None if decided is None else decided[drawn > 0]
            plans.append(self._transport(rows[drawn > 0], drawn[drawn > 0].astype(np.float64), decided_drawn, weights))
        return plans

    def _transport(
        self, rows: NDArray[Any], weights: NDArray[Any], decided: NDArray[Any] | None, class_weights: NDArray[Any]
    ) -> Solved:
        return Solved(solved(rows, weights, class_weights), rows, weights, decided)

    def warning(self) -> str | None:
        """Few rows for the number of classes."""
        return few_rows_for_classes(self.n_rows, self.n_classes)
