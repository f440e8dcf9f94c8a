from __future__ import annotations

import numpy as np
import pytest

import gdscore
from tests.data import TARGET_SCORES, batches, made, ready

REFERENCE = made(1500, seed=5)

PAPER = [
    "gdscore",
    "confscore",
    "entropy",
    "atc",
    "agreescore",
    "frechet",
    "dispersion",
    "nuclear",
    "gradnorm",
    "rotation",
    "projnorm",
]
BEYOND = ["doc", "cot", "cott", "mano", "selfscore"]


def test_all_scores_of_the_design_are_listed():
    assert set(gdscore.list_scores()) >= {*PAPER, *BEYOND}


@pytest.mark.parametrize(
    ("has", "names"),
    [
        ("logits", ["confscore", "entropy", "mano", "nuclear"]),
        (["features", "reference"], ["frechet"]),
        (["logits", "reference_labels"], ["atc", "confscore", "cot", "cott", "doc", "entropy", "mano", "nuclear"]),
        (["rotation_logits"], ["rotation"]),
        (["logits", "peer_logits"], ["agreescore", "confscore", "entropy", "mano", "nuclear"]),
        (["logits", "batch_logits"], ["confscore", "entropy", "mano", "nuclear", "selfscore"]),
        (["network"], ["projnorm"]),
    ],
)
def test_listing_by_what_the_caller_has(has, names):
    assert [name for name in gdscore.list_scores(available=has) if name in PAPER + BEYOND] == names


def test_mistyped_names_get_the_nearest():
    with pytest.raises(gdscore.GdscoreError, match="Unknown score 'gdscor': did you mean 'gdscore'"):
        gdscore.create_score("gdscor")
    with pytest.raises(
        gdscore.GdscoreError, match="Unknown option 'batchsize' of `gdscore`: did you mean 'batch_size'"
    ):
        gdscore.score("gdscore", made(10), batchsize=3)
    with pytest.raises(gdscore.GdscoreError, match="Unknown option 'p' of `entropy`: it has none"):
        gdscore.create_score("entropy", p=1)
    with pytest.raises(gdscore.GdscoreError, match="Unknown name 'logit' in `available`: did you mean"):
        gdscore.list_scores(available="logit")
    with pytest.raises(gdscore.GdscoreError, match="valid are"):
        gdscore.create_score("zzz")


def test_third_party_score():
    @gdscore.register_score("margin")
    class Margin(gdscore.MeanScore):
        def __init__(self, *, scale: float = 1.0) -> None:
            self.scale = scale
            super().__init__()

        def row_values(self, chunk):
            return self.scale * (2 * chunk.confidence - 1)

    out = made(2000)
    expected = float((2 * out.confidence - 1).mean())
    assert gdscore.score("margin", out, scale=3.0) == pytest.approx(3 * expected, rel=1e-6)
    assert gdscore.score_all(out)["margin"] == pytest.approx(expected, rel=1e-6)
    assert "margin" in gdscore.list_scores(available="logits")
    assert gdscore.restore_score(gdscore.create_score("margin", scale=2).update(out).state_dict()).options == {
        "scale": 2
    }
    with pytest.raises(gdscore.GdscoreError, match="registered already"):
        gdscore.register_score("margin")(type("Other", (gdscore.MeanScore,), {}))
    with pytest.raises(gdscore.GdscoreError, match="subclass of `gdscore.Score`"):
        gdscore.register_score("nothing")(dict)


def test_projnorm_says_where_it_is_computed():
    with pytest.raises(gdscore.GdscoreError, match=r"use gdscore\.models\.projnorm"):
        gdscore.score("projnorm", made(10))


def test_needs_and_sign_of_instances():
    assert gdscore.create_score("atc").needs == {"logits", "reference", "reference_labels"}
    assert gdscore.create_score("gdscore", label_rule="true").needs == {"logits", "features", "labels"}
    assert gdscore.create_score("frechet").needs == {"features", "reference"}
    falling = {"gdscore", "entropy", "agreescore", "selfscore", "frechet", "rotation", "projnorm", "cot"}
    assert {n for n in PAPER + BEYOND if not gdscore.create_score(n).higher_is_better} == falling


