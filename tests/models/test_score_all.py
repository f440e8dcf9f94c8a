from __future__ import annotations

import pytest
import torch
from torch import nn

import gdscore
from gdscore import GdscoreError, models
from tests.models.networks import CNN, loader, seeded


def test_all_scores_in_one_pass():
    model, peer = seeded(CNN), seeded(CNN, bias=False)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    target, reference = loader(4, rows=128), loader(3, rows=64)
    table = models.score_all(model, target, val_loader=reference, peer=peer)
    assert len(passes) == 7
    assert set(table.skipped) <= {"rotation", "projnorm", "selfscore"}
    out = gdscore.Outputs.concatenate(list(models.extract(model, target, peer=peer)))
    val = gdscore.Outputs.concatenate(list(models.extract(model, reference)))
    for name, value in table.items():
        assert value == pytest.approx(gdscore.score(name, out, reference=val), rel=1e-9), name
    assert table["agreescore"] == (out.predictions != out.peer_logits.argmax(1)).double().mean()


def test_rotation_and_choice_of_scores():
    table = models.score_all(seeded(CNN), loader(2), scores=["rotation"], rotation_head=nn.Linear(16, 4))
    assert list(table) == ["rotation"]
    chosen = models.score_all(seeded(CNN), loader(2, rows=128), scores={"gdscore": {"p": 1.0}}, batchnorm="batch")
    assert list(chosen) == ["gdscore"]
    bare = models.score_all(seeded(CNN), loader(2), scores=["gdscore", "confscore"], head=False)
    assert bare.skipped == {"gdscore": "needs features"}


def test_bad_arguments():
    with pytest.raises(GdscoreError, match="`val_loader` to yield batches"):
        models.score_all(seeded(CNN), loader(), val_loader=torch.zeros(3))
    with pytest.raises(GdscoreError, match="it yielded none"):
        models.score_all(seeded(CNN), loader(), val_loader=[])
    one = iter(loader())
    with pytest.raises(GdscoreError, match="make a second one"):
        models.score_all(seeded(CNN), one, val_loader=one)
    with pytest.raises(TypeError, match="unexpected keyword"):
        models.score_all(seeded(CNN), loader(), heads="fc")
