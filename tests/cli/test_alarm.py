"""Alarms on the command line: windows, exit codes, reasons, and the webhook."""

from __future__ import annotations

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import gdscore
from gdscore.io import write_outputs
from tests.cli.conftest import UNLABELLED, refused
from tests.data import made

pytestmark = pytest.mark.usefixtures("folder")


def code_and_json(gd, *args) -> tuple[int, dict]:
    result = gd("estimate", "m.gdscore", *args, "--json", "-")
    return result.exit_code, json.loads(result.stdout)


def test_exit_code_at_and_below_the_floor(gd, by_rows):
    accuracy = 160 / 400
    assert code_and_json(gd, "new.npz", "--min-accuracy", str(accuracy))[0] == 0
    result = gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", str(accuracy + 1e-6), "--json", "out.json", "-q")
    line = refused(result, code=3)
    with open("out.json") as file:  # noqa: PTH123
        found = json.load(file)
    assert (found["status"], found["exit_code"], found["alarms"]) == ("alarm", 3, ["new"])
    assert found["reason"] in line


def test_what_could_not_be_written_is_not_called_written(gd, by_rows, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("gdscore.report.write_report", full)
    result = gd("estimate", "m.gdscore", "new.npz", "--html", "report.html", "--json", "out.json")
    assert result.exit_code == 1
    assert "Written: out.json" in result.stdout
    assert "Written: report.html" not in result.stdout
    assert "No space left on device" in result.stderr


def test_drop_from_the_reference(gd, by_rows):
    drop = 0.9 - 160 / 400
    assert code_and_json(gd, "new.npz", "--max-drop", str(drop + 1e-6))[0] == 0
    code, found = code_and_json(gd, "new.npz", "--max-drop", str(drop - 1e-6))
    assert (code, found["rule"]["max_drop"]) == (3, drop - 1e-6)


@pytest.fixture
def by_rows(monkeypatch):
    """Estimates that follow from the number of rows alone: 300 rows are 75 % accurate, 5 points up and down."""

    def fixed(self, state):
        n = state.n_rows
        return gdscore.Estimate(n / 400, n / 400 - 0.05, n / 400 + 0.05, 0.9, 10 * n, 0.9)

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", fixed)


@pytest.mark.usefixtures("by_rows")
@pytest.mark.parametrize(("place", "codes"), [(-0.05, (0, 0, 3)), (0, (0, 3, 3)), (0.05, (3, 3, 3))])
def test_alarm_on_an_end_of_the_interval(gd, place, codes):
    """Just above the low end only `low` alarms, just above the estimate `estimate` too, above the high end all do."""
    floor = 160 / 400 + place + 1e-6
    for on, code in zip(("high", "estimate", "low"), codes, strict=True):
        found = code_and_json(gd, "new.npz", "--min-accuracy", str(floor), "--alarm-on", on)
        assert (found[0], found[1]["rule"]["alarm_on"]) == (code, on)


@pytest.fixture
def week(folder, by_rows):
    """A good day, a bad one, and two good ones."""
    (folder / "week").mkdir()
    for day, rows in enumerate((300, 100, 300, 300), 1):
        write_outputs(folder / "week" / f"2026-03-0{day}.parquet", made(rows, keep=UNLABELLED))


def test_an_old_bad_day_does_not_alarm_for_ever(gd, week):
    rule = ("--min-accuracy", "0.5")
    assert code_and_json(gd, "week", *rule)[0] == 0
    assert code_and_json(gd, "week", *rule, "--last", "2")[0] == 0
    for more in (("--last", "3"), ("--last", "99"), ("--since", "2026-03-02"), ("--since", "20260101")):
        code, found = code_and_json(gd, "week", *rule, *more)
        assert (code, found["alarms"]) == (3, ["2026-03-02"])
    assert code_and_json(gd, "week", *rule, "--since", "2026-03-03T00:00")[0] == 0
    code, found = code_and_json(gd, "week", *rule, "--since", "2030-01-01")
    assert (code, found["checked"], found["status"], found["not_enough_data"]) == (4, [], "not enough data", [])
    result = gd("estimate", "m.gdscore", "week", *rule, "--since", "2030-01-01", "-q")
    assert "nothing was checked, as no target has a date from 2030-01-01 on" in refused(result, code=4)


def test_the_newest_day_failing_is_no_pass_of_the_day_before(gd, week, folder):
    (folder / "week" / "2026-03-05.parquet").write_bytes(b"damaged")
    code, found = code_and_json(gd, "week", "--min-accuracy", "0.01")
    assert (code, found["checked"], found["not_estimated"]) == (1, ["2026-03-05"], ["2026-03-05"])


def test_an_old_damaged_day_is_named_and_does_not_fail_for_ever(gd, week, folder):
    (folder / "week" / "2026-03-02.parquet").write_bytes(b"damaged")
    result = gd("estimate", "m.gdscore", "week", "--min-accuracy", "0.01", "--json", "out.json", "-q")
    assert "2026-03-02" in refused(result, code=0)
    assert code_and_json(gd, "week")[0] == 1


def test_targets_without_dates_are_all_checked(gd, week):
    found = code_and_json(gd, "new.npz", "other.npz", "week", "--min-accuracy", "1")[1]
    assert found["checked"] == ["new", "other", "2026-03-04"]


def test_a_critical_warning_is_an_alarm(gd, by_rows, monkeypatch):
    rule = ("--min-accuracy", str(160 / 400 - 0.01))
    assert code_and_json(gd, "new.npz", *rule)[0] == 0

    def warned(self, stream, real=gdscore.AccuracyEstimator.estimate):
        warning = gdscore.estimator.EstimateWarning("collapse", "critical", "one class only")
        return dataclasses.replace(real(self, stream), warnings=[warning])

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", warned)
    result = gd("estimate", "m.gdscore", "new.npz", *rule, "-q")
    assert "collapse" in refused(result, code=3)
    code, found = code_and_json(gd, "new.npz", *rule)
    assert (code, found["status"], found["alarms"]) == (3, "alarm", ["new"])


def test_not_enough_data(gd, by_rows, monkeypatch):
    rule = ("--min-accuracy", str(160 / 400 - 0.01))

    def few(self, stream, real=gdscore.AccuracyEstimator.estimate):
        return dataclasses.replace(real(self, stream), n_rows=40)

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", few)
    assert "40 rows are fewer than 200" in refused(gd("estimate", "m.gdscore", "new.npz", *rule, "-q"), code=4)
    code, found = code_and_json(gd, "new.npz", *rule)
    assert (code, found["status"], found["not_enough_data"]) == (4, "not enough data", ["new"])
    assert code_and_json(gd, "new.npz", "--min-accuracy", str(160 / 400 - 0.06))[0] == 0
    assert code_and_json(gd, "new.npz", "missing.npz", *rule)[0] == 1  # an error takes precedence
    assert code_and_json(gd, "new.npz", "--min-accuracy", "1")[0] == 3  # and so does an alarm


def test_an_estimate_that_is_not_finite_never_passes(gd, monkeypatch):
    """An estimate cannot be made with NaN; were one made all the same, it would not pass."""

    def broken(self, stream, real=gdscore.AccuracyEstimator.estimate):
        found = real(self, stream)
        for name in ("accuracy", "low", "high"):
            object.__setattr__(found, name, float("nan"))
        return found

    monkeypatch.setattr(gdscore.AccuracyEstimator, "estimate", broken)
    for on in ("low", "estimate", "high"):
        args = ("estimate", "m.gdscore", "new.npz", "--min-accuracy", "0", "--alarm-on", on)
        assert gd(*args).exit_code == 3
        assert gd(*args, "--json", "-").exit_code == 3


# -- the webhook ----------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    """A server of this machine that keeps what is posted; its answer and headers can be set."""
    posts: list[tuple[str, dict]] = []

    class Handler(BaseHTTPRequestHandler):
        answer, headers_sent = 200, ()

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.path, json.loads(body)))
            self.send_response(type(self).answer)
            for header in type(self).headers_sent:
                self.send_header(*header)
            self.end_headers()

        def do_GET(self):
            posts.append((self.path, {}))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        running.posts, running.handler = posts, Handler
        running.url = f"http://127.0.0.1:{running.server_port}/secret-token"
        yield running
        running.shutdown()
        thread.join()


