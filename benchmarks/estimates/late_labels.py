"""Accuracy over time with labels that come late: `gdscore.AccuracyTracker` beside the answers that cost nothing.

    python -m benchmarks.data.streams pack && python -m benchmarks.data.streams outputs   # once: data and outputs of models
    python -m benchmarks.estimates.late_labels run                # plays every stream: results/late_labels.csv
    python -m benchmarks.estimates.late_labels again              # after a change of constants: from what `run` has kept
    python -m benchmarks.estimates.late_labels table              # error / coverage / width, means of streams
    python -m benchmarks.estimates.late_labels choose             # constants of the method on the development streams
    python -m benchmarks.estimates.late_labels promise            # coverage by simulation: results/late_labels_promise.csv
    python -m benchmarks.estimates.late_labels picture            # docs/images/tracking.svg: electricity over time

Windows come one after the other; the labels of a window arrive a ``delay`` of windows later: of ``all`` rows, of
``fifty`` random ones, or of all rows of every ``fifth`` window. Errors, coverage of 90 %, mean width and the coverage of
the worst stretch of 20 windows are those of the windows after the first delay + 5, against the accuracy on all rows.

``label-free`` is the estimator; ``unchanged`` the accuracy on the reference; ``last known`` that of the latest window with
labels; ``exponential mean`` keeps 0.7 of each weight a window later; ``adwin`` is the mean of the adaptive window of
river's ADWIN over all labelled rows, where river is installed; ``cbpe`` what NannyML shows of a window: realised
performance once its labels are in and, until then, CBPE, the mean probability of the predicted class after calibration
(https://nannyml.readthedocs.io/en/stable/how_it_works/performance_estimation.html).
"""

import argparse
import csv
import re
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.data.streams import DATA, MODEL_NAMES, STREAMS, load_run
from benchmarks.markdown import markdown
from gdscore.tracking import Tally, TrackedWindow
from gdscore.tracking.method import SETTINGS, Known, answer
from gdscore.tracking.windows import half_width, known_of, own_variance

DOCS = ROOT / "docs"
DELAYS, LABELS, FIRST = (1, 4, 10), ("all", "fifty", "fifth"), 5
FIELDS = (
    *("stream", "split", "model", "labels", "delay", "method", "windows"),
    *("error", "coverage", "width", "worst_coverage"),
)
START = datetime(2026, 1, 1)
EXPONENTIAL = 0.7
SIX = [(s, m) for s in ("electricity", "weather", "insects") for m in ("logistic", "boosting")]


def day(number):
    return START + timedelta(days=number)


def rows_with_labels(run, labels, seed=1):
    """Rows of each window whose label arrives."""
    rng = np.random.default_rng(seed)
    for number, window in enumerate(run.windows):
        if labels == "fifty":
            yield rng.choice(len(window), min(50, len(window)), replace=False)
        else:
            yield np.arange(len(window)) if labels == "all" or number % 5 == 0 else np.arange(0)


def without_labels(outputs):
    return gdscore.Outputs(**{k: a for k, a in outputs.arrays.items() if k != "labels"}, check_logits=False)


def play(est, run, labels, delay):
    """Answers of a tracker to every window, as `TrackedWindow`."""
    track = gdscore.AccuracyTracker(est)
    rows = list(rows_with_labels(run, labels))
    for number, window in enumerate(run.windows):
        past = number - delay
        if past >= 0 and len(rows[past]):
            track.add_labels(day(past), run.windows[past].labels[rows[past]], rows=rows[past])
        track.estimate(without_labels(window), time=day(number))
    return [window for _, _, window in track.items()]


def adwin_means(right, delay, reference):
    """Mean of the adaptive window over all labelled rows known at each time."""
    from river.drift import ADWIN

    detector, means = ADWIN(), []
    for number in range(len(right)):
        if number >= delay:
            for value in right[number - delay].tolist():
                detector.update(float(value))
        means.append(detector.estimation if detector.width else reference)
    return np.array(means)


