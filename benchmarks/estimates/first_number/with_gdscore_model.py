"""Accuracy of each window with the classifier at hand: with_gdscore_model.py REFERENCE TARGET TRAIN KIND CLASSIFIER."""

import sys

import pandas as pd

import gdscore
from benchmarks.models.tabular import MODELS

reference, target, train = map(pd.read_csv, sys.argv[1:4])


def inputs(rows):
    return rows["text"].tolist() if "text" in rows else rows.filter(like="x_")


clf = MODELS[sys.argv[4]][sys.argv[5]](seed=0).fit(inputs(train), train["label"])
est = gdscore.AccuracyEstimator().fit_predictor(clf, inputs(reference), reference["label"], progress=False)
windows = est.estimate(gdscore.from_sklearn(clf, inputs(target)), by=target["window"])
for window, e in windows.items():
    print(window, e.accuracy, e.low, e.high, sep=",")
