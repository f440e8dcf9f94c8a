"""Accuracy over time with labels that come late: `gdscore.AccuracyTracker` beside the answers that cost nothing.

    python -m benchmarks.data.streams pack && python -m benchmarks.data.streams outputs   # once: data and outputs of models
    python -m benchmarks.estimates.late_labels run                # plays every stream: results/late_labels.csv
    python -m benchmarks.estimates.late_labels again              # after a change of constants: from what `run` has kept
    python -m benchmarks.estimates.late_labels table              # error / coverage / width, means of streams
    python -m benchmarks.estimates.late_labels choose             # constants and other forms, on development streams
    python -m benchmarks.estimates.late_labels promise            # coverage by simulation: results/late_labels_promise.csv
    python -m benchmarks.estimates.late_labels picture            # docs/images/tracking.svg: electricity over time

Windows come one after the other; the labels of a window arrive a ``delay`` of windows later: of ``all`` rows, of
``fifty`` random ones, or of all rows of every ``fifth`` window. Errors, coverage of 90 %, mean width and the coverage of
the worst stretch of 20 windows are those of the windows after the first delay + 5, against the accuracy on all rows.

``label-free`` is the estimator; ``unchanged`` the accuracy on the reference; ``last known`` that of the latest window with
labels; ``exponential mean`` keeps 0.7 of each weight a window later; ``adwin`` is the mean of the adaptive window of
river's ADWIN over all labelled rows, where river is installed; ``nannyml`` what NannyML shows of a window until its
labels are in, from when on it shows realised performance: CBPE with its interval, where nannyml is installed (0.13.1
needs statsmodels, which it does not ask for).
"""

import argparse
import csv
import os
from dataclasses import fields, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import RESULTS, ROOT
from benchmarks.data.streams import DATA, MODEL_NAMES, STREAMS, load_run
from benchmarks.markdown import attributes_of, markdown
from gdscore._files import read_json, write_json
from gdscore.tracking import Tally, TrackedWindow
from gdscore.tracking.method import SETTINGS, Answered, Known, answer, expected_error, try_out, weights_of
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
    if find_spec("river"):
        answers["adwin"] = adwin_means(right, delay, reference)
    return answers


def nannyml_columns(run):
    """NannyML's estimates of all windows from outputs, and the ends of its intervals."""
    os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"  # it would report its use over the network
    import nannyml
    import pandas as pd

    binary = run.reference.n_classes == 2
    names = {k: f"p_{k}" for k in range(run.reference.n_classes)}

    def frame(*parts):
        made = pd.DataFrame(np.concatenate([part.probabilities for part in parts]), columns=list(names.values()))
        made["predicted"] = np.concatenate([part.predictions for part in parts])
        return made.assign(label=np.concatenate([part.labels for part in parts]))

    estimator = nannyml.CBPE(
        problem_type="classification_binary" if binary else "classification_multiclass",
        y_pred_proba="p_1" if binary else names,
        y_pred="predicted",
        y_true="label",
        metrics=["accuracy"],
        chunk_size=len(run.windows[0]),
    ).fit(frame(run.reference))
    shown = estimator.estimate(frame(*run.windows)).filter(period="analysis").to_df()["accuracy"]
    ends = ("value", "lower_confidence_boundary", "upper_confidence_boundary")
    return [shown[name].to_numpy(dtype=np.float64) for name in ends]


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
    """Rows of the table for one model on one stream; the tracker's windows go to ``folder`` for `again` and `choose`."""
    run = load_run(name, model)
    est = gdscore.AccuracyEstimator().fit(run.reference, shifted_sets=run.shifted_sets)
    truth = np.array([window.accuracy for window in run.windows])
    unaided = {"label-free": columns([est.estimate(without_labels(w)) for w in run.windows], "accuracy", "low", "high")}
    if find_spec("nannyml"):
        unaided["nannyml"] = nannyml_columns(run)
    for labels in LABELS:
        for delay in DELAYS:
            windows = play(est, run, labels, delay)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                facts = [window.to_dict() | {"truth": float(y)} for window, y in zip(windows, truth, strict=True)]
                write_json(folder / f"{name}-{model}-{labels}-{delay}.json", facts)
            first = delay + FIRST
            found = {"tracked": scored(truth, *columns(windows, "accuracy", "low", "high"), first)}
            if labels == "all":
                found |= {method: scored(truth, *answers, first) for method, answers in unaided.items()}
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
    facts = read_json(file)
    truth = np.array([one.pop("truth") for one in facts])
    return [TrackedWindow.from_dict(one) for one in facts], truth


