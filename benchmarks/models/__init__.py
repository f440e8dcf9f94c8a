"""Classifiers that are measured: networks and their training, models of tables and texts, and the sets each of them meets."""
