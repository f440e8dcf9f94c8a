"""The statements of research/theory.md, each checked by number.

What holds is tried on drawn problems, with gradients from float64 autograd. What the paper states and does
not hold is computed on a counter-example, both sides, and must be violated there.
"""

import itertools
import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

# Coordinates lie on a coarse grid, so that zeros, ties and cancellations are drawn often. Logits stay within
# ±6, so that 1 − s_y keeps ten digits and norms with p < 1, which magnify small entries, can be compared.
small = settings(deadline=None, max_examples=40)
at_least_one = st.one_of(st.sampled_from([1.0, 2.0, math.inf]), st.floats(1.0, 8.0))
below_one = st.one_of(st.just(0.3), st.floats(0.2, 0.99))
any_p = st.one_of(at_least_one, below_one)


class Problem(NamedTuple):
    X: np.ndarray  # m×D features
    W: np.ndarray  # D×K last layer
    labels: np.ndarray  # m integers

    @property
    def S(self):
        return torch.softmax(torch.from_numpy(self.X @ self.W), dim=1).numpy()

    @property
    def Y(self):
        return np.eye(self.W.shape[1])[self.labels]

    @property
    def miss(self):
        """1 − s_y of every row, as the sum of the other probabilities."""
        return (self.S * (1 - self.Y)).sum(axis=1)


def grid(shape, bound):
    return hnp.arrays(np.int64, shape, elements=st.integers(-8 * bound, 8 * bound)).map(lambda a: a / 8)


@st.composite
def problems(draw, max_rows=4):
    m, D, K = draw(st.integers(1, max_rows)), draw(st.integers(1, 3)), draw(st.integers(2, 4))
    labels = draw(hnp.arrays(np.int64, m, elements=st.integers(0, K - 1)))
    return Problem(draw(grid((m, D), 2)), draw(grid((D, K), 1)), labels)


def norm(v, p):
    """‖v‖_p of all entries, p in (0, ∞]."""
    a = np.abs(np.asarray(v, dtype=np.float64)).ravel()
    top = a.max()
    if top == 0 or p == math.inf:
        return float(top)
    return float(top * ((a / top) ** p).sum() ** (1 / p))


def row_norms(A, p):
    return np.array([norm(a, p) for a in A])


