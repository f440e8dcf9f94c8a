"""False alarms per year and delay to detection of the monitor's tests, by simulation through `gdscore.monitor.rules`.

Simulated rows: daily windows of 400 rows whose estimates have a level of 90 %, a spread, an autocorrelation, a weekend
pattern, and a reference of so many rows. False alarms are counted over a warm-up of 28 windows and the year after it;
drops of the estimate begin 32 days after the warm-up, and are found or not within 120 days. "3 sigma" is an alarm where
a window is three standard deviations of the first 28 windows below their mean.

Labelled rows: the same with labels of 400 rows a window unless the row says how many, whose accuracy is binomial around the true one. The estimates
hold the truth in 90 % of their intervals; in drops only the truth falls, and the estimates stay.

Digits: a classifier is trained on scikit-learn's digits, estimators are fitted on several draws of the reference, and
windows are drawn from real outputs that neither has seen, with noise that costs so many points of true accuracy. CBPE is
the mean confidence, calibrated by isotonic regression on the reference, with an alarm where a window is three standard
deviations of reference chunks below their mean, as in NannyML.

Constants of the test were chosen on the simulated rows with seed 0; the stored results are of seed 100.
Usage: python -m benchmarks.monitor.alarms [--years 1000] [--references 10] [--seed 100] [--only ROWS] [--output CSV]
"""

import argparse
import csv
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from benchmarks import RESULTS
from gdscore import AccuracyEstimator, Estimate, Outputs
from gdscore._windows import parse_every
from gdscore.monitor import Rules
from gdscore.monitor.queries import labelled_estimate
from gdscore.monitor.rules import Follower, Judgement
from gdscore.monitor.sequential import WARM_UP

ROWS, YEAR, POOL, FINE, SEARCHED = 400, 365, 250, 32, 120
DROPS = (2, 5, 10, 20)
LEVEL = 0.9
DAILY = parse_every("1d")
FILE = RESULTS / "monitor_alarms.csv"
HEADS = (
    *("row", "rule", "drop (points)", "years", "false alarms per year", "years with a false alarm"),
    *("median delay (days)", "found within 30 days"),
)
SIMULATED = {
    "independent, spread 0.8": {},
    "independent, spread 1.5": {"spread": 1.5},
    "independent, spread 2": {"spread": 2},
    "AR(1) 0.5, spread 0.8": {"rho": 0.5},
    "AR(1) 0.8, spread 0.8": {"rho": 0.8},
    "AR(1) 0.9, spread 0.8": {"rho": 0.9},
    "AR(1) 0.9, spread 1.5": {"rho": 0.9, "spread": 1.5},
    "AR(1) 0.9, spread 2": {"rho": 0.9, "spread": 2},
    "weekend 2 points lower": {"weekend": 2},
    "weekend 5 points lower": {"weekend": 5},
    "weekend 5, spread 2": {"weekend": 5, "spread": 2},
    "reference of 100 rows": {"reference_rows": 100},
    "reference of 300 rows": {"reference_rows": 300},
    "beyond the promise: AR(1) 0.9, spread 1.5, reference of 100": {"rho": 0.9, "spread": 1.5, "reference_rows": 100},
    "beyond the promise: heavy tails (t, 3 degrees)": {"tails": 3},
    "beyond the promise: AR(1) 0.9 of 0.8 below noise of 0.8": {"rho": 0.9, "white": 0.8},
}
DIGITS = "digits, noise costs so much of the truth"
LABELLED = {
    "labels, independent": {},
    "labels, AR(1) 0.9, spread 1": {"rho": 0.9, "spread": 1},
    "labels, weekend 5 points lower": {"weekend": 5},
    "labels, reference of 100 rows": {"reference_rows": 100},
    "labels, AR(1) 0.7, spread 6, 100 labels a window": {"rho": 0.7, "spread": 6, "labels": 100},
    "labels, independent, drop on day 10": {"begin": 10},
}
TIMES = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(WARM_UP + YEAR)]


class Counted(NamedTuple):
    """A window with its labels."""

    accuracy: float
    low: float
    high: float
    level: float
    rows: int
    reference_accuracy: float
    labelled: int
    correct: int


def simulate(rng, count, days, spread=0.8, rho=0.0, weekend=0.0, tails=None, white=0.0):
    """Accuracies of windows: count series of so many days."""
    noise = rng.normal(size=(count, days)) if tails is None else rng.standard_t(tails, (count, days))
    noise /= 1 if tails is None else np.sqrt(tails / (tails - 2))
    for day in range(1, days if rho else 0):
        noise[:, day] = rho * noise[:, day - 1] + np.sqrt(1 - rho**2) * noise[:, day]
    lower = np.array([time.weekday() >= 5 for time in TIMES[:days]])
    return LEVEL + (spread * noise - weekend * lower + white * rng.normal(size=noise.shape)) / 100


