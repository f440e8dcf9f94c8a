"""`check`: the accuracy of a classifier on a target from its agreement with a check network adapted to that target.

With a check network c and a model f, |P(f agrees with c) − P(f is right)| is at most P(c is wrong) on the target. A
second model that was trained as the first fails on the same rows; a network that was adapted to the target's unlabelled
images is right far more often there, and its agreement with the model is close to the model's accuracy.

Requirements met here:

- the model, gradients, random states and files are as before, also after an exception or an interrupt: all training is
  on copies;
- the same adaptation to shifted copies of labelled rows, whose accuracy is known, tells how far off agreement is; their
  shift families are not among the augmentations that the check network is trained with;
- the mean of ``right`` is ``estimate.accuracy``, whatever it is combined of.

References
----------
Ching-Yao Chuang et al., "Estimating Generalization under Distribution Shifts via Domain-Invariant Representations",
ICML 2020. Jiefeng Chen et al., "Detecting Errors and Estimating Accuracy on Unlabeled Data with Self-training
Ensembles", NeurIPS 2021.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdscore._checks import integer
from gdscore._classes import list_of
from gdscore._stream import announce, progress_bar
from gdscore.errors import GdscoreError
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.estimator.core import fitted_of, known_shares
from gdscore.models._adaptation import EAGER_STEPS, Adaptation, Images, strong_augmentation
from gdscore.models._agreement import CHECK, Agreement, combine
from gdscore.models._inputs import ImageForm, check_classes, collected
from gdscore.models._network import check_autocast, device_of, in_full_precision, working_copy
from gdscore.models._state import RandomStream, clock, cuda_of
from gdscore.models.estimator import estimator
from gdscore.models.extract import extract
from gdscore.models.predictions import Inputs, Where, describe
from gdscore.outputs import ARGMAX, Outputs
from gdscore.shifts.images import Corruption, corrupt, corruptions

Floats = NDArray[np.float64]


FEWEST = 20
"""Labelled rows that are needed."""


@dataclass(frozen=True)
class Check:
    """What `check` found.

    Attributes
    ----------
    estimate : Estimate
        Accuracy, interval, classes and warnings; its ``method`` is ``"check"``.
    right : float array of shape (N,)
        Probability that the prediction of each row is right, in the loader's order; its mean is the estimated accuracy.
    network : nn.Module
        The adapted check network in evaluation mode. Give it as ``network=`` for the next window of the same data.
    probabilities : float array of shape (N, K)
        Its probabilities of the classes of each row.
    agreement : Agreement
        Of the check network with the model on the target.
    calibration : tuple of Agreement
        The same on shifted sets of known accuracy. Give it as ``calibration=`` for the next targets of the same model:
        it does not depend on the target, and is most of the work.
    est : AccuracyEstimator
        The estimator that was combined with the check.
    seconds : float
        Time of all.
    """

    estimate: Estimate
    right: Floats
    network: nn.Module = field(repr=False)
    probabilities: Floats = field(repr=False)
    agreement: Agreement
    calibration: tuple[Agreement, ...] = field(repr=False)
    est: AccuracyEstimator = field(repr=False)
    seconds: float


def check(
    model: nn.Module,
    labelled_loader: Iterable[Any],
    target_loader: Iterable[Any],
    *,
    est: AccuracyEstimator | None = None,
    network: nn.Module | None = None,
    val_loader: Iterable[Any] | None = None,
    calibration: Sequence[Agreement] | None = None,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    class_mix: Any = None,
    steps: int = 200,
    batch_size: int = 64,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
    head: str | nn.Module | Literal[False] | None = None,
    logits: Where = None,
    autocast: torch.dtype | None = None,
    progress: bool | None = None,
) -> Check:
    """Estimate the accuracy on a target by a check network that is adapted to its unlabelled images.

    The check network is trained for ``steps`` steps on labelled images and, by FixMatch, on the target's images without
    labels. Its probability of the model's prediction is, for every row, the probability that the prediction is right,
    corrected by what the mean of these probabilities is off by on labelled rows.
    The same is done with shifted copies of labelled rows, which show how far off such an estimate is for this model.
    The result is combined with that of an `AccuracyEstimator`. The model is not changed.

    Cost: training five copies of the network for ``steps`` steps each, one with ``calibration``. Time and memory are
    measured on a few steps and reported before the training begins.

    Parameters
    ----------
    model : nn.Module
        A classifier of images that returns logits. The check network is trained where the model is.
    labelled_loader : iterable of batches
        Labelled images ``(x, y)``, or dicts such as ``{"pixel_values": x, "labels": y}``, of the training
        distribution: the training data where you have them, otherwise the reference.
    target_loader : iterable of batches
        The target's images; labels are ignored. Rows of the result are in its order, so it should not shuffle.
    est : AccuracyEstimator, optional
        Fitted for the model. By default `models.estimator` fits one on two severities of each corruption.
    network : nn.Module, optional
        What the check network starts from: a network of the same classes trained on the same data, such as another
        pretrained one, or ``Check.network`` of an earlier window. By default a copy of the model. It is not changed.
    val_loader : iterable of batches, optional
        Labelled images that the model was not trained on: the estimator is fitted on them, and shifted sets are made
        of them. By default 30 % of the labelled rows, at most 1,000, which the check network is then not trained on.
        Where the labelled rows are the model's training data, give others here: on rows that it was trained on, the
        model is more accurate than elsewhere.
    calibration : sequence of Agreement, optional
        ``Check.calibration`` of an earlier call for the same model: shifted sets are then not trained on again.
    normalize : (mean, std), optional
        What the loaders' images were normalised by, as in `estimator`.
    augment : callable, optional
        Strong augmentation, from a batch of images in [0, 1] to another one; by default rotation, zoom, contrast,
        brightness, saturation, noise and cut-out. Use your own where some of these change the class.
    class_mix : optional
        What is known of the target's mix of classes, as in `AccuracyEstimator`; by default what ``est`` assumes.
    steps : int, default 200
        Training steps.
    batch_size : int, default 64
        Labelled images, and as many of the target, in a step.
    seed : int, default 0
        Of draws and augmentations.
    class_names : sequence of K str, optional
        Names of the classes, where ``est`` is left out.
    head : str, nn.Module or False, optional
        The model's last linear layer, as in `extract`; the network needs none.
    logits : int, str or callable, optional
        Where the logits are in what the model and the network return, as in `extract`.
    autocast : torch.dtype, optional
        Precision of the training; ``torch.bfloat16`` saves time and memory on a GPU.
    progress : bool, optional
        Progress bar and expected time on standard error; by default where that is a terminal.

    Returns
    -------
    Check

    Examples
    --------
    >>> import torch
    >>> from gdscore import models
    >>> rng = torch.Generator().manual_seed(0)
    >>> y = torch.arange(240) % 2
    >>> x = 0.5 + 0.1 * torch.randn(240, 1, 8, 8, generator=rng)
    >>> x[y == 1, :, :, :4] += 0.3
    >>> x = x.clamp(0, 1)
    >>> sides = torch.where(torch.arange(64) % 8 < 4, 1.0, -1.0)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> model.load_state_dict({"1.weight": torch.stack([-sides, sides]), "1.bias": torch.tensor([4.8, -4.8])})
    <All keys matched successfully>
    >>> c = models.check(model, [(x[:160], y[:160])], [x[160:]], steps=10, progress=False)
    >>> c.estimate.method, bool(abs(c.right.mean() - c.estimate.accuracy) < 1e-9)
    ('check', True)
    """
    begin = time.perf_counter()
    steps, batch_size = integer("steps", steps, least=1), integer("batch_size", batch_size, least=2)
    seed = integer("seed", seed, least=0)
    decision = ARGMAX if est is None else fitted_of(est).decision
    if decision != ARGMAX:
        raise GdscoreError(
            "Expected an `est` of a model that decides for the largest probability, but got one fitted on rows decided "
            f"otherwise ({decision}): a check network agrees with classes of largest probability, so fit an estimator "
            "for these, or estimate with this one alone"
        )
    calibration = list_of(calibration) if isinstance(calibration, Iterable) else calibration
    if calibration is not None and not (
        isinstance(calibration, list) and all(isinstance(entry, Agreement) for entry in calibration)
    ):
        raise GdscoreError(
            "Expected `calibration` to be `Check.calibration` of an earlier call: a tuple of `Agreement`"
        )
    if network is not None and not isinstance(network, nn.Module):
        raise GdscoreError(f"Expected `network` to be a torch.nn.Module or None, but got {type(network).__name__}")
    check_autocast(autocast)
    where = device_of(model)
    # Parameters made in inference mode cannot be trained, wherever the caller is.
    with torch.inference_mode(False), RandomStream(cuda_of(where)):
        run = _Run(model, network, normalize, augment, steps, batch_size, seed, head, logits, autocast, where)
        labelled, labels = run.read(labelled_loader, "labelled_loader", labelled=True)
        target, _ = run.read(target_loader, "target_loader", labelled=False)
        outputs = run.outputs(target)
        run.set_start(target)
        run.set_labelled(labelled, labels, outputs, val_loader)
        fitted_est = run.fitted(est, class_names)
        est_used = fitted_est if class_mix is None else copy.copy(fitted_est).set_params(class_mix=class_mix)
        shares = known_shares(est_used, outputs)
        sets = 0 if calibration is not None else len(CHECK.shifts)
        with run.guarded(), RandomStream(cuda_of(where), seed=seed):
            run.announce(target, (sets + 1) * steps, progress)
            with progress_bar((sets + 1) * steps, progress, "steps") as advance:
                calibration_used = tuple(run.calibrated(advance)) if calibration is None else tuple(calibration)
                adapted, probabilities, agreement = run.adapt(target, outputs, shares, advance, seed)
    estimate, correct = combine(est_used, outputs, probabilities, agreement, calibration_used)
    seconds = time.perf_counter() - begin
    return Check(estimate, correct, adapted, probabilities, agreement, calibration_used, fitted_est, seconds)


class _Run:
    """The data and options of one call."""

    def __init__(
        self,
        model: nn.Module,
        network: nn.Module | None,
        normalize: Any,
        augment: Callable[[Tensor], Tensor] | None,
        steps: int,
        batch_size: int,
        seed: int,
        head: str | nn.Module | Literal[False] | None,
        logits: Where,
        autocast: torch.dtype | None,
        device: torch.device,
    ) -> None:
        self._model, self._autocast, self._device = model, autocast, device
        self._head, self._logits = head, logits
        self._steps, self._batch_size, self._seed = steps, batch_size, seed
        self._form, self._normalize = ImageForm(normalize, device), normalize
        self._name: str | None = None  # of the images in the labelled batches, where these are dicts
        self._augment = strong_augmentation if augment is None else lambda x, _: _augmented(augment, x)
        self._start = working_copy(model if network is None else network, device)

    def read(self, loader: Iterable[Any], name: str, labelled: bool) -> tuple[Images, Tensor]:
        """Images of a loader on the device, and their labels, of which there are none where none are asked for."""
        rows = collected(loader, self._seed, self._device, labelled=labelled, name=name)
        x = rows.inputs
        if isinstance(x, dict) and len(x) == 1 and (not labelled or self._name in (None, *x)):
            ((own_name, x),) = x.items()
            self._name = own_name if labelled else self._name
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
            raise GdscoreError(
                f"Expected float images of shape (m, C, H, W) from `{name}`, alone or as the only tensor of a dict, "
                f"but it yields {describe(x)}: a check network learns from augmented images; for other inputs use "
                "`AccuracyEstimator`"
            )
        kept = self._form.encode(x, 0)
        labels = torch.zeros(0, dtype=torch.int64) if rows.labels is None else rows.labels
        return Images(kept.to(self._device), self._form), labels.to(self._device)

    def set_start(self, images: Images) -> None:
        """Choose the precision that is trained in."""
        few = self._batch(images.take(slice(0, 2)))
        self._start = in_full_precision(
            self._start, lambda network: list(extract(network, [few], head=False, logits=self._logits, progress=False))
        )

    def set_labelled(self, images: Images, labels: Tensor, outputs: Outputs, val_loader: Iterable[Any] | None) -> None:
        """Choose the labelled rows to train on, and others, which shifted sets are made of."""
        classes = int(outputs.n_classes or 0)
        _check_labels(labels, classes, "labelled_loader")
        if val_loader is not None:
            self._val, self._val_labels = self.read(val_loader, "val_loader", labelled=True)
            _check_labels(self._val_labels, classes, "val_loader")
        else:
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(self._seed)).to(self._device)
            held = max(min(int(0.3 * len(labels)), 1000), 1)
            self._val, self._val_labels = Images(images.kept[order[:held]], self._form), labels[order[:held]]
            # What is measured on these rows, and on their shifted copies, is about rows that it was not trained on.
            images, labels = Images(images.kept[order[held:]], self._form), labels[order[held:]]
        self._labelled, self._labels = images, labels
        self._mix = torch.bincount(labels, minlength=classes).float() / len(labels)
        self._val_predicted = torch.from_numpy(np.asarray(self.outputs(self._val).predictions)).to(self._device)

    def _batch(self, x: Tensor) -> Inputs:
        """Images in [0, 1] as the model is called with them."""
        made = self._form.for_model(x)
        return made if self._name is None else {self._name: made}

    def outputs(self, images: Images, labels: Tensor | None = None) -> Outputs:
        """Outputs of the model."""
        size = 256
        batches = (self._batch(images.take(slice(start, start + size))) for start in range(0, len(images), size))
        parts = extract(self._model, batches, head=self._head, logits=self._logits, progress=False)
        outputs = Outputs.concatenate([part.to_numpy() for part in parts])
        return outputs if labels is None else outputs.with_arrays(labels=labels.cpu().numpy())

    def fitted(self, est: AccuracyEstimator | None, class_names: Sequence[str] | None) -> AccuracyEstimator:
        """Estimator that was given, or one fitted on few corruptions."""
        if est is not None:
            return est
        x = self._val.take(slice(None))
        parts = zip(torch.split(x, 500), torch.split(self._val_labels, 500), strict=True)
        batches = [(self._batch(images), labels) for images, labels in parts]
        return estimator(
            self._model,
            batches,
            normalize=self._normalize,
            shifts=corruptions((3, 6), seed=self._seed),
            class_names=class_names,
            head=self._head,
            logits=self._logits,
            progress=False,
        )

    def adapt(
        self,
        images: Images,
        outputs: Outputs,
        mix_known: Floats | None,
        advance: Callable[[int], None],
        seed: int,
        family: str = "",
    ) -> tuple[nn.Module, Floats, Agreement]:
        """Adapt a copy of the start to images; its probabilities there, and its agreement with the model's outputs."""
        made = self._begun(images, mix_known, seed)
        made.train(advance)
        on_reference = made.predict_labelled(self._val)
        made.set_statistics()
        after = made.predict()
        if not bool(after.isfinite().all()):
            raise GdscoreError(
                "The training diverged: the check network's outputs are not finite any more; leave out images with NaN "
                "or Inf, or give another `network`, one in full precision where the model casts to float16"
            )
        strong = made.predict(lambda x: self._augment(x, made.generator))
        predicted = torch.from_numpy(np.asarray(outputs.predictions)).to(self._device)
        check_classes = after.argmax(dim=1)
        mix = torch.bincount(check_classes, minlength=len(self._mix)) / len(check_classes)
        truth = outputs.labels if "labels" in outputs.has else None
        result = Agreement(
            family=family,
            rows=len(check_classes),
            agreement=float(after.gather(1, predicted[:, None]).double().mean()),
            confidence=float(after.max(dim=1).values.double().mean()),
            stability=float((strong.argmax(dim=1) == check_classes).double().mean()),
            moved=float((made.before.argmax(dim=1) != check_classes).double().mean()),
            mix_distance=0.5 * float((mix - self._mix).abs().sum()),
            reference_accuracy=float((on_reference.argmax(dim=1) == self._val_labels).double().mean()),
            reference_agreement=float(on_reference.gather(1, self._val_predicted[:, None]).double().mean()),
            model_accuracy=float((self._val_predicted == self._val_labels).double().mean()),
            accuracy=None if truth is None else float(outputs.accuracy),
            check_accuracy=None if truth is None else float((check_classes.cpu().numpy() == truth).mean()),
        )
        return made.network.eval(), after.double().cpu().numpy(), result

    def _begun(self, images: Images, mix_known: Floats | None, seed: int) -> Adaptation:
        made = Adaptation(
            copy.deepcopy(self._start),
            self._labelled,
            self._labels,
            images,
            mix=self._mix,
            known_mix=None if mix_known is None else torch.from_numpy(mix_known).float().to(self._device),
            augment=self._augment,
            steps=self._steps,
            batch_size=self._batch_size,
            seed=seed,
            logits=self._logits,
            autocast=self._autocast,
            name=self._name,
        )
        if made.before.shape[1] != len(self._mix):
            raise GdscoreError(
                f"Expected `network` to have the {len(self._mix)} classes of the model, but it has "
                f"{made.before.shape[1]}"
            )
        return made

    def calibrated(self, advance: Callable[[int], None]) -> Iterator[Agreement]:
        """Agreement on shifted sets of known accuracy, every second of them in another class mix."""
        labels = self._val_labels.cpu().numpy()
        for number, (name, severity) in enumerate(CHECK.shifts):
            rng = np.random.default_rng([self._seed, number])
            rows = torch.from_numpy(_drawn(labels, rng, mixed=number % 2 == 1)).to(self._device)
            shift = Corruption(name, severity, self._seed)
            shifted = torch.cat(
                [corrupt(shift, self._val.take(part), 500 * k) for k, part in enumerate(torch.split(rows, 500))]
            )
            images = Images(self._form.for_model(shifted), self._form)
            outputs = self.outputs(images, self._val_labels[rows])
            seed = self._seed + number + 1
            yield self.adapt(images, outputs, None, advance, seed, name)[2]

    def announce(self, images: Images, steps: int, progress: bool | None) -> None:
        """Say how long the training will take and how much memory it needs, measured on a few steps of a copy."""
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        trial = self._begun(images, None, self._seed)
        for _ in range(EAGER_STEPS + 1 if on_gpu else 1):
            trial.step()
        begin = clock(self._device)
        for _ in range(2):
            trial.step()
        seconds = (clock(self._device) - begin) / 2 * steps
        memory = f", {torch.cuda.max_memory_allocated(self._device) / 2**30:.1f} GiB of memory" if on_gpu else ""
        announce(f"models.check: {steps:,} training steps on {self._device.type}{memory}", seconds, progress)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Context that explains an out-of-memory error."""
        try:
            yield
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            raise GdscoreError(
                f"The check network does not fit into the memory of {self._device} with batch_size={self._batch_size}: "
                f"try batch_size={max(self._batch_size // 2, 2)}, or autocast=torch.bfloat16"
            ) from error


def _check_labels(labels: Tensor, classes: int, name: str) -> None:
    check_classes(labels, classes, name)
    if len(labels) < FEWEST:
        raise GdscoreError(f"Expected at least {FEWEST} labelled rows from `{name}`, but got {len(labels)}")


def _augmented(augment: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    augmented = augment(x)
    if not isinstance(augmented, Tensor) or augmented.shape != x.shape:
        came = tuple(augmented.shape) if isinstance(augmented, Tensor) else type(augmented).__name__
        raise GdscoreError(f"Expected `augment` to return images of the same shape, {tuple(x.shape)}, but got {came}")
    return augmented.clamp(0, 1)


def _drawn(labels: NDArray[np.int64], rng: np.random.Generator, mixed: bool) -> NDArray[np.int64]:
    """Rows of a shifted set: all, or as many as give a random class mix without a row twice."""
    if not mixed:
        return np.sort(rng.permutation(len(labels))[: CHECK.shifted_rows])
    present, counts = np.unique(labels, return_counts=True)
    shares = rng.dirichlet(np.full(len(present), CHECK.concentration))
    # Half of the rows at least, so that the set is not too small; classes that are too few give all they have.
    total = max(int((counts / np.maximum(shares, 1e-9)).min()), min(len(labels) // 2, CHECK.shifted_rows))
    numbers = np.minimum(np.round(shares * total).astype(int), counts)
    chosen = [rng.permutation(np.flatnonzero(labels == c))[:n] for c, n in zip(present, numbers, strict=True)]
    return np.sort(np.concatenate(chosen))[: CHECK.shifted_rows]
