"""Propositions 1 and 2, property by property."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle

COLS = (1, 2, 3, 11, 67)


def grid(seed: int, rows: int, cols: int) -> np.ndarray:
    """Quarters in [-2, 2]: sums with small integers are exact in every dtype."""
    return np.random.default_rng((seed, cols)).integers(-8, 9, (rows, cols)) / 4


@pytest.mark.parametrize("cols", COLS)
def test_proposition_1_the_value_is_the_scores_above_tau(frontend, cols):
    """Eq. 3: sparsemax_i(z) = [z_i - tau(z)]_+, with the tau that the front end gives."""
    z = frontend.array(grid(0, 20, cols))
    p, tau = frontend.sparsemax(z), frontend.threshold(z)
    expected = np.maximum(z.astype(np.float64) - tau.astype(np.float64)[:, None], 0)
    slack = oracle.ulp(tau.astype(np.float64), frontend.dtype)[:, None] + oracle.ulp(expected, frontend.dtype)
    assert (np.abs(p.astype(np.float64) - expected) <= slack + judge.BOUND * frontend.eps).all()


@pytest.mark.parametrize("cols", COLS)
def test_proposition_1_tau_is_the_root_and_follows_from_the_support(frontend, cols):
    """Eq. 4: tau is (the sum of z over S, less 1) / |S|, and the parts above it sum to 1."""
    z = frontend.array(grid(1, 20, cols))
    on = frontend.sparsemax(z) > 0
    wide, tau = z.astype(np.float64), frontend.threshold(z).astype(np.float64)
    slack = oracle.ulp(tau, frontend.dtype) + judge.BOUND * frontend.eps
    assert (np.abs(tau - (np.where(on, wide, 0).sum(axis=1) - 1) / on.sum(axis=1)) <= slack).all()
    assert (np.abs(np.maximum(wide - tau[:, None], 0).sum(axis=1) - 1) <= slack * on.sum(axis=1)).all()


@pytest.mark.parametrize("cols", COLS)
def test_proposition_1_the_support_is_the_longest_prefix_of_the_sorted_scores(frontend, cols):
    """k(z) = max {k : 1 + k z_(k) > sum of the k largest}: exact on quarters, so |S| is that number."""
    z = grid(2, 50, cols)
    best = -np.sort(-z, axis=1)
    k = np.arange(1, cols + 1)
    size = np.where(1 + k * best > np.cumsum(best, axis=1), k, 0).max(axis=1)
    np.testing.assert_array_equal((frontend.sparsemax(frontend.array(z)) > 0).sum(axis=1), size)


@pytest.mark.parametrize("cols", [1, 2, 3, 7, 64, 129])
def test_proposition_2_1_equal_scores_give_the_uniform_distribution(frontend, cols):
    """rho(0) = 1 / K."""
    for value in (0.0, 1.0, -3.5):
        p = frontend.sparsemax(frontend.array(np.full((2, cols), value)))
        exact = np.full((2, cols), 1 / cols)
        bound = oracle.ulp(exact, frontend.dtype) if frontend.half else judge.BOUND * frontend.eps
        assert (oracle.distance(p, exact, np.zeros_like(exact)) <= bound).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_proposition_2_1_the_limit_is_reached_once_epsilon_is_at_most_the_gap_times_the_number_of_best(
    frontend, size
):
    """rho(z / epsilon) is uniform on the maximal set A for epsilon <= gamma |A|, and for no larger one."""
    cols, gap = 13, 0.25
    rng = np.random.default_rng(size)
    z = np.full(cols, -gap) - rng.integers(0, 5, cols) / 4
    best = rng.permutation(cols)[:size]
    second = next(j for j in range(cols) if j not in best)
    z[best], z[second] = 0.0, -gap
    peaked = np.where(z == 0, 1 / size, 0.0)
    for part in (1.0, 0.5, 2.0**-6):
        p = frontend.sparsemax(frontend.array(z / (part * gap * size))[None])[0]
        bound = np.where(z == 0, oracle.ulp(peaked, frontend.dtype), 0) + judge.BOUND * frontend.eps
        # 1 / |A| as the largest score below is rounded to the dtype, by up to an ulp, when |A| is 3 or 7.
        rounding = oracle.ulp(np.array(1 / size), frontend.dtype) if size in (3, 7) else 0
        assert (np.abs(p.astype(np.float64) - peaked) <= bound + rounding).all(), part
    beyond = frontend.sparsemax(frontend.array(z / (1.25 * gap * size))[None])[0]
    assert beyond[second] > 0


@pytest.mark.parametrize("cols", COLS)
def test_proposition_2_2_adding_a_constant_changes_nothing(frontend, cols):
    """rho(z + c 1) = rho(z), wherever z + c is exact in the dtype."""
    z = grid(3, 20, cols)
    exact = oracle.project(z)
    shifts = [-16, 8, 16] + ([] if frontend.half else [-(2.0**20), 2.0**20])
    for c in shifts + ([2.0**40] if frontend.dtype == np.float64 else []):
        shifted = frontend.array(z + c)
        assert (shifted.astype(np.float64) == z + c).all()
        assert judge.projection(frontend.sparsemax(shifted), exact).right, c


@pytest.mark.parametrize("cols", COLS)
def test_proposition_2_3_permuting_the_scores_permutes_the_value(frontend, cols):
    """rho(P z) = P rho(z)."""
    rng = np.random.default_rng(cols)
    z = cases.mixture(4, cols, frontend.dtype, 1, cases.DEFINED)
    exact = oracle.project(z)
    for _ in range(3):
        order = rng.permutation(cols)
        permuted = oracle.Exact(exact.rows, exact.hi[:, order], exact.lo[:, order])
        assert judge.projection(frontend.sparsemax(np.ascontiguousarray(z[:, order])), permuted).right


@pytest.mark.parametrize("cols", COLS)
def test_proposition_2_4_the_value_keeps_the_order_and_does_not_stretch(frontend, cols):
    """If z_i <= z_j then 0 <= p_j - p_i <= z_j - z_i: the first to the bit, equal scores to the bit."""
    z = cases.mixture(5, cols, frontend.dtype, 2, cases.DEFINED)
    order = np.argsort(z.astype(np.float64), axis=1, kind="stable")
    ascending = np.take_along_axis(z, order, axis=1).astype(np.float64)
    p = np.take_along_axis(frontend.sparsemax(z), order, axis=1).astype(np.float64)
    if cols == 1:
        return
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.where(ascending[:, 1:] == ascending[:, :-1], 0, np.diff(ascending, axis=1))
    grown = np.diff(p, axis=1)
    assert (grown >= 0).all()
    assert (grown[steps == 0] == 0).all()
    slack = (
        oracle.ulp(p[:, 1:], frontend.dtype) + oracle.ulp(p[:, :-1], frontend.dtype) if frontend.half else 0
    )
    assert (grown <= steps + slack + 2 * judge.BOUND * frontend.eps).all()