def conjugate(p):
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def autograd(loss, W):
    W = torch.tensor(W, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(loss(W), W)[0].numpy()


def risk(problem, W, Y=None):
    """Mean cross-entropy of the last layer W, a torch scalar."""
    Y = torch.from_numpy(problem.Y if Y is None else Y)
    return torch.nn.functional.cross_entropy(torch.from_numpy(problem.X) @ torch.as_tensor(W), Y)


def risk_gradient(problem, W=None, Y=None):
    return autograd(lambda V: risk(problem, V, Y), problem.W if W is None else W)


def row_gradients(problem):
    rows = zip(problem.X, problem.labels, strict=True)
    return np.stack([risk_gradient(Problem(x[None], problem.W, np.array([y]))) for x, y in rows])


def assert_at_most(left, right, rtol=1e-9):
    assert left <= right * (1 + rtol) + 1e-11, f"{left!r} > {right!r}"


# x = 1, y = 0, w = (−1, 1): s = (0.1192, 0.8808)
ONE_ROW = Problem(np.array([[1.0]]), np.array([[-1.0, 1.0]]), np.array([0]))
MISS = 1 / (1 + math.exp(-2))

# Two rows with disjoint features, W = 0: the gradients e₁rᵀ and e₂rᵀ, r = (−½, ½)
DISJOINT = Problem(np.eye(2), np.zeros((2, 2)), np.array([0, 0]))


# 1. The gradient


@small
@given(problems(), st.data())
def test_gradient_is_features_times_residual(problem, data):
    K = problem.W.shape[1]
    counts = data.draw(hnp.arrays(np.int64, (len(problem.X), K), elements=st.integers(0, 4)))
    counts[np.arange(len(counts)), problem.labels] += 1
    for Y in (problem.Y, counts / counts.sum(axis=1, keepdims=True)):
        expected = problem.X.T @ (problem.S - Y) / len(problem.X)
        np.testing.assert_allclose(risk_gradient(problem, Y=Y), expected, rtol=1e-12, atol=1e-14)


@small
@given(problems())
def test_gradient_of_the_entropy(problem):
    def mean_entropy(W):
        logs = torch.log_softmax(torch.from_numpy(problem.X) @ W, dim=1)
        return -(logs.exp() * logs).sum(dim=1).mean()

    S = problem.S
    H = -(S * np.log(S)).sum(axis=1, keepdims=True)
    expected = problem.X.T @ (-S * (np.log(S) + H)) / len(S)
    np.testing.assert_allclose(autograd(mean_entropy, problem.W), expected, rtol=1e-12, atol=1e-14)


def test_paper_lemma_is_false():
    gradient = risk_gradient(ONE_ROW)
    np.testing.assert_allclose(gradient, [[-0.8808, 0.8808]], atol=5e-5)
    paper = ONE_ROW.X.T @ ((ONE_ROW.S - ONE_ROW.Y) * ONE_ROW.Y)
    np.testing.assert_allclose(paper, [[-0.8808, 0.0]], atol=5e-5)
    assert np.abs(gradient - paper).max() > 0.88


# 2. The norm of one row


@small
@given(problems(max_rows=1), any_p)
def test_row_norm_is_a_product(problem, p):
    product = norm(problem.X, p) * norm(problem.S - problem.Y, p)
    assert norm(risk_gradient(problem), p) == pytest.approx(product, rel=1e-8)


# 3. Facts about ‖·‖_p


@small
@given(st.data(), any_p, any_p)
def test_norms_of_two_orders(data, p, q):
    p, q = min(p, q), max(p, q)
    v = data.draw(grid(data.draw(st.integers(1, 12)), 4))
    assert_at_most(norm(v, q), norm(v, p))
    assert_at_most(norm(v, p), len(v) ** (1 / p - 1 / q) * norm(v, q))


@small
@given(st.data(), at_least_one, below_one)
def test_triangle_inequalities(data, p, r):
    n = data.draw(st.integers(1, 12))
    u, v = data.draw(grid(n, 4)), data.draw(grid(n, 4))
    assert_at_most(norm(u + v, p), norm(u, p) + norm(v, p))
    assert_at_most(norm(u + v, r) ** r, norm(u, r) ** r + norm(v, r) ** r)
    assert_at_most(norm(np.abs(u), r) + norm(np.abs(v), r), norm(np.abs(u) + np.abs(v), r))


# 4. The norm of the residual


@small
@given(problems(max_rows=1), at_least_one, below_one)
def test_residual_norm_between_its_bounds(problem, p, r):
    residual, miss, others = problem.S - problem.Y, problem.miss[0], problem.W.shape[1] - 1

    def spread(order):
        return (1 + others ** (1 - order)) ** (1 / order) if order < math.inf else 1.0

    assert_at_most(spread(p) * miss, norm(residual, p))
    assert_at_most(norm(residual, p), 2 ** (1 / p) * miss)
    assert_at_most(2 ** (1 / r) * miss, norm(residual, r), rtol=1e-8)
    assert_at_most(norm(residual, r), spread(r) * miss, rtol=1e-8)
    assert norm(residual, 1) == pytest.approx(2 * miss, rel=1e-9)
    assert norm(residual, math.inf) == pytest.approx(miss, rel=1e-9)


# 5. The upper bound, p ≥ 1


@small
@given(problems(), at_least_one)
def test_upper_bound(problem, p):
    left = norm(risk_gradient(problem), p)
    features = row_norms(problem.X, p)
    middle = (row_norms(problem.S - problem.Y, p) * features).mean()
    assert_at_most(left, middle)
    assert_at_most(middle, 2 ** (1 / p) * (problem.miss * features).mean())


@pytest.mark.parametrize("p", [1.0, 2.0, 5.0])
def test_paper_alpha_is_too_small(p):
    left = norm(risk_gradient(ONE_ROW), p)
    paper = (ONE_ROW.miss * row_norms(ONE_ROW.X, p)).mean()
    assert paper == pytest.approx(0.8808, abs=5e-5)
    assert left == pytest.approx(2 ** (1 / p) * MISS)
    assert left > 1.1 * paper


# 6. The upper bound, p < 1


@small
@given(problems(), below_one)
def test_upper_bound_below_one(problem, p):
    left = norm(risk_gradient(problem), p)
    right = 2 * (problem.miss * row_norms(problem.X, 1)).mean()
    assert_at_most(left, problem.W.size ** (1 / p - 1) * right)


def test_jensen_fails_below_one():
    p = 0.3
    left = norm(risk_gradient(DISJOINT), p)
    jensen = (row_norms(DISJOINT.S - DISJOINT.Y, p) * row_norms(DISJOINT.X, p)).mean()
    paper = (DISJOINT.miss * row_norms(DISJOINT.X, p)).mean()
    assert left == pytest.approx(25.40, abs=5e-3)
    assert jensen == pytest.approx(5.04, abs=5e-3)
    assert paper == pytest.approx(0.5)
    assert left > jensen > paper
    ours = 4 ** (1 / p - 1) * 2 * (DISJOINT.miss * row_norms(DISJOINT.X, 1)).mean()
    assert left == pytest.approx(ours)


# 7. The norm after one step


@small
@given(problems(), st.data(), below_one, st.floats(0.01, 10))
def test_step_changes_the_norm_by_at_most_its_own(problem, data, p, eta):
    g = risk_gradient(problem)
    step = eta * g
    c = problem.W - step
    left = abs(norm(c, p) ** p - norm(problem.W, p) ** p)
    assert_at_most(left, eta**p * norm(g, p) ** p)

    start = -np.sign(g) * np.abs(data.draw(grid(g.shape, 1)))
    assert_at_most(norm(start, p) + norm(step, p), norm(start - step, p))


def test_paper_remark_is_false():
    p, eta = 0.3, 2 / MISS
    g = risk_gradient(ONE_ROW)
    c = ONE_ROW.W - eta * g
    np.testing.assert_allclose(g, [[-0.8808, 0.8808]], atol=5e-5)
    np.testing.assert_allclose(c, [[1.0, -1.0]])
    left = eta * norm(g, p)
    right = abs(norm(c, p) - norm(ONE_ROW.W, p))
    assert left == pytest.approx(20.16, abs=5e-3)
    assert right == pytest.approx(0, abs=1e-12)
    assert left > right
    assert eta**p * norm(g, p) ** p == pytest.approx(2.46, abs=5e-3)


# 8. The difference of risks


@small
@given(problems(), st.data(), at_least_one, below_one)
def test_risk_difference(problem, data, p, r):
    W = problem.W
    if data.draw(st.booleans()):
        drawn = data.draw(hnp.arrays(np.int64, len(problem.X), elements=st.integers(0, W.shape[1] - 1)))
        C = W - data.draw(st.floats(0, 4)) * risk_gradient(problem._replace(labels=drawn))
    else:
        C = data.draw(grid(W.shape, 1))
    distance = norm(C - W, conjugate(p))
    at_W, at_C = risk_gradient(problem), risk_gradient(problem, W=C)
    difference = (risk(problem, C) - risk(problem, W)).item()

    assert_at_most((at_W * (C - W)).sum(), difference)
    assert_at_most(difference, (at_C * (C - W)).sum())
    assert_at_most(-difference, norm(at_W, p) * distance)
    assert_at_most(difference, norm(at_C, p) * distance)
    features = row_norms(problem.X, p)
    misses = [(problem._replace(W=V).miss * features).mean() for V in (W, C)]
    assert_at_most(abs(difference), 2 ** (1 / p) * max(misses) * distance)
    assert_at_most(abs(difference), max(norm(at_W, r), norm(at_C, r)) * norm(C - W, math.inf))


@small
@given(problems(), st.floats(0, 4), at_least_one)
def test_risk_decrease_of_one_step(problem, eta, p):
    g = risk_gradient(problem)
    decrease = (risk(problem, problem.W) - risk(problem, problem.W - eta * g)).item()
    assert_at_most(decrease, eta * norm(g, 2) ** 2)
    assert_at_most(norm(g, 2) ** 2, norm(g, p) * norm(g, conjugate(p)))


def test_one_endpoint_does_not_bound_the_risk_difference():
    both = Problem(np.ones((2, 1)), np.zeros((1, 2)), np.array([0, 1]))
    C = np.array([[1.0, -1.0]])
    left = abs(risk(both, C) - risk(both, both.W)).item()
    right = norm(risk_gradient(both), 2) * norm(C, 2)
    assert left == pytest.approx(0.434, abs=5e-4)
    assert right == pytest.approx(0, abs=1e-12)
    assert_at_most(left, norm(risk_gradient(both, W=C), 2) * norm(C, 2))


def test_risk_difference_with_a_negative_conjugate_is_false():
    p, eta = 0.3, 0.1
    q = conjugate(p)
    assert q == pytest.approx(-3 / 7)
    uneven = Problem(np.array([[1.0, 1e-6]]), np.zeros((2, 2)), np.array([0]))
    g = risk_gradient(uneven)
    C = uneven.W - eta * g
    left = abs(risk(uneven, C) - risk(uneven, uneven.W)).item()
    gradient_norm = max(norm(g, p), norm(risk_gradient(uneven, W=C), p))
    assert left == pytest.approx(0.0488, abs=5e-5)
    assert gradient_norm * norm(C - uneven.W, q) < 1e-7
    assert_at_most(left, gradient_norm * norm(C - uneven.W, math.inf))


# 9. What labels made by the model cannot show


def test_motivating_example_is_empty():
    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    sigma, source = (x**2).mean().item(), 0.7

    def gradient(c, label_slope):
        return autograd(lambda c: ((c * x - label_slope * x) ** 2).mean() / 2, c).item()

    for c in (-1.0, 0.2, 3.0):
        assert gradient(c, source) == pytest.approx((c - source) * sigma)
    assert gradient(source, source) == 0
    for target in (-2.0, 0.6, 5.0):
        assert gradient(source, target) == pytest.approx((source - target) * sigma)
        assert abs(gradient(source, target)) > 0.1


def test_score_does_not_see_the_labels():
    right, wrong = ONE_ROW._replace(labels=np.array([1])), ONE_ROW
    assert [(q.S.argmax(axis=1) == q.labels).mean() for q in (right, wrong)] == [1, 0]
    with_true_labels = [norm(risk_gradient(q), 0.3) for q in (right, wrong)]
    assert with_true_labels == pytest.approx([1.20, 8.88], abs=5e-3)
    with_pseudo_labels = [norm(risk_gradient(q, Y=np.eye(2)[q.S.argmax(axis=1)]), 0.3) for q in (right, wrong)]
    assert with_pseudo_labels == pytest.approx([1.20, 1.20], abs=5e-3)


# 10. Labels drawn at random


def draws(problem, tau=0.5):
    """Gradients of the `mixed` rule for every possible draw, and of the `expected` rule."""
    S, m, K = problem.S, len(problem.X), problem.W.shape[1]
    low = np.flatnonzero(S.max(axis=1) <= tau)
    Y = np.eye(K)[S.argmax(axis=1)]
    gradients = []
    for labels in itertools.product(range(K), repeat=len(low)):
        Y[low] = np.eye(K)[list(labels)]
        gradients.append(problem.X.T @ (S - Y) / m)
    Y[low] = 1 / K
    return np.stack(gradients), risk_gradient(problem, Y=Y)


@small
@given(problems(max_rows=3), at_least_one)
def test_expected_rule_is_the_mean_of_the_draws(problem, p):
    gradients, expected = draws(problem)
    np.testing.assert_allclose(gradients.mean(axis=0), expected, rtol=1e-12, atol=1e-14)
    assert_at_most(norm(expected, p), row_norms(gradients, p).mean())


def test_expected_rule_has_no_order_below_one():
    # one confident row whose gradient fixes every sign, and one uncertain row
    S = np.array([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]])
    x = np.array([[10.0], [1.0]])
    drawn = [x.T @ (S - np.eye(3)[[0, k]]) / 2 for k in range(3)]
    expected = x.T @ (S - np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]])) / 2
    np.testing.assert_allclose(np.mean(drawn, axis=0), expected)
    assert norm(expected, 0.3) == pytest.approx(24.10, abs=5e-3)
    assert row_norms(drawn, 0.3).mean() == pytest.approx(22.81, abs=5e-3)
    assert norm(expected, 1) == pytest.approx(row_norms(drawn, 1).mean())

    # one row of two equal probabilities: the other way round
    half = np.array([0.5, 0.5])
    assert norm(half - 1 / 2, 0.3) == 0
    assert row_norms(half - np.eye(2), 0.3).mean() == pytest.approx(5.04, abs=5e-3)


