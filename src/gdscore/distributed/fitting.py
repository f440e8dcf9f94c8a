"""`estimator`: shifted sets of labelled images, made on many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from gdscore._options import integer
from gdscore._progress import progress_bar
from gdscore.distributed import _cluster
from gdscore.estimator import AccuracyEstimator
from gdscore.outputs import Outputs
from gdscore.shifts import ShiftedSet

if TYPE_CHECKING:
    from torch import nn

__all__ = ["estimator"]


def estimator(
    model: nn.Module,
    val_loader: Iterable[Any],
    *,
    shifts: Iterable[Callable[[Any], Any]] | None = None,
    batch_size: int = 500,
    normalize: Any = None,
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
    model, val_loader, shifts, batch_size, normalize, head, logits, outputs, autocast
        As in `gdscore.models.estimator`. The loader is read by the caller, once.
    num_actors : int, optional
        Actors, each with a copy of the model; by default as many as the cluster has processors (or GPUs) for.
    num_cpus, num_gpus : float
        What each actor takes of its node.
    address, progress
        As in `gdscore.distributed.estimate`.
    **options
        Of `AccuracyEstimator`: ``level``, ``class_mix``, ``method``, ``seed``.

    Returns
    -------
    AccuracyEstimator
    """
    from gdscore.models._batches import check_loader
    from gdscore.models.estimator import collected_images
    from gdscore.shifts import default_shifts
    from gdscore.shifts.sets import checked_shifts, named_families

    integer("batch_size", batch_size, least=1)
    check_loader(val_loader, "val_loader")
    ray = _cluster.connect(address)
    images, labels = collected_images(val_loader, normalize)
    made = AccuracyEstimator(**options)
    chosen = list(default_shifts(images, seed=made.seed)) if shifts is None else checked_shifts(shifts)
    families = named_families(chosen)
    network = {"head": head, "logits": logits, "outputs": outputs, "autocast": autocast}
    shared = ray.put((model, images, labels, chosen, normalize, network, batch_size))
    actors = _cluster.Actors(ray, _Shifting, (shared,), num_actors, num_cpus, num_gpus)

    def sets() -> Iterator[ShiftedSet]:
        calls = [
            (f"the shifted set of {family!r}", partial(actors.start, "shifted", number))
            for number, family in enumerate(families)
        ]
        early: dict[int, Any] = {}
        running = _cluster.run_all(ray, calls, 2 * len(actors))
        with closing(running), progress_bar(len(calls), progress, "sets") as advance:
            # Sets are given to the fit in the order of the shifts, whichever ends first.
            following = 0
            for number, _, found, _ in running:
                early[number] = found
                while following in early:
                    rows, arrays = ray.get(early.pop(following))
                    yield ShiftedSet(Outputs(**arrays), families[following], rows)
                    following += 1
                    advance(1)

    try:
        reference = ray.get(actors.start("reference")[0])
        return made.fit(Outputs(**reference), shifted_sets=sets(), progress=False)
    finally:
        actors.end()


class _Shifting:
    """Actor that runs the model on the images under one shift after the other."""

    def __init__(self, shared: Any, num_gpus: float) -> None:
        from gdscore.models.estimator import images_predictor

        model, images, labels, self.shifts, normalize, network, self.batch_size = shared
        device = "cuda" if num_gpus else "cpu"
        self.predict, self.images = images_predictor(model.to(device), images, normalize, device=device, **network)
        self.labels = labels.numpy()

    def reference(self) -> tuple[dict[str, Any], None]:
        from gdscore.shifts.sets import predicted

        return _on_host(predicted(self.predict, self.images, self.labels, None, self.batch_size)), None

    def shifted(self, number: int) -> tuple[Any, None]:
        from gdscore.shifts import shifted_sets

        shift = [self.shifts[number]]
        (found,) = shifted_sets(
            self.predict, self.images, self.labels, shift, batch_size=self.batch_size, progress=False
        )
        return (found.rows, _on_host(found.outputs)), None


def _on_host(outputs: Outputs) -> dict[str, Any]:
    return {name: array.cpu() if hasattr(array, "cpu") else array for name, array in outputs.arrays.items()}
