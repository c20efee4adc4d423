"""Argument checks of the JAX front end, at trace time.

Every error message stands here, in one form: *argument* must *requirement*; got *value*. The exceptions are
those that `jax.nn.softmax` and optax's losses raise for the same mistake.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FLOATING = frozenset(jnp.dtype(t) for t in (jnp.float32, jnp.float64, jnp.float16, jnp.bfloat16))


def array(value: Any, name: str) -> Any:
    """An array or scalar, of the type that JAX gives it."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        raise TypeError(f"{name} must be an array or a scalar; got {type(value).__name__}")
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "biufcV":
        raise TypeError(f"{name} must be numeric; got {value.dtype}")
    return value


def scores(value: Any, name: str) -> Any:
    """The type that scores are computed and returned in."""
    array(value, name)
    dtype = jax.dtypes.result_type(value)
    if jnp.issubdtype(dtype, jnp.integer):  # as jax.nn.softmax promotes them
        return jnp.dtype(jnp.float64 if dtype.itemsize == 8 else jnp.float32)
    if dtype not in FLOATING:
        raise TypeError(f"{name} must be float32, float64, float16, bfloat16 or integer; got {dtype}")
    return dtype


def _index(value: Any) -> int:
    if isinstance(value, jax.core.Tracer):
        raise jax.errors.ConcretizationTypeError(value, "axis must be known when a function is traced")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"axis must be an integer, a tuple of integers or None; got {value!r}") from None


def axes(value: Any, ndim: int, name: str) -> tuple[int, ...]:
    """The axes that a row runs along, counted from the front, in the order given."""
    if value is None:
        return tuple(range(ndim))
    given = [_index(one) for one in (value if isinstance(value, tuple | list) else (value,))]
    for one in given:
        if not -ndim <= one < ndim:
            raise ValueError(f"axis must be in [{-ndim}, {ndim}) for {name} of {ndim} dimensions; got {one}")
    found = tuple(one % ndim for one in given)
    if len(set(found)) != len(found):
        raise ValueError(f"axis must name each axis once; got {value!r}")
    return found


def where(value: Any, shape: tuple[int, ...], name: str) -> None:
    array(value, "where")
    dtype = jax.dtypes.result_type(value)
    if dtype != jnp.bool_:
        raise ValueError(f"where must be boolean; got {dtype}")
    try:
        fits = np.broadcast_shapes(np.shape(value), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"where must broadcast to {name} of shape {shape}; got shape {np.shape(value)}")


def target(value: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """The type of a target: labels are integers, distributions floating point."""
    array(value, "target")
    dtype = jax.dtypes.result_type(value)
    rows = tuple(n for i, n in enumerate(shape) if i not in axes)
    got = f"got {dtype} of shape {np.shape(value)}"
    if jnp.issubdtype(dtype, jnp.integer):
        if np.shape(value) != rows:
            raise ValueError(
                f"target must be integer labels of shape {rows} for scores of shape {shape}; {got}"
            )
    elif dtype not in FLOATING or np.shape(value) != shape:
        raise TypeError(
            f"target must be integer labels of shape {rows} or floating-point distributions of shape "
            f"{shape}; {got}"
        )
    return dtype
