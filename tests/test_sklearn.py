"""`from_sklearn` and `sklearn_head` against what scikit-learn itself answers."""

import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.sklearn import _contributions, from_sklearn, sklearn_head


def _scaled(loader):
    X, y = loader(return_X_y=True)
    X, y = X[::4], y[::4]
    # Nearly constant pixels give discriminant analysis weights of 1e15.
    return StandardScaler().fit_transform(X[:, X.std(axis=0) > 0.05 * X.std()]), y


DATA = {"binary": _scaled(load_breast_cancer), "iris": _scaled(load_iris), "digits": _scaled(load_digits)}


@pytest.fixture(autouse=True)
def one_thread():
    # Threads waiting for each other take longer than these small fits.
    with threadpool_limits(1):
        yield


def network(activation="relu", hidden=(7, 5), **options):
    # lbfgs for 15 steps is enough to be far from the start; its warning is about convergence alone.
    return MLPClassifier(hidden, activation=activation, solver="lbfgs", max_iter=15, random_state=0, **options)


def fitted(clf, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(X, y)


LAYERED = {
    "logistic regression": lambda: LogisticRegression(),
    "no intercept": lambda: LogisticRegression(fit_intercept=False),
    "lda": lambda: LinearDiscriminantAnalysis(),
    "lda lsqr": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2),
    "pipeline": lambda: make_pipeline(StandardScaler(), "passthrough", PCA(3), LogisticRegression()),
    "one step": lambda: make_pipeline(LogisticRegression()),
    "pipeline of pipeline": lambda: make_pipeline(PCA(3), make_pipeline(StandardScaler(), network())),
    "search": lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    "search of pipeline": lambda: GridSearchCV(
        make_pipeline(PCA(), LogisticRegression()), {"pca__whiten": [True]}, cv=2
    ),
    "pipeline of search": lambda: make_pipeline(PCA(3), GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2)),
    "no hidden layer": lambda: network(hidden=()),
    **{f"network {a}": lambda a=a: network(a) for a in ("identity", "logistic", "tanh", "relu")},
}
OTHERS = {
    "forest": lambda: RandomForestClassifier(10, random_state=0),
    "naive bayes": lambda: GaussianNB(),
    "neighbours": lambda: KNeighborsClassifier(4),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=4, max_bins=16),
    "qda": lambda: make_pipeline(PCA(3), QuadraticDiscriminantAnalysis()),
    "calibrated": lambda: CalibratedClassifierCV(LinearSVC(), cv=2),
    "one versus rest": lambda: OneVsRestClassifier(LogisticRegression(max_iter=20)),
    "pipeline": lambda: make_pipeline(PCA(3), GaussianNB()),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", LAYERED)
def test_softmax_and_last_layer_give_the_classifiers_own_answers(name, data):
    X, y = DATA[data]
    clf = fitted(LAYERED[name](), X, y)
    out = from_sklearn(clf, X, y)
    W, b = sklearn_head(clf)
    assert out.has == {"logits", "features", "labels"}
    assert W.shape == (out.n_features, out.n_classes)
    assert b.shape == (out.n_classes,)
    np.testing.assert_allclose(out.features @ W + b, out.logits, atol=1e-9)
    np.testing.assert_allclose(softmax(out.logits, axis=1), clf.predict_proba(X), atol=1e-9)
    assert np.array_equal(clf.classes_[out.predictions], clf.predict(X))
    assert out.accuracy == pytest.approx(clf.score(X, y))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", OTHERS)
def test_other_classifiers_give_their_probabilities(name, data):
    X, y = DATA[data]
    clf = fitted(OTHERS[name](), X, y)
    out = from_sklearn(clf, X, y)
    assert set(out.arrays) - {"inputs"} == {"probabilities", "labels"}
    assert sklearn_head(clf) is None
    assert out.arrays["probabilities"].dtype == np.float64
    np.testing.assert_allclose(out.arrays["probabilities"], clf.predict_proba(X))
    assert np.array_equal(clf.classes_[out.predictions], clf.predict(X))


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_one_versus_rest_logistic_loss_has_no_softmax_even_where_saturated(scale):
    for name in DATA:
        X, y = DATA[name]
        clf = fitted(SGDClassifier(loss="log_loss", random_state=0, max_iter=5), scale * X, y)
        binary = name == "binary"
        assert (sklearn_head(clf) is not None) == binary


