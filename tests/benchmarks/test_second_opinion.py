"""The second opinion of BatchNorm from images to estimates, on real digits."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.benchmarks.small_digits import small_source  # noqa: E402, I001

import second_opinion  # noqa: E402
import sources  # noqa: E402
from gdscore import shifts  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")]


def test_both_ways_of_estimating_and_going_on(tmp_path, monkeypatch, capsys):
    source = small_source(tmp_path, monkeypatch)
    monkeypatch.setitem(sources.SOURCES, source.name, replace(source, natural=(("ucidigits", "train"),)))
    few = shifts.corruptions((2, 6), names=("fog", "contrast", "pixelate", "gaussian_noise"))
    monkeypatch.setattr("gdscore.estimator.core.default_shifts", lambda *_: few)
    file = tmp_path / "out.csv"
    given = [source.name, "--rows", "150", "--output", str(file)]
    second_opinion.main(given)
    first = file.read_text()
    rows = list(csv.DictReader(first.splitlines()))
    mixes = [f"mix-{index}" for index in range(10)]
    assert [row["set"] for row in rows] == [f"{source.name}/{name}" for name in ("unshifted", *mixes, "train")]
    assert any(row["alone"] != row["batchnorm"] for row in rows)
    for row in rows:
        assert float(row["batchnorm"]) <= float(row["alone"])
        assert float(row["batchnorm_low"]) <= float(row["batchnorm"]) <= float(row["batchnorm_high"])
        assert float(row["alone_low"]) <= float(row["alone"]) <= float(row["alone_high"])
        assert float(row["alone"]) == pytest.approx(float(row["truth"]), abs=0.2)
        assert row["command"] == f"benchmarks/second_opinion.py {source.name} --rows 150"
    second_opinion.main(given)
    assert file.read_text() == first
    assert capsys.readouterr().out.count("shifted,     alone:  1 sets") == 4


def test_the_page_says_what_was_measured():
    rows = second_opinion.read(second_opinion.RESULTS)
    assert len(rows) == 3 * (1 + 10 + 2)
    page = (Path(second_opinion.__file__).parents[1] / "docs" / "estimator.md").read_text()
    assert f"<!-- table opinion -->\n{second_opinion.page_table(rows)}\n<!-- end -->" in page
