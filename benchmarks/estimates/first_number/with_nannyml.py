"""Accuracy of each window from logged probabilities: with_nannyml.py REFERENCE TARGET."""

import sys

import nannyml
import pandas as pd

reference, target = map(pd.read_csv, sys.argv[1:])
columns = {int(name[2:]): name for name in reference if name.startswith("p_")}
binary = len(columns) == 2
estimator = nannyml.CBPE(
    problem_type="classification_binary" if binary else "classification_multiclass",
    y_pred_proba="p_1" if binary else columns,
    y_pred="predicted",
    y_true="label",
    metrics=["accuracy"],
    chunk_number=1,
).fit(reference)
for window, rows in target.groupby("window", sort=False):
    found = estimator.estimate(rows).filter(period="analysis").to_df()["accuracy"].iloc[0]
    print(window, found["value"], found["lower_confidence_boundary"], found["upper_confidence_boundary"], sep=",")
