"""Promise 2: Eqs. 9 to 14, against the definition, in exact arithmetic and by finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, frontends, judge, oracle

COLS = (1, 2, 3, 5, 17, 64, 67, 131, 257)


def smooth_rows(seed: int, rows: int, cols: int, margin: float = 1e-3) -> np.ndarray:
    """Rows with no score near tau: sparsemax is linear around them."""
    rng = np.random.default_rng((seed, cols))
    found: list[np.ndarray] = []
    while len(found) < rows:
        z = rng.normal(0, rng.choice([0.1, 1.0, 3.0]), (1, cols))
        tau = oracle.project(z).tau()[0][0]
        if np.abs(z - tau).min() > margin:
            found.append(z[0])
    return np.array(found)


def tangents(frontend, z: np.ndarray, seed: int) -> np.ndarray:
    """Random, and not of mean zero: an all-ones tangent would hide errors."""
    return frontend.array(np.random.default_rng(seed).normal(0.7, 2, z.shape))


@pytest.mark.parametrize("family", cases.DEFINED, ids=str)
def test_the_product_with_the_jacobian_is_exact(frontend, family):
    """Eq. 14, with S the support of the value that the front end gives, forward and in reverse."""
    for cols in COLS:
        z = family(cols, 3, cols, frontend.dtype)
        v = tangents(frontend, z, cols)
        p = frontend.sparsemax(z)
        for product in (frontend.jvp, frontend.vjp):
            Jv = product(z, v)
            assert Jv.dtype == frontend.dtype
            assert Jv.shape == z.shape
            assert judge.tangents(Jv, p, v) <= 1, cols


@pytest.mark.parametrize("cols", [1_009, 10_007, 100_003])
@pytest.mark.parametrize("name", ["support of all", "deviation 1", "constant"])
def test_the_product_with_the_jacobian_is_exact_for_long_rows(frontend, name, cols):
    """The mean over a large support does not lose digits."""
    if frontends.REPLACED and cols > 5_000:
        pytest.skip("large rows are for the library")
    z = cases.find(name)(cols, 1, cols, frontend.dtype)
    v = tangents(frontend, z, cols)
    assert judge.tangents(frontend.jvp(z, v), frontend.sparsemax(z), v) <= 1


@pytest.mark.parametrize("cols", [1, 2, 3, 7, 13])
def test_the_jacobian_is_that_of_the_paper(frontend, cols):
    """Eq. 12: Diag(s) - s s' / |S|."""
    z = frontend.array(smooth_rows(0, 10, cols))
    s = (frontend.sparsemax(z) > 0).astype(np.float64)
    expected = s[:, :, None] * np.eye(cols) - s[:, :, None] * s[:, None, :] / s.sum(axis=1)[:, None, None]
    J = frontend.jacobian(z)
    assert J.shape == (10, cols, cols)
    assert J.dtype == frontend.dtype
    slack = judge.BOUND * frontend.eps + (oracle.ulp(expected, frontend.dtype) if frontend.half else 0)
    assert (np.abs(J.astype(np.float64) - expected) <= slack).all()


@pytest.mark.parametrize("cols", [2, 3, 7, 13])
def test_the_jacobian_is_a_laplacian(frontend, cols):
    """Symmetric to the bit, with rows that sum to zero: the graph that connects the support fully."""
    J = frontend.jacobian(frontend.array(smooth_rows(1, 10, cols))).astype(np.float64)
    np.testing.assert_array_equal(J, J.swapaxes(1, 2))
    slack = (
        np.finfo(np.float32).eps if not frontend.half else float(oracle.ulp(np.array(1.0), frontend.dtype))
    )
    assert (np.abs(J.sum(axis=2)) <= cols * slack).all()


def test_the_jacobian_at_a_tie_is_symmetric_and_one_of_clarkes(frontend):
    """At (1, 0, -1) the second score lies at tau: p is (1, 0, 0), and S = {p > 0} gives the zero matrix."""
    z = frontend.array([[1.0, 0.0, -1.0]])
    np.testing.assert_array_equal(frontend.sparsemax(z).astype(float), [[1, 0, 0]])
    np.testing.assert_array_equal(frontend.jacobian(z).astype(float), np.zeros((1, 3, 3)))


def test_only_positive_entries_count(zt):
    """Of p that is given: what is below 0 by rounding is off the support."""
    p = np.array([0.75, 0.25, -1e-9])
    np.testing.assert_array_equal(zt.sparsemax_jacobian(p), zt.sparsemax_jacobian(np.maximum(p, 0)))
    np.testing.assert_array_equal(zt.sparsemax_jvp(p, [1.0, 2.0, 5.0]), [-0.5, 0.5, 0.0])


