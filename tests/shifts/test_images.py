"""Corruptions as callables: options and errors, libraries, batches, severities."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from gdscore import GdscoreError, shifts
from gdscore.shifts._families import IMAGES
from gdscore.shifts.images import _corrupted as corrupted_where_they_are

X = np.random.default_rng(0).random((3, 3, 16, 16), dtype=np.float32)


def test_names():
    names = shifts.corruption_names()
    assert len(names) == len(set(names)) >= 19
    assert names[0] == "gaussian_noise"
    names.clear()
    assert shifts.corruption_names()


def test_corruption_is_a_callable_with_a_family():
    shift = shifts.Corruption("fog", 3)
    assert shift.family == "fog"
    np.testing.assert_array_equal(shift(X), shifts.Corruption("fog", 3)(X))
    np.testing.assert_array_equal(shift(X[1:], start=1), shift(X)[1:])
    assert repr(shift) == "Corruption('fog', severity=3)"
    assert repr(shifts.Corruption("fog", 3, seed=2)) == "Corruption('fog', severity=3, seed=2)"
    assert shift == shifts.Corruption("fog", np.int64(3))
    assert len({shift, shifts.Corruption("fog", 3)}) == 1
    with pytest.raises(AttributeError):
        shift.severity = 4


def test_corruptions():
    chosen = shifts.corruptions()
    assert len(chosen) == 8 * len(shifts.corruption_names())
    assert [s.severity for s in chosen[:8]] == list(range(1, 9))
    few = shifts.corruptions(iter([1, 5]), names=iter(["fog", "snow"]), seed=4)
    assert [(s.name, s.severity, s.seed) for s in few] == [("fog", 1, 4), ("fog", 5, 4), ("snow", 1, 4), ("snow", 5, 4)]


def test_composition_applies_its_parts_in_turn():
    parts = (shifts.Corruption("gaussian_noise", 2), shifts.Corruption("pixelate", 5))
    both = shifts.Composition(parts)
    np.testing.assert_array_equal(both(X), parts[1](parts[0](X)))
    np.testing.assert_array_equal(both(X[1:], start=1), both(X)[1:])
    assert both.family == "gaussian_noise+pixelate"
    assert repr(both) == "Composition(gaussian_noise 2 → pixelate 5)"
    whole = (X * 255).astype(np.uint8)
    assert both(whole).dtype == np.uint8


def test_compositions():
    made = shifts.compositions()
    assert len(made) == 100
    assert made[0].family == "+".join(p.name for p in made[0].parts)
    assert made[:20] == shifts.compositions(20)
    assert made != shifts.compositions(100, seed=1)
    assert {len(c.parts) for c in made} == {2, 3}
    assert all(len({p.name for p in c.parts}) == len(c.parts) for c in made)
    assert {p.name for c in made for p in c.parts} == set(shifts.corruption_names())
    assert {p.severity for c in made for p in c.parts} == {1, 2, 3, 4, 5}
    assert len({c.parts for c in made}) == 100
    assert len({c.parts[0].seed for c in made}) == 100
    assert shifts.compositions(0) == []


def test_compositions_of_the_callers_choice():
    made = shifts.compositions(30, severities=[8], names=["fog", "snow", "fog"], lengths=[1, 2])
    assert {p.name for c in made for p in c.parts} == {"fog", "snow"}
    assert {p.severity for c in made for p in c.parts} == {8}
    assert {len(c.parts) for c in made} == {1, 2}


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_compositions_stay_in_the_library(convert):
    for shift in shifts.compositions(3, seed=2, names=["contrast", "brightness", "gaussian_noise"]):
        got = shift(convert(X))
        assert type(got) is type(convert(X))
        assert got.shape == X.shape
        np.testing.assert_allclose(np.asarray(got), shift(X), atol=2e-3)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X.tolist(), "array of NumPy or PyTorch, but got list"),
        (jnp.asarray(X), r"array of NumPy or PyTorch, but got ArrayImpl: give numpy.asarray\(images\)"),
        (X[0], r"shape \(N, C, H, W\), but got shape \(3, 16, 16\); add the batch axis"),
        (X[None], "shape \\(N, C, H, W\\), but got shape"),
        (X.transpose(0, 2, 3, 1), "channels last: transpose to \\(N, C, H, W\\) with axes \\(0, 3, 1, 2\\)"),
        (X[:, :2], "1 or 3 channels"),
        (np.concatenate([X, X[:, :1]], axis=1), "1 or 3 channels"),
        (X[:0], "at least one image"),
        (X[:, :, :7], "at least 8×8 pixels, but got 7×16"),
        (X * 255, "from .* to 25.*: divide by 255 or pass uint8"),
        (X - 0.5, "undo the normalisation"),
        (np.where(np.arange(3)[:, None, None, None] == 1, np.nan, X), "without NaN, but image 1 has some"),
        (np.where(X > 0.9, np.inf, X), "to inf"),
        ((X * 255).astype(np.int64), "floats in \\[0, 1\\] or of uint8, but got int64"),
        (X > 0.5, "but got bool"),
        (X + 0j, "but got complex"),
        (torch.from_numpy((X * 255).astype(np.int32)), "but got torch.int32"),
        (torch.from_numpy(np.where(X > 0.9, np.nan, X)), "without NaN"),
    ],
)
def test_unusable_images_are_refused(images, message):
    with pytest.raises(GdscoreError, match=message):
        shifts.Corruption("contrast", 1)(images)


def test_a_little_over_one_is_forgiven():
    got = shifts.Corruption("contrast", 1)(np.where(X > 0.9, 1.0005, X))
    np.testing.assert_array_equal(got, shifts.Corruption("contrast", 1)(np.where(X > 0.9, 1.0, X)))


@pytest.mark.parametrize("severity", [0, 9, 2.0, True, "3", None])
def test_unusable_severities_are_refused(severity):
    with pytest.raises(GdscoreError, match="integer from 1 to 8"):
        shifts.Corruption("fog", severity)(X)


def test_unusable_options_are_refused():
    with pytest.raises(GdscoreError, match="Unknown shift family 'gausian_noise': did you mean 'gaussian_noise'"):
        shifts.Corruption("gausian_noise", 1)(X)
    with pytest.raises(GdscoreError, match="Unknown shift family 3"):
        shifts.corruptions(names=[3])
    with pytest.raises(GdscoreError, match="`start`"):
        shifts.Corruption("fog", 1)(X, start=-1)
    with pytest.raises(GdscoreError, match="`seed`"):
        shifts.Corruption("fog", 1, seed=0.5)(X)
    with pytest.raises(GdscoreError, match="`count`"):
        shifts.compositions(-1)
    with pytest.raises(GdscoreError, match="at least as many names as the largest length"):
        shifts.compositions(names=["fog"])
    with pytest.raises(GdscoreError, match="one or more `Corruption`"):
        shifts.Composition(())
    with pytest.raises(GdscoreError, match="one or more `Corruption`"):
        shifts.Composition(("fog",))


NAMES = shifts.corruption_names()
DETERMINISTIC = {
    *("defocus_blur", "zoom_blur", "gaussian_blur", "brightness"),
    *("contrast", "pixelate", "jpeg_compression", "saturate"),
}


BY_DISTRIBUTION = ["jpeg_compression", "shot_noise"]
WITHIN = [name for name in NAMES if name not in BY_DISTRIBUTION]

pytestmark = pytest.mark.usefixtures("one_thread")


def images(channels: int, size: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(size).random((count, channels, size, size), dtype=np.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [8, 28, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_torch_is_numpy_on_the_host(name, channels, size):
    x = images(channels, size)
    for severity in (1, 5):
        expected = shifts.Corruption(name, severity, seed=3)(x)
        got = shifts.Corruption(name, severity, seed=3)(torch.from_numpy(x))
        assert isinstance(got, torch.Tensor)
        assert got.dtype == torch.float32
        np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 8), (3, 32), (3, 64)])
def test_what_an_accelerator_computes_agrees_with_numpy(name, channels, size):
    x = images(channels, size)
    for severity in (1, 3, 5, 8):
        part = shifts.Corruption(name, severity, seed=3)
        got = corrupted_where_they_are(torch.from_numpy(x), [part], 0)
        assert isinstance(got, torch.Tensor)
        np.testing.assert_allclose(got.numpy(), part(x), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", BY_DISTRIBUTION)
@pytest.mark.parametrize("severity", [2, 8])
def test_codecs_and_counts_have_the_moments_of_numpys(name, severity, photos):
    x = photos(32, 250)
    part = shifts.Corruption(name, severity, seed=3)
    expected, got = part(x), corrupted_where_they_are(torch.from_numpy(x), [part], 0).numpy()
    assert got.mean() == pytest.approx(expected.mean(), abs=2e-4)
    assert got.std() == pytest.approx(expected.std(), abs=2e-4)
    assert (got - x).std() == pytest.approx((expected - x).std(), rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_batches_make_no_difference_to_what_an_accelerator_computes(name):
    x = torch.from_numpy(images(3, 24, count=9))
    for severity in (3, 8):
        part = shifts.Corruption(name, severity, seed=1)
        whole = corrupted_where_they_are(x, [part], 5)
        assert torch.equal(corrupted_where_they_are(x[4:7], [part], 9), whole[4:7])


@pytest.mark.parametrize("name", NAMES)
def test_keeps_shape_dtype_and_range(name, photos):
    x = photos(32, 4)[:, :, :24]
    expected = shifts.Corruption(name, 4)(x)
    assert expected.shape == x.shape
    assert expected.min() >= 0
    assert expected.max() <= 1
    assert not np.array_equal(expected, x)
    wide = shifts.Corruption(name, 4)(x.astype(np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, expected)
    for half in (torch.float16, torch.bfloat16):
        rough = shifts.Corruption(name, 4)(torch.from_numpy(x).to(half))
        assert rough.dtype == half
        assert rough.min() >= 0
        assert rough.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_uint8_stays_uint8(name, photos):
    x = np.round(photos(32, 4) * 255).astype(np.uint8)
    got = shifts.Corruption(name, 5)(x)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(shifts.Corruption(name, 5)(torch.from_numpy(x)).numpy(), got)
    as_floats = shifts.Corruption(name, 5)(x.astype(np.float32) * np.float32(1 / 255))
    np.testing.assert_allclose(got / 255, as_floats, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_batches_make_no_difference(name, convert):
    x = convert(images(3, 33, count=7))
    for severity in (2, 8):
        whole = shifts.Corruption(name, severity, seed=5)(x, start=10)
        for begin, end in ((0, 3), (3, 7), (6, 7)):
            part = shifts.Corruption(name, severity, seed=5)(x[begin:end], start=10 + begin)
            np.testing.assert_array_equal(np.asarray(part), np.asarray(whole[begin:end]))


@pytest.mark.parametrize("name", NAMES)
def test_chunks_make_no_difference(name, monkeypatch):
    x = images(3, 16, count=5)
    whole = shifts.Corruption(name, 5)(x)
    monkeypatch.setattr("gdscore.shifts.images._CHUNK_ON_HOST", 2 * 3 * 16 * 16)
    np.testing.assert_array_equal(shifts.Corruption(name, 5)(x), whole)


@pytest.mark.parametrize("name", NAMES)
def test_seed_changes_random_families_only(name, photos):
    x = photos(32, 3)
    first, second = (shifts.Corruption(name, 4, seed=seed)(x) for seed in (0, 1))
    assert np.array_equal(first, second) == (name in DETERMINISTIC)
    np.testing.assert_array_equal(shifts.Corruption(name, 4)(x), first)
    same = np.repeat(x[:1], 3, axis=0)
    each = shifts.Corruption(name, 4)(same)
    assert np.array_equal(each[0], each[2]) == (name in DETERMINISTIC)


@pytest.mark.parametrize("name", NAMES)
def test_input_is_read_only_and_of_any_strides(name):
    x = images(3, 20)
    expected = shifts.Corruption(name, 5)(x)
    strided = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    strided.flags.writeable = False
    np.testing.assert_array_equal(shifts.Corruption(name, 5)(strided), expected)
    tensor = torch.from_numpy(x.copy()).to(memory_format=torch.channels_last).requires_grad_()
    got = shifts.Corruption(name, 5)(tensor)
    assert not got.requires_grad
    np.testing.assert_array_equal(got.numpy(), expected)
    np.testing.assert_array_equal(tensor.detach().numpy(), x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_gpu_agrees_with_numpy(name, photos):
    for size in (32, 64):
        x = photos(size, 200)
        for severity in (1, 3, 5, 8):
            got = shifts.Corruption(name, severity)(torch.from_numpy(x).cuda())
            assert got.is_cuda
            assert torch.equal(shifts.Corruption(name, severity)(torch.from_numpy(x[3:50]).cuda(), start=3), got[3:50])
            expected = shifts.Corruption(name, severity)(x)
            if name in BY_DISTRIBUTION:
                assert got.mean().item() == pytest.approx(expected.mean(), abs=1e-3)
                assert got.std().item() == pytest.approx(expected.std(), abs=1e-3)
            else:
                np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=0, atol=1e-3)


# Severities at which the benchmark's own parameters are milder, in squared distance, than those one step below.
MILDER = {
    "glass_blur": {2, 3, 5},  # more blur before and after, which averages what the shuffling did
    "motion_blur": {4},  # a longer cut of the same trail
    "frost": {4},  # less image behind the same ice
    "spatter": {4},  # water turns to mud
    "elastic_transform": {2, 3, 4, 5},  # less tilt, more bending
    "saturate": {3},  # from less colour to more
}


def distances(x: np.ndarray, name: str) -> list[float]:
    return [float(((shifts.Corruption(name, s)(x) - x) ** 2).mean()) for s in range(1, 9)]


@pytest.mark.parametrize("name", NAMES)
def test_photographs_get_further_away_with_severity(photos, name):
    away = distances(photos(32), name)
    assert away[0] > 0
    for severity in set(range(2, 9)) - MILDER.get(name, set()):
        assert away[severity - 1] > away[severity - 2], severity


@pytest.mark.parametrize("name", NAMES)
def test_digits_get_further_away_with_severity(digits, name):
    away = distances(digits, name)
    tilted = name == "elastic_transform"  # its first severity tilts the most, which moves thin strokes far
    assert max(away[tilted:5]) < away[7]
    assert away[4] < away[5] < away[6] < away[7]


@pytest.mark.parametrize("name", NAMES)
def test_beyond_the_benchmark_large_photographs_get_worse(photos, name):
    x = photos(224, 2)
    away = [float(((shifts.Corruption(name, s)(x) - x) ** 2).mean()) for s in (5, 6, 8)]
    assert away[0] < away[1] < away[2]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_go_from_one_size_to_the_other(name):
    family = IMAGES[name]
    assert len(family.levels) == len(family.px224) == 8
    for severity in range(1, 9):
        sizes = [family.parameters(severity, s, s) for s in (8, 32, 48, 96, 224, 500)]
        assert sizes[0] == sizes[1] == family.levels[severity - 1]
        np.testing.assert_allclose(sizes[4], family.px224[severity - 1], rtol=1e-12)
        assert sizes[4] == sizes[5]
        for values in zip(*sizes[1:5], strict=True):
            steps = np.diff(values)
            assert (steps >= -1e-12).all() or (steps <= 1e-12).all()


def test_size_of_an_oblong_image_is_its_geometric_mean():
    parameters = IMAGES["gaussian_blur"].parameters
    assert parameters(3, 64, 64) == parameters(3, 32, 128)


CELL = Path(__file__).parents[2] / "benchmarks" / "results" / "cells" / "deployed" / "cifar10-resnet18.csv"
NOT_MONOTONE = {"glass_blur", "snow", "spatter", "elastic_transform", "saturate"}


def test_accuracy_falls_with_severity():
    with CELL.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for name in shifts.corruption_names():
        by_severity = {int(row["severity"]): float(row["accuracy"]) for row in rows if row["family"] == name}
        accuracy = [by_severity[severity] for severity in range(1, 6)]
        assert accuracy[4] < accuracy[0], name
        assert all(a >= b for a, b in pairwise(accuracy)) == (name not in NOT_MONOTONE), name
