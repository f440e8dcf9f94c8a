"""Adapting a network to unlabelled images: FixMatch on the target beside supervised training on labelled images.

Requirements met here:

- the network that is given is changed, so callers give a copy; random numbers come from a generator of its own;
- target rows are drawn so that the classes that the network predicts for them have the shares of the labelled rows: a
  target in another class mix would otherwise pull the network towards its largest classes;
- labelled and target images pass BatchNorm in batches of their own, and at the end its statistics are the target's;
- nothing waits for the device during training; on CUDA a step is recorded once and replayed, as launching its kernels
  one by one takes several times longer than running them.

References
----------
K. Sohn et al., "FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gdscore._softmax import binary_logits
from gdscore.errors import GdscoreError
from gdscore.models._inputs import ImageForm
from gdscore.models._network import floating_dtype
from gdscore.models._state import batchnorm_layers
from gdscore.models.predictions import Where, call, logits_of

EVALUATED_AT_ONCE = 256
"""Images in a batch where nothing is trained."""
EAGER_STEPS = 3
"""Steps on CUDA before one is recorded: libraries choose and allocate in the first ones."""


@dataclass(frozen=True)
class AdaptationSettings:
    """Constants of the adaptation; ``benchmarks/estimates/check.py arms`` compares them with others."""

    rate: float = 3e-4  # largest learning rate of the one-cycle schedule of AdamW
    decay: float = 0.01  # of its weights
    # Probability from which on the class predicted for the weakly augmented image is a label for the strongly
    # augmented one
    threshold: float = 0.9
    weight: float = 1.0  # of the target's loss relative to that of the labelled images
    least: float = 0.05  # bounds of the weights that target rows are drawn with
    most: float = 20.0
    statistics: int = 2048  # rows drawn for the final BatchNorm statistics
    statistics_batch: int = 128  # rows in each of their batches


ADAPTATION = AdaptationSettings()


@dataclass(frozen=True)
class Images:
    """Images as they are kept, and the form that turns them into what augmentations and networks take."""

    kept: Tensor
    form: ImageForm

    def __len__(self) -> int:
        return len(self.kept)

    def take(self, rows: Tensor | slice) -> Tensor:
        """Images of these rows in [0, 1]."""
        return self.form.decode(self.kept[rows])


def strong_augmentation(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images turned by up to 30°, zoomed, in other colours, with noise and with a square cut out.

    Parameters
    ----------
    x : Tensor of shape (m, C, H, W)
        Images in [0, 1].
    generator : torch.Generator
        On the device of the images.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models._adaptation import strong_augmentation
    >>> x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> y = strong_augmentation(x, torch.Generator().manual_seed(0))
    >>> y.shape == x.shape, bool((y >= 0).all() and (y <= 1).all()), bool((x == y).any())
    (True, True, False)
    """
    m, height, width = len(x), *x.shape[2:]

    def between(low: float, high: float) -> Tensor:
        drawn = torch.rand(m, 1, 1, 1, generator=generator, device=x.device)
        return low + (high - low) * drawn

    x = _transformed(x, between(-30, 30).deg2rad(), between(0.75, 1.3), between(-0.15, 0.15), between(-0.15, 0.15))
    if x.shape[1] > 1:
        grey = x.mean(dim=1, keepdim=True)
        x = grey + between(0, 1.8) * (x - grey)
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = mean + between(0.4, 1.6) * (x - mean) + between(-0.25, 0.25)
    x = x + between(0, 0.1) * torch.randn(x.shape, generator=generator, device=x.device)
    side, down, across = between(0.1, 0.45), between(0, 1), between(0, 1)
    ys = torch.arange(height, device=x.device).view(1, 1, -1, 1) / height
    xs = torch.arange(width, device=x.device).view(1, 1, 1, -1) / width
    inside = ((ys - down * (1 - side) - side / 2).abs() < side / 2) & (
        (xs - across * (1 - side) - side / 2).abs() < side / 2
    )
    return torch.where(inside, mean, x).clamp(0, 1)


