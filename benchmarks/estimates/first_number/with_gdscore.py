"""Accuracy of each window from logged probabilities: with_gdscore.py REFERENCE TARGET."""

import sys

import pandas as pd

import gdscore

reference, target = map(pd.read_csv, sys.argv[1:])
est = gdscore.AccuracyEstimator().fit(gdscore.from_frame(reference, probabilities="p_*", label="label"))
windows = est.estimate(gdscore.from_frame(target, probabilities="p_*"), by=target["window"])
for window, e in windows.items():
    print(window, e.accuracy, e.low, e.high, sep=",")
