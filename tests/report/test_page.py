"""The page: what stands in it, that names stay text, and that it stays small."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import numpy as np
import pytest

import gdscore
from gdscore.estimator.estimate import Lookalike
from gdscore.report import Target, page, verdict, write_report

VOID = {"meta", "link", "br", "img", "hr", "input"}
OPTIONAL = {"tr", "td", "th", "li", "p"}


class Page(HTMLParser):
    """Tags, ids and text of a page; complains where tags are not closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.attributes, self.values = [], [], [], []
        self.text, self.sections, self.data = "", [], None
        self._open, self._inside = [], ""
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, *item) for item in attrs.items()]
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "section":
            self.sections.append(attrs.get("id"))
        if tag == "data":
            self.values.append(float(attrs["value"]))
        self._inside = attrs.get("id") if tag == "script" else tag
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        while self._open[-1] != tag:
            assert self._open.pop() in OPTIONAL, f"{tag} closes over {self._open}"
        self._open.pop()
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "gdscore-data":
            self.data = json.loads(data)
        elif self._inside != "style":
            self.text += data


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def written(tmp_path, estimator):
    def write(targets, estimator=estimator, **options):
        path = tmp_path / "report.html"
        write_report(path, estimator, targets, **options)
        return path

    return write


def test_the_answer_comes_first_and_the_rest_in_order(written, estimate):
    found = read(written(Target("clinic B", estimate), min_accuracy=0.8, made_by={"Command": "gdscore estimate a b"}))
    assert found.sections == ["answer", "warnings", "calibration", "classes", "confidence", "scores", "method"]
    for words in (
        "clinic B",
        f"{estimate.accuracy:.1%}",
        verdict(estimate, 0.8),
        "gdscore estimate a b",
        f"gdscore {gdscore.__version__}",
        "seed=0",
        "regressor='cautious'",
        "Fréchet distance",
    ):
        assert words in found.text
    assert found.tags.count("svg") == 4
    assert found.values[:4] == [estimate.accuracy, estimate.low, estimate.high, estimate.reference_accuracy]


def test_numbers_are_those_of_the_estimate(written, estimate, targets):
    shown = read(written(Target("a", estimate, when=datetime(2025, 5, 1)))).data["targets"]
    assert shown == [
        {"name": "a", "when": "2025-05-01T00:00:00", "estimate": estimate.to_dict(), "scores": None, "left_out": []}
    ]
    several = read(written(targets[:3])).data["targets"]
    in_time = sorted(targets[:3], key=lambda t: t.when)
    assert [t["estimate"] for t in several] == [t.estimate.to_dict() for t in in_time]


def test_every_score_is_listed_with_its_sentence(written, estimate, reference):
    table = gdscore.score_all(reference, reference=reference)
    found = read(written(Target("a", estimate, table)))
    for name in table:
        assert name in found.text
    assert all(table[name] in found.values for name in table if name not in estimate.scores)
    assert all(value in found.values for value in estimate.scores.values())
    assert "needs peer_logits" in found.text
    assert found.data["targets"][0]["scores"] == dict(table)


def test_what_the_estimate_uses_is_not_called_missing(written, estimate, reference):
    table = gdscore.score_all(reference)  # without a reference, which `cott` needs
    found = read(written(Target("a", estimate, table)))
    assert "cott" in table.skipped
    assert f"{len(set(table.skipped) - set(estimate.scores))} scores could not be computed" in found.text


def test_says_which_calibration_sets_are_most_alike(written, estimator, estimate, targets):
    found = read(written(Target("a", estimate)))
    assert "The estimate rests most on these calibration sets" in found.text
    for alike in estimate.lookalikes:
        assert alike.family in found.text
        assert {alike.weight, alike.accuracy} <= set(found.values)
    composed = dataclasses.replace(estimate, lookalikes=[Lookalike("fog+haze", 0.6, 0.7), Lookalike("rain", 0.3, 0.8)])
    text = read(written(Target("a", composed))).text
    assert "fog + haze" in text
    assert "The remaining 10% of the weight" in text
    several = read(written([Target("a", estimate), Target("b", composed)])).text
    assert several.count("Model’s accuracy there") == 2
    other = copy.copy(estimator)
    other.regressor = "stack"
    assert "stack learns from all sets" in read(written(Target("a", estimate), other)).text
    assert "Most alike" not in read(written(Target("a", dataclasses.replace(estimate, lookalikes=[])))).text


