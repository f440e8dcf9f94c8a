"""GdScore against float64 autograd of the same loss, and against what was released."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gdscore
from tests.data import batches, forms, made

RULES = ("mixed", "pseudo", "random", "uniform", "true", "expected")
LOSSES = ("cross_entropy", "entropy", "smoothing")
ORDERS = (0.1, 0.3, 0.5, 1, 2, 5)


def targets(out, rule, loss, tau, epsilon, seed):
    """Target distributions of every row, written out directly."""
    s = torch.tensor(np.asarray(out.arrays["logits"]), dtype=torch.float64).softmax(1)
    k = s.shape[1]
    confidence, top = s.max(1)
    sure = confidence > tau
    one_hot = torch.eye(k, dtype=torch.float64)
    flat = torch.full_like(s, 1 / k)
    drawn = one_hot[torch.tensor(np.array(out.random_labels(seed)), dtype=torch.long)]
    true = torch.tensor(np.array(out.labels)) if "labels" in out.has else top
    y = {
        "mixed": torch.where(sure[:, None], one_hot[top], drawn),
        "pseudo": one_hot[top],
        "random": drawn,
        "uniform": flat,
        "true": one_hot[true],
        "expected": torch.where(sure[:, None], one_hot[top], flat),
    }[rule]
    return ((1 - epsilon) * y + epsilon / k if loss == "smoothing" else y), sure


def autograd_gradients(out, *, rule="mixed", loss="cross_entropy", batch_size=128, tau=0.5, epsilon=0.4, seed=0):
    """Gradient of every mini-batch by the weights of the last layer, from torch's own autograd in float64."""
    x = torch.tensor(np.asarray(out.arrays["features"]), dtype=torch.float64)
    z = torch.tensor(np.asarray(out.arrays["logits"]), dtype=torch.float64)
    y, sure = targets(out, rule, loss, tau, epsilon, seed)
    for start in range(0, len(out), batch_size or len(out)):
        rows = slice(start, start + (batch_size or len(out)))
        weights = torch.zeros(x.shape[1], z.shape[1], dtype=torch.float64, requires_grad=True)
        log_s = (z[rows] + x[rows] @ weights).log_softmax(1)
        cross = -(y[rows] * log_s).sum(1)
        if loss == "entropy":
            entropy = -(log_s.exp() * log_s).sum(1)
            groups = [cross[sure[rows]], entropy[~sure[rows]]]
            total = sum(group.mean() for group in groups if len(group))
        else:
            total = cross.mean()
        total.backward()
        yield weights.grad, len(log_s)


def autograd_score(out, p, **options):
    norms = [(g.abs().pow(p).sum() ** (1 / p), rows) for g, rows in autograd_gradients(out, **options)]
    return float(sum(norm * rows for norm, rows in norms) / len(out))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch_size", [128, None])
def test_equals_autograd(rule, loss, batch_size):
    out = made(300, noise=2.5)
    for p in ORDERS:
        expected = autograd_score(out, p, rule=rule, loss=loss, batch_size=batch_size)
        value = gdscore.score("gdscore", out, p=p, label_rule=rule, loss=loss, batch_size=batch_size)
        assert value == pytest.approx(expected, rel=1e-5), p


