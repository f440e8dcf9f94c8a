"""Arrays of an .npz as people save them."""

import struct
import zipfile

import numpy as np
import pytest

from gdscore.errors import GdscoreError
from gdscore.io import read_outputs

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((10, 3))


def read(path, **options):
    batches = list(read_outputs(path, **options))
    names = batches[0].arrays
    return {name: np.concatenate([batch.arrays[name] for batch in batches]) for name in names}


def test_all_names(tmp_path):
    arrays = {
        "logits": LOGITS,
        "features": RNG.standard_normal((10, 5)).astype(np.float16),
        "labels": np.arange(10, dtype=np.uint8) % 3,
        "peer_logits": LOGITS + 1,
        "batch_logits": LOGITS + 2,
        "rotation_logits": RNG.standard_normal((10, 4, 4)),
        "ids": np.array([f"row é {i}" for i in range(10)]),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays, unknown=np.zeros(3))
        got = read(tmp_path / "x.npz", batch_rows=3)
        assert got.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array)
            assert got[name].dtype == array.dtype


def test_singular_names_and_flat_rotations(tmp_path):
    rotation = RNG.standard_normal((10, 16))
    np.savez(tmp_path / "x.npz", rotation_logits=rotation, label=np.zeros(10, int), id=np.arange(10))
    got = read(tmp_path / "x.npz")
    np.testing.assert_array_equal(got["rotation_logits"], rotation.reshape(10, 4, 4))
    assert {"labels", "ids"} < got.keys()


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_binary_probabilities(tmp_path, shape):
    p = np.array([0.1, 0.2, 0.5, 1.0])
    np.savez(tmp_path / "x.npz", probabilities=p.reshape(shape))
    np.testing.assert_allclose(read(tmp_path / "x.npz", batch_rows=3)["probabilities"], np.stack([1 - p, p], axis=1))


def test_order_and_byte_order(tmp_path):
    np.savez(
        tmp_path / "x.npz", logits=np.asfortranarray(LOGITS), features=LOGITS.astype(">f4"), labels=np.ones(10, ">i2")
    )
    got = read(tmp_path / "x.npz", batch_rows=4)
    np.testing.assert_array_equal(got["logits"], LOGITS)
    np.testing.assert_array_equal(got["features"], LOGITS.astype("f4"))
    assert got["features"].dtype == np.float32
    assert got["labels"].dtype.isnative


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": LOGITS, "y": np.zeros(3)}, r"'logits'.*'features'.*found 'z', 'y'"),
        ({f"c{i}": LOGITS for i in range(20)}, "and 8 more"),
        ({"labels": np.zeros(3, int)}, "found 'labels'"),
        ({}, "found nothing"),
        ({"logits": LOGITS, "probabilities": LOGITS}, "both"),
        ({"logits": LOGITS, "label": np.zeros(10, int), "labels": np.zeros(10, int)}, "'label' and 'labels'"),
        ({"logits": LOGITS, "labels": np.zeros(9, int)}, "`logits` has 10 and `labels` has 9"),
        ({"logits": np.float64(1.0)}, r"shape \(\)"),
        ({"logits": np.zeros((2, 3), int)}, "floating-point.*int64"),
        ({"logits": LOGITS.astype(complex)}, "complex"),
        ({"logits": LOGITS, "labels": np.zeros((10, 2), int)}, "`labels`.*an integer.*int64"),
        ({"logits": LOGITS, "ids": np.array([b"a"] * 10)}, "`ids`.*S1"),
        ({"logits": LOGITS, "ids": np.array(["a", None] * 5, dtype=object)}, "`ids`.*pickled Python objects"),
        ({"logits": np.zeros((0, 3)), "labels": np.zeros(0, int)}, "at least one row"),
        ({"probabilities": np.zeros(3), "threshold": np.array(7.0)}, "`threshold` to be a probability.*is it a perc"),
        ({"probabilities": np.zeros(3), "threshold": np.array([0.1])}, "`threshold` .* to be one number"),
        ({"logits": LOGITS, "class_names": np.arange(3)}, "`class_names` .* to be a list of strings"),
    ],
)
def test_unfit_arrays_are_worded_at_once(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(GdscoreError, match=message) as raised:
        read_outputs(tmp_path / "bad.npz")
    assert "bad.npz" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_empty_files_are_skipped(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.zeros((0, 3)))
    np.savez(tmp_path / "b.npz", logits=LOGITS)
    np.testing.assert_array_equal(read(tmp_path / "*.npz")["logits"], LOGITS)


def test_damage_within_an_array_is_worded(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, logits=LOGITS)
    raw = bytearray(path.read_bytes())
    raw[raw.index(LOGITS.tobytes()) + 100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(GdscoreError, match=r"x\.npz.*damaged"):
        list(read_outputs(path, batch_rows=4))


def test_an_entry_that_is_no_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("logits.npy", "hello")
    with pytest.raises(GdscoreError, match=r"x\.npz.*no array of NumPy"):
        read_outputs(tmp_path / "x.npz")


def test_an_archive_that_ends_within_an_array(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, logits=LOGITS)
    raw = bytearray(path.read_bytes())
    directory = raw.index(b"PK\x01\x02")
    # The directory says that the packed member is half as long as it is.
    raw[directory + 20 : directory + 24] = struct.pack("<I", struct.unpack_from("<I", raw, directory + 20)[0] // 2)
    path.write_bytes(raw)
    with pytest.raises(GdscoreError, match=r"x\.npz"):
        list(read_outputs(path))