def follow(accuracy, reference, reference_rows, correct=None, labels=ROWS, width=0.03):
    """Days on which each series raises an alarm, by rule, through the code of the monitor."""
    found = {}
    for number, series in enumerate(np.clip(accuracy, 0, 1).tolist()):
        follower = Follower(Judgement(Rules(), 1, int(reference_rows)), {}, "m", every=DAILY)
        for day, value in enumerate(series):
            numbers = value, max(value - width, 0.0), min(value + width, 1.0), 0.9, ROWS, float(reference[number])
            labelled = None if correct is None else Counted(*numbers, labels, int(correct[number, day]))
            follower.take(Estimate(*numbers), TIMES[day], labelled and labelled_estimate(labelled))
        for problem in follower.raised:
            raised = found.setdefault(problem.rule, np.zeros(accuracy.shape, dtype=bool))
            raised[number, (problem.raised - TIMES[0]).days] = True
    return found


def three_sigma(accuracy):
    """Where a window is three standard deviations of the warm-up below its mean; days in a row are one alarm."""
    quiet = accuracy[:, :WARM_UP]
    raised = accuracy < (quiet.mean(1) - 3 * quiet.std(1, ddof=1))[:, None]
    raised[:, :WARM_UP] = False
    return beginnings(raised)


def beginnings(raised):
    """First of the days in a row on which there is an alarm."""
    return raised & ~np.pad(raised, ((0, 0), (1, 0)))[:, :-1]


def summarize(row, rule, drop, raised, fine):
    """Line of the results: false alarms where there is no drop, delays from the day ``fine`` on where there is one."""
    years = len(raised)
    if drop == 0:
        counts = raised.sum(1)
        rate = counts.mean() / (raised.shape[1] / 365.25)
        return [row, rule, 0, years, round(float(rate), 3), round(float((counts > 0).mean()), 3), "", ""]
    # An alarm that was open before is none of this drop.
    clean = raised[~raised[:, max(fine - 20, 0) : fine].any(1), fine:]
    delay = np.where(clean.any(1), clean.argmax(1) + 1, np.inf)
    return [row, rule, drop, years, "", "", float(np.median(delay)), round(float(np.mean(delay <= 30)), 3)]


