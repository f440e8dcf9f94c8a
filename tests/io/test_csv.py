"""CSV as spreadsheets and data frames write it."""

import csv
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdscore.errors import GdscoreError
from gdscore.io import Columns, read_batches, read_outputs
from tests.data import growth

PROBABILITIES = Columns(probabilities="p_*")


def save(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "p_1,p_0,y\n0.25,0.75,a\n1,0,b\n",
        "p_1,p_0,y\r\n0.25,0.75,a\r\n1,0,b",
        "\ufeffp_1,p_0,y\n0.25,0.75,a\n\n1,0,b\n\n",
        'y;"p_1";p_0\na;0.25;0.75\nb;1;"0"\n',
        'p_1\tp_0\tnote\ty\n2.5e-1\t 0.75 \t"two\nlines, quoted"\ta\n1\t0\t\tb\n',
        "p_1|p_0|y\n0.25|0.75|a\n1|0|b\n",
        'p_1,p_0,note,y\n0.25,0.75,a pipe of 5",a\n1,0,,b\n',
    ],
)
def test_dialects(tmp_path, text):
    path = save(tmp_path / "x.csv", text)
    (out,) = read_outputs(path, columns=Columns(probabilities="p_*", label="y", class_names=["a", "b"]))
    np.testing.assert_array_equal(out.arrays["probabilities"], [[0.75, 0.25], [0.0, 1.0]])
    assert out.labels.tolist() == [0, 1]


