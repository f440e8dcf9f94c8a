"""Batches of a loader in all the forms people use.

Requirements met here:

- a loader may yield ``x``, ``(x,)``, ``(x, y)``, ``(x, y, more…)`` or a dict; ``x`` is a tensor, a dict of keyword
  arguments or a tuple of positional ones;
- nothing here reads a value of a tensor on an accelerator, so nothing waits for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError

__all__ = [
    "Inputs",
    "call",
    "count_rows",
    "describe",
    "integer_labels",
    "map_tensors",
    "split_batch",
    "tensors_in",
    "to_device",
]

Inputs: TypeAlias = Tensor | dict[str, Any] | tuple[Any, ...]
"""What the model is called with: one tensor, keyword arguments, or several positional arguments."""

_LABELS = ("labels", "label")


def split_batch(batch: Any) -> tuple[Inputs, Any]:
    """Inputs and labels of what a loader yields; labels are None where there are none.

    Parameters
    ----------
    batch : tensor, dict, or tuple or list
        Of a tuple the first entry is the input, the second the labels, and further ones are ignored; several inputs
        form a tuple of their own, ``((x1, x2), y)``. Of a dict ``labels`` or ``label`` are the labels and all others
        inputs.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models._batches import split_batch
    >>> x, y = split_batch((torch.zeros(2, 3), torch.tensor([0, 1]), ["a.png", "b.png"]))
    >>> tuple(x.shape), y.tolist()
    ((2, 3), [0, 1])
    >>> inputs, y = split_batch({"input_ids": torch.zeros(2, 5, dtype=torch.int64)})
    >>> sorted(inputs), y
    (['input_ids'], None)
    """
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in _LABELS if name in batch), None)
        inputs = {name: value for name, value in batch.items() if name not in _LABELS}
        if not any(True for _ in tensors_in(inputs)):
            raise GdscoreError(
                f"Expected a dict with tensors beside the labels, but the loader yielded {describe(batch)}"
            )
        return inputs, labels
    if isinstance(batch, (tuple, list)) and batch:
        first, rest = batch[0], batch[1:]
        if isinstance(first, (Tensor, Mapping)):
            x, labels = split_batch(first)
            return x, rest[0] if rest else labels
        if isinstance(first, (tuple, list)) and first and isinstance(first[0], Tensor):
            return tuple(first), rest[0] if rest else None
    raise GdscoreError(
        "Expected the loader to yield a tensor, a dict of tensors, or a tuple (inputs, labels, …) that begins with a "
        f"tensor, a dict or a tuple of tensors, but it yielded {describe(batch)}: convert it in the loader's collate_fn"
    )


def map_tensors(function: Callable[[Tensor], Any], part: Any) -> Any:
    """Nested dicts, tuples and lists with the function applied to every tensor; anything else as it is."""
    if isinstance(part, Tensor):
        return function(part)
    if isinstance(part, Mapping):
        return {name: map_tensors(function, value) for name, value in part.items()}
    if isinstance(part, (tuple, list)):
        return tuple(map_tensors(function, value) for value in part)
    return part


def tensors_in(part: Any) -> Iterator[Tensor]:
    """All tensors of nested dicts, tuples and lists."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (Mapping, tuple, list)):
        for inner in part.values() if isinstance(part, Mapping) else part:
            yield from tensors_in(inner)


def to_device(
    inputs: Any, device: torch.device | str, non_blocking: bool = True, dtype: torch.dtype | None = None
) -> Any:
    """Tensors moved to the device, floating-point ones cast to ``dtype`` where given; anything else as it is."""

    def move(x: Tensor) -> Tensor:
        return x.to(device=device, dtype=dtype if x.is_floating_point() else None, non_blocking=non_blocking)

    return map_tensors(move, inputs)


