"""The page: what stands in it, that names stay text, and that it stays small."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import gdscore
from gdscore.estimator import Estimate, EstimateWarning, Quantity
from gdscore.report import Target, page, write_report
from gdscore.report.figures import DARK, LIGHT
from tests.report.conftest import COLLAPSE, FEW, made_estimate

VOID = {"meta", "link", "br", "img", "hr", "input"}
OPTIONAL = {"tr", "td", "th", "li", "p"}


class Page(HTMLParser):
    """Tags, ids and text of a page; complains where tags are not closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.attributes, self.values = [], [], [], []
        self.text, self.title, self.sections, self.data = "", "", [], None
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
        elif self._inside == "title":
            self.title += data
        elif self._inside != "style":
            self.text += data


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def written(tmp_path, estimator):
    def write(targets, estimator=estimator, **options):
        path = tmp_path / "report.html"
        write_report(path, estimator, targets, **{"created": date(2026, 2, 1)} | options)
        return path

    return write


def test_sections_and_the_answer_first(written, estimate):
    found = read(written(Target("clinic B", estimate), min_accuracy=0.8))
    assert found.sections == ["answer", "warnings", "evidence", "details", "method"]
    assert found.values[:4] == [estimate.accuracy, estimate.low, estimate.high, estimate.reference_accuracy]
    assert found.tags.count("svg") == 3


def test_title_has_the_model_and_the_date(written, estimate):
    title = read(written(Target("clinic B", estimate), model_name="ResNet <b>50</b>")).title
    assert title == f"ResNet <b>50</b>: clinic B: {estimate.accuracy:.1%} accurate, 2026-02-01"
    assert read(written([Target("a", estimate), Target("b", estimate)])).title == "2 targets, 2026-02-01"


def test_without_an_estimator(written, estimate):
    found = read(written(Target("a", estimate), None))
    assert found.sections == ["answer", "warnings", "details", "method"]
    assert "svg" not in found.tags


def test_a_check_network_is_named_with_its_part(written, estimate):
    used = dataclasses.replace(estimate, method="check", scores={"agreement": 0.723, "weight": 0.914})
    text = read(written(Target("a", used))).text
    assert "a probability of 72.3% on average and counts for 91.4% of the estimate" in text
    assert "agreement with a check network, and an estimator" in read(written(Target("a", used), None)).text
    for other in (dataclasses.replace(used, scores={"agreement": 0.723, "weight": 0.0}), estimate):
        assert "check network" not in read(written(Target("a", other))).text


def test_numbers_are_those_of_the_estimate(written, estimate, targets):
    shown = read(written(Target("a", estimate, when=datetime(2025, 5, 1), truth=0.75))).data["targets"]
    assert shown == [
        {
            "name": "a",
            "when": "2025-05-01T00:00:00",
            "truth": 0.75,
            "estimate": estimate.to_dict(),
            "scores": None,
            "left_out": [],
        }
    ]
    several = read(written(targets[:3])).data["targets"]
    in_time = sorted(targets[:3], key=lambda t: t.when)
    assert [t["estimate"] for t in several] == [t.estimate.to_dict() for t in in_time]


def test_every_score_is_listed(written, estimate):
    table = gdscore.ScoreTable({"entropy": 0.123456, "mano": 2.5}, {"agreescore": "needs peer_logits"})
    found = read(written(Target("a", estimate, table)))
    assert {*table.values(), *estimate.scores.values()} <= set(found.values)
    assert found.data["targets"][0]["scores"] == dict(table)


def rows_of(path) -> list[str]:
    """Text of each row of the table of targets."""
    table = re.search(r'<table class="targets">(.*?)</table>', path.read_text(encoding="utf-8"), re.DOTALL)[1]
    return [Page(f"<table>{row}</table>").text for row in table.replace("</tbody>", "").split("<tr>")[2:]]


def test_table_has_the_worst_first_with_its_flags(written):
    targets = [
        Target("good", made_estimate(0.9, warnings=[])),
        Target("bad", made_estimate(0.3, warnings=[COLLAPSE, FEW])),
        Target("middle", made_estimate(0.6, warnings=[FEW])),
    ]
    path = written(targets)
    rows = rows_of(path)
    assert [row.split()[0] for row in rows] == ["bad", "middle", "good"]
    assert [[flag for flag in ("collapse", "few rows") if flag in row] for row in rows] == [
        ["collapse", "few rows"],
        ["few rows"],
        [],
    ]
    bars = re.findall(r'class=bar style="[^"]*"><b style="left:([\d.]+)%">', path.read_text(encoding="utf-8"))
    # Wide and narrow, each with the reference accuracy of 93 % on a scale from 20 % to 100 %.
    assert bars == ["91.2"] * 6


def test_truth_is_shown_beside_the_estimate(written, estimate):
    found = read(written([Target("a", estimate, truth=0.7654321), Target("b", estimate)]))
    assert 0.7654321 in found.values


