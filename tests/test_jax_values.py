"""What the JAX front end gives: types, axes, masks, targets out of the ordinary, infinite cotangents."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
zt = pytest.importorskip("zerotail.jax")
jnp = jax.numpy

X = np.random.default_rng(0).normal(0, 1, (2, 3, 5)).astype(np.float32)


@pytest.mark.parametrize("axis", [(0, 1), (1, 0), (2, 0), (-1, -3), [0, 2], None, (), (1,), 1, True])
def test_axes_are_those_of_softmax(axis):
    """An int, a tuple, None for all; () makes each entry a row. What is joined sums to one."""
    ours, theirs = zt.sparsemax(X, axis), jax.nn.softmax(X, axis)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    axes = (
        tuple(range(3)) if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (int(axis),)
    )
    np.testing.assert_allclose(ours.sum(axes), 1, atol=1e-6)
    rows = np.moveaxis(X, axes, range(3 - len(axes), 3)).reshape(*np.delete(X.shape, axes), -1)
    p = np.moveaxis(np.asarray(ours), axes, range(3 - len(axes), 3)).reshape(rows.shape)
    np.testing.assert_array_equal(p, zt.sparsemax(rows))
    np.testing.assert_array_equal(zt.threshold(X, axis), zt.threshold(rows))


def test_a_label_counts_through_several_axes_in_their_order():
    """As a flat index, as in optax."""
    optax = pytest.importorskip("optax")
    labels = np.array([7, 2])
    for axes in ((1, 2), (2, 1)):
        flat = np.moveaxis(X, axes, (1, 2)).reshape(2, -1)
        np.testing.assert_array_equal(
            zt.sparsemax_loss(X, labels, axes), zt.sparsemax_loss(flat, labels), err_msg=str(axes)
        )
        theirs = optax.softmax_cross_entropy_with_integer_labels
        np.testing.assert_allclose(theirs(X, labels, axes), theirs(flat, labels), rtol=1e-6)
    q = np.asarray(jax.nn.softmax(X, (1, 2)))
    np.testing.assert_array_equal(
        zt.sparsemax_loss(X, q, (1, 2)), zt.sparsemax_loss(X.reshape(2, -1), q.reshape(2, -1))
    )
    assert zt.sparsemax_loss(X, np.array(3), None).shape == ()


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    "dtype",
    ["int8", "int16", "int32", "int64", "uint8", "uint32", "float16", "bfloat16", "float32", "float64"],
)
def test_types_are_those_of_softmax(dtype, x64):
    """Integers are promoted, the others stay, with JAX's 64 bits and without."""
    with jax.enable_x64(x64):
        x = np.array([[2, 1, 1], [1, 1, 0]]).astype(jnp.dtype(dtype))
        ours = zt.sparsemax(x)
        assert ours.dtype == jax.nn.softmax(x).dtype == zt.threshold(x).dtype
        assert ours.dtype == zt.sparsemax_loss(x, np.array([0, 1])).dtype
        np.testing.assert_array_equal(ours.astype(np.float32), [[1, 0, 0], [0.5, 0.5, 0]])
        assert not jax.typeof(ours).weak_type
    assert zt.sparsemax(2, None) == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_a_label_out_of_range_gives_nan_and_any_integer_is_a_label(dtype):
    """-1 included, for any type of integer; the other rows are as they are, and so are their gradients."""
    with jax.enable_x64(True):
        x = jnp.asarray(X[0])
        top = np.iinfo(dtype).max
        for bad in (5, -1, top) if dtype[0] == "i" else (5, top):
            labels = jnp.asarray(
                np.array([1, bad, 4]).astype(dtype) if bad != top else np.array([1, top, 4], dtype)
            )
            value, grad = (
                zt.sparsemax_loss(x, labels),
                jax.grad(lambda x, y=labels: zt.sparsemax_loss(x, y).sum())(x),
            )
            np.testing.assert_array_equal(np.isnan(value), [False, True, False])
            np.testing.assert_array_equal(np.isnan(grad).any(1), [False, True, False])
            good = zt.sparsemax_loss(x, jnp.array([1, 0, 4]))
            np.testing.assert_array_equal(value[::2], good[::2])