@given(
    rows=st.integers(1, 40),
    classes=st.integers(2, 6),
    features=st.integers(1, 5),
    scale=st.floats(0.01, 30),
    p=st.sampled_from((0.3, 1.0, 2.0)),
    tau=st.sampled_from((0.0, 0.3, 0.9, 1.0)),
    batch_size=st.integers(1, 17),
    rule=st.sampled_from(RULES),
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 2**40),
)
@pytest.mark.filterwarnings("ignore::gdscore.GdscoreWarning")
def test_equals_autograd_on_small_data(rows, classes, features, scale, p, tau, batch_size, rule, loss, seed):
    rng = np.random.default_rng(seed % 1000)
    out = gdscore.Outputs(
        logits=scale * rng.normal(size=(rows, classes)),
        features=rng.normal(size=(rows, features)),
        labels=rng.integers(0, classes, rows),
    )
    options = {"loss": loss, "tau": tau, "batch_size": batch_size, "seed": seed}
    value = gdscore.score("gdscore", out, p=p, label_rule=rule, **options)
    assert value == pytest.approx(autograd_score(out, p, rule=rule, **options), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-7, 1e-5, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_entropy_of_nearly_equal_logits_keeps_its_digits(scale, classes, p):
    rng = np.random.default_rng(0)
    logits = (scale * rng.normal(size=(256, classes)) + 5).astype(np.float32)
    out = gdscore.Outputs(logits=logits, features=rng.normal(size=(256, 16)).astype(np.float32))
    expected = autograd_score(out, p, loss="entropy", tau=1.0)
    assert gdscore.score("gdscore", out, p=p, loss="entropy", tau=1.0) == pytest.approx(expected, rel=5e-6)


@pytest.mark.parametrize("variant", ["default", "published"])
def test_a_confidence_of_tau_up_to_rounding_is_tau(variant):
    rows = np.tile(np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.15, 0.35, 0.5], [0.1, 0.1, 0.8]]), (64, 1))
    x, ids = np.random.default_rng(0).normal(size=(256, 4)), np.arange(256)
    values = [
        gdscore.score("gdscore", gdscore.Outputs(**out.to_numpy().arrays, features=x, ids=ids), variant=variant)
        for out in forms(rows).values()
    ]
    assert values == pytest.approx([values[0]] * len(values), rel=1e-5)


def test_infinite_order_is_the_largest_entry():
    out = made(256, noise=2.0)
    expected = np.mean([float(g.abs().max()) for g, _ in autograd_gradients(out)])
    assert gdscore.score("gdscore", out, p=math.inf) == pytest.approx(expected, rel=1e-5)


def exact_gradient(z, x, labels):
    """Xᵀ(S − Y)/m with 1 − s_y as the sum of the others: float64 autograd itself returns 0 beyond margins of 37."""
    z = z.astype(np.float64)
    e = np.exp(z - z.max(1, keepdims=True))
    residual = e / e.sum(1, keepdims=True)
    rows = np.arange(len(z))
    residual[rows, labels] = 0
    residual[rows, labels] = -residual.sum(1)
    return x.T.astype(np.float64) @ residual / len(z)


@pytest.mark.parametrize("batch_size", [128, None])
@pytest.mark.parametrize("margin", [20.0, 80.0])
def test_large_margins_keep_their_digits(margin, batch_size):
    rng = np.random.default_rng(1)
    z = rng.normal(size=(128, 6)).astype(np.float32)
    labels = rng.integers(0, 6, 128)
    z[np.arange(128), labels] += np.float32(margin)
    out = gdscore.Outputs(logits=z, features=rng.normal(size=(128, 5)).astype(np.float32))
    g = exact_gradient(z, out.features, labels)
    for p in ORDERS:
        if margin < 30:
            assert autograd_score(out, p) == pytest.approx(float((np.abs(g) ** p).sum() ** (1 / p)), rel=1e-6)
        log_norm = np.logaddexp.reduce(p * np.log(np.abs(g)), axis=None) / p
        value = gdscore.score("gdscore", out, p=p, batch_size=batch_size, log=True)
        assert value == pytest.approx(log_norm, abs=1e-5), p


def test_margin_beyond_the_range_of_float32():
    z = np.zeros((128, 3), dtype=np.float32)
    z[:, 0] = 500.0
    out = gdscore.Outputs(logits=z, features=np.ones((128, 1), dtype=np.float32))
    # One feature of 1: the column of class 0 is −2e^{−500}, of the others e^{−500}.
    assert gdscore.score("gdscore", out, p=1, log=True) == pytest.approx(math.log(4) - 500, rel=1e-6)


@pytest.mark.parametrize("p", ORDERS)
def test_zero_features_give_zero(p):
    out = gdscore.Outputs(logits=np.random.default_rng(0).normal(size=(130, 4)), features=np.zeros((130, 3)))
    assert gdscore.score("gdscore", out, p=p) == 0.0
    with pytest.raises(gdscore.GdscoreError, match="gradient of 0 has no logarithm"):
        gdscore.score("gdscore", out, p=p, log=True)
    assert gdscore.score("gdscore", out, p=p, batch_size=None) == 0.0