@pytest.mark.parametrize("features", [1, 2])
def test_softmax_is_recognised_with_fewer_features_than_classes(features):
    X, y = DATA["digits"]
    X = X[:, 20 : 20 + features] * 100
    assert sklearn_head(fitted(LogisticRegression(max_iter=20), X, y)) is not None
    assert sklearn_head(fitted(SGDClassifier(loss="log_loss", random_state=0), X, y)) is None


@pytest.mark.parametrize(
    "clf", [LogisticRegression(), network(hidden=(1,)), GaussianNB()], ids=lambda c: type(c).__name__
)
def test_one_row_of_one_feature(clf):
    X, y = DATA["binary"]
    fitted(clf, X[:, :1], y)
    out = from_sklearn(clf, X[:1, :1], y[:1])
    np.testing.assert_allclose(out.probabilities, clf.predict_proba(X[:1, :1]), atol=1e-12)


@pytest.mark.parametrize("clf", [LogisticRegression(), network()], ids=lambda c: type(c).__name__)
def test_float32_rows(clf):
    X, y = DATA["iris"]
    X = X.astype(np.float32)
    fitted(clf, X, y)
    out = from_sklearn(clf, X)
    W, b = sklearn_head(clf)
    assert out.features.dtype == out.logits.dtype
    np.testing.assert_allclose(out.features @ W + b, out.logits, atol=1e-4)
    np.testing.assert_allclose(out.probabilities, clf.predict_proba(X), atol=1e-5)


def test_sparse_rows_and_coefficients():
    X, y = DATA["iris"]
    S = sparse.csr_matrix(X)
    linear = LogisticRegression().fit(S, y)
    dense_logits = from_sklearn(linear, X).logits
    linear.sparsify()
    out = from_sklearn(linear, S)
    assert out.has == {"logits"}
    np.testing.assert_allclose(out.logits, dense_logits)
    assert sklearn_head(linear)[0].shape == (4, 3)
    deep = fitted(network(), S, y)
    np.testing.assert_allclose(from_sklearn(deep, S).features, from_sklearn(deep, X).features)
    assert from_sklearn(fitted(network(hidden=()), S, y), S).has == {"logits"}
    assert len(from_sklearn(KNeighborsClassifier().fit(S, y), S)) == len(y)


@pytest.mark.parametrize("last", [LogisticRegression(), network(), GaussianNB()], ids=lambda c: type(c).__name__)
def test_data_frames_pass_without_warnings_and_in_their_order(last):
    X, y = DATA["iris"]
    frame = pa.table({f"column {i}": X[:, i] for i in range(4)})
    for clf in (last, make_pipeline(StandardScaler(), last)):
        fitted(clf, frame, y)
        assert np.array_equal(from_sklearn(clf, frame, y).predictions, clf.predict(frame))
        with pytest.raises(GdscoreError, match=r"Expected `X` as \w+ was fitted with, but it answers: .*feature names"):
            from_sklearn(clf, frame.select(frame.column_names[::-1]))


def test_labels_are_positions_in_the_classes():
    X, y = DATA["iris"]
    names = np.array(["setosa", "virginica", "versicolor"])[y]
    clf = LogisticRegression().fit(X, names)
    out = from_sklearn(clf, X, list(names))
    assert np.array_equal(clf.classes_[out.labels], names)
    assert out.accuracy == pytest.approx(clf.score(X, names))
    with pytest.raises(GdscoreError, match=r"Expected `y` among the classes \['setosa', .*\], but got 'rose' in row 1"):
        from_sklearn(clf, X[:2], ["setosa", "rose"])
    with pytest.raises(GdscoreError, match="but got 0 in row 0"):
        from_sklearn(clf, X, y)
    with pytest.raises(GdscoreError, match=r"Expected `y` to have one dimension, but got shape \(38, 1\)"):
        from_sklearn(clf, X, names[:, None])
    with pytest.raises(GdscoreError, match="Expected `labels` to have as many rows"):
        from_sklearn(clf, X, names[1:])


