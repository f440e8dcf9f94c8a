"""Every score as a `torchmetrics.Metric`, alone or several at once, for DistributedDataParallel and Lightning.

Requirements met here:

- the states of the processes are merged by the score itself, in the order of their ranks: all of them get the same
  number, and a process without rows does no harm;
- torchmetrics knows one state: the whole score as bytes, plain arrays without pickle. Gathering, checkpoints and
  `merge_state` are its own then, and the score is packed only when one of them asks for it;
- rows go through one score in their order, also by `forward`, so that the epoch's number does not depend on the steps.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from gdscore._files import arrays_to_bytes, read_arrays
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs
from gdscore.scores import Score, create_score
from gdscore.scores.base import fit_together

_OF_TORCHMETRICS = (
    "dist_sync_on_step",
    "process_group",
    "dist_sync_fn",
    "distributed_available_fn",
    "sync_on_compute",
    "compute_with_cache",
)


class ScoreMetric(Metric):
    """A score that torchmetrics and Lightning handle as one of theirs; `compute` is over the rows of all processes.

    Parameters
    ----------
    name : str
        Name of the score, see `gdscore.list_scores`.
    reference : Outputs or iterable of Outputs, optional
        Outputs of the reference, where the score needs any; the same ones on every process.
    **options
        Options of the score, and those of `torchmetrics.Metric`: ``sync_on_compute``, ``dist_sync_on_step``,
        ``process_group``, ``dist_sync_fn``, ``distributed_available_fn``, ``compute_with_cache``.

    Notes
    -----
    `compute` gives a 0-d float64 tensor on the metric's device (float32 where that device has no float64). The state
    stays where the rows are and does not grow with them, so that there is no ``compute_on_cpu``. GdScore's
    mini-batches form within a process: its number is that of one process where each holds a multiple of
    ``batch_size`` consecutive rows.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import ScoreMetric
    >>> metric = ScoreMetric("confscore")
    >>> for batch in torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [1.0, 1.0]]]):
    ...     metric.update(logits=batch)
    >>> round(metric.compute().item(), 4), metric.higher_is_better
    (0.7661, True)
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, name: str, /, *, reference: Outputs | Iterable[Outputs] | None = None, **options: Any) -> None:
        super().__init__(**{key: options.pop(key) for key in _OF_TORCHMETRICS if key in options})
        self._score = create_score(name, **options)
        if reference is not None and self._score.reference_inputs:
            self._score.fit(reference)
        # A list without a reduction: torchmetrics collects one entry of each process and hands all of them back.
        self.add_state("score_state", default=[], dist_reduce_fx=None)

    @property
    def score_state(self) -> list[Tensor]:
        """The score as bytes; assigning several merges them in their order."""
        packed = bytearray(arrays_to_bytes(self._score.state_dict()))
        return [torch.frombuffer(packed, dtype=torch.uint8).to(self.device)]

    @score_state.setter
    def score_state(self, parts: Sequence[Tensor]) -> None:
        if parts:
            scores = [_unpacked(part, create_score(self._score.name, **self._score.options)) for part in parts]
            self._score = functools.reduce(lambda first, second: first.merge(second), scores)
            self._computed = None

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether the number rises with accuracy."""
        return self._score.higher_is_better

    def update(
        self,
        logits: Tensor | Outputs | None = None,
        features: Tensor | None = None,
        labels: Tensor | None = None,
        probabilities: Tensor | None = None,
        peer_logits: Tensor | None = None,
        batch_logits: Tensor | None = None,
        rotation_logits: Tensor | None = None,
        ids: Any = None,
    ) -> None:
        """Take in rows: arrays as in `Outputs`, or an `Outputs` alone. What the score does not need is ignored."""
        self._score.update(
            _as_outputs(
                logits,
                features=features,
                labels=labels,
                probabilities=probabilities,
                peer_logits=peer_logits,
                batch_logits=batch_logits,
                rotation_logits=rotation_logits,
                ids=ids,
            )
        )

    def compute(self) -> Tensor:
        """Return the number for the rows of all processes; errors are those of the score."""
        try:
            value = self._score.compute()
        except BaseException:
            # torchmetrics goes back to this process's own rows only after a success.
            if self._is_synced and self._to_sync:
                self.unsync()
            raise
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.tensor(value, dtype=wide, device=self.device)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Take in rows and return the number of these rows alone."""
        if self._is_synced:
            raise TorchMetricsUserError("Expected a metric that is not synced, but it is: call unsync first")
        self.update(*args, **kwargs)
        # torchmetrics would merge a state per step, and GdScore's mini-batches would then end with each of them.
        every_row, self._score = self._score, copy.copy(self._score).reset()
        self._to_sync = self.dist_sync_on_step
        try:
            with torch.no_grad():
                type(self).update(self, *args, **kwargs)
            value: Tensor = self.compute()
        finally:
            self._score, self._computed, self._to_sync = every_row, None, self.sync_on_compute
        self._forward_cache = value  # type: ignore[assignment]
        return value

    def reset(self) -> None:
        """Forget all rows; options and fit stay."""
        self._score.reset()
        super().reset()

    def extra_repr(self) -> str:
        """Score and options."""
        return repr(self._score)

    def __hash__(self) -> int:
        # Modules are hashed whenever they are listed; torchmetrics hashes the state, which would pack it each time.
        return hash((type(self).__name__, id(self)))

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        # The score follows its rows from device to device, and bytes have no precision to change.
        return super()._apply(fn, exclude_state=(*exclude_state, "score_state"))