@pytest.mark.parametrize("bad", [2**32, -(2**32) + 1, 2**40 + 4, 2**64 - 1, 5, -1])
def test_a_label_of_64_bits_that_jax_would_cut_to_32_is_out_of_range(bad):
    """An array of NumPy, or a number: what is in range afterwards is another label."""
    labels = np.array([1, bad, 4], np.uint64 if bad >= 2**63 else np.int64)
    value = zt.sparsemax_loss(X[0], labels)
    np.testing.assert_array_equal(np.isnan(value), [False, True, False])
    np.testing.assert_array_equal(value[::2], zt.sparsemax_loss(X[0], jnp.array([1, 0, 4]))[::2])
    assert np.isnan(zt.sparsemax_loss(X[0, 0], labels[1]))
    assert np.isnan(zt.sparsemax_loss(X[0, 0], bad))


def test_the_type_of_a_loss_is_that_of_scores_and_distribution_together():
    """As optax's: bfloat16 scores and a float32 target give float32."""
    q = np.asarray(jax.nn.softmax(X))
    for scores in (jnp.float16, jnp.bfloat16, jnp.float32):
        for target in (jnp.float16, jnp.bfloat16, jnp.float32):
            value = zt.sparsemax_loss(X.astype(scores), q.astype(target))
            assert value.dtype == jnp.promote_types(scores, target)


def test_an_offset_of_a_million_leaves_a_sum_of_one():
    """Shift invariance in float32, where the projection of optax sums to .875."""
    x = jnp.array([1.0, 0.9, 0.8]) + 1e6
    assert zt.sparsemax(x).sum() == 1
    exact = (jnp.array([1.0, 0.875, 0.8125]), jnp.array([1.0, 0.875, 0.8125]) + 1e6)
    np.testing.assert_array_equal(zt.sparsemax(exact[0]), zt.sparsemax(exact[1]))
    assert zt.sparsemax_loss(exact[0], 1) == zt.sparsemax_loss(exact[1], 1)
    projections = pytest.importorskip("optax.projections")
    assert projections.projection_simplex(x).sum() == 0.875


def test_a_row_emptied_by_its_mask_counts_for_nothing():
    """Value, loss and gradients are 0 there, whatever its label or target is; tau is NaN."""
    x = jnp.asarray(X[0]).at[1].set(jnp.nan)
    mask = jnp.array([[True], [False], [True]])
    np.testing.assert_array_equal(zt.sparsemax(x, where=mask)[1], 0)
    np.testing.assert_array_equal(np.isnan(zt.threshold(x, where=mask)), [False, True, False])
    for target in (jnp.array([0, -1, 1]), jax.nn.softmax(x)):

        def total(x, q=target):
            return zt.sparsemax_loss(x, q, where=mask).sum()

        assert zt.sparsemax_loss(x, target, where=mask)[1] == 0
        assert np.isfinite(total(x))
        grad = jax.grad(total)(x)
        np.testing.assert_array_equal(grad[1], 0)
        assert (grad[0] != 0).any()


def test_an_excluded_class_has_the_score_minus_infinity():
    """A target that wants it has an infinite loss; its own gradients stay 0 and finite."""
    x, mask = jnp.asarray(X[0]), jnp.arange(5) != 2
    lowered = jnp.where(mask, x, -jnp.inf)
    labels = jnp.array([2, 1, 0])
    value = zt.sparsemax_loss(x, labels, where=mask)
    np.testing.assert_array_equal(value, zt.sparsemax_loss(lowered, labels))
    np.testing.assert_array_equal(np.isinf(value), [True, False, False])
    q = jnp.where(mask, 0.25, 0.0) * jnp.ones((3, 1))
    in_x, in_q = jax.grad(lambda x, q: zt.sparsemax_loss(x, q, where=mask).sum(), (0, 1))(x, q)
    assert np.isfinite(in_q).all()
    np.testing.assert_array_equal(in_x[:, 2], 0)
    np.testing.assert_array_equal(in_q[:, 2], 0)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_where_the_gradient_of_a_loss_is_zero_an_infinite_cotangent_leaves_zero(value):
    """As Eq. 14 does off the support; and what a tangent holds off the support does not reach the loss."""
    x, y = jnp.array([3.0, 0.5, -1.0, 2.5]), jnp.array(0)
    p = zt.sparsemax(x)
    _, back = jax.vjp(lambda x: zt.sparsemax_loss(x, y), x)
    (grad,) = back(jnp.float32(value))
    np.testing.assert_array_equal(grad == 0, p == 0)
    tangent = jnp.where(p == 0, value, 1.0)
    _, moved = jax.jvp(lambda x: zt.sparsemax_loss(x, y), (x,), (tangent,))
    assert np.isfinite(moved)