def weak_augmentation(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images moved by up to a sixteenth of their size in each direction, by whole pixels."""
    m, height, width = len(x), *x.shape[2:]
    drawn = torch.rand(2, m, 1, 1, 1, generator=generator, device=x.device) * 2 - 1
    zero = torch.zeros_like(drawn[0])
    down = (drawn[0] * (height // 16)).round() * 2 / height
    across = (drawn[1] * (width // 16)).round() * 2 / width
    return _transformed(x, zero, zero + 1, across, down)


def _transformed(x: Tensor, angle: Tensor, zoom: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Images turned, zoomed and moved; beyond their border they are mirrored."""
    cos, sin = (torch.cos(angle) / zoom).view(-1), (torch.sin(angle) / zoom).view(-1)
    first = torch.stack([cos, -sin, across.view(-1)], dim=1)
    theta = torch.stack([first, torch.stack([sin, cos, down.view(-1)], dim=1)], dim=1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


class Adaptation:
    """A network and its training on labelled and target images, one step at a time.

    Parameters
    ----------
    network : nn.Module
        Is trained, all of its parameters.
    labelled : Images
        With ``labels``, a tensor of their classes.
    target : Images
        Unlabelled.
    mix : Tensor of shape (K,)
        Shares of the classes among the labelled rows.
    known_mix : Tensor of shape (K,), optional
        Shares of the classes in the target where they are known; otherwise the network's own predictions tell them.
    augment : callable
        From images in [0, 1] and a generator to strongly augmented images.
    steps, batch_size : int
        Steps of the training, and images of each kind in a step.
    name : str, optional
        Of the images among the network's arguments, where it is called by name.
    """

    def __init__(
        self,
        network: nn.Module,
        labelled: Images,
        labels: Tensor,
        target: Images,
        *,
        mix: Tensor,
        known_mix: Tensor | None,
        augment: Callable[[Tensor, torch.Generator], Tensor],
        steps: int,
        batch_size: int,
        seed: int,
        logits: Where = None,
        autocast: torch.dtype | None = None,
        name: str | None = None,
    ) -> None:
        self.network, self._name = network, name
        self.labelled, self.labels, self.target = labelled, labels, target
        self.mix, self.known_mix, self.augment = mix, known_mix, augment
        self.steps, self.batch_size = steps, batch_size
        self.device = labels.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._logits, self._autocast, self._dtype = logits, autocast, floating_dtype(network)
        self.batchnorm = batchnorm_layers(network)
        trainable = [p.requires_grad_(True) for p in network.parameters() if p.is_floating_point()]
        on_cuda = self.device.type == "cuda"
        rate: Any = torch.tensor(ADAPTATION.rate, device=self.device) if on_cuda else ADAPTATION.rate
        self.optimiser = torch.optim.AdamW(
            trainable, lr=rate, weight_decay=ADAPTATION.decay, capturable=on_cuda, fused=on_cuda or None
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: Any = torch.cuda.Stream(self.device) if on_cuda else None  # type: ignore[no-untyped-call]
        self._recordable = on_cuda
        self._taken = 0
        self._layout = torch.channels_last
        self.before = self._predicted_before()
        # Of the target's classes by row: those of the network when the row was drawn last.
        self.probabilities = self.before.clone()

    def _predicted_before(self) -> Tensor:
        """Probabilities before the training; channels last, where convolutions are faster, if the network can do it."""
        try:
            self.network.to(memory_format=self._layout)  # type: ignore[call-overload]
            return self.predict()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, GdscoreError):
            # `Tensor.view` behind a convolution needs the usual layout.
            self._layout = torch.contiguous_format
            self.network.to(memory_format=self._layout)  # type: ignore[call-overload]
            return self.predict()

    def train(self, advance: Callable[[int], None]) -> None:
        """Take all steps."""
        for _ in range(self.steps):
            self.step()
            advance(1)
        # Gradients are in the memory of the recorded step.
        self._graph = None
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def predict_labelled(self, images: Images) -> Tensor:
        """Probabilities of other images than the target's, BatchNorm with the statistics of each batch."""
        self.evaluating()
        # Mixed: rows that come sorted by class would give statistics of one class each.
        order = torch.randperm(len(images), generator=self.generator, device=self.device)
        parts = torch.tensor_split(order, math.ceil(len(order) / ADAPTATION.statistics_batch))
        probabilities = torch.cat([self.forward(images.take(rows)).softmax(dim=1) for rows in parts])
        return probabilities[order.argsort()]

    def step(self) -> None:
        """Take one step: the first ones as they are, the others on CUDA as recorded, where that is possible."""
        rate = self.rate(self._taken / self.steps)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self._stream is None:
            self._work()
        else:
            self._step_on_cuda()
        self._taken += 1

    def _step_on_cuda(self) -> None:
        # On a stream of its own throughout, as recording needs one.
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            if self._graph is None and self._recordable and self._taken == EAGER_STEPS:
                self._record()
            if self._graph is None:
                self._work()
            else:
                self._graph.replay()
        current.wait_stream(self._stream)

    def rate(self, done: float) -> float:
        """Learning rate after this share of the steps: up by a cosine over the first 30 %, then down to nearly 0."""
        low, part = (ADAPTATION.rate / 25, done / 0.3) if done < 0.3 else (0.0, (1 - done) / 0.7)
        return low + (ADAPTATION.rate - low) * (1 - math.cos(math.pi * part)) / 2

    def _record(self) -> None:
        """Record a step as a CUDA graph; a network that cannot be recorded, as it reads values, goes on without.

        The kernels of a step on small images take less time than launching them.
        """
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize(self.device)
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._work()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, GdscoreError):
            self._recordable = False
            self.optimiser.zero_grad(set_to_none=True)
            return
        self._graph = graph

    def _work(self) -> None:
        rows = torch.randint(len(self.labels), (self.batch_size,), generator=self.generator, device=self.device)
        drawn = self.draw(self.batch_size)
        x, generator = self.target.take(drawn), self.generator
        weak, strong = weak_augmentation(x, generator), self.augment(x, generator)
        with torch.enable_grad():
            loss = self.loss(self.augment(self.labelled.take(rows), generator), self.labels[rows], weak, strong, drawn)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def loss(self, labelled: Tensor, labels: Tensor, weak: Tensor, strong: Tensor, rows: Tensor) -> Tensor:
        """Loss of a step; ``rows`` are those of the target."""
        with torch.no_grad():
            self.evaluating()
            certain, classes = self.remember(self.forward(weak), rows).max(dim=1)
        self.network.train()
        labelled_loss = functional.cross_entropy(self.forward(labelled), labels)
        each = functional.cross_entropy(self.forward(strong), classes, reduction="none")
        return labelled_loss + ADAPTATION.weight * (each * (certain >= ADAPTATION.threshold)).mean()

    def remember(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Probabilities of these target rows, which the next draws are made by."""
        probabilities = logits.softmax(dim=1)
        self.probabilities.index_copy_(0, rows, probabilities)
        return probabilities

    def evaluating(self) -> None:
        """Evaluation mode of all layers but BatchNorm, which takes the statistics of each batch."""
        self.network.eval()
        for layer in self.batchnorm:
            layer.train()

    def weights(self) -> Tensor:
        """Weight of each target row, so that its predicted classes get the labelled rows' shares."""
        share = self.probabilities.mean(dim=0) if self.known_mix is None else self.known_mix
        ratio = (self.mix / share.clamp_min(1e-9)).clamp(ADAPTATION.least, ADAPTATION.most)
        return self.probabilities @ ratio

    def draw(self, number: int) -> Tensor:
        """Rows of the target, drawn with replacement by their weights."""
        sums = self.weights().cumsum(0)
        places = torch.rand(number, generator=self.generator, device=self.device) * sums[-1]
        return torch.searchsorted(sums, places).clamp(max=len(sums) - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images in [0, 1]."""
        x = self.target.form.for_model(x)
        x = x if self._dtype is None else x.to(self._dtype)
        x = x.contiguous(memory_format=self._layout)
        precision: Any = torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None)
        with precision:
            returned = call(self.network, x if self._name is None else {self._name: x}, 0)
        logits: Tensor = binary_logits(logits_of(returned, self._logits, len(x))).float()
        return logits

    @torch.no_grad()
    def set_statistics(self) -> None:
        """Set BatchNorm's statistics to those of target rows drawn by their weights."""
        layers = [layer for layer in self.batchnorm if layer.running_mean is not None]
        if not layers:
            return
        # Evenly spaced over the summed weights: no chance which rows of a class are drawn.
        sums = self.weights().double().cumsum(0)
        places = (torch.arange(ADAPTATION.statistics, device=self.device) + 0.5) / ADAPTATION.statistics
        drawn = torch.searchsorted(sums, places.double() * sums[-1]).clamp(max=len(sums) - 1)
        order = torch.randperm(len(drawn), generator=self.generator, device=self.device)
        kept = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over the batches
        self.evaluating()
        for rows in torch.split(drawn[order], ADAPTATION.statistics_batch):
            self.forward(self.target.take(rows))
        for layer, momentum in zip(layers, kept, strict=True):
            layer.momentum = momentum

    @torch.no_grad()
    def predict(self, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Probabilities of the target's classes, shape (N, K), in evaluation mode; of changed images where given."""
        self.network.eval()
        parts = []
        for start in range(0, len(self.target), EVALUATED_AT_ONCE):
            # A copy, as a first layer may work in place.
            x = self.target.take(slice(start, start + EVALUATED_AT_ONCE)).clone()
            parts.append(self.forward(x if change is None else change(x)).softmax(dim=1))
        return torch.cat(parts)
