"""A fitted `AccuracyEstimator` of a torch classifier, calibrated on corrupted copies of its validation images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.models._batches import check_loader, integer_labels, split_batch
from gdscore.models._network import Network
from gdscore.models.predictions import OutputKind, Where
from gdscore.outputs import Outputs

__all__ = ["estimator"]


def estimator(
    model: nn.Module,
    val_loader: Iterable[Any],
    *,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    shifts: Iterable[Callable[[Tensor], Tensor]] | None = None,
    batch_size: int = 500,
    head: str | nn.Module | Literal[False] | None = None,
    logits: Where = None,
    outputs: OutputKind = "auto",
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    progress: bool | None = None,
    **options: Any,
) -> AccuracyEstimator:
    """Fit an estimator of a model's accuracy on corrupted copies of labelled images.

    The model is not changed. Images are kept where the loader gives them and go to the model's device in batches;
    corruptions are computed there.

    Parameters
    ----------
    model : nn.Module
        A classifier of images.
    val_loader : iterable of batches
        Labelled images ``(x, y)`` of the training distribution that the model was not trained on, x of shape
        (m, C, H, W).
    normalize : (mean, std), optional
        What the loader's images were normalised by, one number for each channel: corruptions are made for images in
        [0, 1]. Leave it out where the loader gives those.
    shifts : iterable of callables, optional
        From images in [0, 1] to such; by default as in `AccuracyEstimator.fit_predictor`.
    batch_size : int
        Images given to the model at once.
    head, logits, outputs, device, autocast
        As in `extract`.
    progress : bool, optional
        Progress bar on standard error; by default where that is a terminal.
    **options
        Of `AccuracyEstimator`: ``level``, ``class_mix``, ``method``, ``seed``.

    Returns
    -------
    AccuracyEstimator
        Fitted: ``estimator(model, val_loader).estimate(extract(model, loader))``.

    Examples
    --------
    >>> import torch
    >>> from gdscore import shifts, models
    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.rand(500, 1, 8, 8, generator=rng)
    >>> sides = torch.where(torch.arange(64) % 8 < 4, 1.0, -1.0)
    >>> y = (x.flatten(1) @ sides + torch.randn(500, generator=rng) > 0).long()
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> model.load_state_dict({"1.weight": torch.stack([-sides, sides]), "1.bias": torch.zeros(2)})
    <All keys matched successfully>
    >>> est = models.estimator(model, [(x, y)], shifts=shifts.corruptions((3, 6)), level=0.8)
    >>> e = est.estimate(models.extract(model, [x]))
    >>> e.low < e.reference_accuracy < e.high
    True
    """
    check_loader(val_loader, "val_loader")
    network = Network(model, device=device, head=head, logits=logits, outputs=outputs, autocast=autocast)
    images, labels = _collected(val_loader, normalize)
    mean, std = _per_channel(normalize, images.shape[1], network.device)

    def as_seen(batch: Tensor) -> Tensor:
        return ((batch.to(network.device) - mean) / std).to(network.dtype or torch.float32)

    def predict(batch: Tensor) -> Outputs:
        returned, features = network.run(as_seen(batch), 0)
        given: dict[str, Any] = {**network.kind.arrays(returned), "features": features}
        return Outputs(**given)

    fitted: AccuracyEstimator = AccuracyEstimator(**options).fit_predictor(
        predict,
        _OnDevice(images, network.device),
        labels,
        shifts=shifts,
        batch_size=batch_size,
        progress=progress,
    )
    return fitted


class _OnDevice:
    """Images of the host whose slices are on the device."""

    def __init__(self, images: Tensor, device: torch.device) -> None:
        self._images, self.device = images, device
        self.shape, self.ndim = images.shape, images.ndim

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: slice) -> Tensor:
        return self._images[rows].to(self.device)


def _collected(loader: Iterable[Any], normalize: Any) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels of all batches."""
    images, labels = [], []
    for number, batch in enumerate(loader):
        x, y = split_batch(batch)
        if y is None:
            raise GdscoreError(f"Expected labelled batches (x, y) from `val_loader`, but batch {number} has no labels")
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
            what = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise GdscoreError(
                f"Expected float images of shape (m, C, H, W) from `val_loader`, but batch {number} is {what}; "
                "for other inputs use AccuracyEstimator.fit_predictor with shifts of your own"
            )
        images.append(x.detach())
        labels.append(integer_labels(y, len(x), torch.device("cpu")))
    if not images:
        raise GdscoreError("Expected `val_loader` to yield batches, but it yielded none")
    everything = torch.cat(images).to(torch.float32)
    mean, std = _per_channel(normalize, everything.shape[1], everything.device)
    everything = everything * std + mean
    low, high = float(everything.min()), float(everything.max())
    if low < -0.02 or high > 1.02:
        raise GdscoreError(
            f"Expected images between 0 and 1, but they go from {low:.2f} to {high:.2f}: where the loader normalises, "
            "pass normalize=(mean, std)"
        )
    return everything.clamp(0, 1), torch.cat(labels)


def _per_channel(normalize: Any, channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, shaped to broadcast over images."""
    if normalize is None:
        return torch.zeros(1, device=device), torch.ones(1, device=device)
    try:
        mean, std = (torch.as_tensor(part, dtype=torch.float32).reshape(-1, 1, 1) for part in normalize)
    except (TypeError, ValueError):
        raise GdscoreError(f"Expected `normalize` to be a pair (mean, std), but got {normalize!r}") from None
    for name, part in (("mean", mean), ("std", std)):
        if len(part) not in (1, channels):
            raise GdscoreError(f"Expected {channels} numbers in the {name} of `normalize`, but got {len(part)}")
    if not bool((std > 0).all()):
        raise GdscoreError("Expected a positive std in `normalize`, but one is not")
    return mean.to(device), std.to(device)
