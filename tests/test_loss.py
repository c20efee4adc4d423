"""Section 3: the loss, Proposition 3 property by property, and the loss that the paper does not take."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle

COLS = (2, 3, 5, 11, 67)


def needs_targets(frontend) -> None:
    if "target" not in frontend.can:
        pytest.skip("labels alone")


def bound(frontend, exact: np.ndarray) -> np.ndarray:
    """Of one loss: 4 eps max(1, L), and one rounding for half types."""
    rounding = oracle.ulp(exact, frontend.dtype) if frontend.half else 0.0
    return judge.BOUND * frontend.eps * np.maximum(1.0, np.abs(exact)) + rounding


def one_hot(labels: np.ndarray, cols: int) -> np.ndarray:
    return (np.arange(cols) == labels[:, None]).astype(np.float64)


@pytest.mark.parametrize("cols", COLS)
def test_the_loss_is_eq_20(frontend, cols):
    """-z_k + 1/2 sum over S of (z_j^2 - tau^2) + 1/2, as printed, on quarters, where float64 suffices."""
    z = np.random.default_rng(cols).integers(-8, 9, (30, cols)) / 4
    k = cases.labels(0, 30, cols)
    exact = oracle.project(z)
    tau = exact.tau()[0][:, None]
    paper = np.where(exact.support, z**2 - tau**2, 0).sum(axis=1) / 2 + 0.5 - z[np.arange(30), k]
    value = frontend.loss(frontend.array(z), k).astype(np.float64)
    assert (np.abs(value - paper) <= bound(frontend, paper) + 1e-14).all()


@pytest.mark.parametrize("cols", COLS)
def test_the_loss_of_a_distribution_is_eq_26(frontend, cols):
    """-q.z + 1/2 sum over S of (z_j^2 - tau^2) + 1/2 |q|^2, with q in sixteenths."""
    needs_targets(frontend)
    rng = np.random.default_rng(cols)
    z = rng.integers(-8, 9, (30, cols)) / 4
    q = rng.multinomial(16, np.full(cols, 1 / cols), 30) / 16
    exact = oracle.project(z)
    tau = exact.tau()[0][:, None]
    paper = np.where(exact.support, z**2 - tau**2, 0).sum(axis=1) / 2 + ((q * q) / 2 - q * z).sum(axis=1)
    value = frontend.loss(frontend.array(z), frontend.array(q)).astype(np.float64)
    assert (np.abs(value - paper) <= bound(frontend, paper) + 1e-14).all()


@pytest.mark.parametrize("cols", COLS)
def test_a_label_is_a_distribution_on_one_class(frontend, cols):
    """Eq. 20 is Eq. 26 at delta_k."""
    needs_targets(frontend)
    z = cases.mixture(0, cols, frontend.dtype, 1, cases.DEFINED)
    k = cases.labels(1, len(z), cols)
    q = frontend.array(one_hot(k, cols))
    hi, lo = oracle.loss(z, k)
    assert judge.losses(frontend.loss(z, q), hi, lo) <= 1
    assert judge.losses(frontend.loss(z, k), hi, lo) <= 1
    exact = oracle.project(z)
    assert judge.gradients(frontend.gradient(z, k), exact, q) <= 1
    assert judge.gradients(frontend.gradient(z, q), exact, q) <= 1


def test_the_loss_at_a_support_of_one(frontend):
    """Eq. 21: z_(1) - z_k."""
    z = cases.find("support of 1")(0, 20, 9, frontend.dtype)
    k = cases.labels(2, 20, 9)
    wide = z.astype(np.float64)
    exact = wide.max(axis=1) - wide[np.arange(20), k]
    assert (np.abs(frontend.loss(z, k).astype(np.float64) - exact) <= bound(frontend, exact)).all()


def test_the_loss_at_a_support_of_two(frontend):
    """Eq. 22: -z_k + (1 + (z_(1) - z_(2))^2) / 4 + (z_(1) + z_(2)) / 2; equal to Eq. 21 where they meet."""
    z = cases.find("support of 2")(1, 20, 9, frontend.dtype)
    z[0] = frontend.array([1.5, 0.5, *[-2.0] * 7])
    k = cases.labels(3, 20, 9)
    wide = z.astype(np.float64)
    first, second = -np.sort(-wide, axis=1)[:, :2].T
    exact = (1 + (first - second) ** 2) / 4 + (first + second) / 2 - wide[np.arange(20), k]
    assert exact[0] == 1.5 - wide[0, k[0]]
    assert (np.abs(frontend.loss(z, k).astype(np.float64) - exact) <= bound(frontend, exact) + 1e-15).all()


@pytest.mark.parametrize("cols", COLS)
def test_proposition_3_1_the_gradient_is_the_value_less_the_target(frontend64, cols):
    """Eqs. 19 and 27, by central differences of the loss: quadratic between kinks, smooth across them."""
    z = cases.find("deviation 1")(2, 10, cols, np.dtype(np.float64))
    k = cases.labels(4, 10, cols)
    gradient = frontend64.gradient(z, k)
    np.testing.assert_allclose(gradient, frontend64.sparsemax(z) - one_hot(k, cols), rtol=0, atol=1e-15)
    h = 2.0**-14
    for j in range(cols):
        step = h * (np.arange(cols) == j)
        slope = (frontend64.loss(z + step, k) - frontend64.loss(z - step, k)) / (2 * h)
        # Across a kink the second derivative jumps by at most 1: the error is at most h.
        np.testing.assert_allclose(slope, gradient[:, j], rtol=0, atol=h)


def test_proposition_3_1_the_loss_is_differentiable_where_the_support_changes(frontend64):
    """At splitting points the slopes from both sides agree; those of the value do not."""
    z = np.array([[1.0, 0.0, -1.0], [0.5, 0.5, -0.0], [0.25, 0.25, -0.25]])
    k = np.array([0, 1, 2])
    gradient = frontend64.gradient(z, k)
    h = 2.0**-20
    for direction in np.eye(3):
        right = (frontend64.loss(z + h * direction, k) - frontend64.loss(z, k)) / h
        left = (frontend64.loss(z, k) - frontend64.loss(z - h * direction, k)) / h
        np.testing.assert_allclose(right, gradient @ direction, rtol=0, atol=2 * h)
        np.testing.assert_allclose(left, gradient @ direction, rtol=0, atol=2 * h)
    step = h * np.array([0.0, 1.0, 0.0])
    first = z[:1]
    right = (frontend64.sparsemax(first + step) - frontend64.sparsemax(first))[0, 1] / h
    left = (frontend64.sparsemax(first) - frontend64.sparsemax(first - step))[0, 1] / h
    assert right == pytest.approx(0.5, abs=1e-6)
    assert left == 0


@pytest.mark.parametrize("cols", COLS)
def test_proposition_3_2_the_loss_is_convex(frontend, cols):
    """On segments between quarters, whose midpoints are exact: no point lies above its chord."""
    rng = np.random.default_rng(cols)
    a, b = rng.integers(-8, 9, (2, 200, cols)) / 2
    k = cases.labels(5, 200, cols)
    loss_a, loss_b, middle = (
        frontend.loss(frontend.array(z), k).astype(np.float64) for z in (a, b, (a + b) / 2)
    )
    chord = (loss_a + loss_b) / 2
    slack = sum(bound(frontend, x) for x in (loss_a, loss_b, middle))
    assert (middle <= chord + slack).all()
    assert (middle < chord - slack).any()


def test_eq_18_the_logarithm_of_a_perturbed_sparsemax_is_not_convex(frontend):
    """-log((epsilon + p_k) / (1 + K epsilon)) lies above its chord; the sparsemax loss does not."""
    epsilon, cols = 2.0**-6, 2
    t = np.array([-3.0, -1.0, 1.0])
    z = frontend.array(np.stack([t, np.zeros(3)], axis=-1))
    p = frontend.sparsemax(z).astype(np.float64)
    perturbed = -np.log((epsilon + p[:, 0]) / (1 + cols * epsilon))
    assert perturbed[1] > (perturbed[0] + perturbed[2]) / 2 + 1
    ours = frontend.loss(z, np.zeros(3, dtype=np.int64)).astype(np.float64)
    assert ours[1] <= (ours[0] + ours[2]) / 2


@pytest.mark.parametrize("cols", COLS)
def test_proposition_3_3_adding_a_constant_changes_nothing(frontend, cols):
    """L(z + c 1; k) = L(z; k), wherever z + c is exact in the dtype."""
    z = np.random.default_rng(cols).integers(-8, 9, (30, cols)) / 4
    k = cases.labels(6, 30, cols)
    hi, lo = oracle.loss(z, k)
    for c in [-16, 16] + ([] if frontend.half else [2.0**20]):
        assert judge.losses(frontend.loss(frontend.array(z + c), k), hi, lo) <= 1, c


@pytest.mark.parametrize("family", cases.DEFINED, ids=str)
def test_proposition_3_4_the_loss_is_never_negative(frontend, family):
    """Only nonnegative terms: not even by rounding, and never NaN."""
    for cols in (1, 2, 5, 33, 131):
        z = family(3, 4, cols, frontend.dtype)
        assert (frontend.loss(z, cases.labels(7, 4, cols)) >= 0).all()
        if "target" in frontend.can:
            assert (frontend.loss(z, cases.distributions(8, 4, cols, frontend.dtype)) >= 0).all()


def test_proposition_3_4_the_loss_of_the_value_itself_is_zero(frontend):
    """L(z; sparsemax(z)) is 0 to rounding squared: the terms are squares of what rounding leaves."""
    needs_targets(frontend)
    z = cases.mixture(12, 31, frontend.dtype, 1, cases.DEFINED)
    p = frontend.sparsemax(z)
    hi, lo = oracle.loss(z, p)
    assert judge.losses(frontend.loss(z, p), hi, lo) <= 1
    assert (frontend.loss(z, p).astype(np.float64) <= 2 * judge.BOUND * frontend.eps).all() or frontend.half


@pytest.mark.parametrize("offset", [0.0, 8.0, -16.0])
def test_proposition_3_5_no_loss_and_a_sure_value_and_a_margin_of_one_are_the_same(frontend, offset):
    """(i) L = 0, (ii) p = delta_k, (iii) z_k >= 1 + max of the others: together or not at all, to the bit."""
    rng = np.random.default_rng(0)
    others = rng.integers(-12, 1, (60, 6)) / 4
    best = others.max(axis=1) + rng.choice([0.25, 0.75, 0.9375, 1.0, 1.25, 2.0], 60)
    z = np.concatenate([best[:, None], others], axis=1) + offset
    k = np.where(rng.uniform(size=60) < 0.8, 0, 3)
    order = rng.permutation(7)
    z, k = frontend.array(z[:, order]), np.argsort(order)[k]
    wide = z.astype(np.float64)
    rest = np.where(one_hot(k, 7) > 0, -np.inf, wide).max(axis=1)
    separated = wide[np.arange(60), k] >= 1 + rest
    assert separated.any()
    assert not separated.all()
    np.testing.assert_array_equal(frontend.loss(z, k) == 0, separated)
    np.testing.assert_array_equal(
        (frontend.sparsemax(z).astype(np.float64) == one_hot(k, 7)).all(axis=1), separated
    )


def test_the_gradient_is_zero_exactly_where_the_loss_is(frontend):
    """Proposition 3.5 with Eq. 19."""
    z = cases.find("support of 1")(4, 20, 9, frontend.dtype)
    k = z.astype(np.float64).argmax(axis=1)
    np.testing.assert_array_equal(frontend.loss(z, k).astype(float), 0)
    np.testing.assert_array_equal(frontend.gradient(z, k).astype(float), 0)


def test_the_loss_of_a_label_with_score_minus_infinity_is_infinite(frontend):
    """+inf, with gradient p - q; a score of -inf with no target costs nothing."""
    z = frontend.array([[1.0, 0.5, -np.inf], [1.0, 0.5, -np.inf]])
    k = np.array([2, 1])
    value = frontend.loss(z, k).astype(np.float64)
    assert value[0] == np.inf
    assert value[1] == 0.5625
    np.testing.assert_array_equal(
        frontend.gradient(z, k).astype(np.float64), [[0.75, 0.25, -1], [0.75, -0.75, 0]]
    )


def test_the_loss_of_a_proportion_at_minus_infinity_is_infinite(frontend):
    """The same for a distribution: +inf where q > 0 on a -inf score."""
    needs_targets(frontend)
    z = frontend.array([[1.0, 0.5, -np.inf], [1.0, 0.5, -np.inf]])
    q = frontend.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]])
    value = frontend.loss(z, q).astype(np.float64)
    assert value[0] == np.inf
    assert value[1] == 0.0625
    np.testing.assert_array_equal(
        frontend.gradient(z, q).astype(np.float64), [[0.25, 0, -0.25], [0.25, -0.25, 0]]
    )


def test_the_loss_of_a_row_without_a_value_is_nan(frontend):
    """NaN, in the loss and along the gradient, on that row only."""
    z = frontend.array([[1.0, 0.5], [np.nan, 0.5], [np.inf, 0.5], [-np.inf, -np.inf], [3.0, 0.0]])
    k = np.array([0, 1, 1, 0, 0])
    lost = np.array([False, True, True, True, False])
    np.testing.assert_array_equal(np.isnan(frontend.loss(z, k)), lost)
    gradient = frontend.gradient(z, k)
    np.testing.assert_array_equal(np.isnan(gradient).all(axis=1), lost)
    np.testing.assert_array_equal(np.isnan(gradient).any(axis=1), lost)
