"""The functions of the JAX front end: checks at trace time, then one jitted call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from . import _check, _ops

Axis = int | Sequence[int] | None


def sparsemax(x: ArrayLike, /, axis: Axis = -1, *, where: ArrayLike | None = None) -> Array:
    """Project scores onto the probability simplex (Eq. 2), as `jax.nn.softmax` but with exact zeros.

    Right under every transform of JAX: jit, vmap, grad and its second order, jvp, linearize, scan, shard_map.

    Parameters
    ----------
    x : array
        Scores: float32, float64, float16 or bfloat16, of any shape; integers are promoted. Scores of -inf get
        probability 0.
    axis : int, tuple of int or None, default -1
        The axes that together sum to one; None means all.
    where : array of bool, optional
        True = takes part. Broadcasts to `x`. What is excluded gets 0 and is never read; a row with nothing
        left is zeros.

    Returns
    -------
    Array
        Shape and type of `x`. NaN along `axis` where the scores that take part hold NaN or +inf, or are all
        -inf, as softmax.

    Examples
    --------
    >>> sparsemax(jax.numpy.array([1.0, 0.5, -1.0]))
    Array([0.75, 0.25, 0.  ], dtype=float32)
    >>> jax.grad(lambda x: sparsemax(x)[0])(jax.numpy.array([1.0, 0.5, -1.0]))
    Array([ 0.5, -0.5,  0. ], dtype=float32)
    """
    dtype, shape = _check.scores(x, "x"), np.shape(x)
    axes = _check.axes(axis, len(shape), "x")
    if where is not None:
        _check.where(where, shape, "x")
    return _sparsemax(x, where, axes=axes, dtype=dtype)


def threshold(x: ArrayLike, /, axis: Axis = -1, *, where: ArrayLike | None = None) -> Array:
    """Find the tau for which sparsemax is max(x - tau, 0) (Eq. 4).

    Parameters
    ----------
    x : array
        Scores, as in `sparsemax`.
    axis : int, tuple of int or None, default -1
        The axes along which sparsemax sums to one.
    where : array of bool, optional
        True = takes part, as in `sparsemax`.

    Returns
    -------
    Array
        One number a row, of the type of `x`. NaN where a row is empty, is excluded as a whole, or has the
        value NaN in `sparsemax`.

    Notes
    -----
    tau is rounded to the type of `x`: with a large offset `max(x - tau, 0)` has fewer digits than
    `sparsemax`.

    Examples
    --------
    >>> threshold(jax.numpy.array([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]]))
    Array([0.25, 2.  ], dtype=float32)
    """
    dtype, shape = _check.scores(x, "x"), np.shape(x)
    axes = _check.axes(axis, len(shape), "x")
    if where is not None:
        _check.where(where, shape, "x")
    return _threshold(x, where, axes=axes, dtype=dtype)


def sparsemax_loss(
    scores: ArrayLike, target: ArrayLike, axis: Axis = -1, *, where: ArrayLike | None = None
) -> Array:
    """Measure how far scores are from labels or distributions (Eqs. 20 and 26), one value a row.

    What optax's cross-entropies are to softmax: its gradient in the scores is sparsemax(scores) - target.

    Parameters
    ----------
    scores : array
        As in `sparsemax`: scores, not probabilities.
    target : array
        Integers: labels, of the shape of `scores` without `axis`; with several axes, a label counts through
        them in the order given. Floating point: distributions, of the shape of `scores`; their sums are not
        checked.
    axis : int, tuple of int or None, default -1
        The axes of the classes.
    where : array of bool, optional
        True = takes part, as in `sparsemax`. An excluded class has the score -inf. A row with nothing left
        does not count: loss and gradient are 0.

    Returns
    -------
    Array
        Never negative, and not reduced. +inf where a class with the score -inf is wanted. NaN for rows whose
        value is NaN, and for labels out of range, -1 included. A row whose target is all zeros does not
        count: 0.

    Examples
    --------
    >>> scores = jax.numpy.array([[1.0, 0.5, -1.0], [0.5, 0.5, 0.0]])
    >>> sparsemax_loss(scores, jax.numpy.array([0, 2]))
    Array([0.0625, 0.75  ], dtype=float32)
    >>> sparsemax_loss(scores, jax.numpy.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]]))
    Array([0.  , 0.25], dtype=float32)
    """
    dtype, shape = _check.scores(scores, "scores"), np.shape(scores)
    axes = _check.axes(axis, len(shape), "scores")
    if where is not None:
        _check.where(where, shape, "scores")
    wanted = _check.target(target, shape, axes)
    if jnp.issubdtype(wanted, jnp.floating):
        dtype = jnp.promote_types(dtype, wanted)
    else:
        target = _narrowed(target, math.prod(shape[i] for i in axes))
    return _loss(scores, target, where, axes=axes, dtype=dtype)


def _narrowed(labels: ArrayLike, classes: int) -> ArrayLike:
    """Labels of the host, such that none comes into range where JAX cuts them to 32 bits."""
    if isinstance(labels, jax.Array):
        return labels
    labels = np.asarray(labels)
    if labels.dtype.itemsize < 8:
        return labels
    return np.asarray(np.clip(labels, 0 if labels.dtype.kind == "u" else -1, classes), np.int64)


def _joined(x: Array, axes: tuple[int, ...]) -> tuple[Array, int]:
    """The same with all of `axes` as one axis, and which it is."""
    if len(axes) == 1:
        return x, axes[0]
    moved = jnp.moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    batch = moved.shape[: x.ndim - len(axes)]
    size = int(np.prod(moved.shape[len(batch) :]))
    return moved.reshape(*batch, size), len(batch)


def _separate(p: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Undo `_joined`."""
    if len(axes) == 1:
        return p
    batch = p.shape[:-1]
    apart = p.reshape(*batch, *(shape[i] for i in axes))
    return jnp.moveaxis(apart, tuple(range(len(batch), len(shape))), axes)