def test_predict_other_than_the_highest_probability_is_warned_about():
    X, y = DATA["binary"]
    clf = FixedThresholdClassifier(LogisticRegression(), threshold=0.95).fit(X, y)
    with pytest.warns(GdscoreWarning, match=r"FixedThresholdClassifier\.predict differs .* of 143 rows compared"):
        out = from_sklearn(clf, X)
    assert not np.array_equal(out.predictions, clf.predict(X))
    np.testing.assert_allclose(out.arrays["probabilities"], clf.predict_proba(X))


def test_predict_that_settles_ties_of_probability_is_warned_about():
    X, y = DATA["digits"]
    clf = SGDClassifier(loss="modified_huber", random_state=0).fit(X, y)
    with pytest.warns(GdscoreWarning, match="the first of equals"):
        from_sklearn(clf, X)


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
def test_svc_with_probabilities():
    X, y = DATA["digits"]
    clf = SVC(probability=True, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GdscoreWarning)
        out = from_sklearn(clf, X, y)
    np.testing.assert_allclose(out.probabilities, clf.predict_proba(X), atol=1e-12)
    assert (out.predictions == clf.predict(X)).mean() > 0.95


def test_steps_without_transform_are_passed_over():
    class Sampler:
        def fit_resample(self, X, y):
            return X, y

    X, y = DATA["iris"]
    clf = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    expected = from_sklearn(clf, X).logits
    clf.steps.insert(1, ("sampler", Sampler()))
    np.testing.assert_array_equal(from_sklearn(clf, X).logits, expected)


X, Y = DATA["iris"]
MULTI_LABEL = np.stack([Y == 0, Y > 1], axis=1).astype(int)