def test_names_stay_text(written, estimator, estimate):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"
    estimator.shifted_sets_.families[:3] = [evil] * 3
    warning = gdscore.estimator.EstimateWarning("x", "critical", evil)
    per_class = [dataclasses.replace(estimate.per_class[0], name=evil)]
    hostile = dataclasses.replace(estimate, warnings=[warning], per_class=per_class, scores={evil: 1.0}, method=evil)
    table = gdscore.ScoreTable({}, {evil: evil})
    for targets in ([Target(evil, hostile, table)], [Target(evil, hostile, table), Target("b", estimate)]):
        for fitted in (estimator, None):
            options = {"made_by": {evil: evil}, "min_accuracy": 0.5, "model_name": evil, "not_estimated": {evil: evil}}
            found = read(written(targets, fitted, **options))
            assert found.tags.count("script") == 1
            assert "img" not in found.tags
            assert not [a for a in found.attributes if a[1].startswith("on")]
            assert found.text.count(evil) >= 6
            assert found.data["targets"][0]["name"] == evil


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


def test_stays_under_a_megabyte(written, large):
    targets = [Target(f"target {i}", made_estimate(classes=120, warnings=[COLLAPSE, FEW])) for i in range(12)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    assert [t["left_out"] for t in read(path).data["targets"]] == [[]] * 12


def test_what_is_left_out_is_in_the_data(written, large):
    start = datetime(2025, 1, 1, tzinfo=UTC)
    estimate = made_estimate(classes=1000)
    targets = [Target(f"d{i}", estimate, when=start + timedelta(days=i)) for i in range(60)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    found = read(path).data["targets"]
    detailed = [t for t in found if len(t["left_out"]) == 1]
    assert len(detailed) == 12
    assert found[-1] in detailed  # the newest
    assert all(t["left_out"] == ["1000 classes", "confidence"] for t in found if t not in detailed)
    assert max(c["recall"]["value"] for c in found[-1]["estimate"]["per_class"]) < 0.25


def test_a_year_of_days(written, large):
    estimate = made_estimate(warnings=[FEW])
    targets = [Target(f"day {i}", estimate, when=datetime(2025, 1, 1) + timedelta(days=i)) for i in range(365)]
    path = written(targets, large)
    assert path.stat().st_size < 1_000_000
    found = read(path)
    assert len(found.data["targets"]) == 365
    assert len(rows_of(path)) == 365
    assert sum("confidence" not in t["left_out"] for t in found.data["targets"]) == 12


def test_classes_go_from_the_worst(written):
    path = written(Target("a", made_estimate(classes=30)))
    tables = re.findall(r'<table class="classes">(.*?)</table>', path.read_text(encoding="utf-8"), re.DOTALL)
    shown = [re.search(r"<td>name (\d+)<td>([\d.]+)%", row).groups() for t in tables for row in t.split("<tr>")[2:]]
    assert len(shown) == 30
    assert [float(recall) for _, recall in shown] == sorted(float(recall) for _, recall in shown)


def test_the_least_an_estimate_can_hold(written):
    bare = Estimate(1.0, 1.0, 1.0, level=0.9, n_rows=1, reference_accuracy=1.0, scores={"cott": float("nan")})
    found = read(written([Target("a", bare), Target("b", dataclasses.replace(bare, scores={}))], min_accuracy=1.0))
    assert found.data["targets"][0]["estimate"]["scores"] == {"cott": None}
    assert read(written(dataclasses.replace(bare, scores={}))).sections[0] == "answer"


def test_a_time_series_is_in_order_and_has_its_figure(written, targets):
    found = read(written(targets, min_accuracy=0.7))
    assert [t["name"] for t in found.data["targets"]] == [f"month {m}" for m in range(1, 13)]
    assert ("svg", "aria-label", "Estimated accuracy over time") in found.attributes
    assert [int(row.split()[1]) for row in rows_of(written(targets))] == list(range(1, 13))
    without = [dataclasses.replace(t, when=None) if i else t for i, t in enumerate(targets[:3])]
    compared = read(written(without))
    assert [t["name"] for t in compared.data["targets"]] == [t.name for t in targets[:3]]
    assert ("svg", "aria-label", "Estimated accuracy over time") not in compared.attributes


def test_a_warning_is_told_once(written):
    both = [Target("a", made_estimate(warnings=[FEW, COLLAPSE])), Target("b", made_estimate(warnings=[FEW]))]
    text = read(written(both)).text
    assert text.count(FEW.message) == text.count(COLLAPSE.message) == 1


def test_what_could_not_be_estimated_is_listed(written, estimate):
    missing = {"day 1": "no rows", "day 2": "damaged"}
    assert read(written(Target("a", estimate), not_estimated=missing)).data["not_estimated"] == [
        {"name": name, "error": why} for name, why in missing.items()
    ]
    many = {f"day {i}": "Expected at least one row, but it is empty " * 4 for i in range(20_000)}
    path = written([Target("a", estimate), Target("b", estimate)], not_estimated=many)
    assert path.stat().st_size < 1_000_000
    assert "20,000 targets" in read(path).text


def test_the_error_of_families_left_out_is_the_estimators(written, large, estimate):
    assert f"{100 * large.left_out_error_:.1f} points" in read(written(Target("a", estimate), large)).text
    large.shifted_sets_.predicted[:] = np.nan
    found = read(written(Target("a", estimate), large))
    assert found.tags.count("svg") == 2
    assert "nan" not in found.text.lower().replace("name", "")
    empty = dataclasses.replace(large)
    empty.shifted_sets_ = type(large.shifted_sets_)(families=[], accuracy=np.empty(0), predicted=np.empty(0), rows=[])
    assert read(written(Target("a", estimate), empty)).tags.count("svg") == 2


def test_levels_and_times_keep_their_digits(written, estimate):
    sure = dataclasses.replace(estimate, level=0.999)
    times = [datetime(2025, 1, 1, 5, 0, second) for second in (0, 10)]
    text = read(written([Target("x", sure, when=when) for when in times])).text
    assert "99.9% interval" in text
    assert "2025-01-01T05:00:10" in text


def test_same_input_same_bytes(written, targets):
    first = written(targets[:2], min_accuracy=0.7).read_bytes()
    assert written(targets[:2], min_accuracy=0.7).read_bytes() == first


def test_nothing_half_written_stays(tmp_path, estimator, estimate, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(page, "as_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, estimator, estimate)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_used_is_refused(tmp_path, estimator, estimate):
    with pytest.raises(gdscore.GdscoreError, match="fitted estimator"):
        write_report(tmp_path / "a.html", gdscore.AccuracyEstimator(), estimate)
    with pytest.raises(gdscore.GdscoreError, match="at least one target"):
        write_report(tmp_path / "a.html", estimator, [])
    with pytest.raises(gdscore.GdscoreError, match="min_accuracy"):
        write_report(tmp_path / "a.html", estimator, estimate, min_accuracy=80)
    with pytest.raises(gdscore.GdscoreError, match="folder"):
        write_report(tmp_path / "none" / "a.html", estimator, estimate)
    assert list(tmp_path.iterdir()) == []


def test_a_critical_warning_demotes_the_number_and_the_truth_is_drawn(tmp_path):
    doubtful = gdscore.Estimate(
        0.95, 0.4, 1.0, 0.9, 500, 0.9, warnings=[EstimateWarning("collapse", "critical", "predictions have collapsed")]
    )
    path = tmp_path / "one.html"
    write_report(path, None, Target("b", doubtful, truth=0.3), min_accuracy=0.7)
    text = path.read_text()
    assert '<p class="number doubtful">' in text
    assert "May be meaningless: predictions have collapsed to few classes." in text
    assert '<i class="truth" style="left:30.0%">' in text
    fine = gdscore.Estimate(0.95, 0.9, 1.0, 0.9, 500, 0.9)
    write_report(path, None, fine, min_accuracy=0.7)
    assert '<p class="number ">' in path.read_text()
    write_report(path, None, [Target("a", fine, truth=0.6), Target("b", fine, truth=0.9)], min_accuracy=0.7)
    text = path.read_text()
    assert (
        "All 2 targets are estimated to be above the threshold of 70%. By their labels 1 of 2 is below it: a." in text
    )
    assert str(doubtful).splitlines()[0].startswith("critical: ")


def test_classes_have_intervals_of_all_measures_and_numbers_are_worded(written):
    c = dataclasses.replace(made_estimate(classes=2).per_class[0], precision=Quantity(0.5, 0.41, 0.62))
    moved = {"confidence": -0.1336, "distance": 0.25}
    text = read(written(Target("a", made_estimate(classes=2, per_class=[c], scores=moved)))).text
    assert "50.0%41–62%" in " ".join(text.split())
    assert "0.1336 standard deviations of rows lower than on the reference" in text
    assert "0.25 standard deviations of rows larger than on the reference" in text
    assert "assumes that the mix of classes is not known" in " ".join(text.split())


def contrast(first, second):
    """Ratio of WCAG 2.1 between two colours such as #b23c17."""

    def luminance(colour):
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_wcag_aa():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    for colours in (LIGHT, DARK):
        assert all(contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "quiet", "accent"))
        assert all(contrast(colours[f"group{i}"], colours["paper"]) >= 3 for i in range(5))
    css = (Path(__file__).parents[2] / "docs" / "stylesheets" / "extra.css").read_text()
    links = re.findall(r"--md-typeset-a-color: (#\w{6})", css)
    assert [contrast(link, paper) >= 4.5 for link, paper in zip(links, ("#ffffff", "#1e2129"), strict=True)] == [
        True
    ] * 2
    assert all(contrast(header, "#ffffff") >= 4.5 for header in re.findall(r"--md-primary-fg-color: (#\w{6})", css))
