"""Names of scores: registering, listing and making them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from gdscore.errors import GdscoreError, nearest, shown
from gdscore.outputs import Outputs
from gdscore.scores._state import read_options
from gdscore.scores.base import Score, option_names

__all__ = ["create_score", "list_scores", "register_score", "restore_score", "score_class"]

_REGISTRY: dict[str, type[Score]] = {}
_ARRAYS = ("logits", "features", "labels", "peer_logits", "batch_logits", "rotation_logits")
_NEEDS = (*_ARRAYS, "reference", "reference_labels", "network")

S = TypeVar("S", bound=type[Score])


def register_score(name: str) -> Callable[[S], S]:
    """Class decorator that gives a `Score` a name, under which all of gdscore finds it.

    All options of the class must have defaults. A name belongs to one class.

    Parameters
    ----------
    name : str
        New name; one that another class has is refused.

    Returns
    -------
    callable
        Decorator, which returns the class.

    Examples
    --------
    >>> import gdscore
    >>> from gdscore.scores.means import MeanScore
    >>> @gdscore.register_score("margin")
    ... class Margin(MeanScore):
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


def score_class(name: str) -> type[Score]:
    """Class of a registered score."""
    if isinstance(name, Outputs):
        raise GdscoreError("Expected the name of a score, but got Outputs: the name comes first, so swap them")
    if not isinstance(name, str) or name not in _REGISTRY:
        raise GdscoreError(f"Unknown score {shown(name)}: {nearest(shown(name), _REGISTRY)}")
    return _REGISTRY[name]


def list_scores(needs: str | Collection[str] | None = None) -> list[str]:
    """Names of all scores, or of those that can be computed from what the caller has.

    Parameters
    ----------
    needs : str or collection of str, optional
        What the caller has: ``logits``, ``features``, ``labels``, ``peer_logits``, ``batch_logits``,
        ``rotation_logits``, ``reference`` (outputs), ``reference_labels`` (with labels), ``network``.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> import gdscore
    >>> gdscore.list_scores(needs="logits")
    ['confscore', 'entropy', 'mano', 'nuclear']
    """
    if needs is None:
        return sorted(_REGISTRY)
    if not isinstance(needs, Collection):
        raise GdscoreError(f"Expected `needs` to be a name or names, but got {needs!r}")
    wanted = [needs] if isinstance(needs, str) else list(needs)
    for need in wanted:
        if not isinstance(need, str) or need not in _NEEDS:
            raise GdscoreError(f"Unknown need {shown(need)}: {nearest(shown(need), _NEEDS)}")
    has = set(wanted)
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
    cls = score_class(name)
    valid = option_names(cls)
    for option in options:
        if option not in valid:
            hint = nearest(option, valid) if valid else "it has none"
            raise GdscoreError(f"Unknown option {option!r} of `{name}`: {hint}")
    return cls(**options)


def restore_score(state: dict[str, Any]) -> Score:
    """Score with the options, fit and rows of a saved `Score.state_dict`.

    Parameters
    ----------
    state : dict
        What `Score.state_dict` gave.

    Returns
    -------
    Score

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=np.array([[0.0, 1.0], [2.0, 0.0]])))
    >>> gdscore.restore_score(score.state_dict()).compute() == score.compute()
    True
    """
    name, options = read_options(state)
    return create_score(name, **options).load_state_dict(state)