def test_names_stay_text(written, estimator, estimate, reference):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"
    hostile = dataclasses.replace(estimate, warnings=[f"careful {evil}"])
    table = gdscore.ScoreTable({}, {evil: evil})
    for targets in ([Target(evil, hostile, table)], [Target(evil, hostile, table), Target("b", estimate)]):
        path = written(targets, made_by={evil: evil}, min_accuracy=0.5)
        found = read(path)
        assert evil in found.text
        assert f"Careful {evil}" in found.text
        assert found.tags.count("script") == 1
        assert "img" not in found.tags
        assert not [a for a in found.attributes if a[1].startswith("on")]
        assert found.data["targets"][0]["name"] == evil
        assert "<i>snow" in found.text  # a family


def test_names_that_are_no_unicode_can_be_written(written, estimate):
    assert "a?b" in read(written(Target("a\udc80b", estimate))).text


def test_nothing_is_loaded_from_anywhere(written, estimate):
    path = written(Target("a", estimate))
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)
    found = read(path)
    assert [a for a in found.attributes if a[1] == "src"] == []
    assert {a[2] for a in found.attributes if a[1] == "href" and not a[2].startswith("#")} == {"data:,"}
    assert any(a[1] == "content" and a[2].startswith("default-src 'none'") for a in found.attributes)


def test_ids_are_unique_and_lead_somewhere(written, targets):
    path = written(targets[:3])
    found = read(path)
    assert len(found.ids) == len(set(found.ids))
    text = path.read_text(encoding="utf-8")
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(found.ids)


def many_classes(estimate, classes):
    each = [
        gdscore.ClassEstimate(k, (k * 37 % classes) / classes, 0.123456789, 0.987654321, 1 / classes)
        for k in range(classes)
    ]
    return dataclasses.replace(estimate, per_class=each, warnings=["a warning of some length " * 5] * 3)


