"""Scores and estimates of every public road: they agree with one another, and with `record.json`.

    python -m tests.roads          # writes what is beyond its tolerance into record.json anew, and prints it

Nothing that is recorded was trained in the test, and its data is whole-number arithmetic: `data`.
"""