def test_wide_layer_and_small_orders_do_not_overflow():
    rng = np.random.default_rng(0)
    out = gdscore.Outputs(
        logits=3 * rng.standard_normal((128, 1000), dtype=np.float32),
        features=np.abs(rng.standard_normal((128, 2048), dtype=np.float32)),
    )
    ((g, _),) = autograd_gradients(out)
    for p in (0.3, 0.05, 1.0, 2.0):
        log_norm = float(torch.logsumexp(p * g.abs().log().flatten(), 0) / p)
        assert gdscore.score("gdscore", out, p=p, log=True) == pytest.approx(log_norm, abs=1e-5 / min(p, 1))
    with pytest.raises(gdscore.GdscoreError, match="log=True"):
        gdscore.score("gdscore", out, p=0.01)


def test_half_precision_inputs_are_widened():
    out = made(256, keep=("logits", "features"), noise=2.0)
    half = {k: a.astype(np.float16) for k, a in out.arrays.items()}
    same = gdscore.Outputs(**{k: a.astype(np.float32) for k, a in half.items()})
    assert gdscore.score("gdscore", gdscore.Outputs(**half)) == gdscore.score("gdscore", same)


@pytest.mark.parametrize("rule", RULES)
def test_sign_says_how_the_number_moves_with_accuracy(rule):
    easy = made(2560, noise=0.5, keep=("logits", "features", "labels"))
    noise = np.random.default_rng(0).normal(size=easy.logits.shape).astype(np.float32)
    hard = gdscore.Outputs(**{**easy.arrays, "logits": 0.4 * easy.logits + noise})
    assert easy.accuracy > hard.accuracy + 0.2
    score = gdscore.create_score("gdscore", label_rule=rule)
    rises = score.update(easy).compute() > score.reset().update(hard).compute()
    assert rises == score.higher_is_better


def test_few_rows_are_warned_of():
    with pytest.warns(gdscore.GdscoreWarning, match="100 rows do not fill one mini-batch of 128"):
        gdscore.score("gdscore", made(100))


class TestRandomLabels:
    def test_belong_to_rows(self):
        out = made(1000, keep=("logits", "features"))
        order = np.random.default_rng(0).permutation(1000)
        assert (out.random_labels(7)[order] == out[order].random_labels(7)).all()
        assert (out.random_labels(7) != out.random_labels(8)).mean() > 0.8

    def test_follow_ids_where_given(self):
        z = np.zeros((600, 5))
        named = gdscore.Outputs(logits=z, ids=np.arange(600))
        assert len(np.unique(named.random_labels(0))) == 5
        assert len(np.unique(gdscore.Outputs(logits=z).random_labels(0))) == 1
        renamed = gdscore.Outputs(logits=z + np.arange(5), ids=np.arange(600))
        assert (named.random_labels(0) == renamed.random_labels(0)).all()

    def test_are_uniform(self):
        out = made(20_000, keep=("logits",))
        counts = np.bincount(out.random_labels(3), minlength=10)
        assert (np.square(counts - 2000) / 2000).sum() < 30  # χ² with 9 degrees of freedom: p ≈ 4e-4


