"""Labelled streams with real drift: read public files once, train classifiers on their beginning, keep all outputs.

    python -m benchmarks.data.streams pack --from data/raw/streams      # writes data/packed/streams/<stream>.npz
    python -m benchmarks.data.streams outputs                           # trains and runs every model: data/streams/*.npz

The raw folder holds files of public repositories under their own names:

- ``elec.csv``, ``weather.csv``: ogozuacik/concept-drift-datasets-scikit-multiflow, ``real-world/``
- ``gradual_balanced_24150.zip`` (INSECTS), ``Rialto.zip``: ZSKPP/feature-drift, ``DATA real/``
- ``PRSA_data_2010.1.1-2014.12.31.csv`` (air quality in Beijing by hour): ephemeraa/predict_air_pollution_with_lstm, ``data/``
- ``hour.csv`` (rented bicycles in Washington by hour): cse412-21sp/bike-sharing, ``data/``
- ``Metro_Interstate_Traffic_Volume.csv``: CodyTheCoderPrice/Finding-Heavy-Traffic-Indicators-on-I94
- ``hotel_bookings.csv.zip``: ChakrabortyJoy/Exploratory-Data-Analysis-on-Hotel-Booking
- ``bank-additional.zip`` (calls of a bank, May 2008 to November 2010): dsrscientist/Dataset2
- ``weatherAUS.csv.zip`` (weather of 49 places in Australia by day): Rohitbachchhe17/Rainfall_prediction
- ``london_merged.csv`` (rented bicycles in London by hour): mlaryan/London-Bike-Sharing-Dataset
- ``Occupancy_Estimation.csv`` (sensors of a room, every half a minute): MeetPatel2612/Room-Occupancy-Estimation

Constants and forms of a method are compared on the streams of the part "development"; the others are for the report.

A packed stream is ``features`` float64 N×D and ``labels`` int64 N in the order of time. The first rows of a stream, in
random order, are the training rows and the reference; windows follow, all of one size. Outputs of a classifier are kept
for the reference, for its shifted sets and for all windows, so that any estimator can be fitted and run on them.
"""

import argparse
import csv
import io
import time
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

import gdscore
from benchmarks import ROOT
from benchmarks.data.tables import generator, read_table
from benchmarks.models.tabular import MODELS
from gdscore._files import read_arrays, write_arrays

__all__ = ["MODEL_NAMES", "STREAMS", "Run", "Stream", "load_run", "pack"]

DATA = ROOT / "data"
MOST_ROWS = 60_000
MODEL_NAMES = ("logistic", "boosting", "mlp")
ARRAYS = ("logits", "probabilities", "features", "inputs", "labels")


@dataclass(frozen=True)
class Stream:
    """Where a stream comes from, and its rows for training, for the reference and of a window."""

    file: str
    split: str
    train: int
    reference: int
    window: int
    read: object


def table(file):
    values = read_table(file)
    _, labels = np.unique(values[:, -1], return_inverse=True)
    return values[:, :-1], labels


def lines_of(file, delimiter=","):
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            largest = max(archive.infolist(), key=lambda member: member.file_size)
            text = archive.read(largest).decode("utf-8-sig")
    else:
        text = file.read_text(encoding="utf-8-sig")
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def one_hot(values):
    names = sorted(set(values))
    return np.array([[value == name for name in names] for value in values], dtype=np.float64)


def numbers(lines, *names):
    return np.array([[0.0 if line[name] in ("", "NA") else float(line[name]) for name in names] for line in lines])


def air(file):
    """Beijing by hour: is the concentration of fine particles above the median of the first 5,500 hours?"""
    lines = lines_of(file)
    times = [datetime.fromisoformat(line["date"]) for line in lines]
    clock = np.array([[t.month, t.hour] for t in times], dtype=np.float64)
    features = np.hstack([clock, numbers(lines, "dew", "temp", "press", "wnd_spd", "snow", "rain")])
    features = np.hstack([features, one_hot([line["wnd_dir"] for line in lines])])
    particles = numbers(lines, "pollution")[:, 0]
    return features, (particles > np.median(particles[:5500])).astype(np.int64)


def bike(file):
    """Washington by hour: are more bicycles rented than in the median hour of the first 3,500?"""
    lines = [line for line in lines_of(file) if line["cnt"] not in ("", "NA")]
    lines = [line for line in lines if line["instant"] not in ("", "NA")]
    lines.sort(key=lambda line: int(float(line["instant"])))
    count = numbers(lines, "cnt")[:, 0]
    features = numbers(
        lines, "hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed"
    )
    return features, (count > np.median(count[:3500])).astype(np.int64)


def traffic(file):
    """A motorway by hour: traffic of three classes, by terciles of the first 5,500 hours."""
    lines = lines_of(file)
    lines.sort(key=lambda line: line["date_time"])
    volume = numbers(lines, "traffic_volume")[:, 0]
    times = [datetime.fromisoformat(line["date_time"]) for line in lines]
    clock = np.array([[t.weekday(), t.hour, t.month] for t in times], dtype=np.float64)
    weather = one_hot([line["weather_main"] for line in lines])
    features = np.hstack([clock, numbers(lines, "temp", "rain_1h", "snow_1h", "clouds_all"), weather])
    return features, np.digitize(volume, np.quantile(volume[:5500], [1 / 3, 2 / 3]))


