"""Share of columns that drifted, of each window, as no accuracy is estimated without labels: with_evidently.py REFERENCE TARGET."""

import sys

import pandas as pd
from evidently import Report
from evidently.presets import DataDriftPreset

reference, target = map(pd.read_csv, sys.argv[1:])
columns = [name for name in reference if name.startswith(("x_", "p_"))]
for window, rows in target.groupby("window", sort=False):
    found = Report([DataDriftPreset()]).run(rows[columns], reference[columns]).dict()
    print(window, found["metrics"][0]["value"]["share"], sep=",")
