"""A fitted `AccuracyEstimator` of a torch classifier, calibrated on shifted copies of its labelled inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdscore._checks import integer
from gdscore._classes import listed_names
from gdscore._stream import announce, progress_bar
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator
from gdscore.models._inputs import ImageForm, LabelledInputs, TensorForm
from gdscore.models._network import Network, device_of
from gdscore.models._state import clock
from gdscore.models.predictions import OutputKind, Where, describe, map_tensors
from gdscore.outputs import Outputs, checked_threshold
from gdscore.shifts import Composition, Corruption, default_shifts
from gdscore.shifts.images import check_image_shape
from gdscore.shifts.sets import ShiftPasses, checked_shifts, quick_shifts


def estimator(
    model: nn.Module,
    val_loader: Iterable[Any],
    *,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    shifts: Iterable[Callable[[Tensor], Tensor]] | Literal["quick"] | None = None,
    batch_size: int = 500,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    head: str | nn.Module | Literal[False] | None = None,
    logits: Where = None,
    outputs: OutputKind = "auto",
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    progress: bool | None = None,
    **options: Any,
) -> AccuracyEstimator:
    """Fit an estimator of a model's accuracy on shifted copies of labelled inputs.

    The model is not changed. Corruptions are computed on its device; on a GPU nothing waits for the device.

    Cost: one forward pass over the rows for the reference and one for each shifted set, by default 117 × rows, and the
    corruptions. ``shifts="quick"`` makes 24 sets; 1,000 to 2,000 rows are enough. After the reference the expected time
    is shown. Images have channels last where the model's convolutions have, and on a CPU, where that is two to three
    times faster, if the network can take them.

    Memory: inputs are kept as the loader gives them, or as 8-bit images where those have the same values.

    Parameters
    ----------
    model : nn.Module
        A classifier.
    val_loader : iterable of batches
        Labelled inputs ``(x, y)``, or dicts such as ``{"pixel_values": x, "labels": y}``, of the training distribution
        that the model was not trained on: images of shape (m, C, H, W) or, with ``shifts``, tensors of any shape and
        type, several of them in a dict such as ``{"input_ids": ids, "attention_mask": mask, "labels": y}``.
    normalize : (mean, std), optional
        What the loader's images were normalised by, one number for each channel: corruptions are made for images in
        [0, 1]. Leave it out where the loader gives those.
    shifts : iterable of callables or "quick", optional
        From inputs to inputs, a tensor or the dict of them; by default the corruptions of
        `gdscore.shifts.default_shifts`, and with ``"quick"`` those of `gdscore.shifts.quick_shifts`. Corruptions get
        images in [0, 1]. Where all shifts are your own and ``normalize`` is left out, they get what the loader gives.
    batch_size : int, default 500
        Rows given to the model at once.
    threshold : float, optional
        Of a binary model, as in `extract`.
    class_names : sequence of K str, optional
        Names of the classes in the order of the logits, for ``Estimate.per_class`` and reports.
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
    fitted = AccuracyEstimator(**options)
    passes = shift_passes(
        model,
        val_loader,
        normalize=normalize,
        shifts=shifts,
        batch_size=batch_size,
        seed=fitted.seed,
        threshold=threshold,
        class_names=class_names,
        device=device,
        head=head,
        logits=logits,
        outputs=outputs,
        autocast=autocast,
    )
    reference, seconds = _timed_reference(passes, device_of(model))
    text = f"models.estimator: {len(passes.shifts)} shifted sets of {len(passes.inputs):,} rows"
    quick = '; shifts="quick" makes 24 sets' if shifts is None else ""
    announce(f"{text}{quick}", seconds * len(passes.shifts), progress)
    with progress_bar(len(passes.shifts) * len(passes.inputs), progress) as advance:
        return fitted.fit(reference, shifted_sets=passes.shifted_sets(advance), progress=False)