class TestPublishedVariant:
    """What the released code computes: methods.md, first two entries of its list of departures."""

    def released(self, out, tau, p=0.3):
        s = torch.tensor(np.array(out.arrays["logits"])).softmax(1)
        confidence, labels = s.max(1)
        drawn = torch.tensor(np.array(out.random_labels(0)), dtype=torch.long)
        labels = torch.where(confidence < tau, drawn, labels)
        x = torch.tensor(np.array(out.arrays["features"]), dtype=torch.float32)
        norms = []
        for start in range(0, len(out), 128):
            rows = slice(start, start + 128)
            linear = torch.nn.Linear(x.shape[1], s.shape[1])
            logits = torch.tensor(np.array(out.arrays["logits"]))[rows] + linear(x[rows]) - linear(x[rows]).detach()
            torch.nn.functional.cross_entropy(logits, labels[rows]).backward()
            norms.append((linear.weight.grad.abs() ** p).sum() ** (1 / p))
        return float(torch.stack(norms).mean())

    def test_short_batch_counts_as_a_full_one(self):
        out = made(300, keep=("logits", "features"), noise=2.0)
        published = gdscore.score("gdscore", out, variant="published")
        assert published == pytest.approx(self.released(out, 0.5), rel=1e-4)
        assert abs(published / gdscore.score("gdscore", out) - 1) > 0.01

    def test_confidence_of_exactly_tau_is_confident(self):
        out = gdscore.Outputs(
            logits=np.zeros((256, 2)), features=np.random.default_rng(0).normal(size=(256, 4)), ids=np.arange(256)
        )
        published = gdscore.score("gdscore", out, variant="published")
        assert published == pytest.approx(self.released(out, 0.5), rel=1e-4)
        assert published == pytest.approx(gdscore.score("gdscore", out, label_rule="pseudo"))
        assert published != pytest.approx(gdscore.score("gdscore", out), rel=0.01)


class TestLeftoverRows:
    def test_pooled_in_the_order_of_their_hash(self):
        out = made(500, keep=("logits", "features"), noise=2.0)
        parts = [out[:150], out[150:260], out[260:]]  # leftovers of 22, 110 and 112 rows
        whole = [out[:128], out[260:388]]
        values = set()
        for order in itertools.permutations(range(3)):
            scores = [gdscore.create_score("gdscore").update(parts[i]) for i in order]
            values.add(scores[0].merge(scores[1]).merge(scores[2]).compute())
            scores = [gdscore.create_score("gdscore").update(parts[i]) for i in order]
            values.add(scores[0].merge(scores[1].merge(scores[2])).compute())
        assert max(values) == pytest.approx(min(values), rel=1e-12)
        leftover = gdscore.Outputs.concatenate([out[128:150], out[150:260], out[388:]])
        high, low = (k.view(np.uint32).astype(np.uint64) for k in leftover.row_keys())
        ordered = leftover[np.argsort((high << np.uint64(32)) | low)]
        total = sum(gdscore.score("gdscore", b, batch_size=len(b)) * len(b) for b in [*whole, *batches(ordered, 128)])
        assert values.pop() == pytest.approx(total / 500, rel=1e-6)

    def test_kept_in_the_saved_state(self):
        out = made(500, keep=("logits", "features"), noise=2.0)
        merged = (
            gdscore.create_score("gdscore").update(out[:150]).merge(gdscore.create_score("gdscore").update(out[150:]))
        )
        again = gdscore.restore_score(merged.state_dict())
        assert again.compute() == merged.compute()
        assert again.update(out[:77]).compute() == merged.update(out[:77]).compute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0}, "`p` to be a number larger than 0, but got 0"),
        ({"p": -1.0}, "larger than 0"),
        ({"p": float("nan")}, "larger than 0"),
        ({"p": "0.3"}, "larger than 0"),
        ({"tau": 1.5}, "`tau` to be a number at least 0 and at most 1, but got 1.5"),
        ({"tau": -0.1}, "at least 0"),
        ({"batch_size": 0}, "`batch_size` to be an integer of at least 1, but got 0"),
        ({"batch_size": 12.5}, "integer"),
        ({"batch_size": True}, "integer"),
        ({"label_rule": "mixd"}, "did you mean 'mixed'"),
        ({"loss": "crossentropy"}, "did you mean 'cross_entropy'"),
        ({"epsilon": 2}, "`epsilon`"),
        ({"seed": -1}, "`seed`"),
        ({"variant": "publised"}, "did you mean 'published'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(gdscore.GdscoreError, match=message):
        gdscore.create_score("gdscore", **options)


def test_true_labels_must_be_given():
    with pytest.raises(gdscore.GdscoreError, match="needs `labels`"):
        gdscore.score("gdscore", made(200, keep=("logits", "features")), label_rule="true")
