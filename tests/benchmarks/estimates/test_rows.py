"""Rows of estimates come back from Parquet as they were written, and the committed files have one form."""

import pytest

pq = pytest.importorskip("pyarrow.parquet")

from benchmarks.estimates.rows import FOLDER, TYPES, read_rows, write_rows  # noqa: E402

ROW = {"suite": "tables", "source": "a", "seed": 2, "target": "t", "variant": "as-is", "rows": 20, "truth": "0.87500"}
ROW |= {"estimator": "unknown", "accuracy": "0.9", "low": "", "high": 1.0, "reference_accuracy": 0.5}


def test_rows_come_back(tmp_path):
    write_rows(tmp_path / "new" / "tables.parquet", [ROW, ROW | {"class": 3, "low": 0.25}])
    write_rows(tmp_path / "new" / "text.parquet", [])
    first, second = read_rows(tmp_path / "new")
    assert list(first) == list(TYPES)
    assert (first["truth"], first["accuracy"], first["low"], first["seed"]) == (0.875, 0.9, "", 2)
    assert (first["class"], second["class"], second["low"], first["warnings"]) == ("", 3, 0.25, "")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["tables.parquet", "text.parquet"]


def test_another_column_is_an_error_and_leaves_the_file(tmp_path):
    write_rows(tmp_path / "a.parquet", [ROW])
    with pytest.raises(ValueError, match="but got tuhrt"):
        write_rows(tmp_path / "a.parquet", [ROW | {"tuhrt": 1}])
    with pytest.raises(ValueError, match="could not convert"):
        write_rows(tmp_path / "a.parquet", [ROW | {"truth": "high"}])
    assert len(read_rows(tmp_path)) == 1


def test_committed_files_have_one_form():
    files = sorted(FOLDER.iterdir())
    assert files
    for file in files:
        assert pq.read_schema(file).names == list(TYPES), file.name
        rows = pq.read_table(file).to_pylist()
        assert {row["suite"] for row in rows} == {file.stem} or file.stem == "nannyml"
        assert all(0 <= row["accuracy"] <= 2 and 0 <= row["truth"] <= 2 for row in rows)  # Brier scores reach 2