# 11. The whole set and its mini-batches


@small
@given(problems(max_rows=6), st.data(), at_least_one, below_one)
def test_batches_against_the_whole_set(problem, data, p, r):
    m = len(problem.X)
    owner = data.draw(hnp.arrays(np.int64, m, elements=st.integers(0, 2)))
    batches = [np.flatnonzero(owner == b) for b in np.unique(owner)]
    gradients = [risk_gradient(Problem(problem.X[b], problem.W, problem.labels[b])) for b in batches]
    weights = np.array([len(b) / m for b in batches])
    whole = np.tensordot(weights, np.stack(gradients), axes=1)
    np.testing.assert_allclose(whole, risk_gradient(problem), rtol=1e-12, atol=1e-14)

    assert_at_most(norm(whole, p), weights @ row_norms(gradients, p))
    assert_at_most(weights @ row_norms(gradients, p), row_norms(row_gradients(problem), p).mean())
    assert_at_most(norm(whole, r), len(batches) ** (1 / r - 1) * (weights @ row_norms(gradients, r)))


def test_batches_have_no_order_below_one():
    p = 0.3
    batch_mean = row_norms(row_gradients(DISJOINT), p).mean()
    assert batch_mean == pytest.approx(5.04, abs=5e-3)
    assert norm(risk_gradient(DISJOINT), p) == pytest.approx(2 ** (1 / p - 1) * batch_mean)

    opposed = Problem(np.ones((2, 1)), np.zeros((1, 2)), np.array([0, 1]))
    assert row_norms(row_gradients(opposed), p).mean() == pytest.approx(5.04, abs=5e-3)
    assert norm(risk_gradient(opposed), p) == pytest.approx(0, abs=1e-12)


