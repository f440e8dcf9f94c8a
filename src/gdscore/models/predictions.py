"""What loaders yield and what models return, in all the forms people use, and `Outputs` of predictions made elsewhere.

Requirements met here:

- a model may return a tensor, a tuple, a dict or a Hugging Face output; a binary model may return one logit a row;
- probabilities that come in the place of logits are noticed, since every number computed from them would be wrong;
- a loader may yield ``x``, ``(x,)``, ``(x, y)``, ``(x, y, more…)`` or a dict; ``x`` is a tensor, a dict of keyword
  arguments or a tuple of positional ones;
- on an accelerator values are read for the first batch only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gdscore._checks import choice
from gdscore._softmax import binary_logits
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs

Where: TypeAlias = int | str | Callable[[Any], Tensor] | None
"""Which part of a model's output holds the logits: a position, a name, or a function of the output."""
OutputKind: TypeAlias = Literal["auto", "logits", "probabilities"]

Inputs: TypeAlias = Tensor | dict[str, Any] | tuple[Any, ...]
"""What the model is called with: one tensor, keyword arguments, or several positional arguments."""

_LABELS = ("labels", "label", "targets", "target", "y")
_ENOUGH_ROWS = 16
"""Rows of a single column within [0, 1] that are taken for probabilities: logits of so many are not."""


def from_batches(
    predictions: Any,
    labels: Any = None,
    *,
    logits: Where = None,
    outputs: OutputKind = "auto",
    threshold: float | None = None,
) -> Outputs:
    """Outputs of predictions that a trainer made: Hugging Face's or Lightning's ``predict``, or a loop of your own.

    Parameters
    ----------
    predictions : PredictionOutput, tensor, array, or list of batches
        What ``transformers.Trainer.predict`` returns, with its labels; or what ``lightning.Trainer.predict`` returns
        for one loader, a list with what ``predict_step`` gave for each batch: tensors, tuples or dicts. Entries of a
        dict named ``logits``, ``probabilities``, ``features``, ``labels``, ``peer_logits``, ``batch_logits``,
        ``rotation_logits`` and ``ids`` are used, others are ignored.
    labels : array of shape (m,), or list of such of each batch, optional
        True classes, instead of those among the predictions. Of tuples labels are never taken, since the second entry
        is as often the predicted class.
    logits : int, str or callable, optional
        Where the logits are in the prediction of a batch: a position, a name, or a function.
    outputs : {"auto", "logits", "probabilities"}
        What the model's output is, as in `extract`.
    threshold : float, optional
        Of a binary model that decides for class 1 where its probability is at least this, as in `Outputs`.

    Returns
    -------
    Outputs
        Torch tensors, or NumPy arrays where the predictions are.

    Examples
    --------
    >>> import torch
    >>> from gdscore import models
    >>> batches = [{"logits": torch.randn(4, 3), "labels": torch.tensor([0, 2, 1, 1])} for _ in range(2)]
    >>> models.from_batches(batches)
    Outputs(logits (8, 3), labels (8,); torch torch.float32)
    """
    kind = LogitsOrProbabilities(outputs)
    if hasattr(predictions, "predictions") and hasattr(predictions, "label_ids"):
        labels = predictions.label_ids if labels is None else labels
        predictions = predictions.predictions
    if isinstance(predictions, Iterator):
        raise GdscoreError(
            f"Expected predictions as an array or a list of batches, but got {type(predictions).__name__}: list(…) "
            "makes one of it"
        )
    batches = predictions if isinstance(predictions, list) else [predictions]
    if not batches:
        raise GdscoreError("Expected predictions of at least one batch, but the list is empty")
    if any(isinstance(batch, Outputs) for batch in batches):
        raise GdscoreError(
            "Expected what a trainer returns, but these are `gdscore.Outputs` already: use them as they are; "
            "Outputs.concatenate joins several"
        )
    if isinstance(batches[0], list):
        raise GdscoreError(
            "Expected predictions of one loader, but got a list of lists, as `predict` gives for several loaders: call "
            "from_batches for each of them"
        )
    on_host = next(tensors_in(batches[0]), None) is None
    columns: list[int] = []
    parts = [_arrays_of(batch, logits, kind, columns) for batch in batches]
    if len(set(columns)) > 1:
        number = next(k for k, count in enumerate(columns) if count != columns[0])
        raise GdscoreError(
            f"Expected as many logits a row in every batch, but batch 0 has {columns[0]} and batch {number} has "
            f"{columns[number]}: a model that ends in squeeze drops the dimension of a single row, so give shape "
            "(rows, classes)"
        )
    if any(part.keys() != parts[0].keys() for part in parts):
        raise GdscoreError(
            f"Expected the predictions of every batch to hold {sorted(parts[0])}, but those of one do not"
        )
    arrays = {name: _joined(name, [part[name] for part in parts]) for name in parts[0]}
    if labels is not None:
        rows, device = len(next(iter(arrays.values()))), next(iter(arrays.values())).device
        if isinstance(labels, (list, tuple)) and labels and np.ndim(labels[0]) > 0:  # of each batch
            labels = np.concatenate([np.asarray(part) for part in labels])
        arrays["labels"] = integer_labels(labels, rows, device, optional=False)
    made = Outputs(**arrays, threshold=threshold, check_logits=False)
    return made.to_numpy() if on_host else made