def write_rows(rows, file):
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def run_all(names, models, file):
    for name in ("river", "nannyml"):
        if not find_spec(name):
            print(f"{name} is not installed and left out")
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
    groups = {"six runs": lambda row: (row["stream"], row["model"]) in SIX}
    groups |= {split: lambda row, split=split: row["split"] == split for split in ("development", "report")}
    for title, chosen in groups.items():
        print(f"\n{title}\n\n{results_table([row for row in rows if chosen(row)])}")
    print(f"\n{streams_table(rows)}\n\n{margin(rows)}")


# -- docs/tracking.md -----------------------------------------------------------------------------------------

METHODS = {
    "tracked": "`AccuracyTracker`",
    "last known": "last known accuracy",
    "exponential mean": "exponentially weighted mean",
    "adwin": "ADWIN's window",
    "label-free": "without labels",
    "nannyml": "NannyML (CBPE)",
    "unchanged": "unchanged since the reference",
}
WITHOUT_LABELS = ("label-free", "nannyml", "unchanged")
SHOWN = {"all": "all labels", "fifty": "50 random labels of each window", "fifth": "all labels of every fifth window"}


def blocks():
    """Blocks of docs/tracking.md, name → text."""
    rows, reach = read_rows(RESULTS / "late_labels.csv"), np.log(SETTINGS.most_factor / SETTINGS.least_factor)
    constant = reach / SETTINGS.rate
    report = [name for name, stream in STREAMS.items() if stream.split == "report"]
    return {
        "bound": f"{constant:.1f}/*T* + *d*/*T*, where labels are *d* windows late: 10 points take about "
        f"{constant / 0.1:.0f} windows and 4 points about {constant / 0.04:.0f}",
        "report": ", ".join(report),
        "settings": settings_table(),
        "results": results_table([row for row in rows if row["split"] == "report"]),
        "streams": streams_table(rows),
        "margin": margin(rows),
        "promise": promise_table(),
    }


def settings_table():
    meaning = attributes_of(SETTINGS)
    lines = [[f"`{f.name}`", f"{getattr(SETTINGS, f.name):g}", meaning[f.name]] for f in fields(SETTINGS)]
    return markdown(("constant", "value", "what it does"), lines)


def results_table(rows):
    with_labels = [name for name in METHODS if name not in WITHOUT_LABELS]
    groups = [(title, labels, with_labels) for labels, title in SHOWN.items()] + [("no labels", "all", WITHOUT_LABELS)]
    lines = []
    for title, labels, methods in groups:
        for method in methods:
            own = [r for r in rows if r["labels"] == labels and r["method"] == method]
            if own:
                cells = [mean_text([r for r in own if r["delay"] == d]) for d in DELAYS]
                lines.append([title, METHODS[method], *cells])
                title = ""
    return markdown(("", "answer", *(f"*d* = {delay}" for delay in DELAYS)), lines)


def streams_table(rows):
    lines = []
    for name, stream in STREAMS.items():
        cells = []
        for delay in DELAYS:
            own = [r for r in rows if (r["stream"], r["labels"], r["delay"]) == (name, "all", delay)]
            naive = [np.mean([r["error"] for r in own if r["method"] == m]) for m in ("last known", "unchanged")]
            tracked = [r for r in own if r["method"] == "tracked"]
            worst = np.mean([r["worst_coverage"] for r in tracked])
            cells.append(f"{mean_text(tracked)} / {worst:.0f} ({naive[0]:.1f}, {naive[1]:.1f})")
        lines.append([name, stream.split, *cells])
    return markdown(("stream", "part", *(f"*d* = {delay}" for delay in DELAYS)), lines)