def naive_answers(run, labels, delay):
    """Answers without a tracker, by name; they have no intervals."""
    rows, reference = list(rows_with_labels(run, labels)), run.reference.accuracy
    right = [window.correct[own] for window, own in zip(run.windows, rows, strict=True)]
    last, smooth = [], []
    for number in range(len(right)):
        known = [(number - k, right[k].mean()) for k in range(number - delay + 1) if len(right[k])]
        weights = np.array([EXPONENTIAL**age for age, _ in known])
        last.append(known[-1][1] if known else reference)
        smooth.append(weights @ [value for _, value in known] / weights.sum() if known else reference)
    answers = {"unchanged": np.full(len(right), reference), "last known": last, "exponential mean": smooth}
    try:
        answers["adwin"] = adwin_means(right, delay, reference)
    except ImportError:
        print("adwin is left out: pip install river")
    return answers


def cbpe(run):
    """Mean probability of the predicted class, after isotonic calibration of each class against the rest."""
    from sklearn.isotonic import IsotonicRegression

    classes, labels = range(run.reference.n_classes), np.asarray(run.reference.labels)
    curves = [
        IsotonicRegression(out_of_bounds="clip").fit(run.reference.probabilities[:, k], labels == k) for k in classes
    ]

    def estimate(outputs):
        calibrated = np.stack([curves[k].predict(outputs.probabilities[:, k]) for k in classes], axis=1)
        total = calibrated.sum(axis=1, keepdims=True)
        shares = np.divide(calibrated, total, out=np.full_like(calibrated, 1 / len(classes)), where=total > 0)
        return shares[np.arange(len(outputs)), np.asarray(outputs.predictions)].mean()

    return np.array([estimate(window) for window in run.windows])


def scored(truth, value, low=None, high=None, first=0):
    """Error, coverage, width in points, of the windows from ``first`` on."""
    truth, value = truth[first:], np.asarray(value)[first:]
    row = {"windows": len(truth), "error": 100 * np.abs(value - truth).mean()}
    if low is not None:
        low, high = np.asarray(low)[first:], np.asarray(high)[first:]
        held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        stretch = min(20, len(held))
        worst = np.convolve(held, np.ones(stretch) / stretch, "valid").min()
        row |= {"coverage": 100 * held.mean(), "width": 100 * (high - low).mean(), "worst_coverage": 100 * worst}
    return row


def rows_of_run(name, model, folder=None):
    """Rows of the table for one model on one stream; the tracker's windows go to ``folder`` for `choose`."""
    run = load_run(name, model)
    est = gdscore.AccuracyEstimator().fit(run.reference, shifted_sets=run.shifted_sets)
    truth, calibrated = np.array([window.accuracy for window in run.windows]), cbpe(run)
    free = columns([est.estimate(without_labels(window)) for window in run.windows], "accuracy", "low", "high")
    for labels in LABELS:
        for delay in DELAYS:
            windows = play(est, run, labels, delay)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                facts = [window.to_dict() | {"truth": float(y)} for window, y in zip(windows, truth, strict=True)]
                gdscore.files.write_json(folder / f"{name}-{model}-{labels}-{delay}.json", facts)
            first = delay + FIRST
            found = {"tracked": scored(truth, *columns(windows, "accuracy", "low", "high"), first)}
            if labels == "all":
                found["label-free"] = scored(truth, *free, first)
                found["cbpe"] = scored(truth, calibrated, first=first)
            for method, values in naive_answers(run, labels, delay).items():
                found[method] = scored(truth, values, first=first)
            fixed = {"stream": name, "split": STREAMS[name].split, "model": model, "labels": labels, "delay": delay}
            yield from (fixed | {"method": method} | row for method, row in found.items())


def columns(items, *names):
    return [np.array([getattr(item, name) for item in items]) for name in names]