def test_webhook_gets_the_json_where_not_all_is_fine(gd, server):
    assert code_and_json(gd, "new.npz", "--min-accuracy", "0", "--webhook", server.url)[0] == 0
    assert server.posts == []
    code, found = code_and_json(gd, "new.npz", "--min-accuracy", "1", "--webhook", server.url)
    assert code == 3
    assert server.posts == [("/secret-token", found)]
    assert code_and_json(gd, "missing.npz", "--webhook", server.url)[0] == 1
    assert server.posts[1][1]["status"] == "error"


def test_webhook_follows_no_redirect(gd, server):
    server.handler.answer, server.handler.headers_sent = 302, [("Location", "/elsewhere")]
    result = gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", "1", "--webhook", server.url, "-q")
    assert result.exit_code == 3
    assert [path for path, _ in server.posts] == ["/secret-token"]
    assert "302" in result.stderr
    assert "secret-token" not in result.stderr


@pytest.mark.parametrize("answer", [404, 500])
def test_webhook_that_fails_is_told_and_hides_no_alarm(gd, server, answer):
    server.handler.answer = answer
    args = ("estimate", "m.gdscore", "new.npz", "--webhook", server.url, "-q")
    result = gd(*args, "--min-accuracy", "1")
    assert (result.exit_code, result.stderr.count("\n")) == (3, 2)
    assert str(answer) in result.stderr


def test_webhook_without_a_server(gd):
    url = "http://127.0.0.1:9/secret-token"
    result = gd("estimate", "m.gdscore", "new.npz", "--min-accuracy", "1", "--webhook", url, "-q")
    assert (result.exit_code, result.stderr.count("\n")) == (3, 2)
    assert "secret-token" not in result.stderr
