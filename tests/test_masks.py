"""`where`: boolean, broadcastable, True = takes part; what is excluded is never read."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle

COLS = (1, 2, 5, 16, 37, 131)


@pytest.fixture(autouse=True)
def _masks(frontend):
    if "where" not in frontend.can:
        pytest.skip("no masks")


def masked(seed: int, z: np.ndarray) -> np.ndarray:
    where = np.random.default_rng(seed).uniform(size=z.shape) < 0.6
    where[0] = False
    where[1] = True
    return where


@pytest.mark.parametrize("cols", COLS)
def test_a_mask_leaves_the_projection_of_the_rest(frontend, cols):
    """0 where excluded, the exact projection of the others, zeros where nothing is left."""
    z = cases.find("deviation 1")(0, 9, cols, frontend.dtype)
    where = masked(1, z)
    p = frontend.sparsemax(z, where=where)
    assert p.dtype == frontend.dtype
    assert (p[~where] == 0).all()
    for row, value, kept in zip(z, p, where, strict=True):
        if kept.any():
            assert judge.projection(value[kept][None], oracle.project(row[kept][None])).right


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e4])
def test_what_is_excluded_is_never_read(frontend, value):
    """NaN, infinities and large scores under the mask change no bit."""
    z = cases.find("deviation 1")(2, 9, 37, frontend.dtype)
    where = masked(3, z)
    spoiled = np.where(where, z, frontend.array(value))
    assert frontend.sparsemax(spoiled, where=where).tobytes() == frontend.sparsemax(z, where=where).tobytes()
    if "tau" in frontend.can:
        tau = frontend.threshold(z, where=where)
        assert frontend.threshold(spoiled, where=where).tobytes() == tau.tobytes()


@pytest.mark.parametrize("shape", [(7,), (1, 7), (5, 1), (1, 1), (), (3, 1, 7), (3, 5, 7)])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_a_mask_broadcasts(frontend, shape, axis):
    """Against the scores, along any axis, as NumPy's own rules say."""
    z = frontend.array(np.random.default_rng(4).normal(0, 1, (3, 5, 7)))
    where = np.random.default_rng(5).uniform(size=shape) < 0.7
    full = np.broadcast_to(where, z.shape).copy()
    p = frontend.sparsemax(z, axis=axis, where=where)
    assert p.tobytes() == frontend.sparsemax(z, axis=axis, where=full).tobytes()
    sums = p.astype(float).sum(axis=axis)
    np.testing.assert_allclose(
        sums, full.any(axis=axis), rtol=0, atol=8 * float(oracle.ulp(np.array(1.0), z.dtype))
    )


def test_a_row_that_is_masked_whole_is_zeros(frontend):
    """And its threshold NaN; whatever its scores are."""
    z = frontend.array([[1.0, np.nan], [np.inf, 2.0], [-np.inf, -np.inf], [0.0, 0.0], [3.0, 1.0]])
    where = np.array([[False]] * 4 + [[True]])
    expected = np.array([[0, 0]] * 4 + [[1, 0]], dtype=float)
    np.testing.assert_array_equal(frontend.sparsemax(z, where=where).astype(float), expected)
    if "tau" in frontend.can:
        tau = frontend.threshold(z, where=where).astype(float)
        np.testing.assert_array_equal(tau, [np.nan] * 4 + [2])


def test_scores_of_minus_infinity_that_take_part_alone_are_nan(frontend):
    """Masked rows are zeros; rows whose part is all -inf are NaN, as softmax."""
    z = frontend.array([[-np.inf, 1.0, -np.inf], [-np.inf, 1.0, -np.inf]])
    where = np.array([[True, False, True], [True, True, True]])
    p = frontend.sparsemax(z, where=where).astype(float)
    assert np.isnan(p[0, [0, 2]]).all()
    np.testing.assert_array_equal(p[1], [0, 1, 0])


def test_a_nan_that_takes_part_makes_its_row_nan(frontend):
    """Wherever it takes part; the other rows are as before."""
    z = frontend.array([[1.0, np.nan, 0.0], [1.0, 0.5, np.inf], [1.0, 0.5, np.nan]])
    where = np.array([[True, True, False], [True, False, True], [True, True, False]])
    p = frontend.sparsemax(z, where=where).astype(float)
    assert np.isnan(p[0, :2]).all()
    assert np.isnan(p[1, [0, 2]]).all()
    np.testing.assert_array_equal(p[2], [0.75, 0.25, 0])


def test_a_mask_of_true_changes_no_bit(frontend):
    """where=True is no mask."""
    z = cases.mixture(6, 31, frontend.dtype)
    assert frontend.sparsemax(z, where=True).tobytes() == frontend.sparsemax(z).tobytes()
