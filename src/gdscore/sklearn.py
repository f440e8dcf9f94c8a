"""`Outputs` of a fitted scikit-learn classifier, pipeline or search.

Requirements met here:

- logits, features and last layer where the model has a softmax on top of a linear layer, probabilities otherwise;
- evidence as `inputs` where the model is made of trees, which stay confident under shifted inputs;
- which of these holds depends on the model alone and not on the rows, so that all batches agree;
- decisions are those of the classifier's ``predict``, also where it does not take the most probable class;
- the link is tried on numbers: a linear classifier that normalises one-versus-rest scores has no softmax;
- models that are not single-label classifiers get an error that says so;
- scikit-learn is imported when a function is called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gdscore._arrays import Array, to_numpy
from gdscore._softmax import binary_logits, softmax
from gdscore.errors import GdscoreError
from gdscore.outputs import Outputs, checked_threshold

__all__ = ["Predictor", "from_sklearn", "sklearn_head"]

_PROBES = 32
_MOST_CONTRIBUTIONS = 256
_COMPARED_ROWS = 1000


def from_sklearn(clf: Any, X: Any, y: Any = None, *, threshold: float | None = None) -> Outputs:
    """Outputs of a fitted scikit-learn classifier for the rows of ``X``.

    ========================================================  ================================================
    classifier                                                outputs
    ========================================================  ================================================
    linear with softmax or sigmoid: logistic regression, LDA  logits, features = what enters the classifier
    ``MLPClassifier``                                         logits, features = last hidden layer
    boosted trees                                             probabilities, inputs = contributions of the trees
    forests                                                   probabilities, inputs = positions among thresholds
    others with ``predict_proba``                             probabilities, float64
    ========================================================  ================================================

    Pipelines are followed to their last step, searches to ``best_estimator_``, and classifiers of a threshold to the
    one that they hold. A single decision value z of a binary model becomes the logits (0, z). Sparse rows of a linear
    classifier give no features; where a vectorizer of texts made them, inputs are the share of each text's tokens that
    it does not know. Contributions are the steps of the decision function of boosting (scikit-learn, LightGBM,
    XGBoost); positions are, for each column, the share of the forest's thresholds below its value: at most 256 numbers
    a row, which only the estimator reads.

    Parameters
    ----------
    clf : classifier, pipeline or search, fitted
        Multi-label classifiers, regressors and clusterers are refused, and so are classifiers without
        probabilities: wrap them in ``CalibratedClassifierCV``.
    X : array, sparse matrix or data frame of m rows
        As ``clf.predict`` takes it.
    y : array of shape (m,), optional
        True classes as ``clf`` names them; they become positions in ``clf.classes_``.
    threshold : float, optional
        Decide for the second of two classes where its probability is at least this, whatever ``clf.predict`` does.

    Returns
    -------
    Outputs
        Predictions are positions in ``clf.classes_``, and those of ``clf.predict``. ``decision`` is the threshold of
        ``FixedThresholdClassifier`` and ``TunedThresholdClassifierCV``; ``given`` for other classifiers whose
        ``predict`` is not the first class of highest probability, compared on at most 1000 of the rows
        (``SVC(probability=True)`` always is one; one-versus-rest scores that saturate); ``argmax`` otherwise.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from gdscore.sklearn import from_sklearn, sklearn_head
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    >>> out = from_sklearn(clf, X, y)
    >>> out
    Outputs(logits (150, 3), features (150, 4), labels (150,); numpy float64)
    >>> round(out.accuracy, 3) == round(clf.score(X, y), 3)
    True
    >>> W, b = sklearn_head(clf)
    >>> bool(abs(out.features @ W + b - out.logits).max() < 1e-9)
    True
    """
    return Predictor(clf, threshold)(X, y)


class Predictor:
    """`from_sklearn` of one classifier for many batches.

    Whether it has a softmax is tried out once, and its predictions are compared on the first batch only, so that
    fitting on many shifted sets runs it once for each, and all of them are decided in the same way.
    """

    def __init__(self, clf: Any, threshold: float | None = None) -> None:
        self._name = _name(clf)
        self._transformers, self._classifier, rule = _unwrapped(clf)
        self._head = _head(self._classifier)
        self._contributions = _contributions(self._classifier)
        self._rule = rule if threshold is None else _Rule(threshold=checked_threshold(threshold))
        # scikit-learn's own ``predict`` takes the largest logit of a classifier that has logits.
        inherited = str(getattr(type(self._classifier).predict, "__module__", "")).startswith("sklearn.")
        if self._rule is None and self._head is not None and inherited:
            self._rule = _Rule()
        self._unknown_share = _unknown_share(self._transformers)

    def __call__(self, X: Any, y: Any = None) -> Outputs:
        """Outputs for the rows of ``X``."""
        classifier, texts = self._classifier, X
        outputs: dict[str, Any]
        try:
            inputs = [X]
            for step in self._transformers:
                inputs.append(X := step.transform(X))
            if self._head is None:
                outputs = {"probabilities": np.asarray(classifier.predict_proba(X), dtype=np.float64)}
                if self._contributions is not None:
                    outputs["inputs"] = self._contributions(X)
            elif hasattr(classifier, "coefs_"):
                outputs = _network_outputs(classifier, X, *self._head)
            else:
                outputs = {"logits": binary_logits(classifier.decision_function(X)), "features": X}
            if self._rule is None:
                differ = _predicts_otherwise(classifier, X, outputs)
                self._rule = _Rule(decider=classifier, steps=len(self._transformers)) if differ else _Rule()
            outputs["threshold"] = self._rule.threshold
            if self._rule.decider is not None:
                outputs["predictions"] = _decided(self._rule.decider, classifier, inputs[self._rule.steps])
        except ValueError as error:
            swapped = y is not None and np.ndim(X) == 1 and np.ndim(y) == 2
            answer = f"it answers: {str(error).splitlines()[0]}"
            why = "it has one dimension and `y` two: swap them" if swapped else answer
            raise GdscoreError(f"Expected `X` as {self._name} was fitted with, but {why}") from error
        if hasattr(outputs.get("features"), "tocsr"):
            del outputs["features"]
            if self._unknown_share is not None:
                outputs["inputs"] = self._unknown_share(texts)
        elif "features" in outputs:
            outputs["features"] = np.asarray(outputs["features"], dtype=outputs["logits"].dtype)
        if y is not None:
            outputs["labels"] = self.positions(y)
        return Outputs(**outputs, check_logits=False).with_class_names([str(name) for name in classifier.classes_])

    def positions(self, y: Any) -> NDArray[np.int64]:
        """Classes as the classifier names them, as positions in its ``classes_``."""
        return _positions(self._classifier.classes_, y)


def sklearn_head(clf: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Last linear layer of a fitted scikit-learn classifier, where a softmax follows it.

    With the features and logits of `from_sklearn`, ``features @ W + b`` equals ``logits``. The one weight vector w
    of a binary model becomes the columns (0, w).

    Parameters
    ----------
    clf : classifier, pipeline or search, fitted

    Returns
    -------
    W : array of shape (D, K)
    b : array of shape (K,)
        None instead of the pair where there is no such layer.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> W, b = sklearn_head(LinearDiscriminantAnalysis().fit(X, y))
    >>> W.shape, b.shape, W[:, 0].any()
    ((30, 2), (2,), np.False_)
    >>> sklearn_head(GaussianNB().fit(X, y)) is None
    True
    """
    _, classifier, _ = _unwrapped(clf)
    head = _head(classifier)
    # Order "K": the same memory layout gives the same product bit for bit, also of ill-conditioned weights.
    return None if head is None else (head[0].copy("K"), head[1].copy("K"))


