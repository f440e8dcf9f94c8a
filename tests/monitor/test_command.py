import importlib.util
import json
import socket
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("gdscore.cli.files")

from gdscore import GdscoreError, Outputs
from gdscore.cli.console import ExitCode, describe_error
from gdscore.cli.monitor import monitor
from gdscore.io import write_outputs
from gdscore.monitor import Monitor
from gdscore.monitor.auth import Visitor, find_token
from gdscore.monitor.settings import Settings
from tests.monitor.conftest import estimate, make_outputs, sqlite_url


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("GDSCORE_MONITOR", sqlite_url(tmp_path))
    return lambda *args: CliRunner().invoke(monitor, [str(a) for a in args])


def test_from_registration_to_alarms(run, fitted, tmp_path):
    fitted.save(tmp_path / "m.gdscore")
    (tmp_path / "logs").mkdir()
    for day, noise in ((1, 1.0), (2, 1.0), (3, 3.0)):
        write_outputs(tmp_path / "logs" / f"2026-01-0{day}.parquet", make_outputs(300, noise, day, labels=False))
    assert run("register", "m", tmp_path / "m.gdscore", "--max-drop", "0.3", "--max-width", "0.6").exit_code == 0
    added = run("add", "m", tmp_path / "logs", "--json", tmp_path / "added.json")
    assert added.exit_code == 3, added.output
    assert [w["start"][:10] for w in json.loads((tmp_path / "added.json").read_text())] == [
        "2026-01-01",
        "2026-01-02",
        "2026-01-03",
    ]
    assert run("labels", "m", "2026-01-01", 290, 300).exit_code == 0
    listed = run("windows", "m", "--json", "-")
    assert json.loads(listed.output)[0]["truth"] == 290 / 300
    found = run("alarms", "--json", tmp_path / "alarms.json")
    assert found.exit_code == 3
    assert {a["rule"] for a in json.loads((tmp_path / "alarms.json").read_text())} >= {"accuracy"}
    assert found.output.split()[:3] == ["id", "model", "segment"]  # the id is what acknowledging asks for


def test_labels_by_id_of_files_whose_columns_have_other_names(run, fitted, tmp_path):
    import pandas as pd

    fitted.save(tmp_path / "m.gdscore")
    (tmp_path / "logs").mkdir()
    for day in (1, 2, 3):
        outputs = make_outputs(200, 1.0, day)
        columns = {f"score_{k}": outputs.logits[:, k] for k in range(5)} | {
            f"x_{k}": outputs.features[:, k] for k in range(5)
        }
        frame = pd.DataFrame({"customer": [f"{day}-{k}" for k in range(200)], **columns})
        frame.to_parquet(tmp_path / "logs" / f"2026-01-0{day}.parquet")
    run("register", "m", tmp_path / "m.gdscore", "--keep-rows", "100000d")
    named = ("add", "m", tmp_path / "logs", "--logits", "score_*", "--features", "x_*")
    refused = run(*named)
    assert refused.exit_code == 1
    [line] = [line for line in refused.stderr.splitlines() if "not added" in line]  # not one for each file
    assert "2026-01-01 and 2 more were not added: Expected an id for each row" in line
    assert "--id COLUMN" in line
    assert run(*named, "--id", "customer").exit_code == 0
    (tmp_path / "labels.csv").write_text("id,label\n3-7,1\n")
    assert "1 added, 0 replaced" in run("labels", "m", "--file", tmp_path / "labels.csv").output


def test_a_command_lets_the_tests_learn_again(run):
    run("register", "a", "--reference-rows", "300")
    assert (
        run("learn", "a", "--since", "2026-01-05").output.strip()
        == "Learning from the windows since 2026-01-05 00:00 (UTC)"
    )
    assert "learn_from 2026-01-05" in run("rules", "a").output
    assert run("learn", "b").exit_code != 0


