"""Accuracy estimates with intervals on real data: beside other estimators and packages, with few, late and no labels."""
