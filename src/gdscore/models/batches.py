"""What loaders yield and what models return, in all the forms people use.

Requirements met here:

- a loader may yield ``x``, ``(x,)``, ``(x, y)``, ``(x, y, more…)`` or a dict, ``x`` being a tensor or itself a dict;
- a model may return a tensor, a tuple, a dict or a Hugging Face output;
- nothing here reads a value of a tensor, so nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gdscore.errors import GdscoreError

__all__ = [
    "Inputs",
    "Where",
    "call",
    "called",
    "count_rows",
    "integer_labels",
    "logits_of",
    "shapes",
    "split_batch",
    "to_device",
]

Inputs: TypeAlias = Tensor | dict[str, Any]
"""What the model is called with: one tensor, or keyword arguments."""
Where: TypeAlias = int | str | Callable[[Any], Tensor] | None
"""Which part of a model's output holds the logits: a position, a name, or a function of the output."""

_LABELS = ("labels", "label")
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def split_batch(batch: Any) -> tuple[Inputs, Any]:
    """Inputs and labels of what a loader yields; labels are None where there are none.

    Parameters
    ----------
    batch : tensor, dict, or tuple or list that begins with one of them
        Of a tuple the first entry is the input, the second the labels, and further ones are left alone. Of a dict
        ``labels`` or ``label`` are the labels and all others inputs.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import split_batch
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
        if not any(isinstance(value, Tensor) for value in inputs.values()):
            raise GdscoreError(
                f"Expected a dict with tensors beside the labels, but the loader yielded {shapes(batch)}"
            )
        return inputs, labels
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], (Tensor, Mapping)):
        first, labels = split_batch(batch[0])
        return first, batch[1] if len(batch) > 1 else labels
    raise GdscoreError(
        "Expected the loader to yield a tensor, a dict of tensors, or a tuple (inputs, labels, …) that begins with one "
        f"of them, but it yielded {shapes(batch)}"
    )


def to_device(
    inputs: Any, device: torch.device | str, non_blocking: bool = True, dtype: torch.dtype | None = None
) -> Any:
    """Tensors moved to the device, floating-point ones cast to ``dtype`` where given; anything else as it is.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import to_device
    >>> moved = to_device({"pixel_values": torch.zeros(1, 3, 8, 8), "name": "cat"}, "cpu", dtype=torch.float64)
    >>> moved["pixel_values"].dtype, moved["name"]
    (torch.float64, 'cat')
    """
    if isinstance(inputs, Tensor):
        cast = dtype if inputs.is_floating_point() else None
        return inputs.to(device=device, dtype=cast, non_blocking=non_blocking)
    if isinstance(inputs, Mapping):
        return {name: to_device(value, device, non_blocking, dtype) for name, value in inputs.items()}
    return inputs


def call(model: nn.Module | Callable[..., Any], inputs: Inputs) -> Any:
    """Output of the model: ``model(**inputs)`` for a dict, ``model(inputs)`` for a tensor."""
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def called(model: nn.Module, inputs: Inputs, batch: int) -> Any:
    """Output of the model as by `call`; what it raises is passed on with the number and the shape of the batch."""
    try:
        return call(model, inputs)
    except (GdscoreError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise GdscoreError(
            f"Expected the model to take the loader's batches, but on batch {batch}, {shapes(inputs)}, it failed with "
            f"{type(error).__name__}: {error}"
        ) from error


def count_rows(inputs: Inputs) -> int:
    """Rows of a batch: the length of its first tensor."""
    tensors = [inputs] if isinstance(inputs, Tensor) else [v for v in inputs.values() if isinstance(v, Tensor)]
    if not tensors[0].ndim:
        raise GdscoreError(f"Expected inputs with a first dimension of rows, but got {shapes(inputs)}")
    return tensors[0].shape[0]


def logits_of(output: Any, where: Where = None) -> Tensor:
    """Logits, shape (m, K), in what a model returned.

    Parameters
    ----------
    output : tensor, dict, Hugging Face output, tuple or list
        A tensor is the logits. Of a dict or any object ``logits`` is taken, by key or attribute. Of a tuple or list
        the first floating-point matrix is taken; a loss, being a scalar, is passed over.
    where : int, str or callable, optional
        The position, the name or a function of the output instead, for models that return for example
        ``(features, logits)``.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models import logits_of
    >>> z = torch.tensor([[1.0, 2.0]])
    >>> logits_of((torch.tensor(0.5), z)) is z, logits_of({"logits": z}) is z, logits_of((z + 1, z), where=1) is z
    (True, True, True)
    """
    found = _picked(output, where)
    if not isinstance(found, Tensor):
        raise GdscoreError(f"Expected the logits to be a tensor, but `logits={where!r}` picks {shapes(found)}")
    logits = flattened(found)
    if logits.ndim != 2 or not logits.is_floating_point():
        raise GdscoreError(
            f"Expected the model to return floating-point logits of shape (rows, classes), but got {shapes(found)}"
        )
    return logits


def _picked(output: Any, where: Where) -> Any:
    if callable(where):
        return where(output)
    if where is not None:
        try:
            return output[where]
        except (LookupError, TypeError):
            raise GdscoreError(f"Expected the model's output to have {where!r}, but it is {shapes(output)}") from None
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        if "logits" in output:
            return output["logits"]
    elif isinstance(getattr(output, "logits", None), Tensor):
        return output.logits
    elif isinstance(output, Sequence):
        for part in output:
            if isinstance(part, Tensor) and part.is_floating_point() and flattened(part).ndim == 2:
                return part
    raise GdscoreError(
        "Expected the model to return its logits as a tensor, in a tuple, or under the name `logits`, but it returned "
        f"{shapes(output)}: pass logits= with the position, the name or a function that picks them"
    )


def flattened(x: Tensor) -> Tensor:
    """Tensor without trailing dimensions of size 1 beyond the second, as 1×1 maps have them."""
    return x.flatten(1) if x.ndim > 2 and x.shape[2:].numel() == 1 else x


def integer_labels(labels: Any, rows: int, device: torch.device | str, non_blocking: bool = True) -> Tensor:
    """Labels on the device as int64, or an error that says what they are instead.

    Examples
    --------
    >>> from gdscore.models.batches import integer_labels
    >>> integer_labels([2, 0], rows=2, device="cpu")
    tensor([2, 0])
    """
    try:
        y = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise GdscoreError(f"Expected labels to be integers, but the loader yielded {shapes(labels)}") from None
    if y.ndim == 2 and y.shape[1] > 1:
        hint = "; one-hot or soft labels become classes by labels.argmax(1)"
    else:
        hint = "; labels=False leaves them out"
    if y.dtype not in _INTEGERS:
        raise GdscoreError(f"Expected labels to be integers, but the loader yielded {y.dtype}{hint}")
    if tuple(y.shape) != (rows,):
        raise GdscoreError(f"Expected a label for each of {rows} rows, but got labels of shape {tuple(y.shape)}{hint}")
    return y.to(device=device, dtype=torch.int64, non_blocking=non_blocking)


def shapes(value: Any) -> str:
    """Word what a value is made of, for messages.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models.batches import shapes
    >>> shapes((torch.zeros(2, 3), {"id": "a"}))
    "a tuple of (float32 of shape (2, 3), a dict of {'id': str})"
    """
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {{{', '.join(f'{k!r}: {shapes(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(shapes(v) for v in value[:4]) + (", …" if len(value) > 4 else "")
        return f"a {type(value).__name__} of ({inside})"
    return type(value).__name__
