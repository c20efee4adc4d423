"""How far results are from the exact ones, in the units that the promises are made in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests import oracle

BOUND = 4.0  # eps of the compute type; the same for entries, row sums and max(1, L)


@dataclass
class Verdict:
    """The worst of many rows, each as a part of what is allowed: at most 1 is right."""

    entry: float = 0.0
    total: float = 0.0
    loss: float = 0.0
    gradient: float = 0.0
    wrong_supports: int = 0

    def merge(self, other: Verdict) -> Verdict:
        return Verdict(
            max(self.entry, other.entry),
            max(self.total, other.total),
            max(self.loss, other.loss),
            max(self.gradient, other.gradient),
            self.wrong_supports + other.wrong_supports,
        )

    @property
    def right(self) -> bool:
        return max(self.entry, self.total, self.loss, self.gradient) <= 1 and not self.wrong_supports


def worst(x: np.ndarray) -> float:
    return float(np.max(x, initial=0.0))


def projection(p: np.ndarray, exact: oracle.Exact) -> Verdict:
    """p against Eq. 2: entries, row sums and supports."""
    dtype = p.dtype
    four_eps = BOUND * oracle.eps(dtype)
    wide = p.astype(np.float64)
    off = oracle.distance(wide, exact.hi, exact.lo)
    # A half type holds the float32 result rounded once: within 1 ulp of the entry, or lost in float32.
    allowed = np.maximum(four_eps, oracle.ulp(exact.hi, dtype)) if oracle.is_half(dtype) else four_eps
    solved = exact.sizes > 0
    sums = np.array([math.fsum([*row[row != 0], -1.0]) for row in wide[solved]])
    slack = np.full(len(sums), four_eps)
    if oracle.is_half(dtype):
        rounded = np.where(exact.hi > 0, oracle.ulp(np.maximum(wide, exact.hi), dtype) / 2, 0.0)
        slack += rounded[solved].sum(axis=1)
    outside = (wide < 0) | (wide > 0) & (exact.hi == 0) & (off > four_eps)
    missing = (exact.hi > four_eps) & ~(wide > 0)
    return Verdict(
        entry=worst(off / allowed),
        total=worst(np.abs(sums) / slack),
        wrong_supports=int((outside | missing).any(axis=1).sum()),
    )


def losses(value: np.ndarray, hi: np.ndarray, lo: np.ndarray) -> float:
    """Row losses against Eq. 26, as a part of 4 eps max(1, L), plus one rounding for half types."""
    dtype = value.dtype
    allowed = BOUND * oracle.eps(dtype) * np.maximum(1.0, np.where(np.isfinite(hi), hi, 1.0))
    if oracle.is_half(dtype):
        allowed = allowed + oracle.ulp(hi, dtype) / 2
    # What exceeds the type's range by less than the error may be its largest number or infinite.
    top = oracle.largest(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = hi + allowed + oracle.ulp(np.full(hi.shape, top), dtype) / 2 > top
        edge = np.isposinf(value.astype(np.float64)) & beyond
        return worst(np.where(edge, 0.0, oracle.distance(value, hi, lo) / allowed))


def gradients(value: np.ndarray, exact: oracle.Exact, q: np.ndarray) -> float:
    """p - q (Eqs. 19, 27), as a part of 4 eps (half types: plus one rounding)."""
    dtype = value.dtype
    difference = exact.hi - q.astype(np.float64)
    off = oracle.distance(value, difference, exact.lo + ((exact.hi - difference) - q.astype(np.float64)))
    allowed = BOUND * oracle.eps(dtype) + (
        oracle.ulp(difference, dtype) / 2 if oracle.is_half(dtype) else 0.0
    )
    return worst(off / allowed)


def tangents(value: np.ndarray, p: np.ndarray, v: np.ndarray) -> float:
    """J(z) v against Eq. 14, as a part of 4 eps max |v| over the support (half types: plus one rounding)."""
    dtype = value.dtype
    hi, lo = oracle.jvp(p, v)
    on = p.astype(np.float64) > 0
    size = np.abs(np.where(on, v.astype(np.float64), 0)).max(axis=1, initial=0.0, keepdims=True)
    allowed = BOUND * oracle.eps(dtype) * np.maximum(size, np.finfo(np.float32).tiny)
    if oracle.is_half(dtype):
        allowed = allowed + oracle.ulp(hi, dtype) / 2
    return worst(oracle.distance(value, hi, lo) / allowed)


def thresholds(value: np.ndarray, exact: oracle.Exact) -> float:
    """tau against Eq. 4, as a part of one unit in the last place of tau plus 4 eps."""
    hi, lo = exact.tau()
    allowed = oracle.ulp(hi, value.dtype) + BOUND * oracle.eps(value.dtype)
    return worst(oracle.distance(value, hi, lo) / allowed)
