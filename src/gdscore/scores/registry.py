"""Scores by name: registering, listing and making them, and computing one, or all that the data allow, in one pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from gdscore._stream import Rechunker, stream
from gdscore.errors import GdscoreError, nearest, shown
from gdscore.outputs import Outputs
from gdscore.scores.base import Score, fit_together, option_names, read_options

_REGISTRY: dict[str, type[Score]] = {}
_ARRAYS = ("logits", "features", "labels", "peer_logits", "batch_logits", "rotation_logits")
_AVAILABLE = (*_ARRAYS, "reference", "reference_labels", "network")

S = TypeVar("S", bound=type[Score])


def register_score(name: str) -> Callable[[S], S]:
    """Class decorator that gives a `Score` a name, under which all of gdscore finds it.

    All options of the class must have defaults. A name belongs to one class: one that another class has is refused.

    Examples
    --------
    >>> import gdscore
    >>> @gdscore.register_score("margin")
    ... class Margin(gdscore.MeanScore):
    ...     def row_values(self, chunk):
    ...         return 2 * chunk.confidence - 1
    >>> "margin" in gdscore.list_scores()
    True
    """

    def decorate(cls: S) -> S:
        if not isinstance(name, str) or not name:
            raise GdscoreError(f"Expected the name of a score to be a string, but got {shown(name)}")
        if not (isinstance(cls, type) and issubclass(cls, Score)):
            raise GdscoreError(f"Expected a subclass of `gdscore.Score` to register as {name!r}, but got {cls!r}")
        if name in _REGISTRY and _REGISTRY[name] is not cls:
            raise GdscoreError(f"A score named {name!r} is registered already: {_REGISTRY[name].__qualname__}")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return decorate


def list_scores(available: str | Collection[str] | None = None) -> list[str]:
    """Names of all scores, or of those that can be computed from what the caller has, in alphabetical order.

    Parameters
    ----------
    available : str or collection of str, optional
        What the caller has: ``logits``, ``features``, ``labels``, ``peer_logits``, ``batch_logits``,
        ``rotation_logits``, ``reference`` (outputs), ``reference_labels`` (with labels), ``network``.

    Examples
    --------
    >>> import gdscore
    >>> gdscore.list_scores(available=["features", "reference"])
    ['frechet']
    """
    if available is None:
        return sorted(_REGISTRY)
    if not isinstance(available, Collection):
        raise GdscoreError(f"Expected `available` to be a name or names, but got {available!r}")
    names = [available] if isinstance(available, str) else list(available)
    for name in names:
        if not isinstance(name, str) or name not in _AVAILABLE:
            raise GdscoreError(f"Unknown name {shown(name)} in `available`: {nearest(shown(name), _AVAILABLE)}")
    has = set(names)
    if "reference_labels" in has:
        has.add("reference")
    return sorted(name for name, cls in _REGISTRY.items() if cls().needs <= has)


def create_score(name: str, /, **options: Any) -> Score:
    """Streaming score by name; see the class of each score for its options.

    Parameters
    ----------
    name : str
        Name of the score, see `list_scores`.
    **options
        Options of the score; `Score.options` has their values.

    Returns
    -------
    Score
        Without rows; where its ``reference_inputs`` are not empty, it needs `Score.fit` first.

    Examples
    --------
    >>> import gdscore
    >>> gdscore.create_score("gdscore", p=1, batch_size=None).higher_is_better
    False
    """
    if isinstance(name, Outputs):
        raise GdscoreError("Expected the name of a score, but got Outputs: the name comes first, so swap them")
    if not isinstance(name, str) or name not in _REGISTRY:
        raise GdscoreError(f"Unknown score {shown(name)}: {nearest(shown(name), _REGISTRY)}")
    cls = _REGISTRY[name]
    valid = option_names(cls)
    for option in options:
        if option not in valid:
            hint = nearest(option, valid) if valid else "it has none"
            raise GdscoreError(f"Unknown option {option!r} of `{name}`: {hint}")
    return cls(**options)


def restore_score(state: dict[str, Any]) -> Score:
    """Score with the options, fit and rows of a saved `Score.state_dict`.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=np.array([[0.0, 1.0], [2.0, 0.0]])))
    >>> gdscore.restore_score(score.state_dict()).compute() == score.compute()
    True
    """
    name, options = read_options(state)
    return create_score(name, **options).load_state_dict(state)


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

    @classmethod
    def of(cls, scores: Mapping[str, Score], skipped: Mapping[str, str]) -> ScoreTable:
        """Numbers of scores that have seen their rows; one that cannot be computed is skipped."""
        table = cls({}, skipped)
        for name, made in scores.items():
            try:
                table[name] = made.compute()
            except GdscoreError as error:
                table.skipped[name] = str(error)
        return table


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
    >>> round(table["confscore"], 4)
    0.7112
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
    return ScoreTable.of(running, skipped)


def run_together(scores: list[Score], target: Iterable[Outputs]) -> None:
    """Feed all scores; those that work on chunks of one size share the chunks and what is derived from them."""
    groups = [[s for s in scores if s.chunk_rows == rows] for rows in sorted({s.chunk_rows for s in scores})]
    cutters = [Rechunker(group[0].chunk_rows) for group in groups]
    inputs = [frozenset().union(*(s.inputs for s in group)) for group in groups]
    admitted: object = None
    for part in target:
        shape = (part.has, part.decision, part.n_classes, part.n_features, part.class_names)
        if shape != admitted:
            for s in scores:
                s.check_rows(part)
            admitted = shape
        for group, cutter, needed in zip(groups, cutters, inputs, strict=True):
            for chunk in cutter.push(part.only(needed)):
                for s in group:
                    s.add_chunk(chunk)
    for group, cutter in zip(groups, cutters, strict=True):
        for s in group:
            s.take_rest(cutter.rest())


def refuse_one_iterator(target: Any, reference: Any, name: str = "reference") -> None:
    """Refuse an iterator that is target and reference: each would get a part of its rows."""
    if reference is target and isinstance(target, Iterator):
        raise GdscoreError(
            f"Expected other data as `{name}`, but got the {type(target).__name__} that is the target too, whose "
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
    """Name what a score needs beyond the arrays of target and reference; empty where it has all."""
    absent = sorted(score.inputs - has)
    if "network" in absent:
        return f"needs the network: gdscore.models.{score.name}"
    needs = [", ".join(absent)] if absent else []
    if score.argmax_only and "predictions" in has:
        needs.append("rows decided by the largest probability, without predictions or threshold")
    if score.reference_inputs and reference_has is None:
        needs.append("labelled reference data" if "labels" in score.reference_inputs else "reference data")
    elif reference_has is not None and score.reference_inputs - reference_has:
        needs.append(f"{', '.join(sorted(score.reference_inputs - reference_has))} of the reference")
    return f"needs {' and '.join(needs)}" if needs else ""