def _joined(name: str, parts: list[Any]) -> Any:
    """One array of all batches."""
    if name == "ids" and not isinstance(parts[0], Tensor):
        return np.concatenate([np.asarray(part) for part in parts])
    for number, part in enumerate(parts):
        if not isinstance(part, Tensor) or part.shape[1:] != parts[0].shape[1:]:
            raise GdscoreError(
                f"Expected `{name}` of each batch to be a tensor or array with as many columns as in the first, "
                f"{describe(parts[0])}, but in batch {number} it is {describe(part)}"
            )
    return torch.cat(parts)


def _arrays_of(batch: Any, where: Where, kind: LogitsOrProbabilities, columns: list[int]) -> dict[str, Any]:
    """Arrays by the names of `Outputs` in the prediction of one batch; ``columns`` takes in the logits a row."""
    batch = _as_tensors(batch)
    others: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        names = ("features", "peer_logits", "batch_logits", "rotation_logits", "ids")
        others = {name: batch[name] for name in names if isinstance(batch.get(name), Tensor)}
        if batch.get("ids") is not None:
            others["ids"] = batch["ids"]  # texts too
        if where is None and "probabilities" in batch and "logits" not in batch:
            return {"probabilities": batch["probabilities"]} | others | _labels_in(batch, len(batch["probabilities"]))
    returned = logits_of(batch, where)
    kind.check(returned)
    columns.append(returned.shape[1])
    first = kind.arrays(returned)
    return first | others | _labels_in(batch, len(next(iter(first.values()))))


def _labels_in(batch: Any, rows: int) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        return {}
    labels = next((batch[name] for name in _LABELS if name in batch), None)
    return {} if labels is None else {"labels": integer_labels(labels, rows, "cpu", optional=False)}


def _as_tensors(part: Any) -> Any:
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("=")))
    if isinstance(part, Mapping):
        return {name: _as_tensors(value) for name, value in part.items()}
    return tuple(map(_as_tensors, part)) if isinstance(part, (tuple, list)) else part


def logits_of(output: Any, where: Where = None, rows: int | None = None) -> Tensor:
    """Logits, shape (m, K), in what a model returned; (m, 1) of a binary model that returns one number a row.

    A tensor is the logits. Of a dict or any object ``logits`` is taken, by key or attribute. Of a tuple or list the
    floating-point matrix is taken, or the vector where there is no matrix; a loss, being a scalar, is passed over. A
    second matrix, or a vector of as many rows, is refused, as either may be the logits. ``where`` is the position, the
    name or a function of the output instead, for models that return for example ``(features, logits)``. ``rows`` is
    the number of rows of the batch, where known: models that end in ``squeeze`` return the logits of one row without
    its dimension.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 2.0]])
    >>> logits_of((torch.tensor(0.5), z)) is z, logits_of({"logits": z}) is z, logits_of((z + 1, z), where=1) is z
    (True, True, True)
    >>> logits_of(torch.tensor([0.5, -1.0])).tolist()
    [[0.5], [-1.0]]
    """
    picked = _picked(output, where)
    if not isinstance(picked, Tensor):
        raise GdscoreError(f"Expected the logits to be a tensor, but `logits={where!r}` picks {describe(picked)}")
    logits = _flattened(picked)
    if logits.ndim < 2 and (logits.ndim == 1 or rows == 1):
        logits = logits.reshape(1, -1) if rows == 1 else logits[:, None]
    if logits.ndim != 2 or not logits.is_floating_point():
        hint = ""
        if picked.ndim == 1 and not picked.is_floating_point():
            hint = ": these look like predicted classes, so return the logits"
        if picked.ndim == 3:
            hint = ": of logits for every token pick those of each row, such as by logits=lambda output: output[:, 0]"
        raise GdscoreError(
            "Expected the model to return floating-point logits of shape (rows, classes), or (rows,) of a binary "
            f"model, but got {describe(picked)}{hint}"
        )
    if rows is not None and logits.shape[0] != rows:
        raise GdscoreError(
            f"Expected logits of {rows} rows, as many as the batch has, but the model returned {describe(picked)}: "
            "pass logits= with the position, the name or a function that picks them"
        )
    return logits


