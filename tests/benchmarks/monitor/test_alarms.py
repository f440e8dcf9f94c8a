"""The simulation of alarms, in small, and the promise on the results that are kept."""

import csv

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")

from benchmarks.monitor import alarms

ROW = "independent, spread 0.8"


def test_series_have_the_spread_dependence_and_pattern_that_are_asked_for():
    made = alarms.simulate(np.random.default_rng(0), 400, 60, spread=1.5, rho=0.8, weekend=5)
    weekend = np.array([time.weekday() >= 5 for time in alarms.TIMES[:60]])
    apart = 100 * (made - alarms.LEVEL) + 5 * weekend
    assert apart.std() == pytest.approx(1.5, rel=0.05)
    assert np.mean(apart[:, 1:] * apart[:, :-1]) / apart.var() == pytest.approx(0.8, abs=0.03)


def test_delays_count_from_the_drop_and_days_in_a_row_are_one_alarm():
    raised = np.zeros((3, 80), dtype=bool)
    raised[0, 60:63] = raised[1, 64] = True
    assert alarms.beginnings(raised).sum(1).tolist() == [1, 1, 0]
    line = alarms.summarize(ROW, "monitor", 5, alarms.beginnings(raised), 60)
    assert line[-2:] == [5.0, 0.667]


def test_a_large_drop_is_found_through_the_code_of_the_monitor():
    lines = list(alarms.simulated(ROW, {}, 8, 0))
    assert [line[:3] for line in lines][::2] == [[ROW, "monitor", drop] for drop in (0, *alarms.DROPS)]
    assert all(line[6] <= 2 for line in lines if line[2] >= 10)


def test_the_kept_results_hold_what_the_page_promises():
    with alarms.FILE.open(newline="") as file:
        rows = {(r["row"], r["rule"], int(r["drop (points)"])): r for r in csv.DictReader(file)}
    for name in alarms.SIMULATED:
        found = rows[name, "monitor", 0]
        assert int(found["years"]) >= 500
        assert float(found["false alarms per year"]) <= 0.1 or name.startswith("beyond the promise")
    assert float(rows[ROW, "monitor", 5]["median delay (days)"]) <= 3
    assert float(rows[ROW, "monitor", 2]["median delay (days)"]) <= 20
