"""`estimator`: shifted sets of labelled images, made on many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from gdscore._checks import integer
from gdscore._stream import progress_bar
from gdscore.distributed import _cluster
from gdscore.estimator import AccuracyEstimator
from gdscore.outputs import Outputs
from gdscore.shifts import ShiftedSet

if TYPE_CHECKING:
    from torch import nn


def estimator(
    model: nn.Module,
    val_loader: Iterable[Any],
    *,
    shifts: Iterable[Callable[[Any], Any]] | None = None,
    batch_size: int = 500,
    normalize: Any = None,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    num_actors: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    head: Any = None,
    logits: Any = None,
    outputs: str = "auto",
    autocast: Any = None,
    address: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> AccuracyEstimator:
    """Fit an estimator as `gdscore.models.estimator` does, with the shifted sets spread over actors.

    On processors of one kind the estimator is the same bit for bit. Outputs of GPUs are brought to the host before the
    fit, so that it agrees to rounding with one that was fitted on a GPU.

    Parameters
    ----------
    model, val_loader, shifts, batch_size, normalize, threshold, class_names, head, logits, outputs, autocast
        As in `gdscore.models.estimator`. The loader is read by the caller, once.
    num_actors : int, optional
        Actors, each with a copy of the model; by default as many as the cluster has processors (or GPUs) for.
    num_cpus, num_gpus : float
        What each actor takes of its node.
    address, progress
        As in `gdscore.distributed.estimate`.
    **options
        Of `AccuracyEstimator`: ``level``, ``class_mix``, ``method``, ``seed``.
    """
    from gdscore.models._inputs import check_loader
    from gdscore.models._state import RandomStream
    from gdscore.models.predictions import map_tensors
    from gdscore.shifts.sets import checked_shifts

    check_loader(val_loader, "val_loader")
    made = AccuracyEstimator(**options)
    passes = {
        "normalize": normalize,
        "shifts": shifts if shifts is None or isinstance(shifts, str) else checked_shifts(shifts),
        "batch_size": integer("batch_size", batch_size, least=1),
        "seed": made.seed,
        "head": head,
        "logits": logits,
        "outputs": outputs,
        "autocast": autocast,
    }
    ray = _cluster.connect(address)
    with RandomStream():  # of a loader that shuffles
        # Copies: a loader may use its memory for the next batch.
        batches = [map_tensors(lambda t: t.detach().clone(), batch) for batch in val_loader]
    shared = ray.put((model, batches, passes))
    actors = _cluster.Actors(ray, _Shifting, (shared,), num_actors, num_cpus, num_gpus)

    def sets(count: int) -> Iterator[ShiftedSet]:
        running = actors.run(_cluster.Call(f"shift {number}", "shifted", (number,)) for number in range(count))
        early: dict[int, Any] = {}
        following = 0
        with closing(running), progress_bar(count, progress, "sets") as advance:
            for number, _, shifted_set, _ in running:
                early[number] = ray.get(shifted_set)  # at once, as its node may go
                # Sets are given to the fit in the order of the shifts, whichever ends first.
                while following in early:
                    family, rows, arrays = early.pop(following)
                    yield ShiftedSet(Outputs(**arrays, threshold=threshold, check_logits=False), family, rows)
                    following += 1
                    advance(1)

    try:
        ((_, _, reference_arrays, count),) = actors.run([_cluster.Call("the reference", "reference")])
        arrays = ray.get(reference_arrays)
        # Each actor's network has checked its logits, or was told not to.
        reference = Outputs(**arrays, threshold=threshold, check_logits=False).with_class_names(class_names)
        return made.fit(reference, shifted_sets=sets(count), progress=False)
    finally:
        actors.end()


class _Shifting:
    """Actor that runs the model on the inputs under one shift after the other."""

    def __init__(self, shared: Any, num_gpus: float) -> None:
        from gdscore.models.estimator import shift_passes

        model, batches, options = shared
        device = "cuda" if num_gpus else "cpu"
        self.passes = shift_passes(model.to(device), batches, device=device, **options)

    def reference(self) -> tuple[dict[str, Any], int]:
        """Outputs of the reference, and how many shifts there are."""
        return _on_host(self.passes.reference()), len(self.passes.shifts)

    def shifted(self, number: int) -> tuple[Any, None]:
        """Family, rows and outputs of a shifted set."""
        (shifted_set,) = self.passes.shifted_sets(lambda rows: None, slice(number, number + 1))
        return (shifted_set.family, shifted_set.rows, _on_host(shifted_set.outputs)), None


def _on_host(outputs: Outputs) -> dict[str, Any]:
    return {name: array.cpu() if hasattr(array, "cpu") else array for name, array in outputs.arrays.items()}
