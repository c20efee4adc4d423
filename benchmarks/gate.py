"""The gate: nothing is timed before its result is right.

The reference sorts each row (the closed form, Eqs. 3 and 4) and sums in NumPy's longest float. It shares no
line with the library or its tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# One unit in the last place of 1, and the smallest positive number.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


class GateError(Exception):
    """A result is wrong; the message says where and by how much."""


def wide(x: Array) -> Array:
    # ml_dtypes knows no long double: half types go through float32, which holds them.
    return (x.astype(np.float32) if x.dtype.itemsize < 4 else x).astype(np.longdouble)


def reference(scores: Array) -> tuple[Array, Array]:
    """p of each row along the last axis, and tau counted from the row's maximum."""
    z = wide(scores)
    z -= z.max(axis=-1, keepdims=True)
    # Sorted as floats of the type given, which is fast, and exact as it only moves them.
    falling = wide(
        np.sort(scores.astype(np.float32) if scores.dtype.itemsize < 4 else scores, axis=-1)[..., ::-1]
    )
    falling -= falling[..., :1]
    sums = np.cumsum(falling, axis=-1)
    count = np.arange(1, z.shape[-1] + 1)
    size = (1 + count * falling > sums).sum(axis=-1, keepdims=True)
    tau = (np.take_along_axis(sums, size - 1, axis=-1) - 1) / size
    return np.maximum(z - tau, 0), tau


def within(what: str, got: Array, want: Array, bound: Array | float) -> None:
    if got.shape != want.shape:
        raise GateError(f"{what} has shape {got.shape}, not {want.shape}")
    error = np.abs(wide(got) - want)
    bad = ~(error <= bound)  # so that NaN is bad
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise GateError(
            f"{what} is wrong in {int(bad.sum())} of {bad.size} places, first at {at}: "
            f"{float(got[at]):.9g}, not {float(want[at]):.9g}"
        )


def check_probabilities(got: Any, want: Array, dtype: Any, axis: int = -1) -> None:
    """Entries and row sums within 4 eps; half types within one unit in the last place of each entry."""
    name = np.dtype(dtype).name
    p = np.asarray(got)
    if p.dtype != dtype:
        raise GateError(f"p has dtype {p.dtype}, not {name}")
    if p.dtype.itemsize < 4:
        within("p", p, want, EPS[name] * want + TINY[name] + 4 * EPS["float32"])
    else:
        within("p", p, want, 4 * EPS[name])
        sums = wide(p).sum(axis=axis)
        within("a row's sum", sums, np.ones_like(sums), 4 * EPS[name])


def check_jvp(got: Any, p: Array, v: Array) -> None:
    """Eq. 14, within 4 eps of the row's largest |v|."""
    on = p > 0
    tangent = wide(v)
    mean = np.where(on, tangent, 0).sum(axis=-1, keepdims=True) / on.sum(axis=-1, keepdims=True)
    bound = 4 * EPS[p.dtype.name] * np.abs(tangent).max(axis=-1, keepdims=True)
    within("J v", np.asarray(got), np.where(on, tangent - mean, 0), bound)


def check_loss(got: Any, scores: Array, labels: Array) -> None:
    """Eq. 20 and its gradient, for one label a row: within 4 eps of max(1, L), and of 1.

    The losses may have been added up.
    """
    p, tau = reference(scores)
    at = labels[:, None]
    q = np.zeros_like(p)
    np.put_along_axis(q, at, 1, axis=-1)
    z = wide(scores)
    below = tau - (np.take_along_axis(z, at, axis=-1) - z.max(axis=-1, keepdims=True))
    want = ((p - q) ** 2).sum(axis=-1) / 2 + np.maximum(below, 0)[:, 0]
    loss, grad = got
    eps = EPS[scores.dtype.name]
    bound = 4 * eps * np.maximum(1, want)
    if np.ndim(loss) == 0:
        want, bound = want.sum(), bound.sum()
    within("the loss", np.asarray(loss), want, bound)
    within("the loss's gradient", np.asarray(grad), p - q, 4 * eps)
