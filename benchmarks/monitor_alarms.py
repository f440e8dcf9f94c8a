"""False alarms per year and delay to detection of the monitor's rules, by simulation on real outputs.

A classifier is trained on scikit-learn's digits, estimators are fitted on several draws of the reference, and windows
are made by drawing rows of real outputs that neither has seen: unshifted, and with noise whose strength is chosen so that the
true accuracy falls by 2, 5, 10 or 20 points. Estimates of many windows are stored for each; years of daily windows are
drawn from them. Shifts begin after sixty unshifted days. CBPE is the mean confidence, calibrated by isotonic regression
on the reference, with an alarm where a window is three standard deviations of reference chunks below their mean, as in
NannyML. The rules were made on the seeds 0 to 2 and first checked on 3 to 9; the stored results are of seeds from 100 on.
Usage: python benchmarks/monitor_alarms.py [--years 500] [--references 10] [--first-seed 100]
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from gdscore import AccuracyEstimator, Outputs
from gdscore.monitor import Rules
from gdscore.monitor.sequential import BASELINE, SequentialTest, floor_of, standardised_drop, threshold

ROWS, DAYS, POOL, FINE = 400, 365, 250, 60
DROPS = (0, 2, 5, 10, 20)
RESULTS = Path(__file__).parent / "results" / "monitor_alarms.csv"
RULES = ("sequential", "window: estimate 5 points below", "window: 90 % interval below the reference", "CBPE, 3 sigma")


class World:
    """Model, pool of unseen images, and the noise that costs so many points of accuracy."""

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

    def windows(self, points, count):
        """Of each window: estimate, upper end, CBPE."""
        scale = self.scale_of(points)
        found = []
        for _ in range(count):
            outputs = self.predict(self.noisy(self.rng.choice(len(self.live), ROWS), scale))
            e = self.estimator.estimate(outputs)
            found.append((e.accuracy, e.high, self.calibrated.predict(self.confidence(outputs)).mean()))
        return np.array(found)


def alarm_days(world, windows):
    """For each rule, whether each day of each year raises an alarm; the sequential test restarts after each."""
    reference, rows = world.estimator.reference_accuracy_, world.estimator.reference_rows_
    accuracy, high, cbpe = np.moveaxis(windows, -1, 0)
    rules = Rules()
    limit = np.log(threshold(rules.false_alarms_per_year, 365.25))
    test, raised = SequentialTest(), np.zeros(accuracy.shape, dtype=bool)
    for day in range(accuracy.shape[1]):
        baseline = accuracy[:, :BASELINE].mean(1) if day >= BASELINE else None
        floor = floor_of(reference, rows, rules.tolerance, baseline)
        test.update(standardised_drop(accuracy[:, day], ROWS, reference, floor))
        raised[:, day] = (test.log_statistic >= limit) & (accuracy[:, day] < floor)
        test.log_r[:, raised[:, day]] = -np.inf
    return dict(
        zip(RULES, (raised, accuracy < reference - 0.05, high < reference, cbpe < world.cbpe_floor), strict=True)
    )


def beginnings(raised):
    """Alarms per year, where days in a row are one alarm."""
    before = np.pad(raised, ((0, 0), (1, 0)))[:, :-1]
    return (raised & ~before).sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--years", type=int, default=500)
    parser.add_argument("--references", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    each = args.years // args.references
    results = {(drop, rule): [] for drop in DROPS for rule in RULES}
    for seed in range(args.first_seed, args.first_seed + args.references):
        world = World(seed)
        unshifted = world.windows(0, POOL)
        for drop in DROPS:
            pool = unshifted if drop == 0 else world.windows(drop, POOL)
            years = pool[world.rng.integers(0, POOL, (each, DAYS))]
            if drop:
                years = np.concatenate([unshifted[world.rng.integers(0, POOL, (each, FINE))], years], axis=1)
            for rule, raised in alarm_days(world, years).items():
                if drop == 0:
                    results[drop, rule] += beginnings(raised).tolist()
                else:
                    raised = raised[:, FINE:]
                    first = np.where(raised.any(1), raised.argmax(1) + 1, np.inf)
                    results[drop, rule] += first.tolist()
    rows = []
    for (drop, rule), values in results.items():
        values = np.array(values, dtype=float)
        if drop == 0:
            row = [rule, drop, len(values), round(values.mean(), 3), round((values > 0).mean(), 3), "", ""]
        else:
            row = [rule, drop, len(values), "", "", np.median(values), round(np.mean(values <= 30), 3)]
        rows.append(row)
        print(*row, sep="\t")
    with args.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rule", "drop (points)", "years", "false alarms per year", "years with a false alarm",
                         "median delay (days)", "found within 30 days"])  # fmt: skip
        writer.writerows(rows)


if __name__ == "__main__":
    main()
