"""Jobs in processes: all are done, and one that fails does not stop the others."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
from benchmarks.processes import run_jobs


def test_one_job_after_the_other(tmp_path):
    files = [tmp_path / name for name in "abc"]
    run_jobs(Path.touch, [(file,) for file in files], 1)
    assert all(file.exists() for file in files)


def test_a_job_that_fails_is_told_at_the_end(tmp_path, capfd):
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(SystemExit, match="1 of 3 jobs failed"):
        run_jobs(Path.unlink, [(tmp_path / name,) for name in ("a", "missing", "b")], 2)
    assert not list(tmp_path.iterdir())
    assert "FileNotFoundError" in capfd.readouterr().err