def test_stays_under_a_megabyte(written, large, estimate):
    targets = [Target(f"target {i}", many_classes(estimate, 200)) for i in range(12)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    found = read(path)
    assert all(len(t["estimate"]["per_class"]) == 200 for t in found.data["targets"])
    assert "180 more classes" in found.text


def test_says_what_it_leaves_out(written, large, estimate):
    start = datetime(2025, 1, 1, tzinfo=timezone.utc)
    targets = [Target(f"d{i}", many_classes(estimate, 1000), when=start + timedelta(days=i)) for i in range(60)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    found = read(path)
    assert "208 of 1,000 classes are listed" in found.text
    assert "Details are shown of the 12 latest targets" in found.text
    assert [t["left_out"] for t in found.data["targets"]] == [["1000 classes", "confidence"]] * 48 + [
        ["792 classes"]
    ] * 12
    worst = found.data["targets"][-1]["estimate"]["per_class"]
    assert max(c["recall"] for c in worst) < 0.25


def test_a_year_of_days(written, large, estimate):
    targets = [Target(f"day {i}", estimate, when=datetime(2025, 1, 1) + timedelta(days=i)) for i in range(365)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    found = read(path)
    assert [t["left_out"] for t in found.data["targets"]] == [["5 classes", "confidence"]] * 353 + [[]] * 12
    assert [t["estimate"] for t in found.data["targets"][353:]] == [estimate.to_dict()] * 12
    assert found.text.count("Share of rows by confidence") == 12


def test_classes_go_from_the_worst(written, estimate):
    text = read(written(Target("a", many_classes(estimate, 1000)))).text
    assert "980 more classes" in text
    two = read(written(Target("a", dataclasses.replace(estimate, per_class=estimate.per_class[:2])))).text
    assert "more classes" not in two


def test_the_least_an_estimate_can_hold(written, estimate):
    bare = gdscore.Estimate(1.0, 1.0, 1.0, level=0.9, n=1, reference_accuracy=1.0, scores={"cott": float("nan")})
    found = read(written([Target("a", bare), Target("b", dataclasses.replace(bare, scores={}))], min_accuracy=1.0))
    assert found.data["targets"][0]["estimate"]["scores"] == {"cott": None}
    alone = read(written(Target("a", dataclasses.replace(estimate, per_class=estimate.per_class[:1], warnings=[]))))
    assert "nothing to warn about" in alone.text
    assert "nan" not in alone.text.lower().replace("gdscore-data", "")


def test_a_time_series_is_in_order_and_has_its_figure(written, targets):
    middle = round(float(np.median([t.estimate.accuracy for t in targets])), 2)
    found = read(written(targets, min_accuracy=middle))
    assert [t["name"] for t in found.data["targets"]] == [f"month {m}" for m in range(1, 13)]
    below = sum(t.estimate.accuracy < middle for t in targets)
    assert 1 < below < 12
    assert f"{below} of 12 targets are estimated to be below the threshold of {middle:.0%}" in found.text
    assert ("svg", "aria-label", "Estimated accuracy over time") in found.attributes
    without = [dataclasses.replace(t, when=None) if i else t for i, t in enumerate(targets[:3])]
    compared = read(written(without))
    assert [t["name"] for t in compared.data["targets"]] == [t.name for t in targets[:3]]
    assert ("svg", "aria-label", "Estimated accuracy over time") not in compared.attributes


def test_times_with_and_without_a_zone_can_be_compared(written, estimate):
    zone = timezone(timedelta(hours=5))
    found = read(
        written(
            [
                Target("b", estimate, when=datetime(2025, 1, 2)),
                Target("a", estimate, when=datetime(2025, 1, 2, 3, tzinfo=zone)),
            ]
        )
    )
    assert [t["name"] for t in found.data["targets"]] == ["a", "b"]


def test_warnings_are_said_once(written, estimate):
    one = dataclasses.replace(estimate, warnings=["both of them", "only this"])
    other = dataclasses.replace(estimate, warnings=["both of them"])
    text = read(written([Target("a", one), Target("b", other)])).text
    assert "All targets. Both of them." in text
    assert "a. Only this." in text
    assert text.count("Both of them") == 1


def test_what_could_not_be_estimated_is_listed(written, estimate):
    evil = "<script>alert(1)</script>"
    found = read(written(Target("a", estimate), not_estimated={evil: f"no rows in {evil}"}))
    assert "1 target could not be estimated" in found.text
    assert f"{evil}. No rows in {evil}." in found.text
    assert found.tags.count("script") == 1
    assert found.data["not_estimated"] == [{"name": evil, "error": f"no rows in {evil}"}]
    assert read(written(Target("a", estimate))).data["not_estimated"] == []
    many = {f"day {i}": "Expected at least one row, but it is empty " * 4 for i in range(20_000)}
    path = written([Target("a", estimate), Target("b", estimate)], not_estimated=many)
    assert path.stat().st_size < 1_000_000
    text = read(path).text
    assert "20,000 targets could not be estimated" in text
    assert "19,900 more" in text


def test_sets_that_were_never_left_out_are_said(written, large, estimate):
    seen = large.calibration_
    for never, words in ((np.arange(500) < 100, "over 400 of 500 sets"), (True, "no kind of shift could be left out")):
        large.judge_.table = dataclasses.replace(seen, predicted=np.where(never, np.nan, seen.predicted))
        text = read(written(Target("a", estimate), large)).text
        assert words in text
        assert "nan" not in text.lower()


def test_levels_and_times_keep_their_digits(written, estimate):
    sure = dataclasses.replace(estimate, level=0.999)
    times = [datetime(2025, 1, 1, 5, 0, second) for second in (0, 10)]
    text = read(written([Target("x", sure, when=when) for when in times])).text
    assert "99.9% interval" in text
    assert "100% interval" not in text
    assert "2025-01-01 05:00:10" in text


def test_same_input_same_bytes(written, targets):
    first = written(targets[:2], min_accuracy=0.7).read_bytes()
    assert written(targets[:2], min_accuracy=0.7).read_bytes() == first


def test_one_score_alone(written, reference):
    est = gdscore.AccuracyEstimator(0.6, regressor="atc").fit(reference, head=(2 * np.eye(5), None))
    found = read(written(est.estimate(reference), est))
    assert "the estimate uses them all" not in found.text


def test_nothing_half_written_stays(tmp_path, estimator, estimate, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(page, "as_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, estimator, estimate)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_wrong_is_said(tmp_path, estimator, estimate):
    with pytest.raises(gdscore.GdscoreError, match="fitted estimator"):
        write_report(tmp_path / "a.html", gdscore.AccuracyEstimator(), estimate)
    with pytest.raises(gdscore.GdscoreError, match="at least one target"):
        write_report(tmp_path / "a.html", estimator, [])
    with pytest.raises(gdscore.GdscoreError, match="min_accuracy"):
        write_report(tmp_path / "a.html", estimator, estimate, min_accuracy=80)
    with pytest.raises(gdscore.GdscoreError, match="folder"):
        write_report(tmp_path / "none" / "a.html", estimator, estimate)
    with pytest.raises(gdscore.GdscoreError, match="Estimate"):
        Target("a", 0.8)
    assert list(tmp_path.iterdir()) == []