@pytest.mark.parametrize("cols", [2, 3, 7, 31])
def test_the_product_with_the_jacobian_is_a_finite_difference(frontend64, cols):
    """Eqs. 9 and 11: between kinks sparsemax is linear, so that a difference has no error but rounding."""
    z = smooth_rows(2, 20, cols)
    v = np.random.default_rng(cols).uniform(-1, 1, z.shape)
    h = 2.0**-12
    difference = (frontend64.sparsemax(z + h * v) - frontend64.sparsemax(z - h * v)) / (2 * h)
    np.testing.assert_allclose(frontend64.jvp(z, v), difference, rtol=0, atol=16 * frontend64.eps / h)


@pytest.mark.parametrize("cols", [2, 3, 7, 31])
def test_the_gradient_of_tau_is_uniform_on_the_support(frontend64, cols):
    """Eq. 10 by finite differences: 1 / |S| on S, 0 off it."""
    z = smooth_rows(3, 10, cols)
    on = frontend64.sparsemax(z) > 0
    h = 2.0**-12
    for j in range(cols):
        step = h * (np.arange(cols) == j)
        slope = (frontend64.threshold(z + step) - frontend64.threshold(z - step)) / (2 * h)
        expected = on[:, j] / on.sum(axis=1)
        np.testing.assert_allclose(slope, expected, rtol=0, atol=16 * frontend64.eps * 8 / h)


@pytest.mark.parametrize("cols", [2, 3, 7, 31])
def test_the_product_is_the_jacobian_times_the_vector(frontend, cols):
    """Eq. 14 is Eq. 12 times v, and v' times Eq. 12."""
    z = frontend.array(smooth_rows(4, 10, cols))
    v = tangents(frontend, z, 5)
    J = frontend.jacobian(z).astype(np.float64)
    expected = np.einsum("rij,rj->ri", J, v.astype(np.float64))
    size = np.abs(v.astype(np.float64)).sum(axis=1, keepdims=True)
    one = float(oracle.ulp(np.array(1.0), frontend.dtype))
    for product in (frontend.jvp, frontend.vjp):
        assert (np.abs(product(z, v).astype(np.float64) - expected) <= judge.BOUND * one * size).all()


def test_the_product_is_linear_and_kills_constants(frontend):
    """J (a u + b v) = a J u + b J v, J 1 = 0; powers of two keep it exact but for the means."""
    z = frontend.array(smooth_rows(6, 10, 11))
    u, v = tangents(frontend, z, 7), tangents(frontend, z, 8)
    left = frontend.jvp(z, frontend.array(2 * u.astype(np.float64))).astype(np.float64)
    np.testing.assert_array_equal(left, 2 * frontend.jvp(z, u).astype(np.float64))
    one = float(oracle.ulp(np.array(8.0), frontend.dtype))
    both = frontend.jvp(z, frontend.array(u + v)).astype(np.float64)
    apart = frontend.jvp(z, u).astype(np.float64) + frontend.jvp(z, v).astype(np.float64)
    assert (np.abs(both - apart) <= judge.BOUND * one).all()
    flat = frontend.jvp(z, frontend.array(np.ones(z.shape))).astype(np.float64)
    assert (np.abs(flat) <= judge.BOUND * frontend.eps).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_a_tangent_holds_off_the_support_does_not_matter(frontend, value):
    """An infinity or NaN off the support reaches nothing, not even its own place."""
    z = cases.mixture(9, 37, frontend.dtype, 1, cases.DEFINED)
    v = tangents(frontend, z, 10)
    off = frontend.sparsemax(z) == 0
    assert off.any()
    spoiled = np.where(off, frontend.array(value), v)
    np.testing.assert_array_equal(
        frontend.jvp(z, spoiled).astype(np.float64), frontend.jvp(z, v).astype(np.float64)
    )


def test_a_tangent_touches_the_rows_and_the_support_alone(frontend):
    """Rows whose value is NaN have a NaN product; off the support of all others it is 0."""
    z = cases.mixture(11, 29, frontend.dtype, 2)
    p = frontend.sparsemax(z)
    Jv = frontend.jvp(z, tangents(frontend, z, 12))
    lost = np.isnan(p)
    np.testing.assert_array_equal(np.isnan(Jv), lost)
    assert (Jv[(p == 0) & ~lost] == 0).all()