def hotel(file):
    """Bookings of two hotels by the day of arrival: are they cancelled?"""
    lines = lines_of(file)
    day = [
        datetime.strptime(
            f"{x['arrival_date_year']} {x['arrival_date_month']} {x['arrival_date_day_of_month']}", "%Y %B %d"
        )
        for x in lines
    ]
    lines = [lines[i] for i in np.argsort(np.array(day, dtype="datetime64[D]"), kind="stable")]
    names = ("lead_time", "stays_in_weekend_nights", "stays_in_week_nights", "adults", "babies", "is_repeated_guest")
    names += ("previous_cancellations", "previous_bookings_not_canceled", "booking_changes", "days_in_waiting_list")
    names += ("adr", "required_car_parking_spaces", "total_of_special_requests")
    kinds = ("hotel", "meal", "market_segment", "deposit_type", "customer_type")
    encoded = [one_hot([line[kind] for line in lines]) for kind in kinds]
    return np.hstack([numbers(lines, *names), *encoded]), numbers(lines, "is_canceled")[:, 0].astype(np.int64)


def bank(file):
    """Calls of a bank in order of time: does the client subscribe? The length of a call is not known before it."""
    lines = lines_of(file, ";")
    names = ("age", "campaign", "pdays", "previous", "emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m")
    kinds = ("job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week", "poutcome")
    encoded = [one_hot([line[kind] for line in lines]) for kind in kinds]
    subscribes = np.array([line["y"] == "yes" for line in lines], dtype=np.int64)
    return np.hstack([numbers(lines, *names, "nr.employed"), *encoded]), subscribes


def rain(file):
    """Australia by day, all places together: does it rain tomorrow?"""
    lines = [line for line in lines_of(file) if line["RainTomorrow"] in ("No", "Yes")]
    lines.sort(key=lambda line: line["Date"])
    names = ("MinTemp", "MaxTemp", "Rainfall", "Evaporation", "Sunshine", "WindGustSpeed", "WindSpeed9am")
    names += ("WindSpeed3pm", "Humidity9am", "Humidity3pm", "Pressure9am", "Pressure3pm", "Cloud9am", "Cloud3pm")
    directions = [one_hot([line[name] for line in lines]) for name in ("WindGustDir", "WindDir9am", "WindDir3pm")]
    features = np.hstack([numbers(lines, *names, "Temp9am", "Temp3pm"), *directions])
    return features, np.array([line["RainTomorrow"] == "Yes" for line in lines], dtype=np.int64)


def london(file):
    """London by hour: rented bicycles of three classes, by terciles of the first 3,500 hours."""
    lines = lines_of(file)
    times = [datetime.strptime(f"{x['date']} {x['time']}", "%d-%m-%Y %I.%M.%S %p") for x in lines]
    lines = [lines[i] for i in np.argsort(np.array(times, dtype="datetime64[s]"), kind="stable")]
    hours = np.array([[t.hour, t.weekday()] for t in sorted(times)], dtype=np.float64)
    kinds = [one_hot([line[name] for line in lines]) for name in ("weather_code", "is_holiday", "is_weekend")]
    measured = numbers(lines, "real temp", "temperature feels like", "humidity", "wind_speed")
    count = numbers(lines, "Count of bike shares")[:, 0]
    return np.hstack([hours, measured, *kinds]), np.digitize(count, np.quantile(count[:3500], [1 / 3, 2 / 3]))


def room(file):
    """A room by sensors of light, sound, warmth and carbon dioxide: are there people in it?"""
    lines = lines_of(file)
    names = [name for name in lines[0] if name not in ("Date", "Time", "Room_Occupancy_Count", "S6_PIR", "S7_PIR")]
    return numbers(lines, *names), (numbers(lines, "Room_Occupancy_Count")[:, 0] > 0).astype(np.int64)


STREAMS = {
    "weather": Stream("weather.csv", "development", 3000, 1200, 365, table),
    "rialto": Stream("Rialto.zip", "development", 4000, 1500, 500, table),
    "bike": Stream("hour.csv", "development", 2500, 1000, 168, bike),
    "hotel": Stream("hotel_bookings.csv.zip", "development", 6000, 2000, 1000, hotel),
    "bank": Stream("bank-additional.zip", "development", 6000, 2000, 500, bank),
    "insects": Stream("gradual_balanced_24150.zip", "development", 3000, 1500, 500, table),
    "room": Stream("Occupancy_Estimation.csv", "development", 2000, 800, 100, room),
    "electricity": Stream("elec.csv", "report", 4000, 1500, 500, table),
    "air": Stream("PRSA_data_2010.1.1-2014.12.31.csv", "report", 4000, 1500, 336, air),
    "traffic": Stream("Metro_Interstate_Traffic_Volume.csv", "report", 4000, 1500, 500, traffic),
    "rain": Stream("weatherAUS.csv.zip", "report", 4000, 1500, 1000, rain),
    "london": Stream("london_merged.csv", "report", 2500, 1000, 168, london),
}