@pytest.mark.parametrize("last", ["", "end"], ids=["no last line end", "last line end"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_quotation_marks_that_are_never_closed_lose_no_rows(tmp_path, end, last):
    """Of a mark at the beginning of a cell Arrow makes one cell of all rows up to the next mark, and is silent."""
    plain = [f"0.25,0.75,n{i}" for i in range(12)]

    def rows(text):
        return sum(len(out) for out in read_outputs(save(tmp_path / "x.csv", text), columns=PROBABILITIES))

    def text(lines):
        return end.join(["p_1,p_0,note", *lines]) + (end if last else "")

    assert rows(text(plain)) == 12
    for first, second in [(0, 1), (0, 11), (3, 4), (10, 11), (2, 9)]:
        stray = list(plain)
        stray[first] = stray[second] = '0.25,0.75,"n'
        with pytest.raises(GdscoreError, match="CSV file in UTF-8, but it is truncated, damaged"):
            rows(text(stray))
        inches = list(plain)
        inches[first] = inches[second] = '0.25,0.75,5" pipe'
        assert rows(text(inches)) == 12
        quoted = list(plain)
        quoted[first] = f'0.25,0.75,"a note{end}of two lines"'
        assert rows(text(quoted)) == 12


def test_line_ends_that_are_cut_in_two(tmp_path, monkeypatch):
    monkeypatch.setattr("gdscore.io.csv._PIECE", 64)
    plain = [f"0.25,0.75,n{i:02}" for i in range(40)]
    for end in ("\n", "\r\n", "\r"):
        path = save(tmp_path / "x.csv", end.join(["p_1,p_0,note", *plain[:-1], '0.25,0.75,"n"']))
        assert sum(len(out) for out in read_outputs(path, columns=PROBABILITIES)) == 40


def test_batches_do_not_depend_on_the_pieces_of_text(tmp_path):
    p = np.random.default_rng(0).random(20_000)
    body = "".join(f"{value!r},{i}\n" for i, value in enumerate(p.tolist()))
    path = save(tmp_path / "x.csv", "p,row\n" + body)
    batches = list(read_outputs(path, columns=Columns(probabilities="p", id="row"), batch_rows=7000))
    assert [len(batch) for batch in batches] == [7000, 7000, 6000]
    np.testing.assert_array_equal(np.concatenate([b.arrays["probabilities"][:, 1] for b in batches]), p)
    assert np.concatenate([b.ids for b in batches]).tolist() == [str(i) for i in range(20_000)]


def test_time_and_segments(tmp_path):
    path = save(
        tmp_path / "x.csv",
        "p,t,country,device\n0.5,2026-01-31T00:00Z,fr,1\n0.5,2026-01-31T05:30:00Z,de,2\n0.5,2026-01-31 05:30:00+02:00,NA,1\n",
    )
    ((out, time, by),) = read_batches(path, columns=Columns(probabilities="p", time="t", by=["country", "device"]))
    assert len(out) == 3
    assert time.dtype == "datetime64[us]"
    assert [str(t)[:16] for t in time] == ["2026-01-31T00:00", "2026-01-31T05:30", "2026-01-31T03:30"]
    assert {name: values.tolist() for name, values in by.items()} == {
        "country": ["fr", "de", "NA"],
        "device": ["1", "2", "1"],
    }


def test_times_with_and_without_a_zone_are_refused(tmp_path):
    path = save(tmp_path / "x.csv", "p,t\n0.5,2026-01-31T05:00:00\n0.5,2026-01-31T05:30:00+01:00\n")
    with pytest.raises(GdscoreError, match=r"row 1 of .*with a zone"):
        list(read_batches(path, columns=Columns(probabilities="p", time="t")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n", "first line is empty|at least one of|no columns|none"),
        ("p_0,p_1\n", "at least one row"),
        ("a,b\n1,2\n", r"match 'p_\*'.*'a', 'b'"),
        ("p_0,p_0\n1,2\n", "one column 'p_0'"),
        ("p_0, p_1\n0.9,0.1\n", "a column for each class that matches 'p_.'.*'p_0' alone.*' p_1'"),
        ("p_0,p_1\n0.5,0.5\n0.5\n", "2 cells.*got 1 in row 1"),
        ("p_0,p_1\n0.5,0.5\n0.5,0.5,1\n", "2 cells.*got 3 in row 1"),
        ("p_0,p_1\n0.5,0.5\n0.5,\n", "'p_1'.*none in row 1"),
        ("p_0,p_1\n0.5,0.5\n0.5,x\n", "number in column 'p_1'.*'x' in row 1"),
        ("p_0,p_1\n0.5,0.5\n0.5,NA\n", "'NA' in row 1"),
        ("p_0,p_1\n0.5,1_0\n", "'1_0' in row 0"),
        ("p_0;p_1\n0,5;0,5\n", "'0,5' in row 0.*decimal point"),
        ("p_0,p_1\n0.5,nan\n", "NaN in column 'p_1' in row 0"),
        ("p_0,p_1\n0.5,1e999\n", "Inf in column 'p_1' in row 0"),
        ("p_0,p_1\n50,50\n", "percentages"),
        ('p_0,p_1\n0.5,"0.5\n' + "0.5,0.5\n" * 10, "damaged|longer|cells|a number"),
        ('p_0,p_1,note\n0.5,0.5,ok\n0.5,0.5,"half\n' + "0.5,0.5,ok\n" * 10, "damaged.*unexpected end of data"),
        ('p_0,p_1,note\n0.5,0.5,ok\n0.5,0.5,"trunc', "damaged.*unexpected end of data"),
        ("note,p_0,p_1\n" + ('"r,0.5,0.5\n' + "ok,0.5,0.5\n" * 3) * 2, "damaged.*',' expected after"),
        ("p_0,p_1\n0.5,0.5\n" * 2, "'p_0' in row 1"),
    ],
)
def test_mistakes_are_named_with_row_and_column(tmp_path, text, message):
    with pytest.raises(GdscoreError, match=message) as raised:
        list(read_outputs(save(tmp_path / "bad.csv", text), columns=PROBABILITIES))
    assert "bad.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_labels_times_and_segments_that_do_not_fit(tmp_path):
    path = save(tmp_path / "x.csv", "p_0,p_1,y,t,s\n0.5,0.5,0,2026-01-31,a\n0.5,0.5,2,31.1.2026,\n")
    for columns, message in [
        (Columns(probabilities="p_*", label="y"), "'2' in column 'y' in row 1.*classes are '0', '1'"),
        (Columns(probabilities="p_*", time="t"), "'31.1.2026' in row 1.*ISO 8601"),
        (Columns(probabilities="p_*", by="s"), "'s'.*none in row 1"),
        (Columns(probabilities="p_*", label="z"), "'z' for `label`"),
    ]:
        with pytest.raises(GdscoreError, match=message):
            list(read_batches(path, columns=columns))


TIMES = Columns(probabilities="p", time="t")


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_times_at_the_ends_of_the_calendar(tmp_path, when):
    path = save(tmp_path / "x.csv", f"p,t\n0.5,2026-01-31T00:00:00Z\n0.5,{when}\n")
    with pytest.raises(
        GdscoreError, match=r"between the years 1 and 9999 in UTC in column 't', but got .* in row 1 of"
    ):
        list(read_batches(path, columns=TIMES))
    path = save(tmp_path / "x.csv", f"p,t\n0.5,{when[:19]}\n")
    ((_, found, _),) = read_batches(path, columns=TIMES)
    assert str(found[0])[:19] == when[:19]


def test_times_with_a_zone_in_one_file_and_without_in_another(tmp_path):
    save(tmp_path / "a.csv", "p,t\n0.5,2026-01-31T00:00:00+01:00\n")
    save(tmp_path / "b.csv", "p,t\n0.5,2026-01-31T00:00:00\n")
    with pytest.raises(GdscoreError, match=r"a time zone for all times .* in row 0 of '.*b\.csv', after .* '.*a\.csv'"):
        list(read_batches(tmp_path, columns=TIMES))
    for name in ("a.csv", "b.csv"):
        assert len(list(read_batches(tmp_path / name, columns=TIMES))) == 1


def test_times_with_a_zone_in_one_batch_and_without_in_another(tmp_path):
    path = save(tmp_path / "a.csv", "p,t\n0.5,2026-01-31T00:00:00Z\n0.5,2026-01-31T00:00:00Z\n0.5,2026-01-31\n")
    with pytest.raises(GdscoreError, match="a time zone for all times .* in row 2 of"):
        list(read_batches(path, columns=TIMES, batch_rows=1))


def test_a_name_that_is_not_utf_8(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    try:
        save(Path(path), "p_0,p_1\n0.5,0.5\n")
    except OSError:
        pytest.skip("the file system wants UTF-8")
    (out,) = read_outputs(path, columns=PROBABILITIES)
    assert len(out) == 1


def test_many_columns(tmp_path):
    def read(count):
        names = [f"p_{i}" for i in range(count)]
        rows = "".join(",".join([f"{1 / count}"] * count) + ",3\n" for _ in range(3))
        path = save(tmp_path / "wide.csv", ",".join(names) + ",y\n" + rows)
        (out,) = read_outputs(path, columns=Columns(probabilities="p_*", label="y"))
        assert out.labels.tolist() == [3, 3, 3]

    assert growth(read, 2000, 8000) < 10  # 4 in proportion, 16 by the square


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings(tmp_path, encoding):
    path = save(tmp_path / "x.csv", "p_0,p_1,é\n0.5,0.5,é\n", encoding)
    with pytest.raises(GdscoreError, match="UTF-8"):
        list(read_outputs(path, columns=PROBABILITIES))
    path = save(tmp_path / "y.csv", "p_0,p_1,y\n0.5,0.5,é\n", "latin-1")
    with pytest.raises(GdscoreError, match="UTF-8"):
        list(read_outputs(path, columns=Columns(probabilities="p_*", id="y")))


CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(CELLS, st.floats(0, 1)), min_size=1, max_size=8),
    delimiter=st.sampled_from([",", ";", "\t"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_the_standard_library_writes_is_read(tmp_path_factory, rows, delimiter, quoting):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
    writer.writerow(["name", "p"])
    writer.writerows(rows)
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_bytes(text.getvalue().encode())
    (out,) = read_outputs(path, columns=Columns(probabilities="p", id="name"))
    assert out.ids.tolist() == [name for name, _ in rows]
    np.testing.assert_array_equal(out.arrays["probabilities"][:, 1], [p for _, p in rows])
