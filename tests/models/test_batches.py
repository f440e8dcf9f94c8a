from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gdscore import GdscoreError
from gdscore.models import call, logits_of, split_batch, to_device
from gdscore.models.batches import count_rows, integer_labels, shapes

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


def test_calling():
    assert call(lambda x: x + 1, X).sum() == 12
    assert call(lambda a, b: a + b, {"a": X, "b": 2}).sum() == 24
    assert count_rows({"name": "a", "x": X}) == 4
    with pytest.raises(GdscoreError, match="first dimension of rows"):
        count_rows(torch.tensor(1.0))


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
        (torch.zeros(4), None, r"\(rows, classes\), but got float32 of shape \(4,\)"),
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


@pytest.mark.parametrize("labels", [Y, Y.to(torch.uint8), Y.tolist(), Y.numpy()])
def test_integer_labels(labels):
    y = integer_labels(labels, 4, "cpu")
    assert y.dtype == torch.int64
    assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (Y.float(), "float32"),
        (torch.eye(4), "argmax"),
        (torch.eye(4, dtype=torch.int64), "one-hot"),
        (["a", "b", "c", "d"], "a list of \\(str"),
        (torch.tensor([True] * 4), "bool"),
        (Y[:3], "each of 4 rows"),
        (Y[:, None], r"\(4, 1\)"),
        (3, r"\(\)"),
    ],
)
def test_other_labels_are_refused(labels, word):
    with pytest.raises(GdscoreError, match=word):
        integer_labels(labels, 4, "cpu")


def test_shapes_are_worded():
    assert shapes([X] * 6).endswith(", …)")
    assert shapes({"x": 1}) == "a dict of {'x': int}"