def _picked(output: Any, where: Where) -> Any:
    if callable(where):
        return where(output)
    if where is not None:
        try:
            return output[where]
        except (LookupError, TypeError):
            raise GdscoreError(f"Expected the model's output to have {where!r}, but it is {describe(output)}") from None
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        if "logits" in output:
            return output["logits"]
    elif isinstance(getattr(output, "logits", None), Tensor):
        return output.logits
    elif isinstance(output, Sequence):
        places = _logits_like(output)
        if len(places) > 1:
            raise GdscoreError(
                f"Expected one entry that can be the logits, but the model returned {describe(output)}: pass logits= "
                f"with the position of the logits, {', '.join(map(str, places[:-1]))} or {places[-1]}"
            )
        if places:
            return output[places[0]]
    raise GdscoreError(
        "Expected the model to return its logits as a tensor, in a tuple, or under the name `logits`, but it returned "
        f"{describe(output)}: pass logits= with the position, the name or a function that picks them"
    )


def _logits_like(output: Sequence[Any]) -> list[int]:
    """Positions of the floating-point matrices, and of the vectors that have as many rows or stand alone."""
    shapes = [
        _flattened(part).shape if isinstance(part, Tensor) and part.is_floating_point() else () for part in output
    ]
    rows = {shape[0] for shape in shapes if len(shape) == 2}
    # A single number is more often a loss.
    return [i for i, s in enumerate(shapes) if len(s) == 2 or (len(s) == 1 and (not rows or s[0] in rows - {1}))]


def _flattened(x: Tensor) -> Tensor:
    """Tensor without trailing dimensions of size 1 beyond the second, as 1×1 maps have them."""
    return x.flatten(1) if x.ndim > 2 and x.shape[2:].numel() == 1 else x


class LogitsOrProbabilities:
    """What the numbers that a model returns are; ``"auto"`` takes them for logits and refuses what looks otherwise.

    Rows that look like probabilities lie within [0, 1] and sum to 1; a single column lies within [0, 1] in the first
    16 rows.
    """

    def __init__(self, outputs: OutputKind = "auto") -> None:
        choice("outputs", outputs, ("auto", "logits", "probabilities"))
        self.probabilities = outputs == "probabilities"
        self._looking = outputs == "auto"
        self._rows = 0

    def arrays(self, returned: Tensor) -> dict[str, Any]:
        """Numbers of a batch under the name that `Outputs` has for them."""
        if self.probabilities:
            return {"probabilities": returned[:, 0] if returned.shape[1] == 1 else returned}
        return {"logits": binary_logits(returned)}

    def logits(self, returned: Tensor) -> Tensor:
        """Logits with a column for each class; logarithms of probabilities."""
        named = self.arrays(returned)
        logits: Tensor = Outputs(**named).logits if self.probabilities else named["logits"]
        return logits

    def check(self, returned: Tensor) -> None:
        """Refuse what looks like probabilities, by the first rows that come."""
        if not self._looking:
            return
        columns = returned.shape[1]
        self._looking = _like_probabilities(returned)
        self._rows += len(returned)
        if self._looking and self._rows >= (_ENOUGH_ROWS if columns == 1 else 1):
            what = "lie between 0 and 1" if columns == 1 else "lie between 0 and 1 and sum to 1 in every row"
            how = "sigmoid" if columns == 1 else "softmax"
            raise GdscoreError(
                f"Expected the model to return logits, but its outputs {what}: they look like probabilities. Have the "
                f"model return its numbers before the {how}; `extract`, `score_all`, `estimator` and `from_batches` "
                'also take outputs="probabilities", or outputs="logits" if they are logits all the same'
            )


