"""The benchmarks' tables and texts: small folders of the public layouts, packed, read back and cut into tasks."""

import zipfile

import numpy as np
import pytest

from benchmarks.data import tables

ROWS = 3000


def table_rows(seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(ROWS, 3)).round(4)
    features[10] = features[9]
    return [f"{','.join(map(str, row))},{int(row[0] > 0) + 1}" for row in features]


def write_table(file, lines, csv_header):
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        file.write_text("\n".join([csv_header, *lines]))
        return
    arff = ["@relation made", "@attribute a numeric", "@attribute class {1,2}", "@DATA"]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("made", "\n".join(([] if "Insects" in str(file) else arff) + lines))


def review_lines(domain, part):
    lines = [f"{k % 2}\t{domain} review {part} {k} is {'good' if k % 2 else 'bad'} " for k in range(40)]
    return [*lines, lines[3], f"0\tin both files of {domain}\x85and on one line", "1\tthe same in every domain"]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for seed, (_, path) in enumerate(tables.TABLES.values()):
        write_table(folder / "tables" / path, table_rows(seed), "0,1,2,target")
    reviews = folder / "reviews" / "data" / "fdu-mtl"
    reviews.mkdir(parents=True)
    for domain in tables.DOMAINS:
        for part in ("train", "test"):
            (reviews / f"{domain}.task.{part}").write_bytes("\n".join(review_lines(domain, part)).encode() + b"\n")
    return folder


@pytest.fixture(scope="module")
def packed(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    files = tables.pack(raw, folder)
    assert len(files) == len(tables.TABLES) + 16
    assert not list(folder.rglob("*.partial*"))
    return folder


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_packed_in_order_without_repeats(name, raw, packed):
    data = tables.load("tables", name, packed)
    expected = tables.read_table(raw / "tables" / tables.TABLES[name][1])
    assert data["features"].shape == (ROWS - 1, 3)
    assert 10 not in data["time"]
    assert (np.diff(data["time"]) > 0).all()
    np.testing.assert_array_equal(data["features"], expected[data["time"], :-1])
    np.testing.assert_array_equal(data["labels"], expected[data["time"], -1] - 1)


def test_long_tables_are_cut_to_size(raw, monkeypatch):
    monkeypatch.setattr(tables, "MOST_ROWS", 100)
    assert len(tables.packed_table("rialto", raw)["labels"]) == 100
    assert len(tables.packed_table("weather", raw)["labels"]) == ROWS - 1


def test_table_tasks_keep_periods_apart(packed):
    made = [task for task in tables.tasks(folder=packed) if task.kind == "table"]
    assert {task.name: task.split for task in made} == {
        **dict.fromkeys(("weather", "ozone", "rialto", "spam", "phishing", "wine"), "development"),
        **dict.fromkeys(("electricity", "insects"), "report"),
    }
    for task in made:
        everything = np.concatenate([task.train[0], task.reference[0], *(x for _, x, _ in task.targets)])
        assert len(np.unique(everything, axis=0)) == len(everything) == ROWS - 1
        unshifted, *windows = task.targets
        assert [name for name, *_ in task.targets] == ["unshifted", "window 1", "window 2", "window 3", "window 4"]
        assert all(len(y) >= 500 for *_, y in windows)
        stored = tables.load("tables", task.name, packed)
        position = {row.tobytes(): k for k, row in enumerate(stored["features"])}
        first = [position[row.tobytes()] for row in (*task.train[0], *task.reference[0], *unshifted[1])]
        assert sorted(first) == list(range(len(first)))
        later = [position[row.tobytes()] for _, x, _ in windows for row in x]
        assert later == list(range(len(first), ROWS - 1))
        assert len(task.time) == len(task.reference[1])
        assert (np.diff(task.time) > 0).all()


def test_review_tasks(packed):
    made = [task for task in tables.tasks(folder=packed) if task.kind == "text"]
    assert len(made) == 16
    for split in ("development", "report"):
        pairs = [(t.name, name) for t in made if t.split == split for name, *_ in t.targets[1:]]
        assert len(set(pairs)) == 48
    assert {t.name for t in made if t.split == "development"}.isdisjoint(t.name for t in made if t.split == "report")
    task = made[0]
    own = {*task.train[0], *task.reference[0], *task.targets[0][1]}
    assert len(own) == 40 + 40 + 2
    assert all(own.isdisjoint(texts) for _, texts, _ in task.targets[1:])
    assert "in both files of apparel\x85and on one line" in task.targets[0][1]
    assert all((text.endswith("good")) == label for text, label in zip(*task.train, strict=True) if "review" in text)


def test_splits_and_the_same_again(packed):
    report = list(tables.tasks("report", packed))
    assert len(report) == 10
    again = next(iter(tables.tasks("report", packed)))
    np.testing.assert_array_equal(report[0].reference[0], again.reference[0])
    with pytest.raises(ValueError, match="'development' or 'report', but got 'test'"):
        next(tables.tasks("test", packed))


# An epoch of the few rows made here is a single step.
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_models_learn_and_are_the_same_again(packed):
    for name in ("table", "text"):
        task = next(task for task in tables.tasks(folder=packed) if task.kind == name)
        for model in task.models:
            first, again = (tables.fitted(task, model, seed=3) for _ in range(2))
            inputs, labels = task.reference
            np.testing.assert_array_equal(first.predict_proba(inputs), again.predict_proba(inputs))
            assert first.score(inputs, labels) > 0.9
    with pytest.raises(ValueError, match="tfidf-logistic, tfidf-mlp, but got 'boosting'"):
        tables.fitted(task, "boosting")


def test_what_cannot_be_read_says_why(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"weather\.csv"):
        tables.pack(tmp_path, tmp_path / "packed")
    with pytest.raises(FileNotFoundError, match="'weather' is not packed"):
        next(tables.tasks(folder=tmp_path))
    (tmp_path / "bad.csv").write_text("a,target\n1,up\n")
    with pytest.raises(ValueError, match=r"rows of numbers in bad\.csv"):
        tables.read_table(tmp_path / "bad.csv")
    assert not list(tmp_path.rglob("*.npz"))
