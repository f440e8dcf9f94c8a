import contextlib
import hashlib
import hmac
import json
import socketserver
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from sqlalchemy import update

from gdscore import GdscoreError, Outputs
from gdscore.monitor import Command, Email, Monitor, Rules, Webhook, alarms, notify
from gdscore.monitor.alarms import Outbox
from gdscore.monitor.database import utc_now
from gdscore.monitor.schema import Notice, Target
from tests.monitor.conftest import estimate, make_outputs, sqlite_url
from tests.monitor.test_rules import day, feed


@contextmanager
def receiver(answers):
    """Server that answers with these codes in turn, and keeps what was posted."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((dict(self.headers), body))
            self.send_response(answers[min(len(posted), len(answers)) - 1])
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PER_WINDOW = Rules(None, min_accuracy=0.8, notify_within=None)


@pytest.fixture
def at_once(monkeypatch):
    """A notice that failed is due again at once."""
    monkeypatch.setattr(alarms, "RETRY", timedelta(0))


def drop(url, *targets, name="m", rules=PER_WINDOW):
    """History with an open alarm, whose notices were sent."""
    monitor = Monitor(url, notify=targets)
    monitor.register(name, rules=rules)
    monitor.add_estimate(name, estimate(0.5), day(0))
    return monitor


def events(posted):
    return [json.loads(body)["event"] for _, body in posted]


def test_webhook_is_signed(url):
    with receiver([200]) as (hook, posted):
        monitor = Monitor(url, notify=[Webhook(hook, "s3cret")])
        feed(monitor, [0.5, 0.9, 0.9, 0.9], rules=PER_WINDOW)
        monitor.deliver()
        monitor.close()
    assert events(posted) == ["alarm.begin", "alarm.end"]
    for headers, body in posted:
        expected = "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
        assert headers["X-Gdscore-Signature"] == expected
        assert b"s3cret" not in body


def test_a_notice_that_failed_is_sent_later_and_once(url, at_once):
    with receiver([500, 200]) as (hook, posted):
        monitor = Monitor(url)
        Outbox(monitor).register_targets({"other": "x"})
        monitor.close()
        monitor = drop(url, Webhook(hook))
        for _ in range(100):
            monitor.delivery.start()
            if len(posted) > 1:
                break
            time.sleep(0.02)
        problem = monitor.delivery.problems()[0]
        assert "not delivered" in problem
        assert "/hook" not in problem
        monitor.deliver()
        monitor.deliver()
        monitor.close()
    assert events(posted) == ["alarm.begin"] * 2


def test_waits_between_attempts_grow(local):
    local.register("m", rules=PER_WINDOW)
    (target,) = Outbox(local).register_targets({"a": "webhook x"}).values()
    local.add_estimate("m", estimate(0.5), day(0))
    waits = []
    for _ in range(9):
        with local.writing() as session:
            session.execute(update(Notice).values(next_try=utc_now()))
            session.execute(update(Target).values(waits_until=None))
        due = Outbox(local).due(target)
        Outbox(local).note_attempt(due)
        Outbox(local).note_result(target, due, "it is down")
        waits.append(round(Outbox(local).seconds_to_next(target)))
    assert waits[:5] == [5, 20, 80, 320, 1280]
    assert waits[5:] == [3600] * 4
    with local.writing() as session:
        session.execute(update(Notice).values(created_at=utc_now() - timedelta(days=8), next_try=utc_now()))
        session.execute(update(Target).values(waits_until=None))
    Outbox(local).note_result(target, Outbox(local).due(target), "it is down")
    assert Outbox(local).seconds_to_next(target) is None  # given up


def test_a_target_that_is_added_later_gets_no_old_alarms(url):
    with receiver([200]) as (first, _), receiver([200]) as (second, posted):
        monitor = Monitor(url, notify=[Webhook(first)])
        for n in range(60):
            monitor.register(f"m{n}", rules=Rules(None, min_accuracy=0.8, notify_within=None, recovery=1))
            monitor.add_estimate(f"m{n}", estimate(0.5), day(0))
        monitor.deliver()
        monitor.close()
        monitor = Monitor(url, notify=[Webhook(first), Webhook(second)])
        monitor.check()
        monitor.add_estimate("m0", estimate(0.9), day(1))  # its end is no news to one that knows of no beginning
        monitor.add_estimate("m1", estimate(0.9), day(1))
        monitor.add_estimate("m1", estimate(0.4), day(2))
        monitor.deliver()
        monitor.close()
    assert [(json.loads(b)["event"], json.loads(b)["alarms"][0]["model"]) for _, b in posted] == [("alarm.begin", "m1")]


def test_an_old_alarm_that_goes_on_is_no_news_to_a_target_that_was_added_meanwhile(url):
    """Rolled back within a transaction or two: the end was told to nobody, and the alarm is the one of before."""
    with receiver([200]) as (first, _), receiver([200]) as (second, posted):
        monitor = Monitor(url, notify=[Webhook(first)])
        monitor.register("m", version="1", rules=Rules(None, min_accuracy=0.8, notify_within=None))
        monitor.add_estimate("m", estimate(0.5), day(0))
        monitor.deliver()
        monitor.close()
        monitor = Monitor(url, notify=[Webhook(first), Webhook(second)])
        monitor.delivery.stop(5)  # nothing is sent before the version is registered again
        for version in ("2", "1"):
            monitor.register("m", version=version)
        monitor.close()
        monitor = Monitor(url, notify=[Webhook(first), Webhook(second)])
        monitor.deliver()
        monitor.close()
    assert posted == []


def test_after_a_restart_a_good_target_gets_nothing_twice_because_of_a_dead_one(url, at_once):
    with receiver([200]) as (good, posted), receiver([500, 500, 500, 200]) as (bad, refused):
        rules = Rules(None, min_accuracy=0.8, recovery=1, notify_within=None)
        drop(url, Webhook(good), Webhook(bad), rules=rules).close()
        for _ in range(100):
            monitor = Monitor(url, notify=[Webhook(good), Webhook(bad)])
            monitor.delivery.deliver(5)
            monitor.close()
            if len(refused) > 3:
                break
        monitor = Monitor(url, notify=[Webhook(good), Webhook(bad)])
        monitor.add_estimate("m", estimate(0.9), day(1))
        monitor.deliver()
        monitor.close()
    assert events(posted) == ["alarm.begin", "alarm.end"]
    assert events(refused)[-2:] == ["alarm.begin", "alarm.end"]


def test_of_two_processes_one_sends(url):
    with receiver([200]) as (hook, posted):
        monitors = [Monitor(url, notify=[Webhook(hook)]) for _ in range(2)]
        rules = Rules(None, min_accuracy=0.8, recovery=1, notify_within=None)
        monitors[0].register("m", rules=rules)
        for n in range(20):
            monitors[n % 2].add_estimate("m", estimate(0.5 if n % 2 == 0 else 0.9), day(n))
            threads = [threading.Thread(target=m.delivery.deliver, args=(20,)) for m in monitors]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        monitors[0].deliver()
        for monitor in monitors:
            monitor.close()
    begun = sum(event == "alarm.begin" for event in events(posted))
    counts = [json.loads(body)["count"] for _, body in posted]
    assert (begun, sum(counts)) == (len(counts) - begun, 20)


def test_what_a_killed_process_was_sending_is_sent_by_the_next(url):
    """It may have arrived: it is sent again rather than lost, once its time to send has passed."""
    monitor = Monitor(url)
    monitor.register("m", rules=PER_WINDOW)
    with receiver([200]) as (hook, posted):
        (target,) = Outbox(monitor).register_targets({notify._digest(Webhook(hook)): "webhook"}).values()
        monitor.add_estimate("m", estimate(0.5), day(0))
        assert Outbox(monitor).lease(target, "killed", 60)
        Outbox(monitor).note_attempt(Outbox(monitor).due(target))
        monitor.close()
        monitor = Monitor(url, notify=[Webhook(hook)])
        monitor.deliver()
        assert posted == []
        with monitor.writing() as session:
            session.execute(update(Target).values(leased_until=utc_now() - timedelta(seconds=1)))
        monitor.deliver()
        monitor.close()
    assert events(posted) == ["alarm.begin"]


def test_adding_waits_for_no_target(url):
    release = threading.Event()

    @dataclass
    class Stuck:
        def send(self, body):
            release.wait(30)

    monitor = drop(url, Stuck())
    monitor.add_labels("m", day(0), correct=1, rows=10)
    assert not release.is_set()
    release.set()
    monitor.deliver()
    monitor.close()


def test_windows_of_the_past_send_no_notices(url):
    now = datetime.now(UTC)
    with receiver([200]) as (hook, posted):
        monitor = Monitor(url, notify=[Webhook(hook)])
        monitor.register("m", rules=Rules(None, min_accuracy=0.8, recovery=1))
        for days, accuracy in ((4900, 0.5), (4000, 0.9), (10, 0.5), (9, 0.9)):
            monitor.add_estimate("m", estimate(accuracy), now - timedelta(days=days))
        assert len(monitor.alarms()) == 2
        monitor.add_estimate("m", estimate(0.5), now - timedelta(days=2))
        monitor.deliver()
        monitor.close()
    (body,) = [json.loads(body) for _, body in posted]
    assert body["alarms"][0]["began"][:10] == (now - timedelta(days=2)).date().isoformat()


def test_notices_have_a_link(url):
    with receiver([200]) as (hook, posted):
        monitor = Monitor(url, notify=[Webhook(hook)], public_url="https://monitor.example.org/")
        alarm = int(feed(monitor, [0.5], rules=PER_WINDOW).id[0])
        monitor.deliver()
        monitor.close()
    body = json.loads(posted[0][1])
    assert body["alarms"][0]["link"] == f"https://monitor.example.org/alarms/{alarm}"
    assert body["text"].endswith(body["alarms"][0]["link"])


def test_a_target_that_is_down_holds_up_no_look(url, monkeypatch):
    monkeypatch.setattr(alarms, "RETRY", timedelta(hours=1))  # however slow this machine is
    with receiver([500] * 3 + [200]) as (hook, posted):
        monitor = Monitor(url, notify=[Webhook(hook)])
        for n in range(6):
            monitor.register(f"m{n}", rules=PER_WINDOW)
            monitor.add_estimate(f"m{n}", estimate(0.5), day(0))
            monitor.delivery.deliver(5)
        monitor.check(now=day(1))
        assert len(posted) == 1  # the others wait with it
        monitor.close()


def test_a_target_that_raises_neither_stops_others_nor_loses_the_window(url):
    with receiver([200]) as (hook, posted):
        broken = Email("127.0.0.1", "m@example.org", ["a@example.org\nBcc: b@example.org"])
        monitor = drop(url, broken, Webhook(hook))
        for _ in range(200):
            if posted and (problems := monitor.delivery.problems()):
                break
            time.sleep(0.02)
        assert "raised ValueError" in problems[0]
        assert len(monitor.windows("m")) == 1
        monitor.close()
    assert len(posted) == 1


def test_command_gets_the_notice_and_no_shell(tmp_path):
    script = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    command = Command([sys.executable, "-c", script, str(tmp_path / "got; touch x")])
    assert command.send({"text": "it fell"}) is None
    assert json.loads((tmp_path / "got; touch x").read_text()) == {"text": "it fell"}
    assert "ended with 3" in Command([sys.executable, "-c", "exit(3)"]).send({})
    assert "failed" in Command([str(tmp_path / "none")]).send({})


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 hi\r\n")
        data = False
        for line in self.rfile:
            self.server.lines.append(line)
            if data:
                if line == b".\r\n":
                    data = False
                    self.wfile.write(b"250 ok\r\n")
                continue
            word = line[:4].upper()
            data = word == b"DATA"
            self.wfile.write(b"354 go\r\n" if data else b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


def test_email_has_the_message_and_no_injected_header():
    with socketserver.TCPServer(("127.0.0.1", 0), _Smtp) as server:
        server.lines = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        mail = Email("127.0.0.1", "a@example.org", ["b@example.org"], port=server.server_address[1], tls=False)
        failed = mail.send({"text": "it fell\r\nBcc: evil@example.org", "alarms": [{"id": 1}]})
        server.shutdown()
        thread.join()
    assert failed is None
    head = b"".join(server.lines).partition(b"\r\n\r\n")[0]
    assert b"it fell" in head
    assert b"\r\nBcc" not in head
    assert "failed" in Email("127.0.0.1", "a@b", ["c@d"], port=1).send({"text": "", "alarms": []})
    with pytest.raises(GdscoreError, match="clear"):
        Email("h", "a@b", ["c@d"], password="x", tls=False)


def test_a_bad_window_with_segments_is_one_notice_and_so_is_its_end(tmp_path, fitted):
    days = 4
    outputs = make_outputs(300 * days, 1.0, 1, labels=False)
    logits = np.asarray(outputs.logits).copy()
    logits[:300] = 0.0  # a first day of uniform predictions, and then good ones
    times = np.repeat(np.datetime64("2026-01-01") + np.arange(days), 300)
    country = np.array(["de", "fr"])[np.arange(300 * days) % 2]
    with receiver([200]) as (url, posted):
        monitor = Monitor(sqlite_url(tmp_path), notify=[Webhook(url)])
        monitor.register("m", fitted, rules=Rules(None, min_accuracy=0.7, min_rows=50, notify_within=None))
        for n in range(days):
            rows = times == np.datetime64(day(n).replace(tzinfo=None))
            window = Outputs(logits=logits[rows], features=np.asarray(outputs.features)[rows])
            monitor.add("m", window, times[rows], {"country": country[rows].tolist()})
            monitor.deliver()
        monitor.close()
    begun, ended = (json.loads(body) for _, body in posted)
    assert (begun["event"], ended["event"]) == ("alarm.begin", "alarm.end")
    found = {(a["segment"], a["rule"]) for a in begun["alarms"]}
    assert found >= {(segment, "accuracy") for segment in ("", "country=de", "country=fr")}
    assert {(a["segment"], a["rule"]) for a in ended["alarms"]} == found
    assert begun["text"].startswith(begun["alarms"][0]["message"])
    assert begun["alarms"][0]["segment"] == ""
    assert f"; and {len(found) - 1} alarms more: " in begun["text"]
    assert "accuracy (country=de, country=fr)" in begun["text"]
    assert ended["text"].startswith("ended: m: ")


def test_a_notice_of_many_segments_names_some_and_counts_all():
    alarm = {"message": "m: it fell", "text": "", "rule": "accuracy", "withdrawn": False}
    made = notify.notice([{**alarm, "segment": f"s{n}"} for n in range(1000)], "begin")
    assert made["text"] == (
        "m: it fell; and 999 alarms more: accuracy (s1, s2, s3, s4, s5, s6, s7, s8, s9, s10 and 989 more)"
    )
    assert (len(made["alarms"]), made["count"]) == (notify.MOST_ALARMS, 1000)


def test_a_notice_tells_withdrawn_alarms_from_ended_ones():
    alarm = {"message": "m: it fell", "text": "late rows", "rule": "accuracy", "segment": "a", "withdrawn": True}
    ended = [alarm | {"segment": segment, "withdrawn": False} for segment in "bc"]
    text = notify.notice([alarm, *ended, alarm | {"segment": "d"}], "end")["text"]
    assert text == "withdrawn: m: it fell (late rows); and 3 alarms more: accuracy, ended (b, c), accuracy (d)"


def test_the_end_of_a_withdrawn_alarm_is_told(tmp_path):
    with receiver([200]) as (url, posted):
        monitor = Monitor(sqlite_url(tmp_path), notify=[Webhook(url)])
        feed(monitor, [0.9, 0.3], rules=PER_WINDOW)
        monitor.deliver()
        monitor.add_estimate("m", estimate(0.9), day(1), replace=True)
        monitor.deliver()
        monitor.close()
    notices = [json.loads(body) for _, body in posted]
    assert [t["event"] for t in notices] == ["alarm.begin", "alarm.end"]
    assert notices[1]["alarms"][0]["withdrawn"]
    assert notices[1]["text"].startswith("withdrawn: ")


def test_an_alarm_that_begins_and_ends_at_once_is_told_twice(tmp_path, fitted):
    outputs = make_outputs(200 * 6, 1.0, 1, labels=False)
    logits = np.asarray(outputs.logits).copy()
    logits[200:400] = 0.0  # one window of uniform predictions
    times = np.repeat(np.datetime64("2026-01-01") + np.arange(6), 200)
    with receiver([200]) as (url, posted):
        monitor = Monitor(sqlite_url(tmp_path), notify=[Webhook(url)])
        monitor.register("m", fitted, rules=Rules(None, warnings=(), min_accuracy=0.7, notify_within=None))
        monitor.add("m", Outputs(logits=logits, features=outputs.features), times)
        monitor.deliver()
        monitor.close()
    assert [json.loads(body)["event"] for _, body in posted] == ["alarm.begin", "alarm.end"]


@contextmanager
def dripping():
    """Server that sends one byte of its answer every tenth of a second until a minute is over, which no test waits for."""
    reached, ended, waited_for = (threading.Event() for _ in range(3))

    class Drip(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            reached.set()
            with contextlib.suppress(OSError):
                self.request.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                for _ in range(600):
                    if ended.wait(0.1):
                        return
                    self.request.sendall(b"x")
                waited_for.set()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", reached
        ended.set()
        server.shutdown()
        thread.join()
        assert not waited_for.is_set()


def test_a_post_has_one_deadline_however_slowly_the_answer_drips(monkeypatch):
    monkeypatch.setattr(notify, "POST_TIMEOUT_S", 0.5)
    with dripping() as (url, _), pytest.raises(GdscoreError, match=r"did not answer within 0\.5 seconds"):
        notify.post_json(url, {})


def test_a_mail_server_that_drips_is_left_at_the_deadline(monkeypatch):
    monkeypatch.setattr(notify, "TIMEOUT_S", 0.5)
    with dripping() as (url, _):
        mail = Email("127.0.0.1", "a@b", ["c@d"], port=int(url.rstrip("/").rpartition(":")[2]), tls=False)
        assert "failed" in mail.send({"text": "", "alarms": []})


def test_a_slow_target_delays_no_other(tmp_path):
    release = threading.Event()

    @dataclass
    class Slow:
        def send(self, body):
            release.wait(30)

    with receiver([200]) as (url, posted):
        monitor = Monitor(sqlite_url(tmp_path), notify=[Slow(), Webhook(url)])
        monitor.register("m", rules=Rules(None, min_accuracy=0.8, recovery=1, notify_within=None))
        for n, accuracy in enumerate([0.5, 0.9]):
            monitor.add_estimate("m", estimate(accuracy), day(n))
            for _ in range(1000):
                if len(posted) > n:
                    break
                time.sleep(0.01)
        release.set()
        assert monitor.delivery.deliver(20) == []
        monitor.close()
    assert events(posted) == ["alarm.begin", "alarm.end"]