def margin(rows):
    """How far the tracker is behind the last known accuracy where it is behind it most, and how far ahead in the mean."""
    errors = {}
    for row in rows:
        errors.setdefault((row["stream"], row["labels"], row["delay"], row["method"]), []).append(row["error"])
    tracked = {key[:3]: np.mean(values) for key, values in errors.items() if key[3] == "tracked"}
    behind = {key: error - np.mean(errors[*key, "last known"]) for key, error in tracked.items()}
    steady = max(more for key, more in behind.items() if key[1] != "fifth")
    ranked = sorted((key for key in behind if key[1] == "fifth"), key=behind.get, reverse=True)
    worst, other = ranked[0], next(key for key in ranked if key[0] != ranked[0][0])

    def reported(method, delay):
        fixed = ("report", "all", delay, method)
        return np.mean([r["error"] for r in rows if (r["split"], r["labels"], r["delay"], r["method"]) == fixed])

    ahead = (f"{100 * (1 - reported('tracked', d) / reported('last known', d)):.0f}" for d in DELAYS)
    return (
        "With all labels the tracker's error is {}, {} and {} % lower than that of the last known accuracy. ".format(
            *ahead
        )
        + f"On no stream, those of development among them, is it more than {steady:.1f} points higher where every window "
        f"gets labels; where only every fifth does, it is up to {behind[worst]:.1f} points higher on {worst[0]} "
        f"(*d* = {worst[2]}), at most {behind[other]:.1f} on all others. " + where_unchanged_wins(errors)
    )


def where_unchanged_wins(errors):
    """Streams on which the accuracy on the reference is nearer than the tracker with all labels, and by which delay."""
    wins = {}
    for stream in STREAMS:
        for delay in DELAYS:
            ours, naive = (
                round(np.mean(errors[stream, "all", delay, method]), 1) for method in ("tracked", "unchanged")
            )
            if naive < ours:
                wins.setdefault(stream, []).append(f"{naive} against {ours} for *d* = {delay}")
    listed = "; ".join(f"{stream} ({', '.join(found)})" for stream, found in wins.items())
    return f"Where accuracy hardly changes, *unchanged* is the better number: {listed}."


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
    "memory": (0.7, 0.75, 0.85, 0.9, 0.95),
    "scale": (0.03, 0.045, 0.08, 0.12),
    "rate": (0.05, 0.1, 0.2, 0.3),
    "most_windows": (16, 32, 128),
}


def normalised(weights):
    return weights / weights.sum(axis=1, keepdims=True)


def exponential(tried, known, settings, largest=2.0):
    """Weights by squared errors of which a window counts for at most (2σ)²: those of the method before."""
    errors = np.minimum(np.abs(tried.values[:-1] - known.accuracy[:, None]) / settings.scale, largest)
    lost = tried.counts @ np.square(errors) / 2
    return normalised(np.exp(lost.min(axis=1, keepdims=True) - lost) * np.array([tried.delay, 1, 1, 1, 1]))


def of_no_scale(tried, known, settings):
    """Weights by mean squared errors, to the power of minus half the number of windows."""
    squares = settings.scale**2 + tried.counts @ np.square(tried.values[:-1] - known.accuracy[:, None])
    power = -(1 + tried.counts.sum(axis=1, keepdims=True)) / 2
    return normalised((squares / squares.min(axis=1, keepdims=True)) ** power * np.array([tried.delay, 1, 1, 1, 1]))


def raked_from(power):
    """Weights of which that of the raked answer starts with another power of the delay."""

    def weigh(tried, known, settings):
        return normalised(weights_of(tried, known, settings) * [tried.delay ** (power - 1), 1, 1, 1, 1])

    return weigh


def by_squares(tried, known, means, prior_error):
    """Expected error by mean squares, as it was before."""
    counts, prior = tried.counts[-1], (1 + tried.delay) / 2
    total = counts.sum() + prior
    squared = counts @ (np.square(known.accuracy - means[:-1]) - known.excess) + prior * prior_error**2
    return np.sqrt(max(squared / total, 0.0) + np.sqrt(2 * np.square(counts * known.variance).sum()) / total)


