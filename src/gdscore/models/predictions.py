"""What models return, in all the forms people use: the logits in it, and `Outputs` of predictions made elsewhere.

Requirements met here:

- a model may return a tensor, a tuple, a dict or a Hugging Face output; a binary model may return one logit a row;
- probabilities that come in the place of logits are noticed, since every number computed from them would be wrong;
- on an accelerator values are read for the first batch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from gdscore._checks import choice
from gdscore.errors import GdscoreError
from gdscore.models._batches import describe, integer_labels
from gdscore.outputs import Outputs

__all__ = ["LogitsOrProbabilities", "OutputKind", "Where", "from_batches", "logits_of", "two_columns"]

Where: TypeAlias = int | str | Callable[[Any], Tensor] | None
"""Which part of a model's output holds the logits: a position, a name, or a function of the output."""
OutputKind: TypeAlias = Literal["auto", "logits", "probabilities"]

_ENOUGH_ROWS = 16
"""Rows of a single column within [0, 1] that are taken for probabilities: logits of so many are not."""


def from_batches(
    predictions: Any, labels: Any = None, *, logits: Where = None, outputs: OutputKind = "auto"
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
    on_host = not any(isinstance(part, Tensor) for part in _parts(batches[0]))
    parts = [_arrays_of(batch, logits, kind) for batch in batches]
    if any(part.keys() != parts[0].keys() for part in parts):
        raise GdscoreError(
            f"Expected the predictions of every batch to hold {sorted(parts[0])}, but those of one do not"
        )
    given = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if labels is not None:
        rows, device = len(next(iter(given.values()))), next(iter(given.values())).device
        joined = np.concatenate([np.asarray(part) for part in labels]) if _is_batched(labels) else labels
        given["labels"] = integer_labels(joined, rows, device, optional=False)
    made = Outputs(**cast("dict[str, Any]", given))
    return made.to_numpy() if on_host else made


def _is_batched(labels: Any) -> bool:
    return isinstance(labels, (list, tuple)) and bool(labels) and np.ndim(labels[0]) > 0


def _parts(batch: Any) -> Sequence[Any]:
    return list(batch.values()) if isinstance(batch, Mapping) else batch if isinstance(batch, tuple) else [batch]


def _arrays_of(batch: Any, where: Where, kind: LogitsOrProbabilities) -> dict[str, Any]:
    """Arrays by the names of `Outputs` in the prediction of one batch."""
    batch = _as_tensors(batch)
    given: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        names = ("features", "peer_logits", "batch_logits", "rotation_logits", "ids")
        given = {name: batch[name] for name in names if isinstance(batch.get(name), Tensor)}
        if where is None and "probabilities" in batch and "logits" not in batch:
            return {"probabilities": batch["probabilities"]} | given | _labels_in(batch, len(batch["probabilities"]))
    returned = logits_of(batch, where)
    kind.check(returned)
    first = kind.arrays(returned)
    return first | given | _labels_in(batch, len(next(iter(first.values()))))


def _labels_in(batch: Any, rows: int) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        return {}
    found = next((batch[name] for name in ("labels", "label") if name in batch), None)
    return {} if found is None else {"labels": integer_labels(found, rows, "cpu", optional=False)}


def _as_tensors(part: Any) -> Any:
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(part))
    if isinstance(part, Mapping):
        return {name: _as_tensors(value) for name, value in part.items()}
    return tuple(map(_as_tensors, part)) if isinstance(part, (tuple, list)) else part


def logits_of(output: Any, where: Where = None, rows: int | None = None) -> Tensor:
    """Logits, shape (m, K), in what a model returned; (m, 1) of a binary model that returns one number a row.

    Parameters
    ----------
    output : tensor, dict, Hugging Face output, tuple or list
        A tensor is the logits. Of a dict or any object ``logits`` is taken, by key or attribute. Of a tuple or list
        the first floating-point matrix is taken, or else the first floating-point vector; a loss, being a scalar, is
        passed over.
    where : int, str or callable, optional
        The position, the name or a function of the output instead, for models that return for example
        ``(features, logits)``.
    rows : int, optional
        Rows of the batch, where known. Models that end in ``squeeze`` return the logits of one row without its
        dimension.

    Examples
    --------
    >>> import torch
    >>> from gdscore.models.predictions import logits_of
    >>> z = torch.tensor([[1.0, 2.0]])
    >>> logits_of((torch.tensor(0.5), z)) is z, logits_of({"logits": z}) is z, logits_of((z + 1, z), where=1) is z
    (True, True, True)
    >>> logits_of(torch.tensor([0.5, -1.0])).tolist()
    [[0.5], [-1.0]]
    """
    found = _picked(output, where)
    if not isinstance(found, Tensor):
        raise GdscoreError(f"Expected the logits to be a tensor, but `logits={where!r}` picks {describe(found)}")
    logits = _flattened(found)
    if logits.ndim < 2 and (logits.ndim == 1 or rows == 1):
        logits = logits.reshape(1, -1) if rows == 1 else logits[:, None]
    if logits.ndim != 2 or not logits.is_floating_point():
        hint = ": these look like predicted classes, so return the logits" if _is_vector(found) else ""
        if found.ndim == 3:
            hint = ": of logits for every token pick those of each row, such as by logits=lambda output: output[:, 0]"
        raise GdscoreError(
            "Expected the model to return floating-point logits of shape (rows, classes), or (rows,) of a binary "
            f"model, but got {describe(found)}{hint}"
        )
    if rows is not None and logits.shape[0] != rows:
        raise GdscoreError(
            f"Expected logits of {rows} rows, as many as the batch has, but the model returned {describe(found)}: pass "
            "logits= with the position, the name or a function that picks them"
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
        numbers = [part for part in output if isinstance(part, Tensor) and part.is_floating_point()]
        for dimensions in (2, 1):
            for part in numbers:
                if _flattened(part).ndim == dimensions:
                    return part
    raise GdscoreError(
        "Expected the model to return its logits as a tensor, in a tuple, or under the name `logits`, but it returned "
        f"{describe(output)}: pass logits= with the position, the name or a function that picks them"
    )


def _is_vector(x: Tensor) -> bool:
    return x.ndim == 1 and not x.is_floating_point()


def _flattened(x: Tensor) -> Tensor:
    """Tensor without trailing dimensions of size 1 beyond the second, as 1×1 maps have them."""
    return x.flatten(1) if x.ndim > 2 and x.shape[2:].numel() == 1 else x


def two_columns(z: Tensor) -> Tensor:
    """Matrix as it is, or (0, z) of the single column z of a binary model."""
    return torch.cat([torch.zeros_like(z), z], dim=1) if z.shape[1] == 1 else z


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
        return {"logits": two_columns(returned)}

    def logits(self, returned: Tensor) -> Tensor:
        """Logits with a column for each class; logarithms of probabilities."""
        named = self.arrays(returned)
        found: Tensor = Outputs(**named).logits if self.probabilities else named["logits"]
        return found

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
