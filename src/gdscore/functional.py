"""Each score as a function of arrays: ``functional.atc(logits, reference_logits, reference_labels)``.

There is a function for every registered score that reads arrays (`projnorm` needs the network), also for those of
other packages: ``help(functional.gdscore)``. The arrays that a score needs come first, those of the target before those
of the reference; optional arrays and the options of the score are given by name. Arrays may come from NumPy, PyTorch,
JAX or CuPy; the number is a float. The functions hold no state and change nothing: streams, merging and saving are in
the classes, see `gdscore.create_score`.

>>> import numpy as np
>>> from gdscore import functional
>>> z = np.array([[4.0, 0.0], [0.0, 3.0], [2.0, 0.0], [0.0, 1.0]])
>>> round(functional.confscore(z), 4)
0.8866
>>> functional.atc(z, z, np.array([0, 1, 0, 0]))
0.75
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gdscore._arrays import Array
from gdscore.errors import GdscoreError, nearest
from gdscore.outputs import Outputs
from gdscore.scores import Score, create_score, list_scores, score

_ARRAYS = {
    "logits": "array of shape (m, K)\n    Scores before the softmax.",
    "probabilities": "array of shape (m, K) or (m,), optional\n    In place of ``logits``.",
    "features": "array of shape (m, D)\n    What enters the last linear layer.",
    "predictions": "integer array of shape (m,), optional\n    Classes that the model decided, if not by arg-max.",
    "labels": "integer array of shape (m,)\n    True classes.",
    "peer_logits": "array of shape (m, K)\n    Logits of a second model.",
    "batch_logits": "array of shape (m, K)\n    Logits with BatchNorm's statistics of each batch.",
    "rotation_logits": "array of shape (m, 4, 4)\n    Logits of a rotation head: row × rotation shown × predicted.",
    "ids": "integer or string array of shape (m,), optional\n    Names of the rows, which random numbers are tied to.",
}
"""The arrays in the order of the arguments, and their descriptions."""


def _arrays_of(names: frozenset[str]) -> list[str]:
    """Arrays in the order of the arguments; probabilities may stand for logits."""
    return [n for n in _ARRAYS if n in names or (n == "probabilities" and "logits" in names)]


def _signature(example: Score) -> inspect.Signature:
    """Needed arrays of target and reference by position, optional arrays and the options of the score by keyword."""
    positional, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    decided = {"predictions"} & example.optional_inputs if "labels" in example.reference_inputs else frozenset[str]()
    arrays = _arrays_of(example.inputs | example.optional_inputs)
    arrays += [f"reference_{name}" for name in _arrays_of(example.reference_inputs | decided)]
    needed = example.inputs | {f"reference_{name}" for name in example.reference_inputs}
    # Logits may be left out for probabilities, so that no array that follows them can be required.
    default = None if "logits" in needed else inspect.Parameter.empty
    parameters = [inspect.Parameter(n, positional, default=default, annotation=Array) for n in arrays if n in needed]
    parameters += [inspect.Parameter(n, keyword, default=None, annotation=Array) for n in arrays if n not in needed]
    options = inspect.signature(type(example).__init__, eval_str=True).parameters
    parameters += [option.replace(kind=keyword) for name, option in options.items() if name != "self"]
    return inspect.Signature(parameters, return_annotation=float)


def _described(name: str) -> str:
    """Numpydoc entry of an array argument."""
    kind, _, text = _ARRAYS[name.removeprefix("reference_")].partition("\n")
    if name.startswith("reference_"):
        kind, text = kind.replace("(m", "(n"), f"    ``{name.removeprefix('reference_')}`` of the reference."
    return f"{name} : {kind}\n{text}"


def _documentation(example: Score, signature: inspect.Signature) -> str:
    """Docstring of the class, with the arrays before its options and a float as what is returned."""
    text = (inspect.getdoc(type(example)) or "").partition("Examples\n--------")[0]
    head, _, options = text.partition("Parameters\n----------\n")
    arrays = "\n".join(_described(n) for n in signature.parameters if n.removeprefix("reference_") in _ARRAYS)
    shown = f"{head.rstrip()}\n\nParameters\n----------\n{arrays}\n{options.strip()}".rstrip()
    return f"{shown}\n\nReturns\n-------\nfloat\n\nSee Also\n--------\ngdscore.score : The same of `gdscore.Outputs`."


def _function(name: str) -> Callable[..., float]:
    """Function of arrays that computes the score of a name."""
    example = create_score(name)
    signature = _signature(example)
    options = set(example.options)

    def computed(*args: Array, **kwargs: Any) -> float:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            unknown = [key for key in kwargs if key not in signature.parameters]
            hint = f": {nearest(unknown[0], signature.parameters)}" if unknown else f"; it takes {signature}"
            raise GdscoreError(f"functional.{name}: {error}{hint}") from None
        chosen = {key: value for key, value in arguments.items() if key in options}
        target = {key: value for key, value in arguments.items() if key not in options and value is not None}
        reference = {
            key.removeprefix("reference_"): target.pop(key) for key in [*target] if key.startswith("reference_")
        }
        return score(name, Outputs(**target), reference=Outputs(**reference) if reference else None, **chosen)

    computed.__name__ = computed.__qualname__ = name
    computed.__module__ = __name__
    computed.__doc__ = _documentation(example, signature)
    computed.__signature__ = signature  # type: ignore[attr-defined]
    return computed


def __getattr__(name: str) -> Callable[..., float]:
    if name in list_scores() and "network" not in create_score(name).inputs:
        return _function(name)
    raise AttributeError(f"module 'gdscore.functional' has no function {name!r}")


def __dir__() -> list[str]:
    return [name for name in list_scores() if "network" not in create_score(name).inputs]


for _name in __dir__():
    globals()[_name] = _function(_name)
__all__ = __dir__()