def _like_probabilities(x: Tensor) -> bool:
    x = x.detach()
    if not bool(((x >= 0) & (x <= 1)).all()):
        return False
    tolerance = 0.02 if torch.finfo(x.dtype).bits < 32 else 1e-3
    return x.shape[1] == 1 or bool(((x.double().sum(1) - 1).abs() <= tolerance).all())


def split_batch(batch: Any) -> tuple[Inputs, Any]:
    """Inputs and labels of what a loader yields; labels are None where there are none.

    Of a tuple or list the first entry is the input, the second the labels, and further ones are ignored; several inputs
    form a tuple of their own, ``((x1, x2), y)``. Of a dict the first of ``labels``, ``label``, ``targets``, ``target``
    and ``y`` that it has are the labels, and all others inputs.

    Examples
    --------
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
        return _split_dict(batch, _LABELS)
    if isinstance(batch, (tuple, list)) and batch:
        first, rest = batch[0], batch[1:]
        if isinstance(first, Mapping):
            x, labels = _split_dict(first, _LABELS[:2] if rest else _LABELS)
            return x, rest[0] if rest else labels
        if isinstance(first, Tensor):
            return first, rest[0] if rest else None
        if isinstance(first, (tuple, list)) and first and isinstance(first[0], Tensor):
            return tuple(first), rest[0] if rest else None
    raise GdscoreError(
        "Expected the loader to yield a tensor, a dict of tensors, or a tuple (inputs, labels, …) that begins with a "
        f"tensor, a dict or a tuple of tensors, but it yielded {describe(batch)}: convert it in the loader's collate_fn"
    )


def _split_dict(batch: Mapping[str, Any], names: Sequence[str]) -> tuple[Inputs, Any]:
    """Inputs and labels, which have the first of these names that is there."""
    named = next((name for name in names if name in batch), None)
    inputs = {name: value for name, value in batch.items() if name not in (named, *_LABELS[:2])}
    if not any(True for _ in tensors_in(inputs)):
        raise GdscoreError(f"Expected a dict with tensors beside the labels, but the loader yielded {describe(batch)}")
    return inputs, None if named is None else batch[named]


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


def to_device(inputs: Any, device: torch.device | str, dtype: torch.dtype | None = None) -> Any:
    """Tensors moved to the device, floating-point ones cast to ``dtype`` where given; anything else as it is."""

    def move(x: Tensor) -> Tensor:
        return x.to(device=device, dtype=dtype if x.is_floating_point() else None, non_blocking=True)

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
    """Labels on the device as int64, in memory of their own; they may come as floats, bools and in a single column.

    ``optional`` where the caller can leave labels out by ``with_labels=False``, which errors then name.

    Examples
    --------
    >>> integer_labels(torch.tensor([[1.0], [0.0]]), rows=2, device="cpu")
    tensor([1, 0])
    """
    try:
        y = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise GdscoreError(
            f"Expected labels to be integers, but got {describe(labels)}: number the classes from 0"
            + (", or pass with_labels=False to leave them out" if optional else "")
        ) from None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not y.ndim and rows == 1:
        y = y[None]
    if tuple(y.shape) != (rows,):
        cures = ["one-hot or soft labels become classes by labels.argmax(1)"] if y.ndim == 2 else []
        cures += (
            ["a second input is yielded as ((x1, x2), y)", "with_labels=False leaves labels out"] if optional else []
        )
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
                + (", or pass with_labels=False to leave labels out" if optional else "")
            )
        # On an accelerator the label that is no class is found later, with all others that are out of range.
        y = torch.where(whole, y, torch.full_like(y, -1))
    # A copy: a loader may use its memory for the next batch.
    return y.to(device=device, dtype=torch.int64, non_blocking=non_blocking, copy=True)


def no_labels(batch: Any) -> str:
    """Name what a batch without labels holds, and how a dict names labels."""
    if not isinstance(batch, Mapping):
        return f"it is {describe(batch)}"
    keys = ", ".join(map(repr, batch))
    return f"its keys are {keys}, and labels are named {', '.join(map(repr, _LABELS[:-1]))} or {_LABELS[-1]!r}"


def describe(value: Any) -> str:
    """Describe what a value is made of, for messages.

    Examples
    --------
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