def test_all_equals_one_by_one():
    out = made(2300, noise=2.0)
    table = gdscore.score_all(out, reference=REFERENCE)
    assert set(table) == set(TARGET_SCORES)
    assert table.skipped == {"projnorm": "needs the network: gdscore.models.projnorm"}
    for name, value in table.items():
        assert gdscore.score(name, out, reference=REFERENCE) == value, name


def test_streams_are_read_once():
    out = made(2300, noise=2.0)
    streamed = gdscore.score_all(iter(batches(out, 100)), reference=iter(batches(REFERENCE, 700)))
    assert streamed == gdscore.score_all(out, reference=REFERENCE)


def test_one_iterator_is_not_target_and_reference():
    one = iter(batches(REFERENCE, 700))
    with pytest.raises(gdscore.GdscoreError, match="make a second one"):
        gdscore.score_all(one, reference=one)
    assert gdscore.score_all(REFERENCE, reference=REFERENCE)["atc"] == pytest.approx(REFERENCE.accuracy, abs=0.002)


def test_what_is_skipped_and_why():
    table = gdscore.score_all(made(300, keep=("logits",)))
    assert set(table) & {*PAPER, *BEYOND} == {"confscore", "entropy", "mano", "nuclear"}
    assert table.skipped["gdscore"] == "needs features"
    assert table.skipped["agreescore"] == "needs peer_logits"
    assert table.skipped["atc"] == "needs labelled reference data"
    assert table.skipped["frechet"] == "needs features and reference data"
    unlabelled = gdscore.score_all(made(300), reference=made(300, keep=("logits", "features")))
    assert unlabelled.skipped["cot"] == "needs labels of the reference"
    assert "frechet" in unlabelled


def test_a_score_that_cannot_be_computed_does_not_stop_the_others():
    z = np.zeros((300, 4))
    z[:, 2] = np.linspace(1, 2, 300)
    table = gdscore.score_all(gdscore.Outputs(logits=z, features=np.ones((300, 2))))
    assert "all 300 rows are predicted as class 2" in table.skipped["dispersion"]
    assert "gdscore" in table
    one_row = gdscore.score_all(made(300), reference=made(1))
    assert "at least 2 rows of reference" in one_row.skipped["frechet"]
    assert "doc" in one_row


def test_picked_scores_and_options():
    out = made(300)
    assert list(gdscore.score_all(out, scores=["entropy", "gdscore"])) == ["entropy", "gdscore"]
    assert list(gdscore.score_all(out, scores="entropy")) == ["entropy"]
    assert gdscore.score_all(out, scores={"gdscore": {"p": 1}})["gdscore"] == gdscore.score("gdscore", out, p=1)
    with pytest.raises(gdscore.GdscoreError, match="did you mean 'entropy'"):
        gdscore.score_all(out, scores=["entrop"])
    with pytest.raises(gdscore.GdscoreError, match="`outputs` to have rows"):
        gdscore.score_all([])


def test_reference_is_ignored_where_none_is_needed():
    assert gdscore.score("entropy", made(100), reference=REFERENCE) == gdscore.score("entropy", made(100))
    assert ready("entropy").fit(REFERENCE).update(made(100)).n_rows == 100


def test_a_single_score_that_cannot_learn_is_skipped_too():
    out = made(300, keep=("features",))
    table = gdscore.score_all(out, reference=made(1, keep=("features",)))
    assert "at least 2 rows of reference" in table.skipped["frechet"]
    with pytest.raises(gdscore.GdscoreError, match="Expected `available`"):
        gdscore.list_scores(available=3)
    with pytest.raises(gdscore.GdscoreError, match="Unknown score"):
        gdscore.create_score(["a"])