def _as_outputs(
    logits: Tensor | Outputs | None = None, features: Any = None, labels: Any = None, **others: Any
) -> Outputs:
    others |= {"features": features, "labels": labels}
    if not isinstance(logits, Outputs):
        return Outputs(logits=logits, **others)
    if any(array is not None for array in others.values()):
        raise GdscoreError("Expected `Outputs` alone or arrays by name, but got both")
    return logits


class ScoreCollection(MetricCollection):
    """Several scores as one `torchmetrics.MetricCollection`: one call takes the rows in for all of them.

    The arrays of a batch are checked once, and the reference is read once for all scores.

    Parameters
    ----------
    scores : iterable of names, or mapping of names to options
        Scores, see `gdscore.list_scores`.
    reference : Outputs or iterable of Outputs, optional
        Outputs of the reference, where a score needs any; the same ones on every process.
    prefix, postfix : str, optional
        Put before and after the names of the scores in what `compute` returns.
    **options
        Options of `torchmetrics.Metric` for all scores, as in `ScoreMetric`.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import ScoreCollection
    >>> scores = ScoreCollection(["confscore", "entropy"], prefix="val_")
    >>> scores.update(logits=torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> {name: round(value.item(), 4) for name, value in scores.compute().items()}
    {'val_confscore': 0.8059, 'val_entropy': 0.4738}
    """

    def __init__(
        self,
        scores: Iterable[str] | Mapping[str, Mapping[str, Any]],
        *,
        reference: Outputs | Iterable[Outputs] | None = None,
        prefix: str | None = None,
        postfix: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(scores, str):
            raise GdscoreError(f"Expected `scores` to be a list of names, but got {scores!r}: give [{scores!r}]")
        named = scores if isinstance(scores, Mapping) else {name: {} for name in scores}
        unknown = [name for name in options if name not in _OF_TORCHMETRICS]
        if unknown:
            raise GdscoreError(
                f"Unknown option {unknown[0]!r}: options of a score are given as {{name: {{option: value}}}}"
            )
        made = {name: ScoreMetric(name, **score_options, **options) for name, score_options in named.items()}
        if reference is not None:
            failed = fit_together([metric._score for metric in made.values()], reference)
            for name, why in failed.items():
                raise GdscoreError(f"Expected a reference that `{name}` can be fitted on, but it failed: {why}")
        # Groups are for metrics of equal states, which torchmetrics finds by comparing them.
        super().__init__(dict(made), prefix=prefix, postfix=postfix, compute_groups=False)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take in rows: arrays as in `Outputs`, or an `Outputs` alone."""
        super().update(_as_outputs(*args, **kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Take in rows and return the numbers of these rows alone."""
        return super().forward(_as_outputs(*args, **kwargs))


def _unpacked(part: Tensor, blank: Score) -> Score:
    """Score of these bytes, its waiting rows as tensors on the device of the bytes."""
    try:
        state: dict[str, Any] = dict(read_arrays(part.cpu().numpy().tobytes()))
    except GdscoreError as error:
        raise GdscoreError(f"The metric's `score_state` cannot be used: {error}") from error
    for name, value in state.items():
        if name.startswith(("pending.", "pool.")) and isinstance(value, np.ndarray) and value.dtype.kind != "U":
            state[name] = torch.from_numpy(value).to(part.device)
    return blank.load_state_dict(state)
