from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gdscore import GdscoreError
from gdscore.models._batches import call, count_rows, describe, integer_labels, split_batch, to_device
from gdscore.models.predictions import logits_of

X, Y, Z = torch.zeros(4, 3), torch.arange(4), torch.randn(4, 2)


@pytest.mark.parametrize(
    ("batch", "labelled"),
    [
        (X, False),
        ((X,), False),
        ([X], False),
        ((X, Y), True),
        ([X, Y], True),
        ((X, Y, ["a"] * 4), True),
        ((X, None), False),
    ],
)
def test_tensor_batches(batch, labelled):
    inputs, labels = split_batch(batch)
    assert inputs is X
    assert labels is (Y if labelled else None)


@pytest.mark.parametrize("name", ["labels", "label"])
def test_dict_batches(name):
    inputs, labels = split_batch({"input_ids": X, name: Y})
    assert list(inputs) == ["input_ids"]
    assert labels is Y
    assert split_batch({"input_ids": X})[1] is None
    inputs, labels = split_batch(({"input_ids": X}, Y))
    assert list(inputs) == ["input_ids"]
    assert labels is Y


def test_hugging_face_encoding_is_a_dict():
    transformers = pytest.importorskip("transformers")
    inputs, labels = split_batch(transformers.BatchEncoding({"input_ids": X, "labels": Y}))
    assert type(inputs) is dict
    assert labels is Y


@pytest.mark.parametrize("batch", [(), "text", 3, None, {"labels": Y}, {}, (np.zeros(3), Y), ["a", "b"]])
def test_other_batches_are_refused(batch):
    with pytest.raises(GdscoreError, match="Expected .* tensor"):
        split_batch(batch)


def test_moving_casts_floating_point_only():
    moved = to_device({"x": X, "ids": Y, "name": "a"}, "cpu", dtype=torch.float64)
    assert moved["x"].dtype == torch.float64
    assert moved["ids"].dtype == torch.int64
    assert moved["name"] == "a"
    assert to_device(X, "cpu") is X


class Takes(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


def test_calling():
    assert call(Takes(lambda x: x + 1), X, 0).sum() == 12
    assert call(Takes(lambda a, b: a + b), (X, 2), 0).sum() == 24
    assert count_rows({"name": "a", "x": X}) == 4
    assert count_rows((X, Y)) == 4
    with pytest.raises(GdscoreError, match="first dimension of rows"):
        count_rows(torch.tensor(1.0))


@pytest.mark.parametrize(
    "forward",
    [
        lambda a, b: a + b,
        lambda a, *, b: a + b,
        lambda **given: given["a"] + given["b"],
        lambda given: given["a"] + given["b"],
        lambda *given: given[0]["a"] + given[0]["b"],
    ],
    ids=["names", "keyword only", "any keywords", "the dict", "any arguments"],
)
def test_dicts_are_keywords_where_the_model_has_their_names(forward):
    assert call(Takes(forward), {"a": X, "b": 2}, 0).sum() == 24


@pytest.mark.parametrize(
    ("forward", "words"),
    [(lambda a: a, "'b'.* as keyword arguments"), (lambda x: x + 1, "TypeError: .* as one argument, as forward takes")],
)
def test_dicts_that_do_not_fit(forward, words):
    with pytest.raises(GdscoreError, match=rf"batch 3, a dict of .*{words}"):
        call(Takes(forward), {"a": X, "b": 2}, 3)


@pytest.mark.parametrize("batch", [((X, Z), Y), ([X, Z], Y), ((X, Z),), [(X, Z), None]])
def test_several_inputs(batch):
    inputs, labels = split_batch(batch)
    assert isinstance(inputs, tuple)
    assert inputs[0] is X
    assert inputs[1] is Z
    assert labels is (Y if batch[1:] and batch[1] is not None else None)


Named = namedtuple("Named", "logits aux_logits")


@pytest.mark.parametrize(
    "output",
    [
        Z,
        (Z,),
        [Z, X],
        (torch.tensor(0.3), Z, (X, X)),
        (torch.zeros(4, 7, 3), Z),
        (Y, Z),
        {"logits": Z, "loss": torch.tensor(1.0)},
        SimpleNamespace(logits=Z, hidden_states=None),
        Named(Z, None),
    ],
)
def test_logits_are_found(output):
    assert logits_of(output) is Z


def test_logits_of_maps_of_one_pixel():
    assert logits_of(Z[:, :, None, None]).shape == Z.shape


def test_logits_where_the_caller_says():
    assert logits_of((X, Z), where=1) is Z
    assert logits_of({"scores": Z}, where="scores") is Z
    assert logits_of(SimpleNamespace(inner=Z), where=lambda out: out.inner) is Z


@pytest.mark.parametrize(
    ("output", "where", "word"),
    [
        ({"scores": Z}, None, "'scores': float32 of shape \\(4, 2\\)"),
        (torch.tensor(0.5), None, r"\(rows, classes\).* but got float32 of shape \(\)"),
        (Y, None, "look like predicted classes"),
        (torch.zeros(4, 2, 8, 8), None, r"\(4, 2, 8, 8\)"),
        (torch.zeros(4, 2, dtype=torch.int64), None, "floating-point"),
        ((), None, "pass logits="),
        (None, None, "NoneType"),
        ((X, Z), 2, "to have 2"),
        (Z, "scores", "to have 'scores'"),
        ((X, "a"), 1, "picks str"),
    ],
)
def test_logits_that_are_none(output, where, word):
    with pytest.raises(GdscoreError, match=word):
        logits_of(output, where)


@pytest.mark.parametrize(
    "labels", [Y, Y.to(torch.uint8), Y.to(torch.uint16), Y.tolist(), Y.numpy(), Y.float(), Y.half(), Y[:, None]]
)
def test_integer_labels(labels):
    y = integer_labels(labels, 4, "cpu")
    assert y.dtype == torch.int64
    assert y.tolist() == [0, 1, 2, 3]


def test_label_of_one_row_that_was_squeezed():
    assert integer_labels(torch.tensor(2), 1, "cpu").tolist() == [2]


def test_binary_labels():
    for labels in (torch.tensor([True, False]), torch.tensor([1.0, 0.0]), torch.tensor([[1.0], [0.0]])):
        assert integer_labels(labels, 2, "cpu").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (Y + 0.5, "classes 0, 1, …, but row 0 of a batch has 0.5"),
        (torch.tensor([0.0, 1.0, float("nan"), 1.0]), "row 2 of a batch has nan"),
        (Y + 1j, "complex"),
        (torch.eye(4), "argmax"),
        (torch.eye(4, dtype=torch.int64), "one-hot"),
        (["a", "b", "c", "d"], "a list of \\(str"),
        (Y[:3], "each of 4 rows"),
        (X, r"\(4, 3\): .*second input is yielded as \(\(x1, x2\), y\)"),
        (3, r"\(\)"),
    ],
)
def test_other_labels_are_refused(labels, word):
    with pytest.raises(GdscoreError, match=word):
        integer_labels(labels, 4, "cpu")


def test_shapes_are_worded():
    assert describe([X] * 6).endswith(", …)")
    assert describe({"x": 1}) == "a dict of {'x': int}"