def again(names, models, file):
    """Intervals of what `run` has kept, with the constants as they are now; errors of the naive answers stay."""
    rows = read_rows(file)
    for row in rows:
        kept = DATA / "late_labels" / f"{row['stream']}-{row['model']}-{row['labels']}-{row['delay']}.json"
        if row["method"] == "tracked" and row["stream"] in names and row["model"] in models and kept.exists():
            windows, truth = read_windows(kept)
            made = replayed(windows, row["delay"], SETTINGS)
            row |= scored(truth, *columns(made, "accuracy", "low", "high"), row["delay"] + FIRST)
    write_rows(rows, file)


def read_windows(file):
    facts = gdscore.files.read_json(file)
    truth = np.array([one.pop("truth") for one in facts])
    return [TrackedWindow.from_dict(one) for one in facts], truth


def write_rows(rows, file):
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def run_all(names, models, file):
    kept = []
    if file.exists():
        with file.open(newline="") as lines:
            kept = [row for row in csv.DictReader(lines) if row["stream"] not in names or row["model"] not in models]
    for name in names:
        for model in models:
            if not (DATA / "streams" / f"{name}-{model}.npz").exists():
                print(f"{name}-{model} has no outputs: python -m benchmarks.data.streams outputs")
                continue
            found = list(rows_of_run(name, model, DATA / "late_labels"))
            kept = sorted([*kept, *found], key=lambda row: (row["split"], row["stream"], row["model"]))
            write_rows(kept, file)
            told = {r["delay"]: r for r in found if r["method"] == "tracked" and r["labels"] == "all"}
            text = ", ".join(f"{r['error']:.1f} / {r['coverage']:.0f} / {r['width']:.0f}" for r in told.values())
            print(f"{name}-{model}: {text}", flush=True)


# -- the table ------------------------------------------------------------------------------------------------


def read_rows(file):
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        row["delay"] = int(row["delay"])
        row |= {k: float(row[k]) for k in ("error", "coverage", "width", "worst_coverage") if row[k]}
    return rows


def mean_text(rows):
    if not rows:
        return "–"
    error = np.mean([row["error"] for row in rows])
    if not isinstance(rows[0]["coverage"], float):
        return f"{error:.1f}"
    return f"{error:.1f} / {np.mean([r['coverage'] for r in rows]):.0f} / {np.mean([r['width'] for r in rows]):.0f}"


def print_table(file):
    rows = read_rows(file)
    groups = {"six of the development of the method": lambda r: (r["stream"], r["model"]) in SIX}
    groups |= {split: lambda r, s=split: r["split"] == s for split in ("development", "report")}
    for title, chosen in groups.items():
        for labels in LABELS:
            print(f"\n{title}, labels of {labels}\n\n| answer | delay 1 | delay 4 | delay 10 |\n|---|---|---|---|")
            for method in dict.fromkeys(row["method"] for row in rows):
                own = [r for r in rows if chosen(r) and r["labels"] == labels and r["method"] == method]
                if own:
                    cells = (mean_text([r for r in own if r["delay"] == d]) for d in DELAYS)
                    print(f"| {method} | {' | '.join(cells)} |")
    print("\n| stream | model | labels | delay 1 | delay 4 | delay 10 |\n|---|---|---|---|---|---|")
    for name, model, labels in dict.fromkeys((r["stream"], r["model"], r["labels"]) for r in rows):
        cells = []
        for delay in DELAYS:
            own = [
                r for r in rows if (r["stream"], r["model"], r["labels"], r["delay"]) == (name, model, labels, delay)
            ]
            by_method = {r["method"]: r for r in own}
            tracked, last = by_method["tracked"], by_method["last known"]["error"]
            cells.append(f"{mean_text([tracked])} ({last:.1f})")
        print(f"| {name} | {model} | {labels} | {' | '.join(cells)} |")


# -- docs/tracking.md -----------------------------------------------------------------------------------------

