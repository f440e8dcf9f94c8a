import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import gdscore
from gdscore.errors import GdscoreError
from gdscore.scores import _transport as transport
from gdscore.scores._transport import solve, solved


def softmax_rows(rng, m, K):
    """Rows of a classifier whose true classes follow a skewed distribution."""
    frequency = rng.permutation(np.arange(1, K + 1) ** -0.7)
    logits = 4.0 * rng.standard_normal((m, K))
    logits[np.arange(m), rng.choice(K, m, p=frequency / frequency.sum())] += 6.0
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True)


def cost_by_linear_program(S, a, q):
    m, K = S.shape
    sums = np.vstack([np.kron(np.eye(m), np.ones(K)), np.kron(np.ones(m), np.eye(K))])
    # One equation follows from the others; with it, rounding could make the program infeasible.
    answer = linprog(1 - S.ravel(), A_eq=sums[:-1], b_eq=np.concatenate([a, q])[:-1], method="highs")
    assert answer.status == 0
    return answer.fun


def uniform(m):
    return np.full(m, 1 / m)


@pytest.mark.parametrize("seed", range(24))
def test_equals_pot_on_random_problems(seed):
    rng = np.random.default_rng(seed)
    m, K = (1000, 60) if seed == 0 else (int(rng.integers(1, 501)), int(rng.integers(2, 61)))
    concentration = [None, 0.05, 5.0][seed % 3]
    S = rng.dirichlet(np.full(K, concentration), size=m) if concentration else softmax_rows(rng, m, K)
    a = uniform(m) if seed % 2 else rng.integers(1, 6, size=m).astype(float)
    a = a / a.sum()
    q = rng.dirichlet(np.full(K, [0.2, 1.0, 20.0][seed % 4 % 3]))
    expected = ot.emd2(a, q, 1 - S, numItermax=10_000_000)
    assert solve(S, a, q).cost == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(
    m=st.integers(1, 12),
    K=st.integers(2, 6),
    decimals=st.sampled_from([0, 1, 2, 16]),
    weighted=st.booleans(),
    closed=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_linear_program(m, K, decimals, weighted, closed, seed):
    rng = np.random.default_rng(seed)
    S = np.round(rng.dirichlet(np.full(K, 0.5), size=m), decimals)  # few decimals: ties and equal rows
    S[S.sum(axis=1) == 0, 0] = 1.0
    S /= S.sum(axis=1, keepdims=True)
    a = rng.integers(1, 4, size=m) if weighted else np.ones(m)
    q = rng.integers(0, 4, size=K).astype(float)
    q[rng.permutation(K)[: min(closed, K - 1)]] = 0.0
    if q.sum() == 0:
        q[-1] = 1.0
    a, q = a / a.sum(), q / q.sum()
    answer = solve(S, a, q)
    assert answer.cost == pytest.approx(cost_by_linear_program(S, a, q), abs=1e-7)
    np.testing.assert_allclose(np.bincount(answer.rows, answer.mass, m), a, atol=1e-10)
    np.testing.assert_allclose(np.bincount(answer.classes, answer.mass, K), q, atol=1e-10)
    assert len(answer.rows) <= np.count_nonzero(a) + K - 1


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 10), K=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
def test_whole_rows_cost_what_their_class_says(m, K, seed):
    """With integer class counts every row can go to one class whole, and does when rows are distinct."""
    rng = np.random.default_rng(seed)
    S = rng.dirichlet(np.ones(K), size=m)
    counts = rng.multinomial(m, rng.dirichlet(np.ones(K)))
    answer = solve(S, uniform(m), counts / m)
    np.testing.assert_array_equal(np.sort(answer.rows), np.arange(m))
    np.testing.assert_array_equal(np.bincount(answer.classes, minlength=K), counts)
    assert answer.cost == pytest.approx(np.mean(1 - S[answer.rows, answer.classes]), abs=1e-12)