def pack(raw, folder=DATA / "packed" / "streams"):
    """Pack all streams found in `raw`; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, stream in STREAMS.items():
        features, labels = stream.read(Path(raw) / stream.file)
        write_arrays(folder / f"{name}.npz", {"features": features, "labels": labels.astype(np.int64)})
        written.append(folder / f"{name}.npz")
    return written


def arrays_of(outputs):
    """Arrays of outputs in single precision, which any estimator can be given again."""
    found = {name: np.asarray(getattr(outputs, name)) for name in ARRAYS if name in outputs.has}
    if not outputs.has & {"features"} and "probabilities" in outputs.arrays:
        found["probabilities"] = np.asarray(outputs.arrays["probabilities"])
        found.pop("logits", None)
    return {name: a if a.dtype.kind == "i" else a.astype(np.float32) for name, a in found.items()}


def as_outputs(arrays):
    return gdscore.Outputs(**arrays, check_logits=False)


@dataclass(frozen=True)
class Run:
    """Outputs of one classifier on one stream: the reference, its shifted sets, and the windows in order."""

    stream: str
    model: str
    reference: gdscore.Outputs
    shifted_sets: list
    windows: list

    @property
    def name(self):
        return f"{self.stream}-{self.model}"


def make_run(name, model, seed=0, folder=DATA):
    """Train a classifier on the beginning of a stream and write its outputs; returns the file."""
    stream, packed = STREAMS[name], read_arrays(folder / "packed" / "streams" / f"{name}.npz")
    features, labels = packed["features"], packed["labels"]
    first = stream.train + stream.reference
    order = generator(name).permutation(first)
    train, held = np.sort(order[: stream.train]), np.sort(order[stream.train :])
    classifier = MODELS["table"][model](seed).fit(features[train], labels[train])
    inputs, classes = features[held], np.searchsorted(classifier.classes_, labels[held])

    def predict(x):
        return gdscore.from_sklearn(classifier, x)

    sets, windows, rows, families = [], [], [], []
    chosen = gdscore.shifts.default_shifts(inputs, time=held)
    for s in gdscore.shifts.shifted_sets(predict, inputs, classes, chosen, progress=False):
        sets.append(arrays_of(s.outputs))
        rows.append(np.arange(len(s.outputs)) if s.rows is None else np.asarray(s.rows))
        families.append(s.family)
    for start in range(first, min(len(labels), MOST_ROWS) - stream.window + 1, stream.window):
        own = slice(start, start + stream.window)
        windows.append(arrays_of(gdscore.from_sklearn(classifier, features[own], labels[own])))
    parts = {"reference": [arrays_of(gdscore.from_sklearn(classifier, inputs, classifier.classes_[classes]))]}
    parts |= {"sets": sets, "windows": windows}
    packed = {
        f"{part}.{key}": np.concatenate([one[key] for one in found])
        for part, found in parts.items()
        for key in found[0]
    }
    packed |= {"set.ends": np.cumsum([len(r) for r in rows]), "set.rows": np.concatenate(rows)}
    packed |= {"set.families": np.array(families)}
    file = folder / "streams" / f"{name}-{model}.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(file, packed)
    return file


def load_run(name, model, folder=DATA):
    """Outputs that `make_run` wrote."""
    packed = read_arrays(folder / "streams" / f"{name}-{model}.npz")

    def outputs(part, rows=slice(None)):
        start = f"{part}."
        return as_outputs({key[len(start) :]: a[rows] for key, a in packed.items() if key.startswith(start)})

    reference, sets, start = outputs("reference"), [], 0
    for end, family in zip(packed["set.ends"].tolist(), packed["set.families"].tolist(), strict=True):
        rows = slice(start, end)
        sets.append(gdscore.ShiftedSet(outputs("sets", rows), family, packed["set.rows"][rows]))
        start = end
    size, total = STREAMS[name].window, len(packed["windows.labels"])
    windows = [outputs("windows", slice(k, k + size)) for k in range(0, total, size)]
    return Run(name, model, reference, sets, windows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pack", "outputs"))
    parser.add_argument("--from", dest="raw", type=Path, default=DATA / "raw" / "streams")
    parser.add_argument("--only", nargs="+", default=list(STREAMS), help="streams")
    options = parser.parse_args()
    if options.command == "pack":
        for file in pack(options.raw):
            print(file.name)
        return
    for name in options.only:
        for model in MODEL_NAMES:
            start = time.perf_counter()
            if not (DATA / "streams" / f"{name}-{model}.npz").exists():
                make_run(name, model)
            run = load_run(name, model)
            truth = [100 * w.accuracy for w in run.windows]
            print(
                f"{time.perf_counter() - start:5.0f} s  {run.name}: reference {100 * run.reference.accuracy:.1f}, "
                f"{len(truth)} windows, {min(truth):.1f} to {max(truth):.1f}, mean {np.mean(truth):.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
