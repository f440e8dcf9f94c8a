"""Sentences about thresholds, warnings told once, times."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

from gdscore import Estimate, GdscoreError
from gdscore.estimator.estimate import Estimates
from gdscore.report import Target, compare_with_threshold, write_report
from gdscore.report.targets import as_targets, by_target, in_order, standing
from tests.data import made
from tests.report.conftest import COLLAPSE, FEW, NOTE, made_estimate


@pytest.mark.parametrize(
    ("low", "accuracy", "high", "word"),
    [
        (0.80, 0.85, 0.9, "above"),
        (0.79, 0.80, 0.9, "probably above"),
        (0.70, 0.79, 0.8, "probably below"),
        (0.60, 0.70, 0.79, "below"),
    ],
)
def test_standing(low, accuracy, high, word):
    estimate = made_estimate(accuracy, low=low, high=high)
    assert standing(estimate, 0.8) == word
    assert f"{word} the threshold of 80%" in compare_with_threshold(estimate, 0.8).lower()


def test_warnings_are_told_once_under_the_first_target_by_severity():
    targets = [
        Target("a", made_estimate(warnings=[NOTE, FEW, COLLAPSE])),
        Target("b", made_estimate(warnings=[NOTE, FEW])),
        Target("c", made_estimate(warnings=[NOTE])),
    ]
    (everywhere, common), (first, own) = by_target(targets)
    assert (everywhere, [r.warning for r in common]) == ("", [NOTE])
    assert (first, [(r.warning, r.also) for r in own]) == ("a", [(COLLAPSE, []), (FEW, ["b"])])
    assert by_target(targets[2:]) == [("c", [by_target(targets[2:])[0][1][0]])]
    assert by_target([Target("x", made_estimate())]) == []


def test_two_targets_of_one_name_keep_their_warnings():
    groups = by_target([Target("a", made_estimate(warnings=[FEW])), Target("a", made_estimate(warnings=[COLLAPSE]))])
    assert [(name, [r.warning for r in remarks]) for name, remarks in groups] == [("a", [FEW]), ("a", [COLLAPSE])]


def test_many_holders_are_counted():
    targets = [Target(f"t{i}", made_estimate(warnings=[FEW] if i else [])) for i in range(12)]
    ((name, (remark,)),) = by_target(targets)
    assert (name, len(remark.also) + remark.more) == ("t1", 10)


def test_times_with_and_without_a_zone_can_be_compared():
    zone = timezone(timedelta(hours=5))
    e = made_estimate()
    targets = [Target("b", e, when=datetime(2025, 1, 2)), Target("a", e, when=datetime(2025, 1, 2, 3, tzinfo=zone))]
    ordered, by_time = in_order(targets)
    assert ([t.name for t in ordered], by_time) == (["a", "b"], True)


def test_only_estimates_are_targets():
    with pytest.raises(GdscoreError, match="Estimate"):
        Target("a", 0.8)


@pytest.mark.parametrize("given", [[made_estimate(0.8)], None, "target", [3], made(20)])
def test_what_is_no_target(given):
    with pytest.raises(GdscoreError, match=r"give \{name: estimate\} or \[Target"):
        as_targets(given)


def test_times_and_truths_of_targets():
    for when in ("2026-01-31", date(2026, 1, 31)):
        with pytest.raises(GdscoreError, match="datetime"):
            Target("day", made_estimate(0.8), when=when)
    for truth in (80, float("nan"), "high"):
        with pytest.raises(GdscoreError, match="truth"):
            Target("day", made_estimate(0.8), truth=truth)


def test_the_date_of_a_report(tmp_path):
    with pytest.raises(GdscoreError, match="date"):
        write_report(tmp_path / "report.html", None, made_estimate(0.8), created="2026-01-31")


def test_segments_of_several_columns():
    e = made_estimate(0.8)
    day, plain = as_targets({(datetime(2026, 1, 31), "de", 3): e, ("fr", None): e})
    assert (day.name, day.when, day.segment) == ("2026-01-31 de, 3", datetime(2026, 1, 31), "de, 3")
    assert (plain.name, plain.when) == ("fr, None", None)


def test_months_in_any_spelling_are_a_series():
    pd = pytest.importorskip("pandas")
    e = made_estimate(0.8)
    months = [datetime(2026, 9, 1), datetime(2026, 10, 1)]
    for keys in (["2026-10", "2026-09"], [pd.Period("2026-10"), pd.Period("2026-09")], months[::-1]):
        shown, by_time = in_order(as_targets(dict.fromkeys(keys, e)))
        assert by_time
        assert [target.when for target in shown] == months
        (several, _) = as_targets({("de", keys[1], "phone"): e, ("fr", keys[0], "phone"): e})
        assert (several.when, several.segment) == (months[0], "de, phone")
    assert not in_order(as_targets({"2026-09": e, "fr": e}))[1]


def test_estimates_by_segment_as_a_page(tmp_path):
    e = Estimate(0.83, 0.78, 0.88, level=0.9, n_rows=900, reference_accuracy=0.9)
    months = Estimates({f"2026-0{month}": e for month in (1, 2, 3)}, {"2026-01": 0.81, "2026-02": None})
    months.to_html(tmp_path / "months.html", model_name="animals")
    page = (tmp_path / "months.html").read_text(encoding="utf-8")
    assert "animals" in page
    assert "2026-03" in page
    assert [t.truth for t in as_targets(months)] == [0.81, None, None]
    assert [t.when.month for t in as_targets(months)] == [1, 2, 3]
