"""How a history is opened, migrated and copied."""

import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from gdscore import GdscoreError
from gdscore.monitor import Monitor, database
from gdscore.monitor.database import REVISION, migrate
from gdscore.monitor.schema import Base
from tests.monitor.conftest import day, estimate, sqlite_url

MIGRATIONS = Path(database.__file__).parent / "migrations"


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """Two more versions, of which the second fails where it is told to."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "0901_note.py").write_text(
        f"REVISION = {REVISION!r}"
        """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0901", REVISION
def upgrade():
    with op.batch_alter_table("windows", recreate="always" if op.get_bind().dialect.name == "sqlite" else "auto") as t:
        t.add_column(sa.Column("note", sa.Text()))
    op.execute("UPDATE windows SET note = 'moved'")
"""
    )
    (folder / "versions" / "0902_fails.py").write_text(
        """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0902", "0901"
def upgrade():
    op.add_column("models", sa.Column("half", sa.Text()))
    raise RuntimeError("half-way")
"""
    )

    def use(revision):
        monkeypatch.setattr(database, "REVISION", revision)
        monkeypatch.setattr(database.migrate, "__defaults__", (folder,))

    return use


def fill(url):
    monitor = Monitor(url)
    monitor.register("m", rules={"false_alarms_per_year": None, "min_accuracy": 0.8, "keep_rows": "90d"})
    for n in range(3):
        monitor.add_estimate("m", estimate(0.9 if n < 2 else 0.5), day(n))
    monitor.add_labels("m", day(0), correct=90, rows=100)
    return monitor


def contents(monitor):
    return monitor.windows("m").to_dict("records"), monitor.alarms("m").drop(columns="text").to_dict("records")


def test_a_migration_keeps_all_rows_and_what_refers_to_them(url, newer):
    first = fill(url)
    with first.writing() as session:
        session.execute(
            text(
                "INSERT INTO kept_rows (window_id, row_id, prediction, \"right\", segments) VALUES (1, 'a', 0, 0.5, '')"
            )
        )
    before = contents(first)
    first.close()
    newer("0901")
    second = Monitor(url)
    assert str(contents(second)) == str(before)
    with second.reading() as session:
        assert session.execute(text("SELECT DISTINCT note FROM windows")).scalars().all() == ["moved"]
        assert session.execute(text("SELECT count(*) FROM kept_rows")).scalar_one() == 1
        assert session.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == ["0901"]
    # What refers to a window still goes with it, and numbers are still not used again.
    second.delete_window(3)
    second.delete_window(1)
    with second.reading() as session:
        assert session.execute(text("SELECT count(*) FROM kept_rows")).scalar_one() == 0
    second.close()


def test_a_failed_migration_changes_nothing(url, newer, monkeypatch):
    first = fill(url)
    before = contents(first)
    first.close()
    with monkeypatch.context():
        newer("0902")
        with pytest.raises(RuntimeError, match="half-way"):
            Monitor(url)
    monkeypatch.undo()
    again = Monitor(url)
    assert str(contents(again)) == str(before)
    with again.engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == REVISION
        with pytest.raises(Exception, match="half"):
            connection.execute(text("SELECT half FROM models"))
    again.close()


def test_a_newer_history_is_refused_in_one_sentence(url):
    first = fill(url)
    with first.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    first.close()
    with pytest.raises(GdscoreError, match="update gdscore") as caught:
        Monitor(url)
    assert "0999" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_history_of_before_the_first_release_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
    connection.close()
    with pytest.raises(GdscoreError, match="begin a new one"):
        Monitor(sqlite_url(tmp_path))


STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("dump", sorted(STORED.glob("history-*.sql")), ids=lambda path: path.stem)
def test_a_stored_history_of_every_version_is_migrated(dump, tmp_path):
    """``python -m tests.monitor.stored`` writes the one of this version, before the next one changes the tables."""
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.executescript(dump.read_text(encoding="utf-8"))
    connection.close()
    monitor = Monitor(sqlite_url(tmp_path))
    with monitor.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    windows, alarms = monitor.windows("churn"), monitor.alarms("churn")
    assert windows[windows.segment == ""].rows.tolist() == [300] * 5
    assert windows.labelled.notna().sum() == 3
    assert alarms.rule.tolist() == ["accuracy"]
    assert alarms.acknowledged_by.tolist() == ["Ada"]
    assert monitor.estimator("churn") is not None
    assert monitor.add_row_labels("churn", ["4-7"], [1])["added"] == 1
    last = windows.start.max()
    monitor.add_estimate("churn", estimate(0.9), last.to_pydatetime() + (day(1) - day(0)))
    assert len(monitor.windows("churn")) == len(windows) + 1
    monitor.close()


def test_the_newest_version_is_stored():
    assert (STORED / f"history-{REVISION}.sql").exists(), "python -m tests.monitor.stored"


def test_the_tables_are_those_of_the_newest_migration(monitor):
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]
    with monitor.engine.begin() as connection:
        migrate(connection, REVISION)  # nothing to do
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


# -- copies -------------------------------------------------------------------------------------------------


def test_a_copy_made_while_others_write_has_all_that_was_there(tmp_path):
    monitor = fill(sqlite_url(tmp_path))
    ended = threading.Event()

    def write():
        n = 3
        while not ended.is_set():
            monitor.add_estimate("m", estimate(), day(n % 200))
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(monitor.windows("m")) < 8:
            pass
        before = len(monitor.windows("m"))
        monitor.back_up(tmp_path / "copy.db")
    finally:
        ended.set()
        writer.join()
    # The newest windows are in the log beside the file: a copy of the file alone would lack them.
    copy = Monitor(f"sqlite:///{tmp_path}/copy.db")
    assert len(copy.windows("m")) >= before
    copy.close()
    with pytest.raises(GdscoreError, match="name another"):
        monitor.back_up(tmp_path / "copy.db")
    with pytest.raises(GdscoreError, match="no_such"):
        monitor.back_up(tmp_path / "no_such" / "copy.db")
    monitor.close()
    assert sorted(path.suffix for path in tmp_path.glob("*copy*")) in (
        [".db"],
        [".db", ".db-shm", ".db-wal"],
    )
