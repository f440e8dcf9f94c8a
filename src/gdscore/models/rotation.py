"""A rotation head: by which of four quarter turns was an image turned?

The network stays frozen: features of the four turns are computed once, by `extract`, and only a linear layer is fitted
on them. That is a convex problem with one solution, so there is no seed and no learning rate to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gdscore._checks import integer, number
from gdscore._stream import progress_bar
from gdscore.errors import GdscoreError
from gdscore.models._inputs import check_loader, row_count
from gdscore.models.extract import extract
from gdscore.models.predictions import Where, describe, split_batch


class RotationHead(nn.Module):
    """Linear layer from features to the logits of four rotations: ``extract(..., rotation_head=head)``.

    Parameters
    ----------
    n_features : int
        Features D of the network.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import RotationHead
    >>> tuple(RotationHead(16)(torch.zeros(5, 16)).shape)
    (5, 4)
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_features, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Logits of the rotations, shape (m, 4), of features of shape (m, D)."""
        logits: Tensor = self.linear(features.to(self.linear.weight.dtype))
        return logits


def fit_rotation_head(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    head: nn.Module | str | None = None,
    logits: Where = None,
    l2: float = 1e-3,
    iterations: int = 300,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> RotationHead:
    r"""Fit a rotation head on the frozen features of a model; no labels are needed.

    .. math:: \min_{W, b}\; \frac{1}{4m}\sum_{i=1}^{m}\sum_{r=0}^{3} -\ln \mathrm{softmax}(W x_i^{(r)} + b)_r
              + \frac{\lambda}{2}\|W\|^2

    with :math:`x_i^{(r)}` the features of image i after r quarter turns, standardised for the fit. Solved by L-BFGS
    from zero: the same data give the same head.

    Parameters
    ----------
    model : nn.Module
        Not changed.
    loader : iterable
        Images of the training distribution, shape (m, channels, height, width); labels are not read.
    head, logits
        The last linear layer and the place of the logits, as in `extract`.
    l2 : float, default 1e-3
        λ, on the weights of standardised features.
    iterations : int, default 300
        At most; it ends before where nothing improves.
    device : torch.device or str, optional
        Where the model is; it is not moved.
    progress : bool, optional
        Whether to show a progress bar; by default where a terminal is attached and the loader has a length.

    Returns
    -------
    RotationHead
        In evaluation mode, on the device of the features.

    Notes
    -----
    Four forward passes of the loader, and memory for the features of all four turns, 16·m·D bytes, on the device.

    References
    ----------
    Deng, Gould and Zheng, "What Does Rotation Prediction Tell Us about Classifier Accuracy under Varying Testing
    Environments?", ICML 2021.

    Examples
    --------
    >>> import torch, gdscore
    >>> from gdscore.models import extract, fit_rotation_head
    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(64, 1, 4, 4, generator=rng) + torch.arange(4.0)[:, None]  # brighter below
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    >>> rotation_head = fit_rotation_head(model, [x])
    >>> gdscore.score("rotation", *extract(model, [x], rotation_head=rotation_head))
    0.0
    """
    l2 = number("l2", l2, above=0)
    iterations = integer("iterations", iterations, least=1)
    check_loader(loader)
    turned = _Turned(loader)
    rows = row_count(loader)
    parts = []
    # What is made in inference mode cannot be trained on, wherever the caller is.
    with torch.inference_mode(False), progress_bar(4 * (rows or 0), progress if rows else False) as advance:
        try:
            for outputs in extract(model, turned, head=head, logits=logits, device=device):
                parts.append(outputs.features)
                advance(len(outputs))
        except GdscoreError as error:
            if turned.square:
                raise
            raise GdscoreError(
                "Expected square images, or a model that takes others turned by 90° too: resize or crop them to "
                f"squares ({error})"
            ) from error
        features = torch.cat(parts)
        with torch.enable_grad():
            return _fitted(features, torch.cat(turned.shown).to(features.device), l2, iterations)


class _Turned:
    """Batches of a loader, each in its four rotations one after the other; remembers what the rows show."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.shown: list[Tensor] = []
        self.square = True
        self._loader = loader

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._loader:
            images, _ = split_batch(batch)
            if not isinstance(images, Tensor) or images.ndim != 4:
                raise GdscoreError(f"Expected images of shape (m, C, H, W) to rotate, but got {describe(images)}")
            for quarter_turns in range(4):
                self.square &= images.shape[2] == images.shape[3] or not quarter_turns
                self.shown.append(torch.full((len(images),), quarter_turns))
                yield torch.rot90(images, quarter_turns, (2, 3))


def _fitted(features: Tensor, shown: Tensor, l2: float, iterations: int) -> RotationHead:
    mean, deviation = features.mean(0), features.std(0, correction=0)
    # A feature that never varies has no weight and must not be divided by what rounding left of it.
    varies = deviation > 1e-6 * features.abs().amax(0)
    scale = torch.where(varies, deviation, torch.ones_like(deviation))
    x = (features - mean) / scale
    with torch.random.fork_rng(devices=[]):
        fitted = RotationHead(features.shape[1]).to(x)
    weight, bias = nn.init.zeros_(fitted.linear.weight), nn.init.zeros_(fitted.linear.bias)
    solver = torch.optim.LBFGS(
        fitted.parameters(),
        max_iter=iterations,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = nn.functional.cross_entropy(fitted(x), shown) + 0.5 * l2 * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        weight /= scale
        bias -= weight @ mean
    solver.zero_grad()
    return fitted.eval().requires_grad_(False)
