"""Algorithm 1 in exact arithmetic: floats are rationals, so the oracle has no error.

A row of floats is a row of Python integers over one power of two. Everything below is integer arithmetic; a
rational is turned into floats once, at the end, as a pair hi + lo that is right to 2**-106 of its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

NAN = (math.nan, 0.0)
INF = (math.inf, 0.0)


def scaled(x: np.ndarray) -> tuple[list[int], int]:
    """Integers n and a shift >= 0 with x == n / 2**shift, exactly; x finite float64."""
    mantissa, exponent = np.frexp(x)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    exponent = np.where(whole == 0, 0, exponent - 53)
    low = min(int(exponent.min(initial=0)), 0)
    return [n << e for n, e in zip(whole.tolist(), (exponent - low).tolist(), strict=True)], -low


def pair(numerator: int, denominator: int) -> tuple[float, float]:
    """A rational as hi + lo; hi is correctly rounded (Python's division of integers is)."""
    try:
        hi = numerator / denominator
    except OverflowError:
        return (math.inf if numerator > 0 else -math.inf), 0.0
    n, d = hi.as_integer_ratio()
    return hi, (numerator * d - n * denominator) / (denominator * d)


@dataclass(frozen=True)
class Row:
    """One row solved: p = numerators / denominator on `support`, 0 elsewhere; tau = T / denominator."""

    support: np.ndarray
    numerators: list[int]
    denominator: int
    T: int

    @property
    def tau(self) -> Fraction:
        return Fraction(self.T, self.denominator)

    def fractions(self, cols: int) -> list[Fraction]:
        p = [Fraction(0)] * cols
        for j, n in zip(self.support.tolist(), self.numerators, strict=True):
            p[j] = Fraction(n, self.denominator)
        return p


def solve(z: np.ndarray) -> Row | None:
    """Algorithm 1 on one row of float64; None where the row has no solution (NaN, +inf, nothing finite)."""
    top = z.max(initial=-np.inf)
    if not np.isfinite(top):
        return None
    # tau >= max - 1, so what lies below is not in the support. Rounding is monotone: nothing above is lost.
    with np.errstate(over="ignore"):
        near = np.flatnonzero(z - top >= -1)
    order = near[np.argsort(-z[near], kind="stable")]
    numbers, shift = scaled(z[order])
    one = 1 << shift
    total = size = 0
    # 1 + k z_(k) > sum_{j <= k} z_(j), which is sum_{j <= k} (z_(j) - z_(k)) < 1: the left side grows with k.
    for k, x in enumerate(numbers, 1):
        if one + k * x <= total + x:
            break
        total += x
        size = k
    T = total - one
    return Row(order[:size], [size * x - T for x in numbers[:size]], size << shift, T)


@dataclass(frozen=True)
class Exact:
    """The projections of many rows: p = hi + lo. Where a row has no solution hi is NaN and the size 0."""

    rows: list[Row | None]
    hi: np.ndarray
    lo: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.array([0 if row is None else len(row.support) for row in self.rows], dtype=np.int64)

    @property
    def support(self) -> np.ndarray:
        return self.hi > 0

    def tau(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = [NAN if row is None else pair(row.T, row.denominator) for row in self.rows]
        return _columns(pairs)


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def project(z: np.ndarray) -> Exact:
    """Eq. 2 for every row of the (rows, K) array z, of any float type."""
    wide = np.asarray(z).astype(np.float64)
    rows = [solve(row) for row in wide]
    hi, lo = np.zeros(wide.shape), np.zeros(wide.shape)
    for i, row in enumerate(rows):
        if row is None:
            hi[i] = np.nan
        else:
            hi[i, row.support], lo[i, row.support] = _columns(
                [pair(n, row.denominator) for n in row.numerators]
            )
    return Exact(rows, hi, lo)


def _loss(z: np.ndarray, q: np.ndarray, row: Row | None) -> tuple[float, float]:
    if row is None or np.isnan(q).any():
        return NAN
    wanted = np.flatnonzero(q)
    if np.isneginf(z[wanted]).any():
        return INF
    D, T = row.denominator, row.T
    Q, t = scaled(q[wanted])
    Z, u = scaled(z[wanted])
    p = dict(zip(row.support.tolist(), row.numerators, strict=True))
    squares = cross = 0
    for j, q_j, z_j in zip(wanted.tolist(), Q, Z, strict=True):
        if j in p:
            squares += ((p.pop(j) << t) - q_j * D) ** 2
        else:
            squares += (q_j * D) ** 2
            cross += q_j * ((T << u) - z_j * D)
    squares += sum((n << t) ** 2 for n in p.values())
    # squares / (2 D^2 4^t) + cross / (2^t D 2^u), over one denominator.
    return pair((squares << u) + 2 * cross * (D << t), 2 * (D << t) ** 2 << u)


def loss(z: np.ndarray, target: np.ndarray, exact: Exact | None = None) -> tuple[np.ndarray, np.ndarray]:
    """L(z; q) = |p - q|^2 / 2 + sum_{j not in S} q_j (tau - z_j) (Eqs. 20, 26), one pair a row.

    `target` holds labels (rows,) of an integer type or distributions (rows, K).
    """
    wide = np.asarray(z).astype(np.float64)
    exact = exact or project(wide)
    if np.issubdtype(np.asarray(target).dtype, np.integer):
        q = np.zeros(wide.shape)
        q[np.arange(len(wide)), target] = 1
    else:
        q = np.asarray(target).astype(np.float64)
    return _columns([_loss(*args) for args in zip(wide, q, exact.rows, strict=True)])


def jvp(p: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 14 on every row, with S = {p > 0}: v minus its mean over S, on S."""
    p, v = np.asarray(p).astype(np.float64), np.asarray(v).astype(np.float64)
    hi, lo = np.where(np.isnan(p), np.nan, 0.0), np.zeros(p.shape)
    for i in range(len(p)):
        on = np.flatnonzero(p[i] > 0)
        if on.size:
            numbers, shift = scaled(v[i, on])
            total, size = sum(numbers), len(numbers)
            hi[i, on], lo[i, on] = _columns([pair(size * n - total, size << shift) for n in numbers])
    return hi, lo


def compute_type(dtype: np.dtype) -> np.dtype:
    """The type that the arithmetic is done in: float32 for half types."""
    return np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)


def eps(dtype: np.dtype) -> float:
    return float(np.finfo(compute_type(dtype)).eps)


def is_half(dtype: np.dtype) -> bool:
    return np.dtype(dtype).itemsize == 2


_DIGITS = {"float64": (53, -1074), "float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}


def ulp(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The distance between neighbours of `dtype` at the size of x."""
    digits, smallest = _DIGITS[np.dtype(dtype).name]
    exponent = np.where(x == 0, smallest, np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - digits)
    return np.ldexp(1.0, np.maximum(exponent, smallest))


def largest(dtype: np.dtype) -> float:
    """The largest finite number of `dtype`."""
    return {"float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0}.get(
        np.dtype(dtype).name, 3.3895313892515355e38
    )


def distance(x: np.ndarray, hi: np.ndarray, lo: np.ndarray) -> np.ndarray:
    """|x - (hi + lo)|; 0 where both are NaN or the same infinity, infinite where one alone is."""
    x = np.asarray(x).astype(np.float64)
    same = (x == hi) & ~np.isfinite(hi) | np.isnan(x) & np.isnan(hi)
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.abs((x - hi) - lo)
    return np.where(same, 0.0, np.where(np.isnan(d), np.inf, d))