# 12. The logarithm of the norm


def log_norm(v, p):
    logs = np.log(np.abs(v[v != 0]))
    if not logs.size:
        return -math.inf
    top = logs.max()
    return float(top + np.log(np.exp(p * (logs - top)).sum()) / p)


@small
@given(st.data(), st.one_of(below_one, st.floats(1, 8)), st.floats(-300, 300))
def test_log_norm(data, p, shift):
    v = data.draw(grid(data.draw(st.integers(1, 12)), 4))
    value = log_norm(v, p)
    if not v.any():
        assert value == -math.inf
        return
    assert value == pytest.approx(math.log(np.sum(np.abs(v) ** p) ** (1 / p)), abs=1e-9)
    top = math.log(np.abs(v).max())
    assert top - 1e-12 <= value <= top + math.log(np.count_nonzero(v)) / p + 1e-12
    assert log_norm(v * math.exp(shift), p) == pytest.approx(value + shift, abs=1e-9)


@pytest.mark.parametrize(("dtype", "p"), [(torch.float16, 0.3), (torch.float32, 0.05), (torch.float64, 0.02)])
def test_log_norm_where_the_norm_overflows(dtype, p):
    n = 2048 * 1000
    direct = torch.linalg.vector_norm(torch.ones(n, dtype=dtype), ord=p)
    assert torch.isinf(direct)
    assert log_norm(np.ones(n), p) == pytest.approx(math.log(n) / p)


# 13. GradNorm


@small
@given(problems())
def test_gradnorm_is_the_uniform_rule_row_by_row(problem):
    K = problem.W.shape[1]
    uniform = torch.full((K,), 1 / K, dtype=torch.float64)

    def divergence(x, W):
        return (uniform * (uniform.log() - torch.log_softmax(torch.from_numpy(x) @ W, dim=0))).sum()

    norms = [norm(autograd(partial(divergence, x), problem.W), 1) for x in problem.X]
    rows = [Problem(x[None], problem.W, np.array([0])) for x in problem.X]
    by_rule = [norm(risk_gradient(row, Y=uniform.numpy()[None]), 1) for row in rows]
    np.testing.assert_allclose(norms, by_rule, rtol=1e-10, atol=1e-13)
    formula = row_norms(problem.X, 1) * row_norms(problem.S - 1 / K, 1)
    np.testing.assert_allclose(norms, formula, rtol=1e-10, atol=1e-13)
