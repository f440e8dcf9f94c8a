"""NumPy, PyTorch and JAX: images within 1e-3, JPEG and Poisson counts in distribution, where and as they came in."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from gdscore import _arrays as arrays
from gdscore import shifts
from gdscore.shifts.images import _corrupted as corrupted_where_they_are

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
    x = photos(32, 1000)
    part = shifts.Corruption(name, severity, seed=3)
    expected, got = part(x), corrupted_where_they_are(torch.from_numpy(x), [part], 0).numpy()
    assert got.mean() == pytest.approx(expected.mean(), abs=1e-4)
    assert got.std() == pytest.approx(expected.std(), abs=1e-4)
    assert (got - x).std() == pytest.approx((expected - x).std(), rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_batches_make_no_difference_to_what_an_accelerator_computes(name):
    x = torch.from_numpy(images(3, 24, count=9))
    for severity in (3, 8):
        part = shifts.Corruption(name, severity, seed=1)
        whole = corrupted_where_they_are(x, [part], 5)
        assert torch.equal(corrupted_where_they_are(x[4:7], [part], 9), whole[4:7])


@pytest.mark.parametrize(
    ("name", "channels", "severity"),
    [*((name, 3, 3) for name in WITHIN), *((name, 1, 8) for name in ("brightness", "saturate", "snow", "spatter"))],
)
def test_jax_agrees_with_numpy(name, channels, severity):
    """Few shapes, as JAX compiles every operation for each; torch is compared over many, by the same code."""
    x = images(channels, 16)
    expected = shifts.Corruption(name, severity, seed=3)(x)
    got = shifts.Corruption(name, severity, seed=3)(jnp.asarray(x))
    assert arrays.is_jax(got)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=1e-3)


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