METHODS = {
    "tracked": "`AccuracyTracker`",
    "last known": "last known accuracy",
    "exponential mean": "exponentially weighted mean of known accuracies",
    "adwin": "mean of ADWIN's window",
    "label-free": "without labels",
    "cbpe": "CBPE",
    "unchanged": "unchanged since the reference",
}
SHOWN = {"all": "all labels", "fifty": "50 random labels of each window", "fifth": "all labels of every fifth window"}


def blocks():
    """Blocks of docs/tracking.md, name → text."""
    rows, reach = read_rows(RESULTS / "late_labels.csv"), np.log(SETTINGS.most_factor / SETTINGS.least_factor)
    constant = reach / SETTINGS.rate
    report = [name for name, stream in STREAMS.items() if stream.split == "report"]
    return {
        "bound": f"{constant:.1f}/*T* + *d*/*T*, where labels are *d* windows late: 10 points take about "
        f"{constant / 0.1:.0f} windows and 4 points about {constant / 0.04:.0f}",
        "mix_rows": f"{SETTINGS.mix_rows:g}",
        "report": ", ".join(report),
        "settings": settings_table(),
        "results": results_table([row for row in rows if row["split"] == "report"]),
        "streams": streams_table(rows),
        "promise": promise_table(),
    }


def settings_table():
    described = re.findall(r"^    ([\w, ]+) : \w+\n((?:        .+\n)+)", type(SETTINGS).__doc__, re.MULTILINE)
    meaning = {name: " ".join(text.split()) for names, text in described for name in names.split(", ")}
    lines = [[f"`{f.name}`", f"{getattr(SETTINGS, f.name):g}", meaning[f.name]] for f in fields(SETTINGS)]
    return markdown(("constant", "value", "what it does"), lines)


def results_table(rows):
    lines = []
    for labels, title in SHOWN.items():
        for method, name in METHODS.items():
            own = [r for r in rows if r["labels"] == labels and r["method"] == method]
            if own:
                lines.append([title, name, *(mean_text([r for r in own if r["delay"] == d]) for d in DELAYS)])
                title = ""
    return markdown(("", "answer", *(f"*d* = {delay}" for delay in DELAYS)), lines)


def streams_table(rows):
    lines = []
    for name, stream in STREAMS.items():
        cells = []
        for delay in DELAYS:
            own = [r for r in rows if (r["stream"], r["labels"], r["delay"]) == (name, "all", delay)]
            last = np.mean([r["error"] for r in own if r["method"] == "last known"])
            cells.append(f"{mean_text([r for r in own if r['method'] == 'tracked'])} ({last:.1f})")
        lines.append([name, stream.split, *cells])
    return markdown(("stream", "part", *(f"*d* = {delay}" for delay in DELAYS)), lines)


