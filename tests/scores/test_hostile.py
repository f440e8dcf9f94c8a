"""Huge, odd and damaged input: a finite number or a `GdscoreError`, never NaN, a raw exception or a NumPy warning."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import random
import struct
import sys
import threading
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pytest
import torch

import gdscore
from gdscore._files import arrays_to_bytes, read_arrays
from tests.data import TARGET_SCORES, arrays_of, made, ready, to_library

pytestmark = pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")

OPTIONS = {
    "gdscore": [
        {"label_rule": rule, "loss": loss, "batch_size": size, "p": p, "log": log}
        for rule, loss, size, p, log in itertools.product(
            ("mixed", "uniform", "expected"),
            ("cross_entropy", "entropy", "smoothing"),
            (32, None),
            (0.3, 2, math.inf),
            (False, True),
        )
    ],
    "atc": [{}, {"score": "confidence"}, {"variant": "published"}],
    "agreescore": [{}, {"soft": True}],
    "frechet": [{}, {"squared": False}],
    **{name: [{}, {"variant": "published"}] for name in ("mano", "dispersion", "cot", "cott")},
}
HUGE = [("float32", 1e20), ("float32", 3e38), ("float64", 1e160), ("float64", 1e308)]


def exploded(dtype: str, size: float, names: tuple[str, ...], library: str = "numpy") -> gdscore.Outputs:
    rng = np.random.default_rng(0)
    given = {k: a if k == "labels" else a.astype(dtype) for k, a in arrays_of(100, classes=4, features=6).items()}
    for name in names:
        given[name] = (size * rng.uniform(-1, 1, given[name].shape)).astype(dtype)
    return gdscore.Outputs(**{k: to_library(a, library) for k, a in given.items()})


def number_or_refusal(compute) -> float | str:
    """The number, or the message of the refusal; anything else is a failure."""
    try:
        value = compute()
    except gdscore.GdscoreError as error:
        return str(error)
    assert np.all(np.isfinite(value))
    return value


class TestHugeValues:
    @pytest.mark.parametrize("name", TARGET_SCORES)
    @pytest.mark.parametrize(("dtype", "size"), HUGE)
    def test_a_finite_number_or_a_refusal(self, name, dtype, size):
        usual = exploded(dtype, 1.0, ())
        every = ("logits", "features", "peer_logits", "batch_logits", "rotation_logits")
        for names in (("features",), ("logits",), every):
            huge = exploded(dtype, size, names)
            pairs = [(usual, huge), (huge, usual), (huge, huge)]
            for options in OPTIONS.get(name, [{}]):
                for reference, target in pairs if gdscore.create_score(name).reference_inputs else pairs[:1]:
                    score = gdscore.create_score(name, **options)
                    if not isinstance(number_or_refusal(lambda s=score, r=reference: s.fit(r) and 0.0), str):
                        score.update(target)
                        number_or_refusal(score.compute)
                        number_or_refusal(lambda s=score: s.finish(s.statistics()))

    @pytest.mark.parametrize(
        ("name", "library"),
        [*((name, "torch") for name in TARGET_SCORES), *((name, "jax") for name in ("gdscore", "frechet", "mano"))],
    )
    def test_other_libraries(self, name, library):
        usual = exploded("float32", 1.0, (), library)
        for names in (("features",), ("logits", "peer_logits", "batch_logits")):
            huge = exploded("float32", 3e38, names, library)
            number_or_refusal(lambda h=huge: ready(name, usual).update(h).compute())

    @pytest.mark.parametrize(
        ("name", "size", "cause"),
        [("gdscore", 3e38, "features"), ("gradnorm", 3e38, "features"), ("mano", 1e20, "logits")],
    )
    def test_the_cause_is_named(self, name, size, cause):
        given = dict(arrays_of(100, classes=4, features=6))
        given[cause] = np.full_like(given[cause], size)
        out = gdscore.Outputs(**given)
        score = gdscore.create_score(name).update(out)
        for call in (score.compute, lambda: score.finish(score.statistics())):
            with pytest.raises(gdscore.GdscoreError, match=f"`{name}` cannot be computed: values of `.*{cause}"):
                call()
        table = gdscore.score_all(out)
        assert "so large" in table.skipped[name]
        assert all(math.isfinite(value) for value in table.values())

    def test_float32_features_of_1e20_have_a_distance_and_a_dispersion(self):
        usual, scale = exploded("float64", 1.0, ()), 2.0**66
        huge = gdscore.Outputs(logits=usual.logits, features=usual.features * scale)
        assert gdscore.score("frechet", huge, reference=huge[:60]) == pytest.approx(
            scale**2 * gdscore.score("frechet", usual, reference=usual[:60]), rel=1e-9
        )
        assert gdscore.score("dispersion", huge) == pytest.approx(
            gdscore.score("dispersion", usual) + 2 * math.log(scale)
        )

    @pytest.mark.parametrize("library", ["numpy", "torch"])
    def test_features_whose_products_overflow(self, library):
        usual = {"logits": to_library(made(100).logits, library)}
        for rows, size in itertools.product((5, 100), (1e77, 1e120, 1e150)):
            x = to_library(size * np.random.default_rng(0).normal(size=(100, 6)), library)
            out = gdscore.Outputs(**usual, features=x)
            number_or_refusal(lambda o=out, n=rows: gdscore.score("frechet", o[:n], reference=o))

    def test_beyond_float64_frechet_and_dispersion_name_the_cause(self):
        usual, huge = exploded("float64", 1.0, ()), exploded("float64", 1e160, ("features",))
        with pytest.raises(gdscore.GdscoreError, match="`frechet` cannot be computed: values of `features`"):
            gdscore.score("frechet", huge, reference=usual)
        with pytest.raises(gdscore.GdscoreError, match="`frechet` cannot be computed: values of `features`"):
            gdscore.score("frechet", usual, reference=huge)
        with pytest.raises(gdscore.GdscoreError, match="`dispersion` cannot be computed: values of `features"):
            gdscore.score("dispersion", huge)

    def test_a_score_that_gives_nan_is_refused(self):
        class Broken(type(gdscore.create_score("confscore"))):
            def result(self, stats):
                return math.nan

        with pytest.raises(gdscore.GdscoreError, match="cannot be computed"):
            Broken().update(made(10)).compute()

    def test_derived_arrays_of_huge_logits_give_no_numpy_warning(self):
        for dtype, size in HUGE:
            out = gdscore.Outputs(logits=(size * np.array([[0.9, -0.9, 0.0]])).astype(dtype))
            for name in ("probabilities", "confidence", "one_minus_confidence", "entropy", "logsumexp"):
                assert np.isfinite(getattr(out, name)).all(), name
            out.row_keys()
            number_or_refusal(lambda o=out: o.with_temperature(1e-25).confidence)


class TestByteOrderAndPrecision:
    @pytest.mark.parametrize("name", TARGET_SCORES)
    def test_big_endian_is_as_native(self, name):
        ids = np.arange(700) * 7919
        given = {**arrays_of(700, noise=2.0), "ids": ids}
        reference = made(600, seed=3)
        swapped = {k: a.astype(a.dtype.newbyteorder(">")) for k, a in given.items()}
        turned = {k: a.astype(a.dtype.newbyteorder(">")) for k, a in arrays_of(600, seed=3).items()}
        expected = ready(name, reference).update(gdscore.Outputs(**given)).compute()
        assert ready(name, gdscore.Outputs(**turned)).update(gdscore.Outputs(**swapped)).compute() == expected

    @pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", np.longdouble])
    def test_values_survive(self, dtype):
        z = np.random.default_rng(0).normal(size=(20, 3)).astype(dtype)
        out = gdscore.Outputs(logits=z, features=z)
        native = z.astype(np.float64) if z.dtype.itemsize > 4 else z.astype(z.dtype.newbyteorder("="))
        twin = gdscore.Outputs(logits=native, features=native)
        assert out.arrays["logits"].dtype == native.dtype
        np.testing.assert_array_equal(out.probabilities, twin.probabilities)
        assert gdscore.score("gdscore", out) == gdscore.score("gdscore", twin)

    @pytest.mark.parametrize("kind", ["i2", "u4", "i8", "u8", "U3"])
    def test_ids_hash_as_native(self, kind):
        ids = np.arange(300).astype(kind)
        z = made(300).logits
        keys = [
            gdscore.Outputs(logits=z, ids=i).row_keys()[0].tolist()
            for i in (ids, ids.astype(ids.dtype.newbyteorder(">")))
        ]
        assert keys[0] == keys[1]

    def test_index_arrays(self):
        out = made(10, "torch")
        assert out[np.array([3, 1], dtype=">i4")].labels.tolist() == out.labels[[3, 1]].tolist()
        assert out[torch.tensor([3, 1], dtype=torch.uint8)].labels.tolist() == out.labels[[3, 1]].tolist()

    def test_a_state_of_the_other_byte_order(self):
        score = ready("atc", made(300)).update(made(1300))
        state = {
            k: v.astype(v.dtype.newbyteorder(">")) if isinstance(v, np.ndarray) else v
            for k, v in score.state_dict().items()
        }
        assert gdscore.restore_score(state).compute() == score.compute()

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_float8(self, dtype):
        z = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
        assert gdscore.score("confscore", gdscore.Outputs(logits=z)) == gdscore.score(
            "confscore", gdscore.Outputs(logits=z.float())
        )
        other = ml_dtypes.float8_e4m3fn if dtype == torch.float8_e4m3fn else ml_dtypes.float8_e5m2
        host = z.float().numpy()
        assert gdscore.score("confscore", gdscore.Outputs(logits=host.astype(other))) == gdscore.score(
            "confscore", gdscore.Outputs(logits=host)
        )


class TestMerging:
    @pytest.mark.parametrize("name", TARGET_SCORES)
    def test_a_score_is_not_merged_into_itself(self, name):
        score = ready(name, made(300)).update(made(200))
        before = score.compute()
        with pytest.raises(gdscore.GdscoreError, match="its rows would count twice"):
            score.merge(score)
        assert (score.compute(), score.n_rows) == (before, 200)

    @pytest.mark.parametrize("name", ["gdscore", "confscore", "cot"])
    def test_with_and_without_ids(self, name):
        z = arrays_of(100)
        plain = gdscore.Outputs(**z)
        named = gdscore.Outputs(**z, ids=np.arange(100))
        score = ready(name, plain).update(plain)
        before = score.compute()
        with pytest.raises(gdscore.GdscoreError, match="arrays to stay .* as in the score that it is merged into"):
            score.merge(ready(name, plain).update(named))
        assert score.compute() == before
        assert ready(name, plain).merge(score).update(plain).n_rows == 200
        with pytest.raises(gdscore.GdscoreError, match="arrays to stay"):
            ready(name, plain).merge(score).update(named)

    @pytest.mark.parametrize("rows", [100, 1024])
    def test_a_restored_score_remembers_its_arrays(self, rows):
        z = made(rows)
        again = gdscore.restore_score(gdscore.create_score("gdscore").update(z).state_dict())
        soft = gdscore.Outputs(probabilities=z.probabilities, features=z.features)
        with pytest.raises(gdscore.GdscoreError, match="arrays to stay"):
            again.update(soft)
        assert math.isfinite(again.update(z).compute())
        fresh = gdscore.create_score("gdscore").update(soft)
        with pytest.raises(gdscore.GdscoreError, match="arrays to stay .* as in the score that it is merged into"):
            fresh.merge(again)

    def test_other_class_names(self):
        z = made(100, classes=3).logits
        first, second = (gdscore.Outputs(logits=z, class_names=list(names)) for names in ("abc", "bac"))
        score = gdscore.create_score("confscore").update(first).update(gdscore.Outputs(logits=z))
        with pytest.raises(gdscore.GdscoreError, match="same classes in the same order"):
            score.update(second)
        with pytest.raises(gdscore.GdscoreError, match="same classes in the same order"):
            score.merge(gdscore.create_score("confscore").update(second))
        assert score.n_rows == 200
        again = gdscore.restore_score(score.state_dict())
        with pytest.raises(gdscore.GdscoreError, match="same classes in the same order"):
            again.update(second)
        assert again.update(first).n_rows == 300


class TestOddOptions:
    @pytest.mark.parametrize(
        "p", [10**400, -(10**400), 10**5000, "1", None, math.nan, True, 1j, [1], np.ones(2)], ids=range(10)
    )
    def test_orders(self, p):
        with pytest.raises(gdscore.GdscoreError, match="`p` to be a number larger than 0"):
            gdscore.create_score("gdscore", p=p)

    def test_large_whole_numbers(self):
        out = made(300)
        for options in ({"batch_size": 10**400}, {"seed": 10**400}):
            assert math.isfinite(gdscore.score("gdscore", out, **options))
        assert math.isfinite(gdscore.score("cot", out, reference=out, k=10**400))

    @pytest.mark.parametrize(
        "scores", [5, [5], [None], {"gdscore": 5}, {"gdscore": {1: 2}}, [["gdscore"]], {1: {}}, [], {}]
    )
    def test_choice_of_scores(self, scores):
        with pytest.raises(gdscore.GdscoreError, match="scores|options"):
            gdscore.score_all(made(10), scores=scores)

    @pytest.mark.parametrize("name", [5, None, ["gdscore"], "", b"gdscore", np.ones(2)])
    def test_names(self, name):
        with pytest.raises(gdscore.GdscoreError, match="Unknown score"):
            gdscore.create_score(name)
        with pytest.raises(gdscore.GdscoreError):
            gdscore.list_scores(available=[name])

    def test_names_to_register(self):
        with pytest.raises(gdscore.GdscoreError, match="name of a score to be a string"):
            gdscore.register_score(5)(type(gdscore.create_score("entropy")))


NAMES = [f"class {k}" for k in range(10)]
STATE = ready("cott", made(300).with_class_names(NAMES)).update(made(1300).with_class_names(NAMES)).state_dict()


class TestDamagedStates:
    @pytest.mark.parametrize(
        "options", ["[1]", "5", "null", '"p"', "{x", "[" * 100_000, '{"p": "x"}', '{"q": 1}', '{"": 1}', 5, None, b"{}"]
    )
    def test_odd_options(self, options):
        with pytest.raises(gdscore.GdscoreError):
            gdscore.restore_score({**gdscore.create_score("gdscore").state_dict(), "options": options})

    @pytest.mark.parametrize("name", TARGET_SCORES)
    def test_a_changed_file_is_refused(self, name):
        """Every value is under a checksum of its file: one changed byte of it never becomes a number."""
        written = arrays_to_bytes(ready(name, made(300)).update(made(1300)).state_dict())
        rng = np.random.default_rng(0)
        for value in ("stats.", "learned.", "pending.", "rows", "options"):
            members = [
                entry for entry in zipfile.ZipFile(io.BytesIO(written)).infolist() if entry.filename.startswith(value)
            ]
            for entry in members:
                header = written[entry.header_offset :][:30]
                start = entry.header_offset + 30 + sum(struct.unpack("<HH", header[26:]))
                changed = bytearray(written)
                changed[start + int(rng.integers(entry.file_size))] ^= 1 << int(rng.integers(8))
                with pytest.raises(gdscore.GdscoreError):
                    read_arrays(bytes(changed))

    @pytest.mark.parametrize("key", sorted(key for key in STATE if "." not in key))
    def test_a_part_that_is_missing(self, key):
        with pytest.raises(gdscore.GdscoreError):
            gdscore.restore_score({part: value for part, value in STATE.items() if part != key})

    @pytest.mark.parametrize("state", [None, 5, [], {}, {1: 2}, {"name": "gdscore"}, {"format": np.ones(3)}, "x"])
    def test_no_states(self, state):
        with pytest.raises(gdscore.GdscoreError):
            gdscore.restore_score(state)
        with pytest.raises(gdscore.GdscoreError):
            gdscore.create_score("gdscore").load_state_dict(state)

    def test_a_state_is_json_and_arrays_only(self):
        for value in STATE.values():
            assert isinstance(value, str | int | float | np.ndarray | np.generic)
        json.loads(STATE["options"])


def settings_of_the_process() -> tuple:
    return (
        list(warnings.filters),
        np.geterr(),
        torch.get_float32_matmul_precision(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        random.getstate(),
        dict(os.environ),
    )


def test_no_global_state_is_touched_by_threads():
    """Fits and scores in many threads: no warning of one is an error of another, and no setting changes."""
    before = settings_of_the_process()
    out = made(400, "torch", noise=2.0)
    right = gdscore.Outputs(logits=9.0 * np.eye(3), labels=np.arange(3))  # determines no temperature
    expected = gdscore.score("gdscore", out), gdscore.score("frechet", out, reference=out)
    failures: list[BaseException] = []
    filters = []

    def work():
        try:
            for _ in range(20):
                assert gdscore.find_temperature(right) == (0.01, False, 3)
                assert gdscore.calibration_error(out) < 1
                found = gdscore.score("gdscore", out), gdscore.score("frechet", out, reference=out)
                assert found == expected
                filters.append(len(warnings.filters))
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert set(filters) == {len(before[0])}
    assert settings_of_the_process() == before


def test_torch_settings_are_restored_by_the_last_thread():
    """With reduced precision switched on, threads that overlap give the same number and leave the setting."""
    out = made(300, "torch", noise=2.0)
    expected = gdscore.score("gdscore", out)
    torch.set_float32_matmul_precision("medium")
    try:
        values: list[float] = []
        threads = [threading.Thread(target=lambda: values.append(gdscore.score("gdscore", out))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values == [expected] * 8
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