def simulated(name, options, years, seed):
    """Lines of a simulated row."""
    options = dict(options)
    reference_rows = options.pop("reference_rows", 1000)
    for drop in (0, *DROPS):
        rng = np.random.default_rng([seed, drop])
        count, days = (years, WARM_UP + YEAR) if drop == 0 else (max(years // 4, 1), WARM_UP + FINE + SEARCHED)
        accuracy = simulate(rng, count, days, **options)
        accuracy[:, WARM_UP + FINE :] -= drop / 100 if drop else 0
        reference = rng.binomial(reference_rows, LEVEL, count) / reference_rows
        raised = follow(accuracy, reference, reference_rows)
        nothing = np.zeros(accuracy.shape, dtype=bool)
        yield summarize(name, "monitor", drop, raised.get("sequential", nothing), WARM_UP + FINE)
        yield summarize(name, "3 sigma", drop, three_sigma(accuracy), WARM_UP + FINE)


def labelled(name, options, years, seed):
    """Lines of a row with labels: estimates around the truth, which alone falls in drops."""
    options = dict(options)
    reference_rows, labels = options.pop("reference_rows", 1000), options.pop("labels", ROWS)
    begin, width = options.pop("begin", WARM_UP + FINE), 0.03
    for drop in (0, *DROPS[1:]):
        rng = np.random.default_rng([seed, drop, 1])
        count, days = (years, WARM_UP + YEAR) if drop == 0 else (max(years // 4, 1), begin + SEARCHED)
        truth = simulate(rng, count, days, **options)
        accuracy = truth + width / 1.645 * rng.normal(size=truth.shape)
        truth[:, begin:] -= drop / 100 if drop else 0
        reference = rng.binomial(reference_rows, LEVEL, count) / reference_rows
        correct = rng.binomial(labels, np.clip(truth, 0, 1))
        raised = follow(accuracy, reference, reference_rows, correct, labels, width)
        nothing = np.zeros(accuracy.shape, dtype=bool)
        for rule in ("labels:sequential", "labels:coverage"):
            yield summarize(name, rule, drop, raised.get(rule, nothing), begin)


class World:
    """Model of digits, pool of unseen images, and the noise that costs so many points of accuracy."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        data = load_digits()
        images, labels = data.images.reshape(-1, 64) / 16.0, data.target
        order = self.rng.permutation(len(labels))
        train, reference, live = order[:350], order[350:1000], order[1000:]
        self.model = LogisticRegression(max_iter=200, C=0.05).fit(images[train], labels[train])
        self.live, self.truth = images[live], labels[live]
        self.estimator = AccuracyEstimator().fit_predictor(
            self.predict, images[reference].reshape(-1, 1, 8, 8).astype(np.float32), labels[reference], progress=False
        )
        outputs = self.predict(images[reference])
        right = np.asarray(outputs.logits).argmax(1) == labels[reference]
        self.calibrated = IsotonicRegression(out_of_bounds="clip").fit(self.confidence(outputs), right)
        own = self.calibrated.predict(self.confidence(outputs))
        chunks = np.array([self.rng.choice(own, ROWS).mean() for _ in range(200)])
        self.cbpe_floor = chunks.mean() - 3 * chunks.std()
        self.clean = np.mean(self.model.predict(self.live) == self.truth)

    def predict(self, batch):
        flat = np.asarray(batch, dtype=np.float64).reshape(len(batch), -1)
        return Outputs(logits=self.model.decision_function(flat), features=flat)

    @staticmethod
    def confidence(outputs):
        logits = np.asarray(outputs.logits)
        p = np.exp(logits - logits.max(1, keepdims=True))
        return (p / p.sum(1, keepdims=True)).max(1)

    def noisy(self, rows, scale):
        return np.clip(self.live[rows] + scale * self.rng.normal(size=(len(rows), 64)), 0, 1)

    def scale_of(self, points):
        """Noise whose true accuracy is so many points lower, by bisection."""
        low, high = 0.0, 2.0
        rows = np.tile(np.arange(len(self.live)), 10)
        for _ in range(12):
            middle = (low + high) / 2
            accuracy = np.mean(self.model.predict(self.noisy(rows, middle)) == self.truth[rows])
            low, high = (middle, high) if self.clean - accuracy < points / 100 else (low, middle)
        return 0.0 if points == 0 else low

    def windows(self, points):
        """Of each window: estimate and CBPE."""
        scale = self.scale_of(points)
        found = []
        for _ in range(POOL):
            outputs = self.predict(self.noisy(self.rng.choice(len(self.live), ROWS), scale))
            cbpe = self.calibrated.predict(self.confidence(outputs)).mean()
            found.append((self.estimator.estimate(outputs).accuracy, cbpe))
        return np.array(found)


def digits(references, years, seed):
    """Lines of the row of real outputs."""
    kept = {}
    for number in range(references):
        world = World(seed + number)
        reference = np.full(max(years // references, 1), world.estimator.reference_accuracy_)
        unshifted = world.windows(0)
        for drop in (0, *DROPS):
            count, days = len(reference), WARM_UP + YEAR if drop == 0 else WARM_UP + FINE + SEARCHED
            drawn = unshifted[world.rng.integers(0, POOL, (count, days))]
            if drop:
                drawn[:, WARM_UP + FINE :] = world.windows(drop)[world.rng.integers(0, POOL, (count, SEARCHED))]
            accuracy, cbpe = np.moveaxis(drawn, -1, 0)
            raised = follow(accuracy, reference, world.estimator.reference_rows_)
            found = {
                "monitor": raised.get("sequential", np.zeros(accuracy.shape, dtype=bool)),
                "3 sigma": three_sigma(accuracy),
                "CBPE, 3 sigma of reference chunks": beginnings(cbpe < world.cbpe_floor),
            }
            for rule, days_raised in found.items():
                kept.setdefault((rule, drop), []).append(days_raised)
    for (rule, drop), parts in kept.items():
        yield summarize(DIGITS, rule, drop, np.concatenate(parts), WARM_UP + FINE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--years", type=int, default=1000)
    parser.add_argument("--references", type=int, default=10)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--only", default="", help="Rows whose name has this in it; others stay as they are stored.")
    parser.add_argument("--output", type=Path, default=FILE)
    args = parser.parse_args()
    rows = {
        **{name: partial(simulated, name, options, args.years, args.seed) for name, options in SIMULATED.items()},
        **{name: partial(labelled, name, options, args.years, args.seed) for name, options in LABELLED.items()},
        DIGITS: partial(digits, args.references, args.years, args.seed),
    }
    lines = []
    for name, row in rows.items():
        if args.only in name:
            lines += (made := list(row()))
            print(*made, sep="\n", flush=True)
        else:
            with args.output.open(newline="") as file:
                lines += [line for line in list(csv.reader(file))[1:] if line[0] == name]
    with args.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADS)
        writer.writerows(lines)


if __name__ == "__main__":
    main()
