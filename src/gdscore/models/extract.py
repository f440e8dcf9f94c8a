"""`Outputs` of any torch classifier, batch by batch, in one forward pass that leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError
from gdscore.io.progress import progress_bar
from gdscore.models.batches import Inputs, Where, count_rows, integer_labels, shapes, to_device
from gdscore.models.feed import Feed, check_loader, length
from gdscore.models.network import Network, floating_dtype, two_columns
from gdscore.models.opinions import Statistics, second_opinions
from gdscore.models.untouched import untouched
from gdscore.outputs import Outputs

__all__ = ["extract"]


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    device: torch.device | str | None = None,
    head: str | nn.Module | Literal[False] | None = None,
    logits: Where = None,
    peer: nn.Module | None = None,
    rotation_head: Callable[[Tensor], Tensor] | None = None,
    batchnorm: Statistics = "eval",
    autocast: torch.dtype | None = None,
    labels: bool = True,
    numbered: bool = False,
    progress: bool | None = None,
) -> Iterator[Outputs]:
    """Ask a model about everything a loader yields: logits, head features and labels, one `Outputs` per batch.

    The model is in evaluation mode during each forward pass and as it was before at every other moment, also between
    two batches, after an exception and when the iterator is dropped: modes, buffers, gradients, hooks, random state.

    Parameters
    ----------
    model : nn.Module
        Any classifier that returns logits as a tensor, in a tuple or as ``logits`` of a dict or Hugging Face output.
        A single logit z of a binary model becomes the logits (0, z). Compiled and data-parallel models are unwrapped
        and run eagerly.
    loader : iterable of batches
        Tensors, tuples ``(x,)``, ``(x, y)``, ``(x, y, more…)`` or dicts. Inputs are moved to the device and
        floating-point ones cast to the precision of the model's weights.
    device : torch.device or str, optional
        Where the model is; its parameters' device by default. The model itself is not moved.
    head : str, nn.Module or False, optional
        The last linear layer or its name. By default it is found on the first batch: the ``nn.Linear`` or 1×1
        convolution whose output is the logits. False goes without features.
    logits : int, str or callable, optional
        Where the logits are in what the model returns, if that is not plain; see `logits_of`.
    peer : nn.Module, optional
        A second model, run on the same batches, for ``peer_logits``.
    rotation_head : callable, optional
        From features (m, D) to logits (m, 4) of the rotation by 0°, 90°, 180°, 270°, for ``rotation_logits``. Inputs
        must be images m×C×H×W; they pass the model three more times.
    batchnorm : {"eval", "batch", "both"}
        ``"batch"``: BatchNorm uses the statistics of each batch, see `untouched`. ``"both"``: the model as it is, and
        once more with the statistics of about 128 rows of the batch, for ``batch_logits``; where the two disagree, the
        data are not what the model was trained on. The loader should then shuffle, and give 100 rows or more at once.
    autocast : torch.dtype, optional
        Run the forward passes under ``torch.autocast`` with this precision.
    labels : bool
        False ignores the loader's labels.
    numbered : bool
        Name rows by their number in the loader's order (``ids``). Random labels then hang on the number and not on the
        bits of the logits, which can differ in the last digit with the loader's batch size. For loaders that do not
        shuffle.
    progress : bool, optional
        Progress bar on standard error. By default where that is a terminal and the loader has a length.

    Yields
    ------
    Outputs
        Torch tensors on the device, in the precision the model computes in.

    Examples
    --------
    >>> import torch, gdscore
    >>> from gdscore import models
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> loader = [(torch.randn(5, 8), torch.tensor([0, 2, 1, 1, 0]))] * 2
    >>> for out in models.extract(model, loader):
    ...     print(out)
    Outputs(logits (5, 3), features (5, 4), labels (5,); torch torch.float32)
    Outputs(logits (5, 3), features (5, 4), labels (5,); torch torch.float32)
    """
    check_loader(loader)
    options: dict[str, Any] = {"logits": logits, "autocast": autocast}
    mode, others = second_opinions(model, peer, batchnorm, device=device, **options)
    network = Network(model, device=device, head=head, batchnorm=mode, **options)
    rotation = None if rotation_head is None else _Rotation(network, rotation_head)
    if rotation is not None and head is False:
        raise GdscoreError("Expected features for `rotation_head`, but head=False goes without them: leave it out")
    return _stream(network, loader, others, rotation, labels, numbered, progress)


def _stream(
    network: Network,
    loader: Iterable[Any],
    others: Mapping[str, Network],
    rotation: _Rotation | None,
    with_labels: bool,
    numbered: bool,
    progress: bool | None,
) -> Iterator[Outputs]:
    feed = Feed(loader, network.device, network.dtype)
    rows = length(loader)
    seen = 0
    with progress_bar(rows or 0, progress if rows else False) as advance:
        while (batch := feed.take()) is not None:
            inputs, labels = batch
            number = feed.taken - 1
            if not count_rows(inputs):
                feed.stage()
                continue
            logits, features = network.run(inputs, number)
            given: dict[str, Any] = {"logits": two_columns(logits), "features": features}
            if labels is not None and with_labels:
                given["labels"] = integer_labels(labels, logits.shape[0], logits.device)
            for name, other in others.items():
                there = to_device(inputs, other.device, dtype=other.dtype)
                given[name] = two_columns(other.run(there, number)[0]).to(logits.device, non_blocking=True)
            if rotation is not None and features is not None:
                given["rotation_logits"] = rotation.run(inputs, features, number)
            if numbered:
                given["ids"] = torch.arange(seen, seen + logits.shape[0], device=logits.device)
                seen += logits.shape[0]
            feed.stage()
            outputs = Outputs(**given)
            del batch, inputs, logits, features, given
            yield outputs
            advance(len(outputs))


class _Rotation:
    """What a rotation head says about each batch turned by 0°, 90°, 180° and 270°."""

    def __init__(self, network: Network, head: Callable[[Tensor], Tensor]) -> None:
        if not callable(head):
            raise GdscoreError(f"Expected `rotation_head` to be callable on features, but got {type(head).__name__}")
        self._network, self._head = network, head
        module = head if isinstance(head, nn.Module) else nn.Identity()
        self._guard, self._dtype = untouched(module), floating_dtype(module)

    def run(self, inputs: Inputs, features: Tensor, batch: int) -> Tensor:
        """Logits of shape (m, 4 rotations shown, 4 rotations predicted)."""
        if not isinstance(inputs, Tensor) or inputs.ndim != 4:
            raise GdscoreError(f"Expected images of shape (m, C, H, W) to rotate, but got {shapes(inputs)}")
        turned = [features]
        for k in (1, 2, 3):
            more = self._network.run(torch.rot90(inputs, k, dims=(2, 3)), batch)[1]
            assert more is not None
            turned.append(more)
        with torch.no_grad(), self._network.precision(), self._guard:
            said = torch.stack([self._head(x.to(self._dtype or x.dtype)) for x in turned], dim=1)
        if tuple(said.shape[1:]) != (4, 4):
            raise GdscoreError(
                f"Expected `rotation_head` to return logits of shape (m, 4), but got {shapes(said[:, 0])}"
            )
        return said