@pytest.mark.parametrize(("m", "K"), [(800, 200), (3_000, 50)])
def test_large_problems_are_certified(monkeypatch, m, K):
    """The cost meets a lower bound that is computed here from the prices alone, and POT's cost."""
    rng = np.random.default_rng(0)
    S, a, q = softmax_rows(rng, m, K), uniform(m), rng.dirichlet(np.full(K, 2.0))
    seen = []
    original = transport._dual_value
    monkeypatch.setattr(transport, "_dual_value", lambda *args: seen.append(args[3]) or original(*args))
    answer = solve(S, a, q)
    (prices,) = seen
    bound = 1 - q @ prices - np.mean((S - prices).max(axis=1))
    assert answer.cost == pytest.approx(bound, rel=1e-6)
    assert answer.gap == pytest.approx(answer.cost - bound, abs=1e-12)
    assert answer.cost == pytest.approx(ot.emd2(a, q, 1 - S, numItermax=10_000_000), abs=1e-6)


def saturated_sets():
    """Logits so large that most rows are one-hot up to tails of any size, some classes ahead for every row."""
    for K in (3, 20):
        for scale in (3.0, 30.0, 300.0, 1e5):
            for ahead, leaders in ((0.0, 0), (4.0, max(2, K // 5)), (8.0, 1)):
                yield pytest.param(
                    K, scale, ahead, leaders, id=f"{K} classes, x{scale:g}, {leaders} ahead by {ahead:g}"
                )


@pytest.mark.parametrize(("K", "scale", "ahead", "leaders"), list(saturated_sets()))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturated_and_collapsed_rows_equal_pot(K, scale, ahead, leaders, dtype):
    rng = np.random.default_rng(K)
    labels = rng.integers(K, size=500)
    logits = rng.standard_normal((500, K)) + 3.0 * np.eye(K)[labels]
    logits[:, :leaders] += ahead
    out = gdscore.Outputs(logits=(scale * logits).astype(dtype))
    S, a, q = out.probabilities.astype(np.float64), uniform(500), np.bincount(labels, minlength=K) / 500
    answer = solve(S, a, q)
    assert answer.cost == pytest.approx(ot.emd2(a, q, 1 - S, numItermax=10_000_000), abs=1e-9)
    np.testing.assert_allclose(np.bincount(answer.rows, answer.mass, 500), a, atol=1e-10)
    np.testing.assert_allclose(np.bincount(answer.classes, answer.mass, K), q, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(m=st.integers(200, 400), K=st.integers(2, 8), decimals=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_ties_among_many_rows_equal_pot(m, K, decimals, seed):
    rng = np.random.default_rng(seed)
    S = np.round(rng.dirichlet(np.full(K, 0.3), size=m), decimals)
    a, q = uniform(m), rng.dirichlet(np.ones(K))
    assert solve(S, a, q).cost == pytest.approx(ot.emd2(a, q, 1 - S, numItermax=10_000_000), abs=1e-9)


def edge_cases():
    rng = np.random.default_rng(7)
    S = rng.dirichlet(np.full(5, 0.3), size=40)
    flat = np.full(5, 0.2)
    some = np.array([0.5, 0.0, 0.3, 0.0, 0.2])
    yield "one row", S[:1], np.ones(1), some
    yield "fewer rows than classes", S[:3], uniform(3), flat
    yield "one class", np.ones((4, 1)), uniform(4), np.ones(1)
    yield "two classes", S[:, :2] / S[:, :2].sum(axis=1, keepdims=True), uniform(40), np.array([0.3, 0.7])
    yield "all mass on one class", S, uniform(40), np.eye(5)[3]
    yield "nearly all mass on one class", S, uniform(40), np.array([1e-17, 1e-9, 1.0, 1e-300, 0.0])
    yield "one-hot rows", np.eye(5)[rng.integers(5, size=40)], uniform(40), some
    yield "uniform rows", np.full((40, 5), 0.2), uniform(40), some
    yield "nearly uniform rows", np.full((40, 5), 0.2) + 1e-15 * rng.integers(9, size=(40, 5)), uniform(40), some
    yield "repeated rows", S[rng.integers(4, size=40)], uniform(40), some
    yield "almost one-hot rows", np.eye(5)[rng.integers(5, size=40)] * (1 - 1e-13) + 2e-14, uniform(40), some
    yield "one heavy row", S, np.r_[1.0, np.full(39, 1e-18)], flat
    yield "masses differ in the last bits", S, uniform(40) * (1 + 1e-12), flat * (1 - 1e-12)


@pytest.mark.parametrize(("S", "a", "q"), [pytest.param(*case[1:], id=case[0]) for case in edge_cases()])
def test_edge_cases(S, a, q):
    answer = solve(S, a, q)
    assert answer.cost == pytest.approx(cost_by_linear_program(S, a / a.sum(), q / q.sum()), abs=1e-7)
    assert (q[answer.classes] > 0).all()


def test_one_hot_rows_with_their_own_marginal_cost_nothing():
    labels = np.random.default_rng(1).integers(6, size=200)
    answer = solve(np.eye(6)[labels], uniform(200), np.bincount(labels, minlength=6) / 200)
    assert answer.cost == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(answer.classes[np.argsort(answer.rows)], labels)


def test_equal_rows_are_dealt_out_whole():
    answer = solve(np.full((4, 2), 0.5), uniform(4), np.array([0.25, 0.75]))
    np.testing.assert_array_equal(np.bincount(answer.classes), [1, 3])


def test_weights_act_like_repeated_rows():
    rng = np.random.default_rng(3)
    S, counts, q = rng.dirichlet(np.ones(4), size=30), rng.integers(1, 5, size=30), rng.dirichlet(np.ones(4))
    repeated = np.repeat(S, counts, axis=0)
    merged = solve(S, counts / counts.sum(), q).cost
    assert merged == pytest.approx(solve(repeated, uniform(len(repeated)), q).cost, rel=1e-12)


def test_inputs_are_left_alone():
    rng = np.random.default_rng(4)
    S, a, q = rng.dirichlet(np.ones(4), size=9), uniform(9), np.array([0.5, 0.5, 0.0, 0.0])
    before = S.copy(), a.copy(), q.copy()
    solve(S, a, q)
    for now, then in zip((S, a, q), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("bound", [-1.0, np.nan])
def test_an_uncertified_answer_is_refused(monkeypatch, bound):
    monkeypatch.setattr(transport, "_dual_value", lambda *_: bound)
    with pytest.raises(GdscoreError, match="not solved"):
        solve(np.eye(2), uniform(2), uniform(2))


class TestMemo:
    """`solved` gives back the last answer for the same numbers, and for nothing else."""

    S = np.random.default_rng(5).dirichlet(np.ones(4), size=30).astype(np.float32)
    counts, q = np.arange(1.0, 31.0), np.array([0.1, 0.2, 0.3, 0.4])

    def test_same_numbers_are_solved_once(self):
        first = solved(self.S, self.counts, self.q)
        assert solved(self.S.copy(), self.counts.copy(), self.q.copy()) is first
        assert first.cost == solve(self.S, self.counts / self.counts.sum(), self.q).cost

    @pytest.mark.parametrize("changed", ["rows", "order of rows", "precision", "counts", "mix"])
    def test_other_numbers_are_not_taken_for_the_same(self, changed):
        first = solved(self.S, self.counts, self.q)
        S, counts, q = self.S.copy(), self.counts.copy(), self.q.copy()
        if changed == "rows":
            S[3, :2] = S[3, 1], S[3, 0]
        elif changed == "order of rows":
            S = S[::-1]
        elif changed == "precision":
            S = S.astype(np.float64)
        elif changed == "counts":
            counts[7] += 1
        else:
            q[:] = 0.25
        again = solved(S, counts, q)
        assert again is not first
        assert again.cost == solve(S, counts / counts.sum(), q).cost

    def test_an_answer_cannot_be_changed(self):
        answer = solved(self.S, self.counts, self.q)
        for array in (answer.rows, answer.classes, answer.mass):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