def without_doubt(tried, known, means, prior_error):
    """Expected error without a standard error more."""
    return expected_error(tried, known._replace(variance=np.zeros_like(known.variance)), means, prior_error)


def start_of_one(tried, known, means, prior_error):
    """Expected error in which the estimator's own counts as one window, whatever the delay."""
    return expected_error(tried._replace(delay=1.0), known, means, prior_error)


FORMS = {
    "weights exponential in bounded squares (before)": {"weigh": exponential},
    "weights by mean squared errors": {"weigh": of_no_scale},
    "raked starts like the others": {"weigh": raked_from(0)},
    "raked starts with √delay": {"weigh": raked_from(0.5)},
    "expected error by squares (before)": {"spread": by_squares},
    "expected error without a standard error more": {"spread": without_doubt},
    "expected error that starts with one window": {"spread": start_of_one},
}


def formed(weigh=weights_of, spread=expected_error):
    """`answer` with another rule for weights, or for the expected error."""

    def answer_so(known, position, label_free, raked, unchanged, prior_error, settings):
        tried = try_out(known, position, label_free, raked, unchanged, settings)
        weights = weigh(tried, known, settings)
        means = (weights * tried.values).sum(axis=1)
        return Answered(tried.values[-1], weights[-1], means[-1], spread(tried, known, means, prior_error))

    return answer_so


def replayed(windows, delay, settings, answer=answer):
    """Answers to windows that a tracker has kept, with other constants or forms; the class mix stays as it was."""
    made, tally = [], Tally()
    for number, window in enumerate(windows):
        if number >= delay and (done := made[number - delay]).error is not None and (missed := done.missed) is not None:
            tally = Tally(tally.tested + 1, tally.missed + missed)
        past = [w for w in made[: max(number - delay + 1, 0)] if w.n_labels][-settings.most_windows :]
        place = {id(w): k for k, w in enumerate(made)}
        found = replace(window, error=None, factor=None)
        if past:
            ages = np.array([number - place[id(w)] for w in past], dtype=np.float64)
            known = known_of(past, ages, 0)
            estimates = window.label_free, window.raked, window.unchanged
            answered = answer(known, 0.0, *estimates, window.prior_error, settings)
            factor = tally.factor(0.9, settings)
            noise = own_variance(answered.accuracy, window.n_rows)
            half = half_width(factor, answered.error, noise)
            low, high = max(answered.accuracy - half, 0.0), min(answered.accuracy + half, 1.0)
            found = replace(window, accuracy=answered.accuracy, low=low, high=high, error=answered.error, factor=factor)
        made.append(found)
    return made


def choose(names, models):
    """Print what each constant and each form does alone, on the development streams."""
    plays = {}
    for name in names:
        for model in models:
            for labels in LABELS:
                for delay in DELAYS:
                    file = DATA / "late_labels" / f"{name}-{model}-{labels}-{delay}.json"
                    if not file.exists():
                        continue
                    plays[name, model, labels, delay] = read_windows(file)
    compared = {"as it is": (SETTINGS, answer)}
    compared |= {f"{k} = {v}": (replace(SETTINGS, **{k: v}), answer) for k, values in GRID.items() for v in values}
    compared |= {name: (SETTINGS, formed(**form)) for name, form in FORMS.items()}
    print("| constant or form | labels | delay 1 | delay 4 | delay 10 |\n|---|---|---|---|---|")
    for text, (settings, answering) in compared.items():
        for labels in LABELS:
            rows = {delay: [] for delay in DELAYS}
            for (*_, own, delay), (windows, truth) in plays.items():
                if own == labels:
                    made = replayed(windows, delay, settings, answering)
                    rows[delay].append(scored(truth, *columns(made, "accuracy", "low", "high"), delay + FIRST))
            print(f"| {text} | {labels} | {' | '.join(map(mean_text, rows.values()))} |", flush=True)


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
        unchanged = np.full(windows, 0.85)
        known = Known(place[past], truth[past], noise[past], noise[past], raked[past], raked[past], unchanged[past])
        answered = answer(known, t, raked[t], raked[t], 0.85, 0.08)
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
