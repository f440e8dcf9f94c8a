"""What holds for every score: batching, sharding, saving, merging, libraries, sizes, bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import gdscore
from gdscore._files import read_arrays, write_arrays
from tests.data import LIBRARIES, TARGET_SCORES, batches, made, ready, to_library

pytestmark = pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")

REFERENCE = made(1500, seed=5)
OPTIONS = {
    "gdscore": [{}, {"batch_size": None}, {"batch_size": 100}, {"loss": "entropy"}, {"variant": "published"}],
    "atc": [{}, {"score": "confidence"}, {"variant": "published"}],
    "mano": [{}, {"variant": "published"}],
    "dispersion": [{}, {"variant": "published"}],
    "frechet": [{}, {"squared": False}],
    "cot": [{}, {"k": 500}, {"variant": "published"}],
    "cott": [{}, {"k": 500}],
}
CASES = [(name, options) for name in TARGET_SCORES for options in OPTIONS.get(name, [{}])]
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
# JAX compiles every operation for every shape: all its rows here come in the same few shapes.
JAX_ROWS, JAX_BATCH = 1500, 500
JAX_CASES = [case for case in CASES if case[1] in ({}, {"loss": "entropy"})]
jax_cases = pytest.mark.parametrize(("name", "options"), JAX_CASES, ids=[f"{n}-{o}" for n, o in JAX_CASES])
SIZES = {
    "numpy": (2700, (1025, 333, 100, 7, 411)),
    "torch": (2700, (1025, 333, 100, 411)),
    "jax": (JAX_ROWS, (JAX_BATCH,)),
}


@pytest.mark.parametrize(
    ("library", "name", "options"),
    [
        pytest.param(library, name, options, id=f"{library}-{name}-{options}")
        for library in LIBRARIES
        for name, options in ([("gdscore", {}), ("cot", {})] if library == "jax" else CASES)
    ],
)
def test_same_answer_for_any_loader_batch_size(name, options, library):
    rows, sizes = SIZES[library]
    out = made(rows, library, noise=2.0)
    expected = ready(name, REFERENCE, **options).update(out).compute()
    for size in sizes:
        score = ready(name, REFERENCE, **options)
        for part in batches(out, size):
            score.update(part)
        assert score.compute() == expected, size
    table = gdscore.score_all(
        iter(batches(out, sizes[-1])), reference=iter(batches(REFERENCE, 77)), scores={name: options}
    )
    assert table[name] == expected


@cases
def test_shards_merge_in_any_order(name, options):
    out = made(2560 if options.get("batch_size") != 100 else 2500, noise=2.0)
    step = 512 if options.get("batch_size") != 100 else 500
    expected = ready(name, REFERENCE, **options).update(out).compute()
    shards = batches(out, step)
    if options.get("variant") == "published" and name == "mano":
        shards = [shards[0], *shards[1:]]  # its Φ is the first shard's
        orders = [range(5), (0, 4, 3, 2, 1)]
    else:
        orders = [range(5), (4, 2, 0, 1, 3)]
    for order in orders:
        scores = [ready(name, REFERENCE, **options).update(shards[i]) for i in order]
        first = scores[0]
        for other in scores[1:]:
            first.merge(other)
        assert first.compute() == pytest.approx(expected, rel=1e-6)
        assert first.n_rows == len(out)


@cases
def test_compute_and_merge_leave_the_state_alone(name, options):
    out = made(2200, noise=2.0)
    score, twin = ready(name, REFERENCE, **options), ready(name, REFERENCE, **options)
    other = ready(name, REFERENCE, **options).update(out[:300])
    before = other.compute()
    for part in batches(out, 300):
        score.update(part)
        twin.update(part)
        assert score.compute() == score.compute()
    assert score.compute() == twin.compute()
    score.merge(other)
    assert other.compute() == before
    other.update(out[300:500])
    assert score.n_rows == 2500


@cases
def test_saved_state_goes_on_bit_for_bit(name, options, tmp_path):
    out = made(2200, noise=2.0)
    score = ready(name, REFERENCE, **options).update(out[:1300])
    write_arrays(tmp_path / "state.npz", score.state_dict())
    again = gdscore.restore_score(read_arrays(tmp_path / "state.npz"))
    assert again.compute() == score.compute()
    assert again.update(out[1300:]).compute() == score.update(out[1300:]).compute()
    empty = gdscore.restore_score(ready(name, REFERENCE, **options).state_dict())
    assert empty.update(out).compute() == ready(name, REFERENCE, **options).update(out).compute()


@jax_cases
def test_libraries_agree(name, options):
    values = []
    for library in LIBRARIES:
        reference = made(JAX_ROWS, library, seed=5)
        values.append(ready(name, reference, **options).update(made(JAX_ROWS, library, noise=2.0)).compute())
    assert values[1:] == pytest.approx([values[0]] * 2, rel=1e-5)


@jax_cases
def test_state_moves_between_libraries(name, options):
    out = made(JAX_ROWS, noise=2.0)
    expected = ready(name, REFERENCE, **options).update(out).compute()
    mixed = ready(name, REFERENCE, **options)
    for part, library in zip(batches(out, JAX_BATCH), LIBRARIES, strict=True):
        mixed.update(gdscore.Outputs(**{k: to_library(a, library) for k, a in part.arrays.items()}))
    assert mixed.compute() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", [n for n in TARGET_SCORES if n != "frechet"])
def test_size_means_nothing(name):
    expected = made(12_800, noise=2.0, seed=2)
    large = ready(name, REFERENCE).update(expected).compute()
    small = [ready(name, REFERENCE).update(part).compute() for part in batches(expected, 1280)]
    tolerance = {"abs": 0.15} if name == "dispersion" else {"rel": 0.05}
    assert small[0] == pytest.approx(large, **tolerance)
    # The mean of ten sets has a third of the noise: a smaller bound catches what is not noise.
    assert np.mean(small) == pytest.approx(large, **{kind: bound / 2 for kind, bound in tolerance.items()})


@pytest.mark.parametrize("name", TARGET_SCORES)
def test_one_row(name):
    out = made(1)
    score = ready(name, REFERENCE).update(out)
    if name in ("frechet", "dispersion"):
        with pytest.raises(gdscore.GdscoreError, match="at least"):
            score.compute()
    else:
        assert np.isfinite(score.compute())


@pytest.mark.parametrize("name", TARGET_SCORES)
def test_caller_may_reuse_its_buffers(name):
    out = made(700, noise=2.0)
    expected = ready(name, REFERENCE).update(out).compute()
    buffer = {k: np.empty_like(a[:100]) for k, a in out.arrays.items()}
    score = ready(name, REFERENCE)
    for part in batches(out, 100):
        for k, a in part.arrays.items():
            buffer[k][:] = a
        score.update(gdscore.Outputs(**buffer))
    assert score.compute() == expected


@pytest.mark.parametrize("name", TARGET_SCORES)
def test_strides_and_half_precision(name):
    given = made(900, noise=2.0).arrays
    expected = ready(name, REFERENCE).update(gdscore.Outputs(**given)).compute()
    spread = {k: np.repeat(a, 2, axis=0)[::2] for k, a in given.items()}
    fortran = {k: np.asfortranarray(a) for k, a in given.items()}
    backwards = {k: np.ascontiguousarray(a[::-1])[::-1] for k, a in given.items()}
    for strided in (spread, fortran, backwards):
        assert ready(name, REFERENCE).update(gdscore.Outputs(**strided)).compute() == expected
    half = {k: torch.from_numpy(a) if k == "labels" else torch.from_numpy(a).bfloat16() for k, a in given.items()}
    widened = {k: a if k == "labels" else a.float() for k, a in half.items()}
    assert (
        ready(name, REFERENCE).update(gdscore.Outputs(**half)).compute()
        == ready(name, REFERENCE).update(gdscore.Outputs(**widened)).compute()
    )


def test_torch_settings_do_not_matter_and_stay():
    out = made(256, "torch", noise=2.0)
    for array in out.arrays.values():
        if array.is_floating_point():
            array.requires_grad_(True)
    out = gdscore.Outputs(**out.arrays)
    plain = gdscore.score("gdscore", out)
    torch.set_float32_matmul_precision("medium")
    try:
        assert gdscore.score("gdscore", out) == plain
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.is_grad_enabled()


def test_only_what_a_score_needs_is_kept():
    labelled = made(100)
    unlabelled = made(100, keep=("logits", "features"))
    scores = [gdscore.create_score("gdscore").update(out) for out in (labelled, unlabelled)]
    assert np.isfinite(scores[0].merge(scores[1]).update(unlabelled).compute())
    assert not any("labels" in key or "peer" in key for key in scores[0].state_dict())


class TestBadInput:
    def test_compute_before_update(self):
        with pytest.raises(gdscore.GdscoreError, match="`confscore` has seen no rows: call update before compute"):
            gdscore.create_score("confscore").compute()

    @pytest.mark.parametrize("name", ["gdscore", "agreescore", "rotation", "gradnorm", "dispersion", "frechet"])
    def test_missing_arrays(self, name):
        with pytest.raises(gdscore.GdscoreError, match=f"`{name}` needs `.*but the outputs hold only logits"):
            gdscore.score(name, made(10, keep=("logits",)), reference=REFERENCE)

    @pytest.mark.parametrize("name", ["atc", "doc", "cot", "cott"])
    def test_missing_reference(self, name):
        with pytest.raises(gdscore.GdscoreError, match=f"`{name}` needs labelled reference data"):
            gdscore.score(name, made(10))
        with pytest.raises(gdscore.GdscoreError, match=f"`{name}` needs a reference with `labels`"):
            gdscore.score(name, made(10), reference=made(10, keep=("logits", "features")))

    def test_empty_reference(self):
        with pytest.raises(gdscore.GdscoreError, match="`reference` to have rows"):
            gdscore.score("atc", made(10), reference=iter([]))

    def test_class_count_changes(self):
        score = gdscore.create_score("nuclear").update(made(10))
        with pytest.raises(gdscore.GdscoreError, match="10 classes as in the rows before, but got 7"):
            score.update(made(10, classes=7))
        assert score.n_rows == 10
        with pytest.raises(gdscore.GdscoreError, match="16 features as in the rows before, but got 8"):
            gdscore.create_score("gdscore").update(made(10)).update(made(10, features=8))

    @pytest.mark.parametrize("name", ["cot", "cott", "frechet"])
    def test_target_unlike_reference(self, name):
        with pytest.raises(gdscore.GdscoreError, match="as in the reference"):
            gdscore.score(name, made(10, classes=7, features=9), reference=REFERENCE)

    @pytest.mark.parametrize("name", [n for n in TARGET_SCORES if "logits" in gdscore.create_score(n).reference_inputs])
    def test_another_order_of_classes_than_the_reference(self, name, tmp_path):
        """The columns of two files of one distribution in another order: cot gave 0.67 instead of 0.16."""
        names = [f"class {k}" for k in range(10)]
        reference = made(400, seed=5).with_class_names(names)
        same, other = made(200).with_class_names(names), made(200).with_class_names(names[::-1])
        order = "same classes in the same order"
        with pytest.raises(gdscore.GdscoreError, match=order):
            gdscore.score(name, other, reference=reference)
        with pytest.raises(gdscore.GdscoreError, match=order):
            gdscore.score_all([same, other], reference=reference, scores=[name])
        with pytest.raises(gdscore.GdscoreError, match=order):
            gdscore.create_score(name).fit([reference, other])
        score = gdscore.create_score(name).fit(reference)
        write_arrays(tmp_path / "state.npz", score.update(same).state_dict())
        again = gdscore.restore_score(dict(read_arrays(tmp_path / "state.npz")))
        for part in (other, made(50).with_class_names([f"other {k}" for k in range(10)])):
            with pytest.raises(gdscore.GdscoreError, match=order):
                again.update(part)
        with pytest.raises(gdscore.GdscoreError, match=order):
            again.merge(gdscore.create_score(name).fit(reference.with_class_names(names[::-1])))
        assert again.update(made(50)).update(same).n_rows == 450
        again.fit(made(400, seed=5))  # a fit on classes without names forgets those before
        assert again.update(other).n_rows == 200

    def test_another_order_of_classes_in_a_later_part(self):
        names = [f"class {k}" for k in range(10)]
        first, second = made(200).with_class_names(names), made(200, seed=1).with_class_names(names[::-1])
        for parts in ([first, second], [first, made(20), second], [made(20), first, second]):
            with pytest.raises(gdscore.GdscoreError, match="same classes in the same order"):
                gdscore.score_all(parts)

    def test_features_have_no_order_of_classes(self):
        names = [f"class {k}" for k in range(10)]
        target = made(200).with_class_names(names[::-1])
        assert gdscore.score("frechet", target, reference=made(400).with_class_names(names)) > 0

    def test_not_outputs(self):
        with pytest.raises(gdscore.GdscoreError, match=r"Expected `gdscore.Outputs`, but got ndarray"):
            gdscore.create_score("confscore").update(np.zeros((3, 2)))
        with pytest.raises(gdscore.GdscoreError, match=r"but got ndarray: give gdscore\.Outputs\(logits=…\)"):
            gdscore.score("confscore", np.zeros((3, 2)))
        with pytest.raises(gdscore.GdscoreError, match="`outputs` to be .* but got dict"):
            gdscore.score("confscore", {})

    def test_merging_what_differs(self):
        out = made(200)
        score = gdscore.create_score("gdscore").update(out)
        with pytest.raises(gdscore.GdscoreError, match="equal options"):
            score.merge(gdscore.create_score("gdscore", p=1).update(out))
        with pytest.raises(gdscore.GdscoreError, match="another `gdscore` to merge, but got Entropy"):
            score.merge(gdscore.create_score("entropy").update(out))
        with pytest.raises(gdscore.GdscoreError, match="same reference"):
            ready("atc", REFERENCE).merge(ready("atc", REFERENCE[:100]).update(out))
        with pytest.raises(gdscore.GdscoreError, match="10 classes as in the score that it is merged into, but got 3"):
            gdscore.create_score("nuclear").update(out).merge(
                gdscore.create_score("nuclear").update(made(9, classes=3))
            )

    def test_foreign_states(self):
        state = gdscore.create_score("gdscore").update(made(10)).state_dict()
        with pytest.raises(gdscore.GdscoreError, match="state of `entropy`, but got one of `gdscore`"):
            gdscore.create_score("entropy").load_state_dict(state)
        with pytest.raises(gdscore.GdscoreError, match="saved with"):
            gdscore.create_score("gdscore", p=2).load_state_dict(state)
        with pytest.raises(gdscore.GdscoreError, match="Expected a gdscore score state, version 1"):
            gdscore.create_score("gdscore").load_state_dict({**state, "format": "version 9"})
        with pytest.raises(gdscore.GdscoreError, match="damaged: KeyError"):
            gdscore.restore_score({})


def test_interruption_halfway_leaves_a_usable_score():
    out = made(3000)

    def broken():
        yield out[:1500]
        raise KeyboardInterrupt

    score = gdscore.create_score("gdscore")
    with pytest.raises(KeyboardInterrupt):
        for part in broken():
            score.update(part)
    assert score.update(out[1500:]).compute() == gdscore.score("gdscore", out)


def test_fit_forgets_rows_and_reset_keeps_the_fit():
    score = ready("atc", REFERENCE).update(made(100))
    threshold = score.threshold_
    assert score.reset().n_rows == 0
    assert score.threshold_ == threshold
    assert score.update(made(100)).fit(REFERENCE[:200]).n_rows == 0
    assert score.threshold_ != threshold


def test_invalid_values_on_an_accelerator_are_reported_by_compute(monkeypatch):
    from gdscore import _arrays

    monkeypatch.setattr(_arrays, "on_host", lambda x: False)
    z = np.random.default_rng(0).normal(size=(3000, 4))
    z[2500, 1] = np.nan
    score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=z))
    with pytest.raises(gdscore.GdscoreError, match="rows 2048 to 3071 of those given to `confscore`"):
        score.compute()
    with pytest.raises(gdscore.GdscoreError, match="rows 2048 to 3071"):  # found in rows that fill no chunk yet
        gdscore.restore_score(score.state_dict()).compute()
    with pytest.raises(gdscore.GdscoreError, match="hold NaN"):
        gdscore.create_score("confscore").update(gdscore.Outputs(logits=z[:1500])).merge(score).compute()
    z[1030, 1] = np.inf
    score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=z))
    with pytest.raises(gdscore.GdscoreError, match="rows 1024 to 2047"):
        score.compute()
    with pytest.raises(gdscore.GdscoreError, match="rows 1024 to 2047"):
        gdscore.restore_score(score.state_dict()).compute()
    clean = gdscore.create_score("confscore").update(gdscore.Outputs(logits=z[:1024]))
    assert np.isfinite(clean.compute())
    with pytest.raises(gdscore.GdscoreError, match="finite"):
        clean.merge(score).compute()
    with pytest.raises(gdscore.GdscoreError, match="reference of finite numbers"):
        gdscore.create_score("doc").fit(gdscore.Outputs(logits=z, labels=np.zeros(3000, dtype=int)))


class TestWhatAReviewFound:
    """Each of these was wrong in an earlier version."""

    def test_both_ways_of_setting_torch_precision(self):
        out = made(256, "torch", noise=2.0)
        plain = gdscore.score("gdscore", out)
        places = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
        if not all(hasattr(place, "fp32_precision") for place in places):
            pytest.skip("this torch has the old setting only")
        before = [place.fp32_precision for place in places]
        try:
            places[0].fp32_precision, places[1].fp32_precision = "tf32", "bf16"
            assert gdscore.score("gdscore", out) == plain
            assert [place.fp32_precision for place in places] == ["tf32", "bf16"]
        finally:
            for place, value in zip(places, before, strict=True):
                place.fp32_precision = value
        assert torch.get_float32_matmul_precision() == "highest"

    @pytest.mark.parametrize("name", ["cot", "cott"])
    def test_equal_rows_count_as_their_copies(self, name):
        reference = made(400, seed=3, noise=2.0)
        z = np.tile(reference.logits[:3], (100, 1))
        named = gdscore.Outputs(logits=z, ids=np.arange(300))
        shaken = gdscore.Outputs(logits=z + 1e-5 * np.random.default_rng(0).normal(size=z.shape))
        value = gdscore.score(name, gdscore.Outputs(logits=z), reference=reference)
        assert value == pytest.approx(gdscore.score(name, named, reference=reference), abs=0.011)
        assert value == pytest.approx(gdscore.score(name, shaken, reference=reference), abs=0.011)

    @pytest.mark.parametrize("name", ["cot", "cott"])
    def test_rows_that_share_an_id_or_float32_bits_are_not_merged(self, name):
        reference, out = made(400, seed=3), made(500, noise=2.0, keep=("logits",))
        value = gdscore.score(name, out, reference=reference)
        shared = gdscore.Outputs(logits=out.logits, ids=np.arange(500) // 50)
        assert gdscore.score(name, shared, reference=reference) == pytest.approx(value, abs=1e-6)
        far = gdscore.Outputs(logits=out.logits.astype(np.float64) + 1e8)
        assert gdscore.score(name, far, reference=reference) == pytest.approx(value, abs=1e-3)

    @pytest.mark.parametrize("name", ["atc", "doc", "cot", "cott"])
    def test_classes_of_reference_and_target(self, name):
        with pytest.raises(gdscore.GdscoreError, match="10 classes as in the reference, but got 7"):
            gdscore.score(name, made(300, classes=7), reference=REFERENCE)
        with pytest.raises(gdscore.GdscoreError, match="10 classes as in the rows before, but got 7"):
            gdscore.create_score(name).fit([made(1024), made(1024, classes=7)])
        again = gdscore.restore_score(ready(name, REFERENCE).state_dict())
        with pytest.raises(gdscore.GdscoreError, match="as in the reference"):
            again.update(made(300, classes=7))

    def test_merging_rows_of_equal_logits_in_any_order(self):
        rng = np.random.default_rng(0)
        out = gdscore.Outputs(logits=2 * np.eye(3)[rng.integers(0, 3, 300)], features=np.abs(rng.normal(size=(300, 8))))
        values = []
        for order in itertools.permutations(range(3)):
            scores = [gdscore.create_score("gdscore").update(out[100 * i : 100 * i + 100]) for i in order]
            values.append(scores[0].merge(scores[1]).merge(scores[2]).compute())
        assert values == pytest.approx([values[0]] * 6, rel=1e-12)

    def test_arrays_that_come_and_go_are_refused_at_once(self):
        z = made(300).logits
        score = gdscore.create_score("confscore").update(gdscore.Outputs(logits=z, ids=np.arange(300)))
        with pytest.raises(gdscore.GdscoreError, match="arrays to stay"):
            score.update(gdscore.Outputs(logits=z))
        assert score.n_rows == 300
        assert np.isfinite(score.compute())
        score = gdscore.create_score("confscore").update(made(10)).update(made(10, keep=("logits",)))
        assert score.n_rows == 20
        turned = gdscore.create_score("rotation").update(made(10)).update(made(10, keep=("rotation_logits",)))
        assert turned.n_rows == 20

    @pytest.mark.parametrize(("key", "value"), [("layout", "ten"), ("reference", "{}"), ("pending.colours", [1])])
    def test_a_damaged_part_changes_nothing(self, key, value):
        out = made(200)
        state = gdscore.create_score("gdscore").update(out).state_dict()
        score = gdscore.create_score("gdscore").update(out[:150])
        before = score.compute()
        with pytest.raises(gdscore.GdscoreError, match="damaged"):
            score.load_state_dict(state | {key: value})
        assert (score.compute(), score.n_rows) == (before, 150)

    def test_damaged_states(self):
        state = ready("atc", REFERENCE).update(made(10)).state_dict()
        score = ready("atc", REFERENCE).update(made(20))
        for broken in (
            {"format": state["format"]},
            {k: v for k, v in state.items() if k != "rows"},
            {**state, "options": "{x"},
            {k: v for k, v in state.items() if k != "learned.threshold_"},
            None,
        ):
            with pytest.raises(gdscore.GdscoreError):
                score.load_state_dict(broken)
            assert score.n_rows == 20
        with pytest.raises(gdscore.GdscoreError, match="damaged"):
            gdscore.restore_score({**state, "options": "{x"})
        with pytest.raises(gdscore.GdscoreError, match="damaged"):
            gdscore.restore_score(None)

    def test_finite_inputs_do_not_give_nan(self):
        edge = 0.9 * np.finfo(np.float32).max
        wide = gdscore.Outputs(logits=np.array([[edge, -edge, 0.0]], dtype=np.float32))
        assert gdscore.score("entropy", wide) == 0.0
        with pytest.raises(gdscore.GdscoreError, match="values of `logits` are so large"):
            gdscore.score("mano", gdscore.Outputs(logits=np.full((40, 3), 1e20, dtype=np.float32)))
        with pytest.raises(gdscore.GdscoreError, match="`temperature`"):
            made(10).with_temperature(1e-320)
        with pytest.raises(gdscore.GdscoreError, match="finite"):
            gdscore.Outputs(logits=np.array([[1e20, 0.0]], dtype=np.float32)).with_temperature(1e-25)
        flat = gdscore.Outputs(logits=2 * np.tile(np.eye(2), (20, 1)), features=np.full((40, 3), 0.1))
        with pytest.raises(gdscore.GdscoreError, match="features that differ"):
            gdscore.score("dispersion", flat)
        p = np.random.default_rng(0).dirichlet(np.full(5, 0.05), size=400)
        p[p < 1e-6] = 0
        p /= p.sum(1, keepdims=True)
        both = [gdscore.score("mano", gdscore.Outputs(probabilities=p.astype(t))) for t in (np.float32, np.float64)]
        assert both[0] == pytest.approx(both[1], rel=1e-5)

    def test_options_that_are_true_or_false(self):
        for name, option in (("gdscore", "log"), ("frechet", "squared"), ("agreescore", "soft")):
            with pytest.raises(gdscore.GdscoreError, match=f"`{option}` to be True or False, but got 'no'"):
                gdscore.create_score(name, **{option: "no"})

    def test_nearly_equal_logits_keep_their_digits(self):
        rng = np.random.default_rng(0)
        z, x = (1e-4 * rng.normal(size=(128, 6))).astype(np.float32), rng.normal(size=(128, 5)).astype(np.float32)
        e = np.exp(z.astype(np.float64))
        g = np.abs(x.T.astype(np.float64) @ (e / e.sum(1, keepdims=True) - 1 / 6) / 128)
        for p in (0.1, 0.3, 1.0):
            value = gdscore.score("gdscore", gdscore.Outputs(logits=z, features=x), p=p, label_rule="uniform")
            assert value == pytest.approx(float((g**p).sum() ** (1 / p)), rel=1e-5)

    def test_margin_beyond_float64_for_the_whole_set(self):
        z = np.zeros((300, 3))
        z[:, 0] = 900.0
        out = gdscore.Outputs(logits=z, features=np.ones((300, 1)))
        for size in (128, None):
            assert gdscore.score("gdscore", out, p=1, batch_size=size, log=True) == pytest.approx(np.log(4) - 900)
