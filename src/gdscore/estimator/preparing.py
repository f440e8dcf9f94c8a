"""What a calibration is made of, checked at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore import _arrays as arrays
from gdscore.calibration import find_temperature
from gdscore.errors import GdscoreError, nearest
from gdscore.estimator.describe import RECIPE
from gdscore.estimator.judge import REGRESSORS
from gdscore.outputs import Outputs
from gdscore.scores.registry import create_score, list_scores
from gdscore.shifts import ShiftedSet, compositions, corruptions

__all__ = [
    "checked_labels",
    "checked_reference",
    "checked_set",
    "checked_shifts",
    "chosen_scores",
    "counted",
    "default_shifts",
    "possible_scores",
    "temperature_of",
]


def chosen_scores(
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None, regressor: str
) -> dict[str, dict[str, Any]]:
    """Scores with their options: those asked for, or the recipe, or the one that a straight line is fitted to."""
    if isinstance(scores, str):
        scores = [scores]
    # Among all scores at once ATC adds little: it is there for its own view.
    recipe = {name: options for name, options in RECIPE.items() if regressor == "cautious" or name != "atc"}
    chosen = recipe if scores is None else scores if isinstance(scores, Mapping) else {name: {} for name in scores}
    if not chosen:
        raise GdscoreError("Expected `scores` to name at least one score, but it is empty")
    for name, options in chosen.items():
        if not isinstance(options, Mapping):
            raise GdscoreError(f"Expected options of `{name}` as a dict, but got {type(options).__name__}")
        create_score(name, **options)
    if regressor not in REGRESSORS:
        valid = [name for name in list_scores() if name != "projnorm"]
        if regressor not in valid:
            raise GdscoreError(f"Unknown `regressor` {regressor!r}: {nearest(str(regressor), [*REGRESSORS, *valid])}")
        if scores is None:
            chosen = {regressor: RECIPE.get(regressor, {})}
        if regressor not in chosen:
            raise GdscoreError(f"Expected `regressor` {regressor!r} to be among `scores`, but it is not")
    return {name: dict(options) for name, options in chosen.items()}


def possible_scores(
    scores: Mapping[str, dict[str, Any]], held: frozenset[str], *, strict: bool
) -> dict[str, dict[str, Any]]:
    """Scores that reference and shifted sets have arrays for; ``strict``: all of them must be."""
    possible = {}
    for name, options in scores.items():
        missing = sorted(create_score(name, **options).inputs - held)
        if not missing:
            possible[name] = options
        elif strict:
            raise GdscoreError(
                f"`{name}` needs {', '.join(missing)}, but the reference and all shifted sets do not hold it"
            )
    return possible


def default_shifts(images: Any, seed: int) -> list[Any]:
    """Image corruptions and their compositions: fewer of them where images are on the host."""
    few = arrays.on_host(images[:1])
    return [*corruptions((2, 4, 6, 8) if few else range(1, 9), seed=seed), *compositions(40 if few else 100, seed=seed)]


def checked_shifts(shifts: Iterable[Any]) -> list[Any]:
    """Callables, or an error."""
    listed = list(shifts)
    strange = next((s for s in listed if not callable(s)), None)
    if strange is not None:
        raise GdscoreError(f"Expected `shifts` to be callables from inputs to inputs, but got {strange!r}")
    return listed


def checked_labels(labels: Any, inputs: Any) -> NDArray[Any]:
    """One label for every input, on the host."""
    found = arrays.to_numpy(labels) if arrays.is_array(labels) else np.asarray(labels)
    if found.ndim != 1 or len(inputs) != len(found) or not len(found):
        shape = "×".join(map(str, found.shape)) or "no"
        raise GdscoreError(f"Expected as many labels as inputs, but got {shape} for {len(inputs)} inputs")
    return found


def checked_reference(reference: Outputs | None) -> Outputs:
    """Labelled outputs, or an error."""
    if not isinstance(reference, Outputs) or "labels" not in reference.has:
        raise GdscoreError("Expected `reference` to be `gdscore.Outputs` with labels, but there are none")
    return reference


def checked_set(candidate: Any) -> ShiftedSet:
    """A `ShiftedSet`, or an error."""
    if not isinstance(candidate, ShiftedSet):
        raise GdscoreError(f"Expected `shifted_sets` to hold `gdscore.ShiftedSet`, but got {type(candidate).__name__}")
    return candidate


def counted(sets: Iterator[ShiftedSet], advance: Callable[[int], None]) -> Iterator[ShiftedSet]:
    """The sets, each counted when it is done with."""
    for one in sets:
        yield one
        advance(1)


def temperature_of(reference: Outputs) -> float:
    """Temperature of the reference, or 1 where a reference without errors leaves it open."""
    found = find_temperature(reference)
    return found.value if found.determined else 1.0
