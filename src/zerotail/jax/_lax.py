"""The primitives in XLA's own operations, for every device that has no kernel. No sort.

Rows are solved as in the core: Newton's method on tau from the lower bound max z - 1. JAX has no float64
unless it is told so, so sums and tau are pairs hi + lo of the compute type, with the rounding errors in lo.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from .. import _rules

Pair = tuple[Array, Array]


def compute(dtype: Any) -> Any:
    """The type that rows of `dtype` are computed in."""
    return dtype if dtype == jnp.float64 else jnp.float32


def _two_sum(a: Array, b: Array) -> Pair:
    """a + b, rounded, and what rounding took."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _add(a: Pair, b: Pair) -> Pair:
    s, rest = _two_sum(a[0], b[0])
    return _two_sum(s, rest + (a[1] + b[1]))


def _sum(x: Array) -> Pair:
    """Along the last axis, which is kept, to twice the precision of x."""
    zero = jnp.zeros((), x.dtype)
    hi, lo = lax.reduce((x, jnp.zeros_like(x)), (zero, zero), _add, (x.ndim - 1,))
    return hi[..., None], lo[..., None]


def _above(z: Array, tau: Pair) -> Array:
    return (z - tau[0]) - tau[1]


def _newton(z: Array, tau: Pair) -> tuple[Array, Array]:
    """How far tau moves so that what is above it adds up to one, and how many scores are above."""
    above = _above(z, tau)
    on = above > 0
    size = jnp.sum(on, axis=-1, keepdims=True, dtype=jnp.int32)
    hi, lo = _sum(jnp.where(on, above, 0))
    return ((hi - 1) + lo) / jnp.maximum(size, 1).astype(z.dtype), size


def _solve(z: Array) -> Pair:
    """tau of each row along the last axis (Eq. 4), which is kept; NaN for rows without tau.

    Steps from a lower bound only grow, and the scores above only become fewer: when a step drops none, it was
    the last.
    """
    top = jnp.max(z, axis=-1, keepdims=True)
    # XLA's maximum may pass over a NaN.
    defined = jnp.isfinite(top) & ~jnp.any(jnp.isnan(z), axis=-1, keepdims=True)
    z = jnp.where(defined, z, 0)
    tau = _two_sum(jnp.where(defined, top, 0), jnp.full_like(top, -1))
    step, size = _newton(z, tau)

    def unfinished(state: Any) -> Array:
        _, _, size, before = state
        return jnp.any(size < before)

    def body(state: Any) -> Any:
        tau, step, size, _ = state
        tau = _add(tau, (step, jnp.zeros_like(step)))
        return tau, *_newton(z, tau), size

    tau, step, _, _ = lax.while_loop(unfinished, body, body((tau, step, size, size)))
    hi, lo = _add(tau, (step, jnp.zeros_like(step)))
    return jnp.where(defined, hi, jnp.nan), jnp.where(defined, lo, 0)


def _rows(x: Array, axis: int) -> Array:
    return jnp.moveaxis(x, axis, -1).astype(compute(x.dtype))


def _back(x: Array, axis: int, dtype: Any) -> Array:
    return jnp.moveaxis(x, -1, axis).astype(dtype)


def sparsemax(z: Array, *, axis: int) -> Array:
    if not z.shape[axis]:
        return z
    rows = _rows(z, axis)
    p = _above(rows, _solve(rows))
    return _back(jnp.where(p <= 0, 0, p), axis, z.dtype)  # NaN stays NaN


def sparsemax_jvp(p: Array, v: Array, *, axis: int) -> Array:
    product = _rules.sparsemax.jvp(_rows(p, axis), _rows(v, axis), jnp)
    return _back(product, axis, p.dtype)


def threshold(z: Array, *, axis: int) -> tuple[Array, Array]:
    rows = _rows(z, axis)
    if not z.shape[axis]:
        hi = jnp.full(rows.shape[:-1], jnp.nan, rows.dtype)
        return hi, jnp.zeros_like(hi)
    hi, lo = _solve(rows)
    return hi[..., 0], lo[..., 0]


def _distributions(target: Array, rows: Array, axis: int) -> Array:
    """The target like rows along the last axis; NaN where a label is out of range."""
    if jnp.issubdtype(target.dtype, jnp.floating):
        return jnp.moveaxis(target, axis, -1).astype(rows.dtype)
    labels, cols = target[..., None], rows.shape[-1]
    classes = lax.broadcasted_iota(target.dtype, rows.shape, rows.ndim - 1)
    known = (labels >= 0) & (labels < cols)
    return jnp.where(known, (classes == labels).astype(rows.dtype), jnp.nan)


def sparsemax_loss(z: Array, target: Array, *, axis: int, gradient: bool) -> tuple[Array, ...]:
    rows = _rows(z, axis)
    q = _distributions(target, rows, axis)
    if not z.shape[axis]:  # no label is known, and no distribution counts
        nothing = 0 if jnp.issubdtype(target.dtype, jnp.floating) else jnp.nan
        value = jnp.full(rows.shape[:-1], nothing, rows.dtype)
        return (value, z) if gradient else (value,)
    p = sparsemax(rows, axis=rows.ndim - 1)
    counts = jnp.any(q != 0, axis=-1)
    value = jnp.where(counts, _rules.loss.value(rows, q, p, jnp), 0)
    if not gradient:
        return (value,)
    slope = jnp.where(counts[..., None], _rules.loss.gradient(p, q), 0)
    return value, _back(slope, axis, z.dtype)


def scaled(slope: Array, v: Array, *, axis: int) -> Array:
    """slope v, and 0 where the slope is, whatever v holds there.

    A primitive, as the derivative of this choice would be wrong where the slope passes through 0.
    """
    return jnp.where(slope != 0, slope * v, 0)
