from __future__ import annotations

import pytest

import gdscore
from gdscore.scores.means import MeanScore
from tests.data import made

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
    assert gdscore.list_scores() == sorted(PAPER + BEYOND)


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
    assert gdscore.list_scores(needs=has) == names


def test_mistyped_names_get_the_nearest():
    with pytest.raises(gdscore.GdscoreError, match="Unknown score 'gdscor': did you mean 'gdscore'"):
        gdscore.create_score("gdscor")
    with pytest.raises(
        gdscore.GdscoreError, match="Unknown option 'batchsize' of `gdscore`: did you mean 'batch_size'"
    ):
        gdscore.score("gdscore", made(10), batchsize=3)
    with pytest.raises(gdscore.GdscoreError, match="Unknown option 'p' of `entropy`: it has none"):
        gdscore.create_score("entropy", p=1)
    with pytest.raises(gdscore.GdscoreError, match="Unknown need 'logit': did you mean"):
        gdscore.list_scores(needs="logit")
    with pytest.raises(gdscore.GdscoreError, match="valid are"):
        gdscore.create_score("zzz")


def test_third_party_score():
    @gdscore.register_score("margin")
    class Margin(MeanScore):
        def __init__(self, *, scale: float = 1.0) -> None:
            self.scale = scale
            super().__init__()

        def row_values(self, chunk):
            return self.scale * (2 * chunk.confidence - 1)

    out = made(2000)
    expected = float((2 * out.confidence - 1).mean())
    assert gdscore.score("margin", out, scale=3.0) == pytest.approx(3 * expected, rel=1e-6)
    assert gdscore.score_all(out)["margin"] == pytest.approx(expected, rel=1e-6)
    assert "margin" in gdscore.list_scores(needs="logits")
    assert gdscore.restore_score(gdscore.create_score("margin", scale=2).update(out).state_dict()).options == {
        "scale": 2
    }
    with pytest.raises(gdscore.GdscoreError, match="registered already"):
        gdscore.register_score("margin")(type("Other", (MeanScore,), {}))
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
    assert {n for n in gdscore.list_scores() if not gdscore.create_score(n).higher_is_better} == falling
