from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from gdscore import GdscoreError
from gdscore._windows import time_text
from gdscore.cli.files import date_in, find_targets, one_set

DAY = datetime(2026, 1, 31)


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("2026-01-31.parquet", DAY),
        ("20260131.parquet", DAY),
        ("log-2026-01-31T05.parquet", DAY.replace(hour=5)),
        ("log_2026-01-31T05-30_eu.parquet", DAY.replace(hour=5, minute=30)),
        ("20260131T053015Z.parquet", DAY.replace(hour=5, minute=30, second=15)),
        ("day=2026-01-31", DAY),
        ("2026-01-31-part-00.parquet", DAY),
        ("2026-13-45.parquet", None),
        ("2026-0131.parquet", None),
        ("part-00017.parquet", None),
        ("99992026013199.parquet", None),
    ],
)
def test_date_in(name, when):
    assert date_in(name) == when


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_folder_without_dates_is_one_target(tmp_path):
    touch(tmp_path, "logs/part-1.parquet", "logs/part-0.parquet", "logs/_SUCCESS.parquet")
    (data,) = find_targets([str(tmp_path / "logs")])
    assert (data.name, data.when) == ("logs", None)
    assert [path.name for path in data.paths] == ["part-0.parquet", "part-1.parquet"]


def test_dates_in_file_or_folder_names_make_a_series(tmp_path):
    touch(tmp_path, "a/day=2026-02-01/p0.parquet", "a/day=2026-01-31/p1.parquet", "a/day=2026-01-31/p0.parquet")
    found = find_targets([str(tmp_path / "a")])
    assert [(d.name, len(d.paths)) for d in found] == [("2026-01-31", 2), ("2026-02-01", 1)]
    touch(tmp_path, "b/x-2026-01-31.parquet")
    names = [d.name for d in find_targets([str(tmp_path / "a"), str(tmp_path / "b")])]
    assert len(set(names)) == 3  # one date of two folders: longer names


def test_some_dates_are_refused(tmp_path):
    touch(tmp_path, "2026-01-31.parquet", "late.parquet")
    (data,) = find_targets([str(tmp_path)])
    with pytest.raises(GdscoreError, match="or of none, but 1 have one and '.*late.parquet' has none"):
        data.stream(quiet=True)


def test_dated_files_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path, "log-2026-01-31.npz", "new.npz")
    assert [(d.name, d.when) for d in find_targets(["log-2026-01-31.npz", "new.npz"])] == [
        ("log-2026-01-31", DAY),
        ("new", None),
    ]


def test_a_pattern_of_all_files_keeps_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path, "logs/a.npz", "logs/b.npz")
    assert [d.name for d in find_targets(["logs/*.npz"])] == ["logs/*.npz"]
    assert [d.name for d in find_targets(["logs/a*.npz"])] == ["a*"]


def test_times_within_a_minute_have_names_of_their_own(tmp_path):
    touch(tmp_path, *(f"log-2026-01-31T05-00-{second}.parquet" for second in ("00", "10", "20")))
    names = ["2026-01-31T05:00", "2026-01-31T05:00:10", "2026-01-31T05:00:20"]
    assert [d.name for d in find_targets([str(tmp_path)])] == names
    assert time_text(DAY.replace(second=1)) == "2026-01-31T00:00:01"


def test_folders_of_npz_are_like_those_of_parquet(tmp_path):
    touch(tmp_path, "days/day=2026-02-01/0.npz", "days/day=2026-01-31/0.npz", "days/day=2026-01-31/_x.npz")
    touch(tmp_path, "parts/b.npz", "parts/a.NPZ", "parts/notes.txt")
    days = find_targets([str(tmp_path / "days")])
    assert [(d.name, len(d.paths)) for d in days] == [("2026-01-31", 1), ("2026-02-01", 1)]
    (parts,) = find_targets([str(tmp_path / "parts")])
    assert [path.name for path in parts.paths] == ["a.NPZ", "b.npz"]
    assert one_set(str(tmp_path / "parts")).paths == parts.paths


def test_a_folder_of_both_kinds_is_refused(tmp_path):
    touch(tmp_path, "a/2026-01-31.npz", "a/2026-01-31.parquet")
    (tmp_path / "none").mkdir()
    both, none = find_targets([str(tmp_path / "a"), str(tmp_path / "none")])
    with pytest.raises(GdscoreError, match=r"of one kind in '.*a'"):
        both.stream(quiet=True)
    with pytest.raises(GdscoreError, match=r"in the folder '.*none', but found none"):
        none.stream(quiet=True)