def test_alarms_are_acknowledged_by_their_ids(run, tmp_path):
    history = Monitor(sqlite_url(tmp_path))
    history.register("m", rules={"min_accuracy": 0.8})
    for segment in ("", "fr"):
        history.add_estimate("m", estimate(0.5), "2026-01-01", segment)
    history.close()
    ids = [alarm["id"] for alarm in json.loads(run("alarms", "--json", "-").output)]
    assert isinstance(run("acknowledge", ids[0], 999, "--by", "Bob").exception, GdscoreError)  # all, or none
    done = run("acknowledge", *ids, "--by", "Ada")
    assert done.exit_code == 0, done.output
    assert done.output.count("acknowledged by Ada") == len(ids) > 1
    assert "acknowledged by Ada" in run("acknowledge", ids[0], "--by", "Bob").output  # the first one stays
    assert {a["acknowledged_by"] for a in json.loads(run("alarms", "--json", "-").output)} == {"Ada"}
    assert isinstance(run("acknowledge", 999).exception, GdscoreError)
    assert run("acknowledge").exit_code == 2
    assert "The alarm stays open" in run("acknowledge", "--help").output


def test_rules_stay_are_printed_and_have_a_command(run):
    assert "min_accuracy 0.7" in run("register", "a", "--min-accuracy", "0.7").output
    again = run("register", "a", "--missing-after", "2")
    assert "min_accuracy 0.7" in again.output
    assert "missing_after 2" in again.output
    changed = run("rules", "a", "--remove", "min_accuracy", "--recovery", "5", "--no-labels")
    assert changed.exit_code == 0, changed.output
    shown = run("rules", "a").output.splitlines()
    assert "min_accuracy" not in shown[0]
    assert "recovery 5" in shown[0]
    assert "labels no" in shown[0]
    assert len(shown) == 4
    assert run("rules", "b").exit_code != 0


def test_labels_by_id_come_from_a_file(run, fitted, tmp_path):
    fitted.save(tmp_path / "m.gdscore")
    made = make_outputs(300, 1.0, 1)
    rows = Outputs(logits=made.logits, features=made.features, ids=np.array([f"r{n}" for n in range(300)]))
    write_outputs(tmp_path / "2026-01-01.npz", rows)
    assert "keep_rows 90000d" in run("register", "m", tmp_path / "m.gdscore", "--keep-rows", "90000d").output
    assert run("add", "m", tmp_path / "2026-01-01.npz").exit_code == 0
    both = run("add", "m", tmp_path / "2026-01-01.npz", "--at", "2026-02-01", "--time", "ts")
    assert "--at or --time, but got both" in str(both.exception)
    lines = [f"r{n},{label}" for n, label in enumerate(made.labels.tolist()[:200])]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *lines, "other,1"]))
    done = run("labels", "m", "--file", tmp_path / "labels.csv")
    assert done.exit_code == 0, done.output
    assert "200 added, 0 replaced, 0 same, 1 unknown" in done.output
    (window,) = json.loads(run("windows", "m", "--json", "-").output)
    assert (window["labelled"], window["truth"]) == (200, made[:200].accuracy)
    for wrong in (("2026-01-01", 3), ("2026-01-01", 290, 300, "--file", tmp_path / "labels.csv"), ()):
        assert isinstance(run("labels", "m", *wrong).exception, GdscoreError)


