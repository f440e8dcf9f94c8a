"""The command that draws the picture of README prints the tables of estimates."""

from benchmarks.estimates import summary


def test_tables_are_printed_and_the_picture_is_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(summary, "PICTURE", tmp_path / "estimates.png")
    summary.main()
    assert "| unchanged |" in capsys.readouterr().out
    assert summary.PICTURE.stat().st_size > 10_000
