"""What other implementations get wrong, by the behaviour: each row was seen to fail somewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle


def exactly(frontend, p: np.ndarray, z: np.ndarray) -> None:
    verdict = judge.projection(p.reshape(-1, p.shape[-1]), oracle.project(z.reshape(-1, z.shape[-1])))
    assert verdict.right, verdict


def test_a_support_of_more_than_one_is_not_lost(frontend):
    """[.6, .5, .4, .3] is [.4, .3, .2, .1], not zeros."""
    p = frontend.sparsemax(frontend.array([[0.6, 0.5, 0.4, 0.3]]))
    slack = 4e-3 if frontend.half else judge.BOUND * frontend.eps
    np.testing.assert_allclose(p.astype(float), [[0.4, 0.3, 0.2, 0.1]], rtol=0, atol=slack)


@pytest.mark.parametrize("offset", [1e6, 1e7, 1e8, -1e8])
def test_a_large_offset_does_not_spoil_the_sum(frontend, offset):
    """[1, .9, .8] + 1e6 in float32 sums to one, and so does + 1e7: projections of the very floats."""
    if frontend.dtype == np.float16:
        offset = np.copysign(3e4, offset)
    z = frontend.array(np.array([[1, 0.9, 0.8], [3, 2, 1]]) + offset)
    p = frontend.sparsemax(z)
    exactly(frontend, p, z)
    assert not (p.astype(float) == 1).all()


def test_two_scores_far_apart_do_not_crash(frontend):
    """[1e8, 0] is [1, 0]; its loss is the distance."""
    far = 6e4 if frontend.dtype == np.float16 else 1e8
    z = frontend.array([[far, 0.0]])
    np.testing.assert_array_equal(frontend.sparsemax(z).astype(float), [[1, 0]])
    np.testing.assert_array_equal(frontend.loss(z, np.array([1])).astype(float), z[:, 0].astype(float))


def test_half_precision_rows_sum_to_one_to_the_rounding_of_their_entries(frontend):
    """Not .97 or 1.025: arithmetic in float32, one rounding."""
    rng = np.random.default_rng(0)
    for cols in (5, 50, 500):
        z = frontend.array(rng.normal(0, 1, (200, cols)))
        exactly(frontend, frontend.sparsemax(z), z)


def test_the_support_of_the_gradient_is_the_support_of_the_value(frontend):
    """J 1 is 0 on every row, in half precision too: the mean is over the nonzeros of the very p."""
    rng = np.random.default_rng(1)
    for cols in (5, 50, 500):
        z = frontend.array(rng.normal(0, 1, (200, cols)))
        ones = frontend.array(np.ones(z.shape))
        assert (np.abs(frontend.jvp(z, ones).astype(float)) <= judge.BOUND * frontend.eps).all()


def test_many_nearly_equal_scores_are_solved_to_the_end(frontend):
    """K = 1000 at a standard deviation of .01: no fixed number of steps suffices."""
    z = frontend.array(np.random.default_rng(2).normal(0, 0.01, (20, 1000)))
    exactly(frontend, frontend.sparsemax(z), z)


def test_the_axis_counts_for_matrices_as_well(frontend):
    """Both axes of a 2-D array, and one dimension alone."""
    z = frontend.array(np.random.default_rng(3).normal(0, 1, (5, 7)))
    exactly(frontend, frontend.sparsemax(z, axis=1), z)
    exactly(frontend, np.ascontiguousarray(frontend.sparsemax(z, axis=0).T), np.ascontiguousarray(z.T))
    exactly(frontend, frontend.sparsemax(z[0]), z[0])


def test_a_minus_infinity_is_no_nan(frontend):
    """A masked score leaves the others their value."""
    p = frontend.sparsemax(frontend.array([[1.0, -np.inf, 0.5], [-np.inf, -np.inf, 0.5]]))
    np.testing.assert_array_equal(p.astype(float), [[0.75, 0, 0.25], [0, 0, 1]])


def test_a_matrix_is_projected_row_by_row(frontend):
    """Not as if it were flat: every row sums to one, not the whole."""
    p = frontend.sparsemax(frontend.array(np.zeros((4, 8))))
    np.testing.assert_array_equal(p.astype(float), np.full((4, 8), 0.125))


def test_the_loss_is_the_loss_of_the_paper(frontend):
    """With its halves and its tau: values of Eq. 20 by hand."""
    z = frontend.array([[1.0, 0.5, -1.0], [0.0, 0.0, -1.0], [2.0, 0.0, 0.0]])
    value = frontend.loss(z, np.array([1, 0, 2])).astype(float)
    np.testing.assert_array_equal(value, [0.5625, 0.25, 2])


def test_the_gradient_of_the_loss_has_the_curvature_of_the_value(frontend64):
    """The Hessian of the loss is J, not zero: differences of the gradient are products with the Jacobian."""
    z = np.random.default_rng(4).normal(0, 1, (20, 9))
    v = np.random.default_rng(5).normal(0, 1, z.shape)
    k = cases.labels(6, 20, 9)
    h = 2.0**-20
    difference = (frontend64.gradient(z + h * v, k) - frontend64.gradient(z - h * v, k)) / (2 * h)
    np.testing.assert_allclose(difference, frontend64.jvp(z, v), rtol=0, atol=1e-8)
    assert np.abs(difference).max() > 0.5


def test_the_product_scales_with_what_comes_in(frontend):
    """8 times the cotangent, 8 times the gradient: nothing that comes in is ignored."""
    z = frontend.array(np.random.default_rng(7).normal(0, 1, (10, 7)))
    v = np.random.default_rng(8).normal(0, 1, z.shape)
    v = frontend.array(v)
    eight = frontend.array(8 * v.astype(float))
    np.testing.assert_array_equal(frontend.vjp(z, eight).astype(float), 8 * frontend.vjp(z, v).astype(float))
    assert np.abs(frontend.vjp(z, v).astype(float)).max() > 0.1


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1, 5), (5, 1, 3), (1, 5, 1), (1, 1)])
def test_axes_of_size_one_stay(frontend, shape):
    """Values and gradients of arrays with singleton axes keep them, along every axis, and change no input."""
    z = frontend.array(np.random.default_rng(9).normal(0, 1, shape))
    v = frontend.array(np.random.default_rng(10).normal(0, 1, shape))
    before = z.tobytes(), v.tobytes()
    for axis in range(len(shape)):
        p, Jv = frontend.sparsemax(z, axis=axis), frontend.jvp(z, v, axis=axis)
        assert p.shape == Jv.shape == shape
        flat = [
            np.ascontiguousarray(np.moveaxis(x, axis, -1)).reshape(-1, shape[axis]) for x in (z, p, v, Jv)
        ]
        exactly(frontend, flat[1], flat[0])
        assert judge.tangents(flat[3], flat[1], flat[2]) <= 1
    assert (z.tobytes(), v.tobytes()) == before


def test_the_jacobian_is_symmetric_at_a_tie(frontend):
    """At [1, 0, -1] the second score is exactly at tau: one support for rows and columns."""
    for z in ([[1.0, 0.0, -1.0]], [[0.5, 0.5, -0.0]], [[0.5, 0.5, 0.0, 0.0]], [[0.0, 0.0, 0.0]]):
        J = frontend.jacobian(frontend.array(z)).astype(float)
        np.testing.assert_array_equal(J, J.swapaxes(1, 2))


@pytest.mark.parametrize(
    "row", [[-np.inf] * 3, [np.nan, 1, 0], [0, 1, np.nan], [np.inf, 1, 0], [np.inf, -np.inf, np.nan]]
)
def test_a_row_without_a_value_raises_nothing_and_spoils_nothing(frontend, row):
    """All -inf, a NaN, a +inf: NaN along that row, and the others as they are."""
    z = frontend.array([[1.0, 0.5, -1.0], row, [3.0, 0.0, 0.0]])
    p = frontend.sparsemax(z).astype(float)
    np.testing.assert_array_equal(p, [[0.75, 0.25, 0], [np.nan] * 3, [1, 0, 0]])


def test_a_minus_infinity_in_the_loss_is_no_nan(frontend):
    """The loss of the other labels is that of the row without it."""
    z = frontend.array([[1.0, 0.5, -np.inf, -1.0]])
    assert frontend.loss(z, np.array([1])).astype(float) == 0.5625
    np.testing.assert_array_equal(frontend.gradient(z, np.array([1])).astype(float), [[0.75, -0.75, 0, 0]])


@pytest.mark.parametrize("axis", [-2, -3, 1, 0])
def test_a_negative_axis_that_is_not_the_last_works(frontend, axis):
    """Counted from either end."""
    z = frontend.array(np.random.default_rng(11).normal(0, 1, (3, 7, 5)))
    p = np.moveaxis(frontend.sparsemax(z, axis=axis), axis, -1)
    exactly(frontend, np.ascontiguousarray(p), np.ascontiguousarray(np.moveaxis(z, axis, -1)))


@pytest.mark.parametrize("cols", [65_536, 65_537, 131_072])
def test_a_vocabulary_is_not_too_large(frontend, cols):
    """No limit at 65,536 scores."""
    z = cases.find("deviation 1")(12, 2, cols, frontend.dtype)
    exactly(frontend, frontend.sparsemax(z), z)


def test_the_same_scores_always_give_the_same_bits(frontend):
    """Determinism: five calls, one result."""
    z = cases.mixture(13, 67, frontend.dtype)
    v = frontend.array(np.random.default_rng(14).normal(0, 1, z.shape))
    first = frontend.sparsemax(z).tobytes(), frontend.jvp(z, v).tobytes()
    for _ in range(4):
        assert (frontend.sparsemax(z).tobytes(), frontend.jvp(z, v).tobytes()) == first
