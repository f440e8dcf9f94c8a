"""`score` and `score_all`: one score, or all that the data allow, in one pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gdscore._stream import stream
from gdscore.errors import GdscoreError, shown
from gdscore.outputs import Outputs
from gdscore.scores.base import Score
from gdscore.scores.registry import create_score, list_scores
from gdscore.scores.together import fit_together, run_together

__all__ = ["ScoreTable", "chosen_scores", "missing_inputs", "peek", "refuse_one_iterator", "score", "score_all"]


def score(
    name: str,
    outputs: Outputs | Iterable[Outputs],
    /,
    *,
    reference: Outputs | Iterable[Outputs] | None = None,
    **options: Any,
) -> float:
    """Score of one set of rows.

    Parameters
    ----------
    name : str
        Name of the score, see `list_scores`.
    outputs : Outputs or iterable of Outputs
        Outputs of the target.
    reference : Outputs or iterable of Outputs, optional
        Outputs of the reference, labelled where the score needs labels; ignored by scores that need none.
    **options
        Options of the score.

    Returns
    -------
    float
        Finite; a number that overflows is an error.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> out = gdscore.Outputs(logits=np.zeros((200, 4)), features=np.ones((200, 3)))
    >>> gdscore.score("gdscore", out, label_rule="uniform")
    0.0
    """
    made = create_score(name, **options)
    if made.reference_inputs and reference is not None:
        made.fit(reference)
    for part in stream(outputs, "outputs"):
        made.update(part)
    return made.compute()


class ScoreTable(dict[str, float]):
    """Scores by name, and in ``skipped`` why each of the others could not be computed.

    Attributes
    ----------
    skipped : dict of str
        Name of each score that is missing, and the reason.

    Examples
    --------
    >>> table = ScoreTable({"confscore": 0.9}, skipped={"atc": "needs labelled reference data"})
    >>> table["confscore"], table.skipped["atc"]
    (0.9, 'needs labelled reference data')
    """

    def __init__(self, values: Mapping[str, float], skipped: Mapping[str, str]) -> None:
        super().__init__(values)
        self.skipped = dict(skipped)


def score_all(
    outputs: Outputs | Iterable[Outputs],
    *,
    reference: Outputs | Iterable[Outputs] | None = None,
    scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
) -> ScoreTable:
    """All scores that the data allow, in one pass over target and reference.

    Parameters
    ----------
    outputs : Outputs or iterable of Outputs
        Outputs of the target.
    reference : Outputs or iterable of Outputs, optional
        Outputs of the reference, labelled if possible.
    scores : iterable of names, or mapping of names to options, optional
        Scores to compute; all by default.

    Returns
    -------
    ScoreTable
        A dict of the numbers; its attribute ``skipped`` has the reason why each of the others is missing.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> table = gdscore.score_all(gdscore.Outputs(logits=2 * np.eye(4).repeat(10, axis=0)))
    >>> sorted(table)
    ['confscore', 'entropy', 'mano', 'nuclear']
    >>> table.skipped["gdscore"]
    'needs features'
    """
    made = {name: create_score(name, **chosen) for name, chosen in chosen_scores(scores).items()}
    refuse_one_iterator(outputs, reference)
    target, has = peek(outputs, "outputs")
    reference_has: frozenset[str] | None = None
    if reference is not None:
        reference, reference_has = peek(reference, "reference")
    skipped = {name: why for name, s in made.items() if (why := missing_inputs(s, has, reference_has))}
    running = {name: s for name, s in made.items() if name not in skipped}
    skipped |= fit_together(running.values(), reference)
    running = {name: s for name, s in running.items() if name not in skipped}
    run_together(list(running.values()), target)
    values: dict[str, float] = {}
    for name, s in running.items():
        try:
            values[name] = s.compute()
        except GdscoreError as error:
            skipped[name] = str(error)
    return ScoreTable(values, skipped)


def refuse_one_iterator(target: Any, reference: Any) -> None:
    """Refuse an iterator that is target and reference: each would get a part of its rows."""
    if reference is target and isinstance(target, Iterator):
        raise GdscoreError(
            f"Expected other data as `reference`, but got the {type(target).__name__} that is the target too, whose "
            "rows are read only once: make a second one"
        )


def chosen_scores(scores: Iterable[str] | Mapping[str, Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    """Options by name of what was asked for; all scores by default."""
    expected = "Expected `scores` to be names, or a mapping of names to options"
    wanted = list_scores() if scores is None else [scores] if isinstance(scores, str) else scores
    if not isinstance(wanted, Iterable):
        raise GdscoreError(f"{expected}, but got {shown(scores)}")
    pairs = list(wanted.items()) if isinstance(wanted, Mapping) else [(name, {}) for name in wanted]
    if not pairs:
        raise GdscoreError(f"{expected}, but got none")
    for name, options in pairs:
        if not isinstance(name, str) or not (options is None or isinstance(options, Mapping)):
            raise GdscoreError(f"{expected}, but got {shown(name)} with options {shown(options)}")
        if any(not isinstance(option, str) for option in options or ()):
            raise GdscoreError(f"Expected the options of `{name}` by name, but got {shown(options)}")
    return {name: options or {} for name, options in pairs}


def peek(data: Outputs | Iterable[Outputs], what: str) -> tuple[Iterable[Outputs], frozenset[str]]:
    """Stream as it was, and the arrays that its first part has."""
    parts = stream(data, what)
    first = next(parts)
    return itertools.chain([first], parts), first.has


def missing_inputs(score: Score, has: frozenset[str], reference_has: frozenset[str] | None) -> str:
    """Word what a score needs beyond the arrays of target and reference; empty where it has all."""
    absent = sorted(score.inputs - has)
    if "network" in absent:
        return f"needs the network: gdscore.models.{score.name}"
    words = [", ".join(absent)] if absent else []
    if score.reference_inputs and reference_has is None:
        words.append("labelled reference data" if "labels" in score.reference_inputs else "reference data")
    elif reference_has is not None and score.reference_inputs - reference_has:
        words.append(f"{', '.join(sorted(score.reference_inputs - reference_has))} of the reference")
    return f"needs {' and '.join(words)}" if words else ""
