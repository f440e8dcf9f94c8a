"""Classifiers of tables and texts for the benchmarks, by name."""

from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["MODELS", "fitted"]


def words():
    return TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=10_000, sublinear_tf=True)


def table_network(seed):
    return MLPClassifier((64, 64), early_stopping=True, max_iter=200, random_state=seed)


def text_network(seed):
    # Not stopped early on held-out rows: of about 1,000 reviews these are too few, and training ends too soon.
    return MLPClassifier((32,), tol=1e-3, n_iter_no_change=5, max_iter=200, random_state=seed)


MODELS = {
    "table": {
        "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
        "forest": lambda seed: RandomForestClassifier(random_state=seed),
        "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, random_state=seed)),
        "mlp": lambda seed: make_pipeline(StandardScaler(), table_network(seed)),
    },
    "text": {
        "tfidf-logistic": lambda seed: make_pipeline(
            words(), LogisticRegression(C=10, max_iter=2000, random_state=seed)
        ),
        "tfidf-mlp": lambda seed: make_pipeline(words(), text_network(seed)),
    },
}


def fitted(task, model_name, seed=0):
    """Classifier of that name trained on the task's training rows."""
    if model_name not in MODELS[task.kind]:
        raise ValueError(f"Expected a model of {', '.join(MODELS[task.kind])}, but got {model_name!r}.")
    return MODELS[task.kind][model_name](seed).fit(*task.train)