def test_nothing_needs_pandas(run, fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    fitted.save(tmp_path / "m.gdscore")
    write_outputs(tmp_path / "2026-01-01.npz", make_outputs(300, 1.0, 1, labels=False))
    for command in (
        ("register", "m", tmp_path / "m.gdscore"),
        ("add", "m", tmp_path / "2026-01-01.npz"),
        ("labels", "m", "2026-01-01", 290, 300),
        ("windows", "m"),
        ("alarms",),
    ):
        done = run(*command)
        assert done.exit_code == 0, (command, done.output, done.exception)


def raise_alarm(tmp_path):
    history = Monitor(sqlite_url(tmp_path))
    history.add_estimate("m", estimate(0.5), datetime.now(UTC) - timedelta(days=2))
    history.close()


def test_alarms_run_a_command(run, tmp_path):
    assert run("register", "m", "--min-accuracy", "0.8").exit_code == 0
    script = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    command = f'{sys.executable} -c "{script}" "{tmp_path}/got it"'
    assert run("alarms", "--run", command).exit_code == 0  # from now on it is told
    raise_alarm(tmp_path)
    done = run("alarms", "--run", command)
    assert done.exit_code == 3
    assert json.loads((tmp_path / "got it").read_text())["event"] == "alarm.begin"


def test_notices_that_fail_are_a_line_each(run, tmp_path):
    assert run("register", "m", "--min-accuracy", "0.8").exit_code == 0
    assert run("alarms", "--run", "false").exit_code == 0
    raise_alarm(tmp_path)
    done = run("alarms", "--run", "false")
    assert done.exit_code == 3
    assert all(line.startswith("gdscore: a notice of 'm' was not delivered") for line in done.stderr.splitlines())
    assert done.stderr


def test_mail_takes_its_server_from_the_environment(run, monkeypatch):
    assert "GDSCORE_SMTP_HOST" in str(run("alarms", "--mail", "a@example.org").exception)
    for name, value in {"HOST": "mail.example.org", "FROM": "m@example.org", "PASSWORD": "s3cret", "USER": "m"}.items():
        monkeypatch.setenv(f"GDSCORE_SMTP_{name}", value)
    (made,) = Settings.read(mail="a@example.org, b@example.org").notifiers()
    assert (made.host, made.port, made.tls, made.to) == (
        "mail.example.org",
        587,
        True,
        ["a@example.org", "b@example.org"],
    )
    assert "s3cret" not in repr(made)
    monkeypatch.setenv("GDSCORE_SMTP_PORT", "25")
    with pytest.raises(GdscoreError, match="clear"):
        Settings.read(mail="a@example.org").notifiers()


def test_tokens(run, tmp_path):
    token = run("token", "grafana").output.strip()
    history = Monitor(sqlite_url(tmp_path))
    assert find_token(history, token) == Visitor("grafana", "read")
    assert run("token", "grafana", "--revoke").exit_code == 0
    assert find_token(history, token) is None
    history.close()


def test_a_target_that_fails_does_not_stop_the_others(run, fitted, tmp_path):
    fitted.save(tmp_path / "m.gdscore")
    (tmp_path / "2026-01-01.parquet").write_bytes(b"PAR1 nonsense")
    write_outputs(tmp_path / "2026-01-02.parquet", make_outputs(300, 1.0, 1, labels=False))
    assert run("register", "m", tmp_path / "m.gdscore").exit_code == 0
    done = run("add", "m", tmp_path / "2026-01-01.parquet", tmp_path / "2026-01-02.parquet", "--json", "-")
    assert done.exit_code == 1
    assert [w["start"][:10] for w in json.loads(done.stdout)] == ["2026-01-02"]
    assert "2026-01-01 was not added" in done.stderr


def test_open_alarms_are_told_with_the_exit_code(run, fitted, tmp_path):
    fitted.save(tmp_path / "m.gdscore")
    write_outputs(tmp_path / "2026-01-01.parquet", make_outputs(300, 3.0, 1, labels=False))
    assert run("register", "m", tmp_path / "m.gdscore", "--min-accuracy", "0.999").exit_code == 0
    done = run("add", "m", tmp_path / "2026-01-01.parquet")
    assert done.exit_code == 3
    assert "alarm: " in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("add", "m", "a.npz", "b.npz", "--at", "2026-01-01"),  # would be two windows of the same time
        ("add", "nobody", "a.npz", "--at", "2026-01-01"),
        ("windows", "nobody"),
        ("alarms", "nobody"),
        ("alarms", "--run", '"unfinished'),
        ("alarms", "--run", " "),
        ("serve", "--keep", "a year"),
        ("serve", "--host", "256.0.0.1"),
    ],
)
def test_commands_that_are_refused(run, fitted, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in ("a.npz", "b.npz"):
        write_outputs(name, make_outputs(30, 1.0, 1, labels=False))
    fitted.save("m.gdscore")
    assert run("register", "m", "m.gdscore").exit_code == 0
    done = run(*command)
    assert isinstance(done.exception, GdscoreError), done.output
    assert json.loads(run("windows", "--json", "-").stdout) == []


def test_a_port_that_is_taken_is_told(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--port", taken.getsockname()[1])
    assert isinstance(done.exception, GdscoreError)
    assert "Serving" not in done.output


def test_connections_are_limited_and_answers_are_not_held_back(run, monkeypatch):
    import uvicorn

    served = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: served.append((server.config, sockets)))
    before = sys.getswitchinterval()
    assert run("serve", "--port", 0).exit_code == 0
    sys.setswitchinterval(before)
    ((config, (listener,)),) = served
    assert config.limit_concurrency == 500
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    listener.close()


def test_a_database_that_fails_is_no_wrong_usage(run, tmp_path, monkeypatch):
    (tmp_path / "history.db").write_bytes(b"damaged " * 1000)
    for args in (("windows", "m"), ("alarms",), ("register", "n")):
        text, code = describe_error(run(*args).exception)
        assert (code, "not a database" in text) == (ExitCode.FAILED, True), (args, text)
    monkeypatch.setenv("GDSCORE_MONITOR", "postgresql://u@127.0.0.1:1/x?connect_timeout=2")
    assert describe_error(run("windows").exception)[1] is ExitCode.FAILED
    assert describe_error(run("windows", "--database", "mysql://x/y").exception)[1] is ExitCode.USAGE


def test_without_its_extra_the_command_says_what_to_install(run, monkeypatch):
    found = importlib.util.find_spec
    absent = ("fastapi", "alembic")
    monkeypatch.setattr("gdscore.cli.monitor.find_spec", lambda name: None if name in absent else found(name))
    for args in (("serve",), ("windows",), ("demo",), ("token", "x")):
        text, code = describe_error(run(*args).exception)
        assert text == "Expected alembic, fastapi to be installed, but they are not: pip install 'gdscore[monitor]'"
        assert code is ExitCode.USAGE


def test_backup_tokens_snooze_retire_and_delete(run, tmp_path):
    assert run("register", "m", "--min-accuracy", "0.8", "--min-recall", "fraud=0.7").exit_code == 0
    assert run("rules", "m", "--segment", "country=fr", "--min-accuracy", "0.6").exit_code == 0
    assert run("rules", "m", "--segment", "country=fr", "--max-drop", "0.1").exit_code == 0
    printed = run("rules", "m", "--min-recall", "theft=0.5", "--no-labels").output
    assert "min_recall {fraud: 0.7, theft: 0.5}" in printed
    assert "labels no" in printed
    assert "segments {country=fr: {min_accuracy: 0.6, max_drop: 0.1}}" in printed
    assert "CLASS=SHARE" in str(run("rules", "m", "--min-f1", "fraud").exception)
    raise_alarm(tmp_path)
    assert run("backup", tmp_path / "copy.db").exit_code == 0
    assert "copy.db" in str(run("backup", tmp_path / "copy.db").exception)
    copy = run("windows", "m", "--database", f"sqlite:///{tmp_path}/copy.db", "--json", "-")
    (window,) = json.loads(copy.stdout)
    assert run("token", "job", "--role", "write", "--model", "m", "--expires", "90d").exit_code == 0
    assert "unknown model" in str(run("token", "other", "--model", "unknown model").exception)
    listed = run("tokens").output
    assert "job" in listed
    assert "gds_" not in listed
    assert "silent until 2100" in run("snooze", 1, "2100-01-01").output
    assert "not silent" in run("snooze", 1, "now").output
    assert run("retire", "m").exit_code == 0
    assert run("alarms", "m").exit_code == 0
    assert "but the window 1" in str(run("delete", "n", "--window", window["id"], "--yes").exception)
    assert run("delete", "m", "--window", window["id"], "--yes").exit_code == 0
    assert json.loads(run("windows", "m", "--json", "-").stdout) == []
    assert CliRunner().invoke(monitor, ["delete", "m"], input="n\n").exit_code == 1
    assert run("delete", "m", "--yes").exit_code == 0
    assert "no model is registered" in str(run("windows", "m").exception)