@pytest.mark.parametrize(
    ("clf", "message"),
    [
        (None, "Expected a fitted scikit-learn classifier, or a pipeline or search of one, but got NoneType"),
        (LogisticRegression, "but got the class LogisticRegression"),
        (GridSearchCV, "but got the class GridSearchCV"),
        (LinearRegression().fit(X, Y), "but got LinearRegression; gdscore estimates"),
        (KMeans(2, n_init=1).fit(X), "but got KMeans"),
        (make_pipeline(StandardScaler(), PCA()).fit(X), "but got PCA"),
        (LogisticRegression(), "this LogisticRegression is not fitted: call its fit first"),
        (make_pipeline(PCA(), LogisticRegression()), "this LogisticRegression is not fitted"),
        (GridSearchCV(GaussianNB(), {}), "this GridSearchCV is not fitted"),
        (GridSearchCV(GaussianNB(), {}, refit=False).fit(X, Y), "call its fit with refit=True first"),
        (LinearSVC().fit(X, Y), "this LinearSVC has none: wrap it in sklearn.calibration.CalibratedClassifierCV"),
        (Perceptron().fit(X, Y), "this Perceptron has none"),
        (fitted(network(), X, MULTI_LABEL), "this MLPClassifier is multi-label, which is out of scope"),
        (OneVsRestClassifier(LogisticRegression()).fit(X, MULTI_LABEL), "this OneVsRestClassifier is multi-label"),
        (RandomForestClassifier(2).fit(X, MULTI_LABEL), "this RandomForestClassifier is multi-label"),
        (GaussianNB().fit(X, np.full(len(X), 7)), "at least 2 classes, but this GaussianNB was fitted on .*7.* alone"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(clf, message):
    with pytest.raises(GdscoreError, match=message):
        from_sklearn(clf, X)
    with pytest.raises(GdscoreError, match=message):
        sklearn_head(clf)


@pytest.mark.parametrize("clf", [LogisticRegression(), network(), GaussianNB()], ids=lambda c: type(c).__name__)
def test_unfit_rows_are_refused(clf):
    fitted(clf, X, Y)
    for rows in (X[:, :3], X[0], X[:0], np.where(X > 2, np.nan, X)):
        with pytest.raises(GdscoreError):
            from_sklearn(clf, rows)


def test_nothing_is_left_behind_on_the_classifier():
    clf = LogisticRegression().fit(X, Y)
    before = {name: np.copy(value) for name, value in vars(clf).items()}
    from_sklearn(clf, X)
    for part in sklearn_head(clf):
        part[:] = 0
    assert vars(clf).keys() == before.keys()
    assert all(np.array_equal(vars(clf)[name], value) for name, value in before.items())


def test_importing_the_module_leaves_scikit_learn_alone():
    code = "import sys, gdscore.sklearn; assert 'sklearn' not in sys.modules; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("make", [HistGradientBoostingClassifier, GradientBoostingClassifier])
def test_steps_of_boosting_add_up_to_its_decision(make, data):
    X, y = DATA[data]
    options = {"max_iter": 20} if make is HistGradientBoostingClassifier else {"n_estimators": 10}
    clf = make(**options, random_state=0).fit(X, y)
    inputs = from_sklearn(clf, X).inputs
    decision = clf.decision_function(X).reshape(len(X), -1)
    assert inputs.shape[1] <= 256
    np.testing.assert_allclose(inputs.reshape(len(X), -1, decision.shape[1]).sum(axis=1), decision, atol=1e-6)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("make", [RandomForestClassifier, ExtraTreesClassifier])
def test_inputs_of_a_forest_are_positions_among_its_thresholds(make, data):
    X, y = DATA[data]
    clf = make(n_estimators=20, random_state=0).fit(X, y)
    inputs = from_sklearn(clf, X).inputs
    splits = [(k, t) for tree in clf.estimators_ for k, t in zip(tree.tree_.feature, tree.tree_.threshold, strict=True)]
    used = sorted({k for k, _ in splits if k >= 0})
    expected = [
        [np.mean([np.float32(row[k]) > t for column, t in splits if column == k]) for k in used] for row in X[:5]
    ]
    np.testing.assert_allclose(inputs[:5], expected, atol=1e-12)
    np.testing.assert_array_equal(from_sklearn(clf, sparse.csr_matrix(X)).inputs, inputs)


def test_missing_inputs_of_a_forest_are_in_the_middle_and_columns_bounded():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 300))
    y = (X[:, :290].sum(axis=1) > 0).astype(int)
    clf = RandomForestClassifier(60, random_state=0).fit(X, y)
    holes = X[:3].copy()
    holes[1] = np.nan
    inputs = from_sklearn(clf, holes).inputs
    assert inputs.shape == (3, 256)
    assert (inputs[1] == 0.5).all()
    constant = RandomForestClassifier(3, random_state=0).fit(np.zeros((20, 2)), np.arange(20) % 2)
    assert "inputs" not in from_sklearn(constant, np.zeros((4, 2))).has


class Booster:
    """Stands for LightGBM or XGBoost, whose outputs are sums over ranges of trees."""

    classes_ = np.array([0, 1, 2])
    n_estimators_ = 300

    def __init__(self, library):
        self.steps = np.random.default_rng(0).normal(size=(300, 3))
        self.asked = []
        type(self).__module__ = f"{library}.sklearn"

    def get_booster(self):
        return self

    def num_boosted_rounds(self):
        return 300

    def predict_proba(self, X):
        return np.full((len(X), 3), 1 / 3)

    def predict(
        self, X, raw_score=False, output_margin=False, start_iteration=0, num_iteration=0, iteration_range=None
    ):
        if not (raw_score or output_margin):
            return np.zeros(len(X), dtype=int)
        begin, end = iteration_range or (start_iteration, start_iteration + num_iteration)
        self.asked.append((begin, end))
        return np.tile(self.steps[begin:end].sum(axis=0), (len(X), 1))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosting_of_other_libraries_is_asked_for_ranges_of_trees(library):
    clf = Booster(library)
    inputs = _contributions(clf)(np.zeros((4, 2)))
    assert inputs.shape == (4, 255)
    np.testing.assert_allclose(inputs.reshape(4, 85, 3).sum(axis=1), np.tile(clf.steps.sum(axis=0), (4, 1)))
    assert clf.asked[0][0] == 0
    assert clf.asked[-1][1] == 300