def _timed_reference(passes: ShiftPasses, device: torch.device) -> tuple[Outputs, float]:
    """Outputs of the reference, and the seconds that a shifted set will take: a pass as this one, and the shift."""
    begin = clock(device)
    reference = passes.reference()
    seconds = clock(device) - begin
    ours = [shift for shift in passes.shifts if isinstance(shift, _CORRUPTIONS)]
    if ours:
        _, few = next(passes.inputs.batches(_SHIFTED_ROWS))
        tried = ours[:: -(-len(ours) // _TRIED_SHIFTS)]
        begin = clock(device)
        for shift in tried:
            passes.inputs.shift(shift, few, 0)
        seconds += (clock(device) - begin) / len(tried) * len(passes.inputs) / len(few)
    return reference, seconds


_CORRUPTIONS = (Corruption, Composition)
_SHIFTED_ROWS, _TRIED_SHIFTS = 8, 8
"""Rows and shifts that the time of shifting is measured on."""


def _checked(shifts: Iterable[Any]) -> list[Any]:
    chosen = checked_shifts(shifts)
    for shift in chosen:
        if getattr(shift, "selects_rows", False):
            raise GdscoreError(
                f"Expected `shifts` from inputs to inputs, but {shift!r} selects rows: use "
                "AccuracyEstimator.fit_predictor for it"
            )
    return chosen


class _Predictor:
    """What the model returns for batches of inputs, and labelled outputs made of it."""

    def __init__(
        self,
        network: Network,
        inputs: LabelledInputs,
        form: TensorForm,
        memory_format: torch.memory_format | None,
        threshold: float | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self._network, self._form, self._memory_format = network, form, memory_format
        self._for_call = inputs.for_call
        self._labels, self._class_names = inputs.labels.to(network.device), class_names
        self._threshold = threshold
        self._batch = 0
        self._parts: list[tuple[Tensor, Tensor | None]] = []

    def run(self, x: Any, rows: NDArray[Any], shift: Any) -> None:
        """Run the model on a batch of these rows."""
        tensors = list(x.values()) if isinstance(x, dict) else [x]
        if not all(isinstance(t, Tensor) and t.ndim and len(t) == len(rows) for t in tensors) or not tensors:
            raise GdscoreError(
                f"Expected each of `shifts` to return what it gets, with tensors of {len(rows)} rows, but got "
                f"{describe(x)}"
            )
        self._parts.append(self._network.run(self._for_call(map_tensors(self._for_network, x)), self._batch))
        self._batch += 1

    def _for_network(self, x: Tensor) -> Tensor:
        x = self._form.for_model(x.to(self._network.device))
        if x.is_floating_point():
            x = x.to(self._network.dtype or torch.float32)
        if self._memory_format is not None and x.ndim == 4:
            x = x.contiguous(memory_format=self._memory_format)
        return x

    def outputs(self) -> Outputs:
        """Outputs of all rows since the last call."""
        returned, features = zip(*self._parts, strict=True)
        self._parts = []
        joined = None if features[0] is None else torch.cat(features)
        return Outputs(
            **self._network.kind.arrays(torch.cat(returned)),
            features=joined,
            labels=self._labels,
            threshold=self._threshold,
            class_names=self._class_names,
            check_logits=False,  # the network has checked them, or was told not to
        )


def shift_passes(
    model: nn.Module,
    val_loader: Iterable[Any],
    *,
    normalize: Any,
    shifts: Iterable[Callable[[Tensor], Tensor]] | Literal["quick"] | None,
    batch_size: int,
    seed: int,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> ShiftPasses:
    """Passes of a model over the inputs of a loader; parameters are those of `estimator`."""
    integer("batch_size", batch_size, least=1)
    decided_at = None if threshold is None else checked_threshold(threshold)
    network = Network(model, **options)
    if isinstance(shifts, str) and shifts != "quick":
        raise GdscoreError(f'Expected `shifts` to be a list of callables or "quick", but got {shifts!r}')
    chosen = None if shifts is None else _checked(quick_shifts(seed=seed) if isinstance(shifts, str) else shifts)
    as_images = chosen is None or normalize is not None or any(isinstance(s, _CORRUPTIONS) for s in chosen)
    form = ImageForm(normalize, network.device) if as_images else TensorForm(network.device)
    inputs = LabelledInputs(val_loader, form)
    if chosen is None or any(isinstance(shift, _CORRUPTIONS) for shift in chosen):
        try:
            check_image_shape(inputs.shape)
        except GdscoreError as error:
            raise GdscoreError(f"{error}; for other images give `shifts`, callables from inputs to inputs") from None
    if chosen is None:
        chosen = default_shifts(next(inputs.batches(1))[1], seed=seed)
    memory_format = torch.channels_last if _takes_channels_last(model, inputs, form, options) else None
    predictor = _Predictor(network, inputs, form, memory_format, decided_at, listed_names(class_names))
    return ShiftPasses(inputs, predictor, chosen, batch_size)


def _takes_channels_last(model: nn.Module, inputs: LabelledInputs, form: TensorForm, options: dict[str, Any]) -> bool:
    """Whether images are given with channels last: as the model's convolutions have them, or as a CPU is faster."""
    last = torch.channels_last
    if any(w.ndim == 4 and w.is_contiguous(memory_format=last) and not w.is_contiguous() for w in model.parameters()):
        return True
    if form.device.type != "cpu" or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return False
    # A network of its own, as a stochastic one would draw other numbers after this.
    trial = _Predictor(Network(model, **options), inputs, form, last)
    try:
        trial.run(next(inputs.batches(1))[1], np.arange(1), None)
    except (GdscoreError, RuntimeError):
        # `Tensor.view` behind a convolution needs the usual layout; other errors come again with the batch.
        return False
    return True