def _name(clf: Any) -> str:
    return f"the class {clf.__name__}" if isinstance(clf, type) else type(clf).__name__


class _Rule(NamedTuple):
    """How a classifier decides: by a threshold, by the ``predict`` of ``decider``, or for the largest probability."""

    threshold: float | None = None
    decider: Any = None
    steps: int = 0  # transformers that the inputs of the decider have passed


def _unwrapped(clf: Any) -> tuple[list[Any], Any, _Rule | None]:
    """Split into the transformers before the final classifier, that one, checked to be usable, and how it decides.

    The last is None where only comparing predictions with probabilities tells.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
    from sklearn.pipeline import Pipeline
    from sklearn.svm import SVC, NuSVC

    transformers: list[Any] = []
    rule: _Rule | None = None
    while True:
        if isinstance(clf, Pipeline):
            # "passthrough" has no transform, nor have imbalanced-learn's samplers, which act only while fitting.
            transformers += [step for _, step in clf.steps[:-1] if hasattr(step, "transform")]
            clf = clf.steps[-1][1]
        elif not isinstance(clf, type) and hasattr(clf, "best_estimator_"):
            clf = clf.best_estimator_
        elif isinstance(clf, (FixedThresholdClassifier, TunedThresholdClassifierCV)) and hasattr(clf, "classes_"):
            _check_classifier(clf)
            threshold = _threshold_of(clf)
            decider_rule = _Rule(threshold) if threshold is not None else _Rule(decider=clf, steps=len(transformers))
            rule, clf = rule or decider_rule, getattr(clf, "estimator_", clf.estimator)
        elif isinstance(clf, FrozenEstimator):
            clf = clf.estimator
        else:
            _check_classifier(clf)
            if rule is None and isinstance(clf, (SVC, NuSVC)):
                rule = _Rule(decider=clf, steps=len(transformers))
            return transformers, clf, rule


def _threshold_of(clf: Any) -> float | None:
    """Least probability of the second class that a classifier of a threshold decides for it; None where it has none."""
    fixed = hasattr(clf, "threshold")
    threshold = clf.threshold if fixed else clf.best_threshold_
    threshold = 0.5 if isinstance(threshold, str) else float(threshold)
    # Scorers by name take 1 for the positive class, if any; what others take is known to the classifier alone.
    named = isinstance(getattr(clf, "scoring", None), str) and clf.classes_[0] != 1
    second = clf.pos_label is None or clf.pos_label == clf.classes_[1] if fixed else named
    usable = clf.response_method in ("auto", "predict_proba") and second and 0 < threshold < 1
    return threshold if usable else None


def _check_classifier(clf: Any) -> None:
    from sklearn.base import is_classifier

    name = _name(clf)
    fitted = hasattr(clf, "classes_") and not isinstance(clf, type)
    try:
        usable = fitted or (not isinstance(clf, type) and is_classifier(clf))
    except (AttributeError, TypeError):  # scikit-learn's answer to objects that are no estimators
        usable = False
    if not usable:
        raise GdscoreError(
            f"Expected a fitted scikit-learn classifier, or a pipeline or search of one, but got {name}; "
            "gdscore estimates the accuracy of single-label classification"
        )
    if not fitted:
        search = " with refit=True" if getattr(clf, "refit", True) is False else ""
        raise GdscoreError(f"Expected a fitted classifier, but this {name} is not fitted: call its fit{search} first")
    network_outputs = clf.n_outputs_ if getattr(clf, "out_activation_", None) == "logistic" else 1
    if isinstance(clf.classes_, list) or getattr(clf, "multilabel_", False) or network_outputs > 1:
        raise GdscoreError(f"Expected one label for each row, but this {name} is multi-label, which is out of scope")
    if len(clf.classes_) < 2:
        raise GdscoreError(
            f"Expected a classifier of at least 2 classes, but this {name} was fitted on {clf.classes_[0]!r} alone"
        )
    if not hasattr(clf, "predict_proba"):
        raise GdscoreError(
            f"Expected a classifier with `predict_proba`, but this {name} has none: "
            "wrap it in sklearn.calibration.CalibratedClassifierCV and fit that"
        )


def _head(clf: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    if hasattr(clf, "coefs_") and hasattr(clf, "out_activation_"):
        return binary_logits(clf.coefs_[-1]), binary_logits(clf.intercepts_[-1][None])[0]
    if not all(hasattr(clf, name) for name in ("coef_", "intercept_", "decision_function")):
        return None
    coef = clf.coef_.toarray() if hasattr(clf.coef_, "toarray") else np.asarray(clf.coef_)
    columns = 1 if len(clf.classes_) == 2 else len(clf.classes_)
    if coef.ndim != 2 or coef.shape[0] != columns:
        return None
    intercept = np.broadcast_to(clf.intercept_, columns)
    W, b = binary_logits(coef.T), binary_logits(intercept[None])[0]
    # Rows whose decision values are small: where they are large, any link gives ones and zeros.
    targets = np.random.default_rng(0).normal(scale=3.0, size=(columns, _PROBES))
    rows = (np.linalg.pinv(coef, rcond=1e-3) @ (targets - intercept[:, None])).T.astype(coef.dtype)
    nameless = copy.copy(clf)
    vars(nameless).pop("feature_names_in_", None)  # it would warn that the probes have no column names
    with np.errstate(all="ignore"):  # of probes that all of one-versus-rest's models refuse
        probabilities, logits = nameless.predict_proba(rows), binary_logits(nameless.decision_function(rows))
    agree = partial(np.allclose, rtol=1e-4, atol=1e-4)
    linked = agree(softmax(logits).probabilities, probabilities) and agree(rows @ W + b, logits)
    return (W, b) if linked else None


def _network_outputs(clf: Any, X: Any, W: Array, b: Array) -> dict[str, Any]:
    from scipy.special import expit
    from sklearn.utils import shuffle

    activation: Callable[[Array], Array] = {
        "identity": lambda z: z,
        "logistic": expit,
        "tanh": np.tanh,
        "relu": lambda z: np.maximum(z, 0),
    }[clf.activation]
    # One row through predict_proba: scikit-learn checks the columns, their number and their names.
    clf.predict_proba(shuffle(X, n_samples=1, random_state=0))
    hidden = X if hasattr(X, "tocsr") else np.asarray(X)
    for weights, intercept in zip(clf.coefs_[:-1], clf.intercepts_[:-1], strict=True):
        hidden = activation(hidden @ weights + intercept)
    return {"logits": hidden @ W + b, "features": hidden}


def _unknown_share(transformers: list[Any]) -> Callable[[Any], Array] | None:
    """Function from texts to the share of each one's tokens that its vectorizer does not know; None without one."""
    vectorizer = transformers[0] if transformers else None
    if vectorizer is None or not (hasattr(vectorizer, "vocabulary_") and hasattr(vectorizer, "build_analyzer")):
        return None
    tokens_of, vocabulary = vectorizer.build_analyzer(), vectorizer.vocabulary_

    def share(texts: Any) -> Array:
        counts = [(sum(token not in vocabulary for token in tokens), len(tokens)) for tokens in map(tokens_of, texts)]
        unknown, total = np.array(counts, dtype=np.float64).reshape(-1, 2).T
        # As if one token more were unknown and one more known: where all are, the share still varies by row.
        return ((unknown + 1) / (total + 2))[:, None]

    return share


