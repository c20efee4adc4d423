"""Any axis, on shapes of distinct primes: a swapped axis cannot pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests import judge, oracle

SHAPES = [(5,), (3, 7), (2, 5, 3), (3, 2, 7, 5), (1, 5), (5, 1, 3), (67, 3), (3, 67, 5)]
AXES = [(shape, axis) for shape in SHAPES for axis in range(-len(shape), len(shape))]


def scores(frontend, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return frontend.array(np.random.default_rng(seed).normal(0, 0.7, shape))


def rows(x: np.ndarray, axis: int) -> np.ndarray:
    moved = np.moveaxis(x, axis, -1)
    return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])


@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_the_value_sums_to_one_along_the_axis(frontend, target, shape, axis):
    """Eq. 2 along each axis, counted from either end."""
    z = scores(frontend, shape)
    p = frontend.sparsemax(z, axis=axis)
    assert p.shape == shape
    assert judge.projection(rows(p, axis), oracle.project(rows(z, axis))).right


@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_the_product_with_the_jacobian_runs_along_the_axis(frontend, shape, axis):
    """Eq. 14 along each axis."""
    z, v = scores(frontend, shape), scores(frontend, shape, 1)
    p = frontend.sparsemax(z, axis=axis)
    for product in (frontend.jvp, frontend.vjp):
        Jv = product(z, v, axis=axis)
        assert Jv.shape == shape
        assert judge.tangents(rows(Jv, axis), rows(p, axis), rows(v, axis)) <= 1


@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_the_threshold_drops_the_axis(frontend, shape, axis):
    """Eq. 4 along each axis."""
    if "tau" not in frontend.can:
        pytest.skip("no threshold")
    z = scores(frontend, shape)
    tau = frontend.threshold(z, axis=axis)
    assert tau.shape == np.moveaxis(z, axis, -1).shape[:-1]
    assert judge.thresholds(tau.reshape(-1), oracle.project(rows(z, axis))) <= 1


@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_the_loss_drops_the_axis(frontend, shape, axis):
    """Eqs. 20 and 26, and their gradients, along each axis."""
    z = scores(frontend, shape)
    flat = rows(z, axis)
    kept = np.moveaxis(z, axis, -1).shape
    rng = np.random.default_rng(3)
    labels = rng.integers(0, kept[-1], kept[:-1])
    q = frontend.array(
        np.moveaxis(rng.multinomial(16, np.full(kept[-1], 1 / kept[-1]), kept[:-1]) / 16, -1, axis)
    )
    one_hot = (np.arange(kept[-1]) == labels.reshape(-1, 1)).astype(frontend.dtype)
    for target, wide in ((labels, one_hot), (q, rows(q, axis))):
        if target is q and "target" not in frontend.can:
            continue
        value = frontend.loss(z, target, axis=axis)
        assert value.shape == kept[:-1]
        exact = labels.reshape(-1) if target is labels else wide
        assert judge.losses(value.reshape(-1), *oracle.loss(flat, exact)) <= 1
        gradient = frontend.gradient(z, target, axis=axis)
        assert gradient.shape == shape
        assert judge.gradients(rows(gradient, axis), oracle.project(flat), wide) <= 1


def test_a_batch_of_matrices_is_not_projected_as_one(frontend):
    """Each row for itself: not the array as if it were flat, not one axis too many."""
    z = scores(frontend, (4, 3, 5))
    p = frontend.sparsemax(z)
    for i in range(4):
        for j in range(3):
            assert judge.projection(p[i, j][None], oracle.project(z[i, j][None])).right