def promise_table():
    lines = []
    with (RESULTS / "late_labels_promise.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            names = ("coverage", "lowest", "worst_coverage", "width")
            lines.append([row["kind"], row["delay"], f"{int(row['runs']):,}", *(row[name] for name in names)])
    heads = ("accuracy", "*d*", "runs", "coverage, %", "lowest of a run, %", "worst stretch of 20, mean, %", "width")
    return markdown(heads, lines)


# -- choosing constants ---------------------------------------------------------------------------------------

GRID = {
    "forgetting": (0.6, 0.7, 0.9, 0.95),
    "scale": (0.03, 0.045, 0.08, 0.12),
    "largest": (1.0, 1.5, 3.0, 100.0),
    "lateness": (0.0, 0.5, 1.5),
    "memory": (0.35, 0.5, 0.6, 0.8, 0.9),
    "spread_memory": (0.7, 0.8, 0.95),
    "prior_windows": (0.5, 2.0, 3.0),
    "rate": (0.05, 0.1, 0.2, 0.3),
    "most_windows": (16, 32, 128),
}


def replayed(windows, delay, settings):
    """Answers to windows that a tracker has kept, with other constants; the class mix stays as it was."""
    made, tally = [], Tally()
    for number, window in enumerate(windows):
        if number >= delay and (done := made[number - delay]).error is not None and (missed := done.missed) is not None:
            tally = Tally(tally.tested + 1, tally.missed + missed)
        past = [w for w in made[: max(number - delay + 1, 0)] if w.n_labels][-settings.most_windows :]
        place = {id(w): k for k, w in enumerate(made)}
        found = replace(window, error=None, factor=None)
        if past:
            ages = np.array([number - place[id(w)] for w in past], dtype=np.float64)
            known = known_of(past, ages, 0, settings=settings)
            answered = answer(known, 0.0, window.label_free, window.raked, window.prior_error, settings)
            factor = tally.factor(0.9, settings)
            noise = own_variance(answered.accuracy, window.n_rows)
            half = half_width(factor, answered.error, noise, settings)
            low, high = max(answered.accuracy - half, 0.0), min(answered.accuracy + half, 1.0)
            found = replace(window, accuracy=answered.accuracy, low=low, high=high, error=answered.error, factor=factor)
        made.append(found)
    return made


def choose(names, models):
    """Print what each constant does alone, on the development streams."""
    plays = {}
    for name in names:
        for model in models:
            for labels in LABELS:
                for delay in DELAYS:
                    file = DATA / "late_labels" / f"{name}-{model}-{labels}-{delay}.json"
                    if not file.exists():
                        continue
                    plays[name, model, labels, delay] = read_windows(file)
    print("| constants | labels | delay 1 | delay 4 | delay 10 |\n|---|---|---|---|---|")
    for text, settings in [("as they are", SETTINGS)] + [
        (f"{name} = {value}", replace(SETTINGS, **{name: value})) for name, values in GRID.items() for value in values
    ]:
        for labels in LABELS:
            cells = []
            for delay in DELAYS:
                found = []
                for (*_, own, late), (windows, truth) in plays.items():
                    if (own, late) == (labels, delay):
                        made = replayed(windows, delay, settings)
                        found.append(scored(truth, *columns(made, "accuracy", "low", "high"), delay + FIRST))
                cells.append(mean_text(found))
            print(f"| {text} | {labels} | {' | '.join(cells)} |", flush=True)


# -- the promise, by simulation -------------------------------------------------------------------------------


def simulated(kind, windows, rng):
    """Accuracies of windows of 300 rows, and label-free estimates that see half of what happens."""
    t = np.arange(windows)
    if kind == "independent":
        level = 0.8 + rng.normal(scale=0.04, size=windows)
    elif kind == "autocorrelated":
        noise, level = rng.normal(scale=0.02, size=windows), np.zeros(windows)
        for i in range(1, windows):
            level[i] = 0.9 * level[i - 1] + noise[i]
        level = 0.8 + level
    elif kind == "seasonal":
        level = 0.8 + 0.1 * np.sin(2 * np.pi * t / 30 + rng.uniform(0, 2 * np.pi))
    elif kind == "sudden drop":
        level = np.where(t < windows // 2, 0.85, 0.55)
    else:
        level = 0.85 - 0.35 * t / windows
    level = np.clip(level, 0.02, 0.98)
    truth = rng.binomial(300, level) / 300
    raked = np.clip(0.85 + 0.5 * (level - 0.85) + rng.normal(scale=0.03, size=windows), 0, 1)
    return truth, raked


def simulated_run(kind, delay, windows, rng):
    """Whether each interval held, and its width, for windows of 300 rows whose labels are all known after a delay."""
    truth, raked = simulated(kind, windows, rng)
    noise, place = np.array([own_variance(y, 300) for y in truth]), np.arange(windows, dtype=np.float64)
    tally, ends = Tally(), np.zeros((windows, 2))
    for t in range(delay, windows):
        past = slice(max(t - delay + 1 - SETTINGS.most_windows, 0), t - delay + 1)
        if t >= 2 * delay:
            low, high = ends[t - delay]
            tally = Tally(tally.tested + 1, tally.missed + (not low <= truth[t - delay] <= high))
        known = Known(place[past], truth[past], noise[past], noise[past], raked[past], raked[past])
        answered = answer(known, t, raked[t], raked[t], 0.08)
        half = half_width(tally.factor(0.9), answered.error, own_variance(answered.accuracy, 300))
        ends[t] = max(answered.accuracy - half, 0.0), min(answered.accuracy + half, 1.0)
    low, high = ends[delay:].T
    return (low <= truth[delay:]) & (truth[delay:] <= high), high - low


def promise(runs, windows, file):
    kinds = ("independent", "autocorrelated", "seasonal", "sudden drop", "slow drift")
    fields = ("kind", "delay", "runs", "windows", "coverage", "lowest", "bound", "width", "worst_coverage")
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, fields, lineterminator="\n")
        writer.writeheader()
        for kind in kinds:
            for delay in (1, 10):
                rng = np.random.default_rng([delay, *kind.encode()])
                found = [simulated_run(kind, delay, windows, rng) for _ in range(runs)]
                held = np.array([h for h, _ in found])
                most = np.log(SETTINGS.most_factor / SETTINGS.least_factor)
                tested = windows - delay
                bound = (most + SETTINGS.rate * delay) / (SETTINGS.rate * tested)
                stretch = [np.convolve(h, np.ones(20) / 20, "valid").min() for h in held]
                row = {
                    "kind": kind,
                    "delay": delay,
                    "runs": runs,
                    "windows": windows,
                    "coverage": f"{100 * held.mean():.1f}",
                    "lowest": f"{100 * held.mean(axis=1).min():.1f}",
                    "bound": f"{100 * (0.9 - bound):.1f}",
                    "width": f"{100 * np.mean([w for _, w in found]):.1f}",
                    "worst_coverage": f"{100 * np.mean(stretch):.1f}",
                }
                writer.writerow(row)
                print(row, flush=True)


# -- the picture ----------------------------------------------------------------------------------------------


def picture(file, name="electricity", model="logistic", delay=4):
    """Truth, label-free and tracked estimates of a stream over time, and the weights beneath."""
    run = load_run(name, model)
    est = gdscore.AccuracyEstimator().fit(run.reference, shifted_sets=run.shifted_sets)
    track = gdscore.AccuracyTracker(est)
    for number, window in enumerate(run.windows):
        if number >= delay:
            track.add_labels(day(number - delay), run.windows[number - delay].labels)
        track.estimate(without_labels(window), time=day(number))
    for number in range(len(run.windows) - delay, len(run.windows)):
        track.add_labels(day(number), run.windows[number].labels)
    figure = track.plot()
    figure.axes[0].set_title(f"{name}, {model}: labels of each window come {delay} windows late", loc="left")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "again", "table", "choose", "promise", "picture"))
    parser.add_argument("--only", nargs="+", default=list(STREAMS), help="streams")
    parser.add_argument("--models", nargs="+", default=list(MODEL_NAMES))
    parser.add_argument("--runs", type=int, default=1000, help="of each simulation")
    parser.add_argument("--windows", type=int, default=300, help="of each simulation")
    parser.add_argument("--output", type=Path, default=RESULTS / "late_labels.csv")
    options = parser.parse_args()
    if options.command == "run":
        run_all(options.only, options.models, options.output)
    elif options.command == "again":
        again(options.only, options.models, options.output)
    elif options.command == "table":
        print_table(options.output)
    elif options.command == "choose":
        choose([n for n in options.only if STREAMS[n].split == "development"], options.models)
    elif options.command == "promise":
        promise(options.runs, options.windows, options.output.with_name("late_labels_promise.csv"))
    else:
        picture(DOCS / "images" / "tracking.svg")


if __name__ == "__main__":
    main()