def call(model: nn.Module, inputs: Inputs, batch: int) -> Any:
    """Output of the model; what it raises is passed on with the number and the shape of the batch.

    A tensor is one argument, a tuple several. A dict gives keyword arguments where the model takes any of its names,
    and is one argument otherwise.
    """
    keywords = isinstance(inputs, dict) and _takes_keywords(model, inputs)
    try:
        if isinstance(inputs, tuple):
            return model(*inputs)
        return model(**inputs) if keywords and isinstance(inputs, dict) else model(inputs)
    except (GdscoreError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        how = ""
        if isinstance(inputs, dict):
            form = "keyword arguments" if keywords else "one argument, as forward takes none of its names as keywords"
            how = f". The dict was passed as {form}: have the loader yield what forward takes"
        raise GdscoreError(
            f"Expected the model to take the loader's batches, but on batch {batch}, {describe(inputs)}, it failed "
            f"with {type(error).__name__}: {error}{how or _image_cure(inputs)}"
        ) from error


def _image_cure(inputs: Inputs) -> str:
    if isinstance(inputs, Tensor) and inputs.ndim == 3 and inputs.shape[0] in (1, 3):
        return ". A single image lacks the first dimension of rows: a DataLoader makes batches"
    if not isinstance(inputs, Tensor) or inputs.ndim != 4:
        return ""
    if inputs.dtype == torch.uint8:
        return ". Images of 8 bits are to be converted as in training, such as x.float() / 255"
    if inputs.shape[3] in (1, 3) and inputs.shape[1] not in (1, 3):
        return ". Images are to be N, C, H, W: x.permute(0, 3, 1, 2) makes them so"
    return ""


def _takes_keywords(model: nn.Module, names: Mapping[str, Any]) -> bool:
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return True
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(p.kind is p.VAR_KEYWORD or (p.kind in by_name and p.name in names) for p in parameters)


def count_rows(inputs: Inputs) -> int:
    """Rows of a batch: the length of its first tensor."""
    first = next(tensors_in(inputs))
    if not first.ndim:
        raise GdscoreError(f"Expected inputs with a first dimension of rows, but got {describe(inputs)}")
    return first.shape[0]


def integer_labels(
    labels: Any, rows: int, device: torch.device | str, non_blocking: bool = True, *, optional: bool = True
) -> Tensor:
    """Labels on the device as int64; whole numbers may come as floats, bools and in a single column.

    ``optional`` where the caller can leave labels out by ``labels=False``, which errors then name.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models._batches import integer_labels
    >>> integer_labels(torch.tensor([[1.0], [0.0]]), rows=2, device="cpu")
    tensor([1, 0])
    """
    try:
        y = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise GdscoreError(
            f"Expected labels to be integers, but got {describe(labels)}: number the classes from 0"
            + (", or pass labels=False to leave them out" if optional else "")
        ) from None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not y.ndim and rows == 1:
        y = y[None]
    if tuple(y.shape) != (rows,):
        cures = ["one-hot or soft labels become classes by labels.argmax(1)"] if y.ndim == 2 else []
        cures += ["a second input is yielded as ((x1, x2), y)", "labels=False leaves labels out"] if optional else []
        raise GdscoreError(
            f"Expected a label for each of {rows} rows, but got labels of shape {tuple(y.shape)}"
            + (f": {'; '.join(cures)}" if cures else "")
        )
    if y.is_complex():
        raise GdscoreError(f"Expected labels to be integers, but got {y.dtype}")
    if y.is_floating_point():
        whole = y == y.round()
        if y.device.type == "cpu" and not bool(whole.all()):
            row = int((~whole).int().argmax())
            raise GdscoreError(
                f"Expected labels to be classes 0, 1, …, but row {row} of a batch has {float(y[row])!r}: give classes"
                + (", or pass labels=False to leave labels out" if optional else "")
            )
        # On an accelerator the label that is no class is found later, with all others that are out of range.
        y = torch.where(whole, y, torch.full_like(y, -1))
    return y.to(device=device, dtype=torch.int64, non_blocking=non_blocking)


def describe(value: Any) -> str:
    """Word what a value is made of, for messages.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models._batches import describe
    >>> describe((torch.zeros(2, 3), {"id": "a"}))
    "a tuple of (float32 of shape (2, 3), a dict of {'id': str})"
    """
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {{{', '.join(f'{k!r}: {describe(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(describe(v) for v in value[:4]) + (", …" if len(value) > 4 else "")
        return f"a {type(value).__name__} of ({inside})"
    return type(value).__name__
