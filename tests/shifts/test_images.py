from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from gdscore import GdscoreError, shifts

X = np.random.default_rng(0).random((3, 3, 16, 16), dtype=np.float32)


def test_names():
    names = shifts.corruption_names()
    assert len(names) == len(set(names)) == 19
    assert names[0] == "gaussian_noise"
    names.clear()
    assert len(shifts.corruption_names()) == 19


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
    assert len(chosen) == 152
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


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"])
def test_compositions_stay_in_the_library(convert):
    for shift in shifts.compositions(3, seed=2, names=["contrast", "brightness", "gaussian_noise"]):
        got = shift(convert(X))
        assert type(got) is type(convert(X))
        assert got.shape == X.shape
        np.testing.assert_allclose(np.asarray(got), shift(X), atol=2e-3)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (X.tolist(), "array of NumPy, PyTorch, JAX or CuPy, but got list"),
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
        (jnp.asarray(np.where(X > 0.9, np.nan, X)), "without NaN"),
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
