"""The table: through CSV, and through what spreadsheets do to it."""

import csv
import io

import numpy as np
import pytest

import gdscore
from gdscore.labeling import choose, estimate, read_csv


@pytest.fixture(scope="module")
def rows(est, named_target):
    by = np.array(["+north", "so,uth", 'w"est'])[np.arange(900) % 3]
    return choose(est, named_target, 30, by=by, seed=3)


def table(path):
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def save(path, lines, delimiter=",", encoding="utf-8"):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(lines)
    path.write_bytes(text.getvalue().encode(encoding))


def same(a, b):
    for name in ("rows", "ids", "ranks", "predicted_correct"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    fields = ("segments", "n_rows", "design", "seed", "mean_predicted_correct", "fingerprint")
    assert all(getattr(a, name) == getattr(b, name) for name in fields)
    assert {s: b.segment_rows[s] for s in a.segments or ()} == {s: a.segment_rows[s] for s in a.segments or ()}


def test_round_trip(tmp_path, rows):
    path = tmp_path / "todo.csv"
    rows.to_csv(path)
    back, labels = read_csv(path)
    same(rows, back)
    assert labels == [""] * 30
    assert back.probability == rows.probability == 30 / 900
    rows.to_csv(path, labels=["=owl", *[""] * 29])
    assert read_csv(path)[1][0] == "=owl"
    rows.to_csv(path, labels=[3, None, *range(28)])
    assert read_csv(path)[1][:3] == ["3", "", "0"]
    assert not any(cell.startswith(("=", "+", "-", "@")) for line in table(path) for cell in line)


def test_ids_and_segments_that_differ_by_white_space(tmp_path, est, named_target):
    """Ids " r5" and "r5" became one row, and 17 of 50 tables gave another accuracy."""
    count = len(named_target)
    forms = np.array(["r{}", " r{}", "r{} ", "'=r{}", "=r{}", "''r{}", "r{}\t", "R{}"])
    ids = np.array([str(forms[i % 8]).format(i // 8) for i in range(count)])
    arrays = {name: array for name, array in named_target.arrays.items() if name != "ids"}
    out = gdscore.Outputs(**arrays, ids=ids).with_class_names(named_target.class_names)
    by = np.array(["north", " north", "north "])[np.arange(count) % 3]
    path = tmp_path / "todo.csv"
    for seed in range(3):
        drawn = choose(est, out, 60, by=by, seed=seed)
        labels = out.labels[drawn.rows]
        drawn.to_csv(path, labels=labels)
        back, given = read_csv(path)
        same(drawn, back)
        assert estimate(est, out, back, given).accuracy == estimate(est, out, drawn, labels).accuracy


def test_ids_that_name_two_rows_are_refused(tmp_path, rows):
    path = tmp_path / "todo.csv"
    rows.to_csv(path)
    head, *lines = table(path)
    lines[3][head.index("id")] = lines[7][head.index("id")]
    save(path, [head, *lines])
    with pytest.raises(gdscore.GdscoreError, match="ids that name one row each .* names two"):
        read_csv(path)


def test_labels_that_differ_by_white_space(tmp_path, rows):
    rows.to_csv(tmp_path / "todo.csv", labels=["cat", " cat", *[""] * 28])
    assert read_csv(tmp_path / "todo.csv")[1][:3] == ["cat", " cat", ""]


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8"), ("\t", "utf-16"), (",", "utf-8-sig")])
def test_through_a_spreadsheet(tmp_path, est, named_target, rows, delimiter, encoding):
    path = tmp_path / "todo.csv"
    rows.to_csv(path)
    head, *lines = table(path)
    label, order = head.index("label"), head.index("order")
    for line in lines:
        k = int(line[order]) - 1
        line[label] = named_target.class_names[named_target.labels[rows.rows[k]]]
        if delimiter == ";":
            line[head.index("predicted_correct")] = line[head.index("predicted_correct")].replace(".", ",")
            line[order] = f"{line[order]}.0"
    lines[4][label] = "?"
    np.random.default_rng(0).shuffle(lines)
    columns = np.random.default_rng(1).permutation(len(head))
    shown = [[*(line[c] for c in columns), "a note, with\na line break"] for line in [head, *lines]]
    shown[0][-1] = "notes"
    save(path, [*shown, [""] * 3], delimiter, encoding)
    back, labels = read_csv(path)
    same(rows, back)
    found = estimate(est, named_target, back, labels)
    assert (found.labels, found.could_not_tell) == (29, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head, lines: ([h for h in head if h != "label"], [line[:-1] for line in lines]), "no label"),
        (lambda head, lines: (head, []), "only the names"),
        (lambda head, lines: (head, [*lines, lines[0]]), "twice"),
        (lambda head, lines: (head, lines[1:]), "without order 1"),
        (lambda head, lines: (head, [[*line[:-1], "x"] for line in lines]), "as it was written"),
        (lambda head, lines: (head, [[*lines[0][:-1], "x"], *lines[1:]]), "one sample"),
        (lambda head, lines: (head, [["first", *lines[0][1:]], *lines[1:]]), "a number in the column `order`"),
        (lambda head, lines: (head, [[lines[0][0], lines[1][1], *lines[0][2:]], *lines[1:]]), "were changed"),
    ],
)
def test_damaged_tables(tmp_path, rows, change, message):
    path = tmp_path / "todo.csv"
    rows.to_csv(path)
    head, *lines = table(path)
    head, lines = change(head, lines)
    save(path, [head, *lines])
    with pytest.raises(gdscore.GdscoreError, match=message):
        read_csv(path)


def test_other_files(tmp_path, rows):
    for content in (b"", b"\0\1\2", b"a,b\n1,2\n"):
        (tmp_path / "x.csv").write_bytes(content)
        with pytest.raises(gdscore.GdscoreError, match="table"):
            read_csv(tmp_path / "x.csv")
    with pytest.raises(gdscore.GdscoreError):
        read_csv(tmp_path / "absent.csv")
    with pytest.raises(gdscore.GdscoreError, match="each of 30 rows"):
        rows.to_csv(tmp_path / "x.csv", labels=["a"])


def test_columns_to_show_have_a_value_for_each_row(tmp_path, rows):
    """A Series was read by its index, and a column of another length was an IndexError or cut."""
    pd = pytest.importorskip("pandas")
    texts = pd.Series([f"text {i}" for i in range(30)], index=range(100, 130))
    rows.to_csv(tmp_path / "x.csv", show={"text": texts})
    head, *lines = table(tmp_path / "x.csv")
    assert [line[head.index("text")] for line in lines] == texts.tolist()
    for wrong in (texts[:29], ["a"] * 31):
        with pytest.raises(gdscore.GdscoreError, match="'text' for each of 30 rows"):
            rows.to_csv(tmp_path / "x.csv", show={"text": wrong})


def test_labels_of_a_series_go_by_its_index(est, named_target):
    pd = pytest.importorskip("pandas")
    target = gdscore.Outputs(**{k: v for k, v in named_target.arrays.items() if k not in ("labels", "ids")})
    drawn, truth = choose(est, target, 40), pd.Series(np.asarray(named_target.labels))
    expected = estimate(est, target, drawn, truth[drawn.rows].to_numpy()).accuracy
    in_table_order = truth[truth.index.isin(drawn.rows)]
    for labels in (
        in_table_order,
        truth[drawn.rows],
        truth[drawn.rows].reset_index(drop=True),
        in_table_order.to_dict(),
    ):
        assert estimate(est, target, drawn, labels).accuracy == expected
    for wrong in (truth, truth[drawn.rows].add_suffix("x"), pd.concat([in_table_order] * 2), in_table_order.to_frame()):
        with pytest.raises(gdscore.GdscoreError, match="index of `labels`|a list or a dict"):
            estimate(est, target, drawn, wrong)


def test_sizes_of_a_segment_that_differ(tmp_path, rows):
    path = tmp_path / "todo.csv"
    rows.to_csv(path)
    head, *lines = table(path)
    lines[0][head.index("segment_rows")] = "7"
    save(path, [head, *lines])
    with pytest.raises(gdscore.GdscoreError, match="one number of rows of the segment"):
        read_csv(path)


def test_missing_labels_of_every_kind(est, named_target):
    pd = pytest.importorskip("pandas")
    drawn = choose(est, named_target, 6)
    missing = [None, float("nan"), np.float32("nan"), pd.NA, "", " "]
    assert estimate(est, named_target, drawn, [*missing[:5], named_target.class_names[0]]).labels == 1


def test_a_class_without_a_name_is_refused(est, target):
    named = target.with_class_names(["", "a", "b", "c"])
    drawn = choose(est, named, 6)
    with pytest.raises(gdscore.GdscoreError, match="one is empty, which means not labelled"):
        estimate(est, named, drawn, ["a"] * 6)
