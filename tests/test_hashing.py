"""Row hashing: the same in every library and for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gdscore
from gdscore._hashing import id_words, key_as_uint64, label_hash, row_key, value_words
from tests.data import LIBRARIES, to_library

M = 0xFFFFFFFF


def fmix32(x: int) -> int:
    x ^= x >> 16
    x = x * 0x85EBCA6B & M
    x ^= x >> 13
    x = x * 0xC2B2AE35 & M
    return x ^ x >> 16


def reference(words: list[int], seed: int, classes: int) -> tuple[int, int]:
    """The definition in plain Python integers: 64-bit key and label."""
    first = second = 0
    for j, w in enumerate(words, start=1):
        t = (w ^ w >> 16) * (fmix32(j) | 1) & M
        t ^= t >> 15
        first = first + t & M
        second = second + t * (fmix32(j + 2**31) | 1) & M
    high, low = fmix32(first), fmix32(second)
    label = (fmix32(high ^ fmix32((seed + 0x9E3779B9) & M)) & 0x7FFFFFFF) % classes
    return high << 32 | low, label


@given(
    arrays(np.float32, (3, 5), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    st.integers(0, 2**64),
    st.integers(2, 1000),
)
def test_equals_the_definition_in_every_library(z, seed, classes):
    words = [[int(w) for w in row] for row in np.where(z == 0, np.float32(0), z).view(np.uint32)]
    expected = [reference(row, seed, classes) for row in words]
    for library in LIBRARIES:
        key = row_key(value_words(to_library(z, library)))
        assert key_as_uint64(key).tolist() == [k for k, _ in expected]
        assert np.asarray(label_hash(key[0], seed, classes)).tolist() == [y for _, y in expected]


@pytest.mark.parametrize(
    ("values", "seed", "classes", "key", "label"),
    [
        ([0.0, 0.0], 0, 10, 0, 7),
        ([1.0, 2.0, 3.0], 0, 10, 0x02E21DD83AA69622, 3),
        ([1.0, 2.0, 3.0], 1, 10, 0x02E21DD83AA69622, 5),
        ([-0.5, 0.25, 0.001, 7.0], 0, 1000, 0x5B2BF8E2167BBEDC, 414),
        ([3.0, 2.0, 1.0], 0, 10, 0x76EF95C72D6823A5, 0),
    ],
)
def test_keys_and_labels_never_change(values, seed, classes, key, label):
    """Stored keys and every random label depend on them; research/scores.md prints the same."""
    found = row_key(value_words(np.array([values], dtype=np.float32)))
    assert int(key_as_uint64(found)[0]) == key
    assert int(label_hash(found[0], seed, classes)[0]) == label


def test_negative_zero_is_zero():
    assert (
        gdscore.Outputs(logits=np.array([[-0.0, 1.0]])).row_keys()
        == gdscore.Outputs(logits=np.array([[0.0, 1.0]])).row_keys()
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_ids_of_any_width_and_library(dtype):
    ids = np.array([0, 1, -1, 100, -128], dtype=dtype)
    expected = [reference([int(i) & M, int(i) >> 32 & M], 0, 10)[0] for i in ids]
    for library in LIBRARIES:
        assert key_as_uint64(row_key(id_words(to_library(ids, library)))).tolist() == expected


def test_unsigned_and_large_ids():
    ids = np.array([2**63 + 5, 7], dtype=np.uint64)
    expected = [reference([int(i) & M, int(i) >> 32 & M], 0, 10)[0] for i in ids]
    assert key_as_uint64(row_key(id_words(ids))).tolist() == expected
    small = np.array([200, 7], dtype=np.uint8)
    assert (
        key_as_uint64(row_key(id_words(small))).tolist()
        == key_as_uint64(row_key(id_words(small.astype(np.int64)))).tolist()
    )
    strided = np.arange(20)[::3]
    assert (
        key_as_uint64(row_key(id_words(strided))).tolist() == key_as_uint64(row_key(id_words(strided.copy()))).tolist()
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_64_bit_ids_beside_any_library(library):
    ids = np.array([1, 2**40 + 1, 2**41 + 1, -(2**50)])
    out = gdscore.Outputs(logits=to_library(np.zeros((4, 3), dtype=np.float32), library), ids=ids)
    expected = [reference([int(i) & M, int(i) >> 32 & M], 5, 3) for i in ids]
    assert key_as_uint64(out.row_keys()).tolist() == [key for key, _ in expected]
    assert np.asarray(out.random_labels(5)).tolist() == [label for _, label in expected]


def test_strings_keep_their_key_at_any_padding():
    short, long = np.array(["a", "bc"]), np.array(["a", "bc", "something longer"])
    assert (key_as_uint64(row_key(id_words(short))) == key_as_uint64(row_key(id_words(long)))[:2]).all()
    as_objects = gdscore.Outputs(logits=np.zeros((2, 3)), ids=np.array(["a", "bc"], dtype=object))
    as_strings = gdscore.Outputs(logits=np.zeros((2, 3)), ids=short)
    assert (as_objects.random_labels(0) == as_strings.random_labels(0)).all()
    beside_torch = gdscore.Outputs(logits=to_library(np.zeros((2, 3)), "torch"), ids=short)
    assert beside_torch.random_labels(0).tolist() == as_strings.random_labels(0).tolist()


def test_few_collisions_also_on_coarse_values():
    grid = np.stack(np.meshgrid(*[np.arange(22, dtype=np.float16)] * 4), axis=-1).reshape(-1, 4)
    keys = key_as_uint64(row_key(value_words(grid)))
    assert len(np.unique(keys)) == len(grid) == 22**4
    high = keys >> np.uint64(32)
    assert len(grid) - len(np.unique(high)) < 25  # 6.4 expected of random 32-bit numbers