def test_derivatives_pass_where_a_probability_is_the_target():
    """p - q = 0 on the support is no reason for a Hessian of 0."""
    x = jnp.array([0.3, 0.1, -2.0, 0.2])
    p = zt.sparsemax(x)
    hessian = jax.hessian(lambda x: zt.sparsemax_loss(x, p))(x)
    np.testing.assert_array_equal(hessian, jax.jacobian(zt.sparsemax)(x))
    assert hessian[0, 0] > 0.5


def test_a_row_does_not_depend_on_its_batch_nor_on_jit_and_vmap():
    """To the bit: alone, in a batch that XLA's threads share, mapped, compiled."""
    z = np.random.default_rng(1).normal(0, 1, (700, 300)).astype(np.float32)
    p = np.asarray(zt.sparsemax(z))
    np.testing.assert_array_equal(jax.jit(jax.vmap(zt.sparsemax))(z), p)
    np.testing.assert_array_equal(np.asarray(zt.sparsemax(z[123])), p[123])
    np.testing.assert_array_equal(np.asarray(zt.sparsemax(z[[123, 5]])), p[[123, 5]])
    numpy = pytest.importorskip("zerotail")
    np.testing.assert_array_equal(numpy.sparsemax(z), p)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_numbers_that_xlas_threads_flush_to_zero_count(target, dtype):
    """To the bit as NumPy, on every CPU target: in the calling thread, and on those of the pool."""
    numpy = pytest.importorskip("zerotail")
    tiny = np.finfo(dtype).smallest_subnormal
    for rows in (3, 2000):
        z = (np.random.default_rng(3).integers(-1000, 1000, (rows, 300)) * tiny).astype(dtype)
        v = z[::-1].copy()
        p = numpy.sparsemax(z)
        np.testing.assert_array_equal(zt.sparsemax(z), p)
        product = jax.vjp(zt.sparsemax, jnp.asarray(z))[1](jnp.asarray(v))[0]
        np.testing.assert_array_equal(product, numpy.sparsemax_jvp(p, v))


def test_many_calls_at_once_wait_for_nobody():
    """Many batches in one program: XLA runs them on the very threads that they share their rows over."""
    z = np.random.default_rng(2).normal(0, 1, (8, 256, 1024)).astype(np.float32)

    @jax.jit
    def many(z):
        return sum(zt.sparsemax(z[i]) + jax.vjp(zt.sparsemax, z[i])[1](z[i])[0] for i in range(8))

    first = np.asarray(many(z))
    for _ in range(20):
        np.testing.assert_array_equal(many(z), first)


def test_with_64_bits_from_the_start_float64_is_the_type():
    """JAX_ENABLE_X64, in a process of its own: labels of 64 bits, results and gradients of float64."""
    script = """
import jax, jax.numpy as jnp
from zerotail.jax import sparsemax, sparsemax_loss, threshold
z = jnp.array([[1.0, 0.5, -1.0], [0.5, 0.5, 0.0]])
y = jnp.array([0, -1])
assert z.dtype == jnp.float64 and y.dtype == jnp.int64
slope = jax.grad(lambda z: threshold(z).sum())(z)
print(sparsemax(z).dtype, threshold(z).dtype, sparsemax_loss(z, y), slope.dtype)
third = sparsemax(jnp.zeros(3))
print(float(abs(third - 1 / 3).max()) < 1e-16, sparsemax(jnp.array([2, 0])).dtype)
jax.test_util.check_grads(lambda z: sparsemax_loss(z, y[:1]), (z[:1],), order=2)
"""
    said = subprocess.run(
        [sys.executable, "-c", "import jax.test_util\n" + script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["float64 float64 [0.0625    nan] float64", "True float64"]