def _contributions(clf: Any) -> Callable[[Any], Array] | None:
    """Function from rows to what boosting's trees add to its outputs, or where inputs lie for a forest; else None."""
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )

    columns = 1 if len(clf.classes_) == 2 else len(clf.classes_)
    most, library = max(_MOST_CONTRIBUTIONS // columns, 2), type(clf).__module__.partition(".")[0]

    def chosen(count: int) -> NDArray[Any]:
        """Ends of at most ``most`` parts of so many trees or stages."""
        return np.unique(np.linspace(0, count, min(most, count) + 1).astype(int))[1:]

    if isinstance(clf, (HistGradientBoostingClassifier, GradientBoostingClassifier)):

        def boosted(X: Any) -> Array:
            # Only the stages that are used are kept: there may be thousands.
            used = set(chosen(clf.n_iter_ if hasattr(clf, "n_iter_") else clf.n_estimators_).tolist())
            stages = enumerate(clf.staged_decision_function(X), start=1)
            ends = [np.array(stage).reshape(len(stage), -1) for number, stage in stages if number in used]
            return np.diff(np.stack(ends, axis=1), axis=1, prepend=0.0).reshape(len(ends[0]), -1)

        return boosted
    if isinstance(clf, (RandomForestClassifier, ExtraTreesClassifier)):
        return _positions_among_thresholds([clf.estimators_[k - 1].tree_ for k in chosen(len(clf.estimators_))])
    if library in ("lightgbm", "xgboost"):

        def ranges(X: Any) -> Array:
            ends = chosen(clf.n_estimators_ if library == "lightgbm" else clf.get_booster().num_boosted_rounds())
            parts = []
            for begin, end in zip([0, *ends[:-1]], ends, strict=True):
                if library == "lightgbm":
                    margins = clf.predict(X, raw_score=True, start_iteration=begin, num_iteration=end - begin)
                else:
                    margins = clf.predict(X, output_margin=True, iteration_range=(begin, end))
                parts.append(np.asarray(margins, dtype=np.float64).reshape(len(margins), -1))
            return np.concatenate(parts, axis=1)

        return ranges
    return None


def _positions_among_thresholds(trees: list[Any]) -> Callable[[Any], Array] | None:
    """Function from rows to the share of a column's thresholds that each value is above; None without thresholds.

    The answers of a forest's trees add little to its confidence, the places of its inputs do. Columns are those that
    are split most often.
    """
    column = np.concatenate([tree.feature for tree in trees])
    threshold = np.concatenate([tree.threshold for tree in trees])
    # In the trees' order leaves have a negative column.
    splits = np.bincount(column[column >= 0])
    used = np.sort(np.argsort(-splits, kind="stable")[: min(_MOST_CONTRIBUTIONS, np.count_nonzero(splits))])
    if not len(used):
        return None
    thresholds = [np.sort(threshold[column == k]) for k in used]

    def positions(X: Any) -> Array:
        rows = X.tocsr()[:, used].toarray() if hasattr(X, "tocsr") else np.asarray(X)[:, used]
        some = rows.astype(np.float32)
        shares = [np.searchsorted(t, values) / len(t) for t, values in zip(thresholds, some.T, strict=True)]
        return np.where(np.isnan(some), 0.5, np.stack(shares, axis=1))

    return positions


def _predicts_otherwise(clf: Any, X: Any, outputs: dict[str, Any]) -> bool:
    """Whether ``predict`` is not the first class of highest probability, on some of the rows."""
    from sklearn.utils import shuffle

    name = "logits" if "logits" in outputs else "probabilities"
    rows, drawn = shuffle(X, outputs[name], n_samples=min(_COMPARED_ROWS, len(outputs[name])), random_state=0)
    return bool((_decided(clf, clf, rows) != np.argmax(drawn, axis=1)).any())


def _decided(decider: Any, clf: Any, X: Any) -> NDArray[np.int64]:
    """Positions of the predicted classes among those of a classifier; some libraries give them as a column."""
    return _positions(clf.classes_, np.ravel(decider.predict(X)))


def _positions(classes: Array, y: Any) -> NDArray[np.int64]:
    y = to_numpy(y)
    if y.ndim != 1:
        raise GdscoreError(f"Expected `y` to have one dimension, but got shape {y.shape}")
    position = {label: i for i, label in enumerate(np.asarray(classes).tolist())}
    positions = np.array([position.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (positions < 0).any():
        row = int((positions < 0).argmax())
        raise GdscoreError(f"Expected `y` among the classes {list(position)}, but got {y.tolist()[row]!r} in row {row}")
    return positions