def _masked(x: Array, where: ArrayLike | None, axes: tuple[int, ...]) -> tuple[Array, Any]:
    """Scores whose excluded entries are -inf, and which rows have anything left.

    A row with nothing left is solved as zeros: no NaN is made that jax_debug_nans would find.
    """
    if where is None:
        return x, None
    mask = jnp.broadcast_to(where, x.shape)
    left = mask.any(axis=axes, keepdims=True)
    return jnp.where(mask, x, jnp.where(left, -jnp.inf, 0).astype(x.dtype)), left.squeeze(axes)


@partial(jax.jit, static_argnames=("axes", "dtype"))
def _sparsemax(x: Any, where: Any, *, axes: tuple[int, ...], dtype: Any) -> Array:
    x = lax.convert_element_type(x, dtype)
    z, axis = _joined(_masked(x, where, axes)[0], axes)
    p = _separate(_ops.sparsemax(z, axis), axes, x.shape)
    return p if where is None else jnp.where(where, p, 0)


@partial(jax.jit, static_argnames=("axes", "dtype"))
def _threshold(x: Any, where: Any, *, axes: tuple[int, ...], dtype: Any) -> Array:
    z, left = _masked(lax.convert_element_type(x, dtype), where, axes)
    hi, _ = _ops.threshold(*_joined(z, axes))
    tau = hi.astype(dtype)
    return tau if left is None else jnp.where(left, tau, jnp.nan)


@partial(jax.jit, static_argnames=("axes", "dtype"))
def _loss(scores: Any, target: Any, where: Any, *, axes: tuple[int, ...], dtype: Any) -> Array:
    z, left = _masked(lax.convert_element_type(scores, dtype), where, axes)
    z, axis = _joined(z, axes)
    target = jnp.asarray(target)
    if jnp.issubdtype(target.dtype, jnp.integer):
        # An unsigned label that does not fit becomes negative: out of range as well.
        labels = target.astype(jnp.int64 if target.dtype.itemsize == 8 else jnp.int32)
        value = _ops.loss(z, labels, axis)
    else:
        q = target.astype(dtype)
        if where is not None:  # nothing moves what is excluded
            q = jnp.where(where, q, lax.stop_gradient(q))
        value = _ops.loss(z, _joined(q, axes)[0], axis)
    value = value.astype(dtype)
    return value if left is None else jnp.where(left, value, 0)
