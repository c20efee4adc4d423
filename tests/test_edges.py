"""The table of edges: what each kind of row gives, and that it leaves the rows around it alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests import cases, judge, oracle

COLS = (1, 2, 3, 16, 37, 257)
OFF = -np.inf


def lost_rows(p: np.ndarray) -> np.ndarray:
    return np.isnan(p).all(axis=-1)


@pytest.mark.parametrize("cols", COLS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_nan_or_plus_infinity_makes_its_own_row_nan_and_no_other(frontend, value, cols):
    """At any place; the rows beside it are as they are without it."""
    z = cases.find("deviation 1")(0, 7, cols, frontend.dtype)
    clean = frontend.sparsemax(z)
    for place in {0, cols // 2, cols - 1}:
        spoiled = z.copy()
        spoiled[3, place] = value
        p = frontend.sparsemax(spoiled)
        np.testing.assert_array_equal(lost_rows(p), np.arange(7) == 3)
        np.testing.assert_array_equal(np.delete(p, 3, 0).astype(float), np.delete(clean, 3, 0).astype(float))


@pytest.mark.parametrize("cols", COLS)
def test_a_nan_below_the_support_still_makes_its_row_nan(frontend, cols):
    """Not even a NaN that no comparison would notice is passed over, nor one beside +inf or -inf."""
    for other in (1e4, OFF, np.inf):
        z = np.full((2, cols), -1e4)
        z[:, 0] = other
        z[0, cols - 1] = np.nan
        assert lost_rows(frontend.sparsemax(frontend.array(z)))[0]


@pytest.mark.parametrize("cols", COLS)
def test_minus_infinity_takes_no_part(frontend, cols):
    """0 there; the rest is the projection of the rest alone."""
    z = cases.find("some -inf")(1, 9, cols, frontend.dtype)
    p = frontend.sparsemax(z)
    assert (p[np.isneginf(z)] == 0).all()
    for row, value in zip(z, p, strict=True):
        kept = np.isfinite(row)
        assert judge.projection(value[kept][None], oracle.project(row[kept][None])).right


@pytest.mark.parametrize("cols", COLS)
def test_a_row_of_minus_infinity_is_nan(frontend, cols):
    """As softmax: there is nothing to divide one among."""
    z = np.zeros((5, cols))
    z[2] = OFF
    z = frontend.array(z)
    np.testing.assert_array_equal(lost_rows(frontend.sparsemax(z)), np.arange(5) == 2)
    Jv = frontend.jvp(z, frontend.array(np.ones(z.shape)))
    np.testing.assert_array_equal(lost_rows(Jv), np.arange(5) == 2)


@pytest.mark.parametrize("cols", COLS)
def test_one_finite_score_takes_everything(frontend, cols):
    """The rest at -inf: exactly 1, exactly 0."""
    for score in (0.0, -1e4, 6e4):
        z = np.full((3, cols), OFF)
        z[np.arange(3), [0, cols // 2, cols - 1]] = score
        expected = (z > OFF).astype(float)
        np.testing.assert_array_equal(frontend.sparsemax(frontend.array(z)).astype(float), expected)


def test_a_single_score_has_value_one_and_no_gradient(frontend):
    """K = 1."""
    z = frontend.array([[0.0], [-5.0], [1e4], [3e-5]])
    np.testing.assert_array_equal(frontend.sparsemax(z).astype(float), 1)
    np.testing.assert_array_equal(frontend.jvp(z, frontend.array(np.full((4, 1), 3.0))).astype(float), 0)
    np.testing.assert_array_equal(frontend.loss(z, np.zeros(4, dtype=np.int64)).astype(float), 0)


@pytest.mark.parametrize("cols", [1, 2, 16, 37, 100, 257, 600, 5000])
def test_a_score_that_leads_all_others_by_one_takes_everything(frontend, cols):
    """The value is 1 and 0, the loss and its gradient are 0: by far, by little, and by no bit more than 1."""
    if frontend.compiles and cols not in {1, 37, 600}:
        pytest.skip("this front end compiles every new shape: three of them are run")
    rng, rows = np.random.default_rng(cols), 300
    top = frontend.array(rng.normal(0, rng.choice([0.3, 1, 3, 100], rows))).astype(float)
    lead = 1 + np.abs(rng.normal(0, rng.choice([0, 1e-7, 1e-3, 1], (rows, 1)), (rows, cols)))
    z = frontend.array(top[:, None] - lead)
    label = rng.integers(0, cols, rows)
    z[np.arange(rows), label] = frontend.array(top)
    others = np.where(np.arange(cols) == label[:, None], OFF, z.astype(float)).max(axis=1, initial=OFF)
    pairs = zip(top.tolist(), others.tolist(), strict=True)
    leads = np.array([b == OFF or Fraction(a) - Fraction(b) >= 1 for a, b in pairs])
    assert leads.sum() > rows / 4
    z, label = z[leads], label[leads]
    for values, axis in ((z, -1), (np.ascontiguousarray(z.T), 0)):
        expected = np.moveaxis(np.eye(cols)[label], -1, axis)
        np.testing.assert_array_equal(frontend.sparsemax(values, axis=axis).astype(float), expected)
    np.testing.assert_array_equal(frontend.loss(z, label).astype(float), 0)
    np.testing.assert_array_equal(frontend.gradient(z, label).astype(float), 0)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0), (2, 0, 3), (0, 0)])
def test_empty_scores_give_an_empty_value(frontend, shape):
    """K = 0 or no rows: the same shape, and nothing raised."""
    z = frontend.array(np.zeros(shape))
    for axis in range(-len(shape), len(shape)):
        assert frontend.sparsemax(z, axis=axis).shape == shape
        assert frontend.jvp(z, z, axis=axis).shape == shape


def test_the_threshold_of_a_row_without_one_is_nan(frontend):
    """NaN for empty rows, rows with NaN or +inf, and rows of -inf."""
    z = frontend.array([[1.0, OFF], [np.nan, 0.0], [np.inf, 0.0], [OFF, OFF]])
    np.testing.assert_array_equal(frontend.threshold(z).astype(float), [0, np.nan, np.nan, np.nan])
    assert np.isnan(frontend.threshold(frontend.array(np.zeros((3, 0))))).all()
    assert frontend.threshold(frontend.array(np.zeros((3, 0)))).shape == (3,)
    assert frontend.threshold(frontend.array(np.zeros((0, 3)))).shape == (0,)


def test_differences_that_overflow_are_still_right(frontend):
    """The largest number beside its negative, and ties of the largest."""
    top = oracle.largest(frontend.dtype)
    z = frontend.array([[top, -top, 0.0], [top, top, -top], [-top, -top, -top], [0.0, -top, 0.25]])
    p = frontend.sparsemax(z)
    third = frontend.array(1 / 3)
    expected = [[1, 0, 0], [0.5, 0.5, 0], [third] * 3, [0.375, 0, 0.625]]
    slack = oracle.ulp(np.array(expected, dtype=float), frontend.dtype)
    assert (np.abs(p.astype(float) - np.array(expected, dtype=float)) <= slack).all()


def test_a_score_below_all_others_does_not_change_them(frontend):
    """Scores at or below tau are 0 exactly, whatever they are: -inf, -1e4 or just below."""
    for low in (OFF, -1e4, -0.25):
        p = frontend.sparsemax(frontend.array([[0.75, 0.25, low, 0.5]]))
        np.testing.assert_allclose(p.astype(float), [[7 / 12, 1 / 12, 0, 4 / 12]], rtol=0, atol=4e-3)
        assert p[0, 2] == 0


@pytest.mark.parametrize("value", [-0.0, 0.0])
def test_a_zero_has_no_sign(frontend, value):
    """Scores of -0 are scores of 0; the zeros of the value are positive."""
    z = frontend.array([[value, 0.0, -0.0, value], [2.0, value, -1.0, -0.0]])
    p = frontend.sparsemax(z)
    np.testing.assert_array_equal(p.astype(float), [[0.25] * 4, [1, 0, 0, 0]])
    assert not np.signbit(p.astype(float)).any()
