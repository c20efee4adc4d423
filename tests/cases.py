"""The rows that every front end is judged on: one registry of named families.

A family makes `rows` rows of K scores of a dtype, from a generator: seeded, any K from 0 on. Adding a family
to the registry adds it to the suite and to the sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests import oracle

Generator = np.random.Generator
Make = Callable[[Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class Family:
    name: str
    make: Make
    """In float64, whatever the dtype: it is cast, and clipped to the range of the dtype."""
    infinite: bool = False
    """Holds -inf on purpose."""
    undefined: bool = False
    """Holds NaN or +inf, or rows with nothing finite."""

    def __str__(self) -> str:
        return self.name

    def __call__(self, seed: int, rows: int, cols: int, dtype: np.dtype) -> np.ndarray:
        z = np.asarray(self.make(np.random.default_rng(seed), rows, cols), dtype=np.float64).reshape(
            rows, cols
        )
        top = oracle.largest(dtype)
        return np.where(np.isinf(z), z, np.clip(z, -top, top)).astype(dtype)


def _normal(deviation: float, offset: float = 0.0) -> Make:
    return lambda rng, rows, cols: rng.normal(0, deviation, (rows, cols)) + offset


def _constant(rng: Generator, rows: int, cols: int) -> np.ndarray:
    return np.repeat(rng.normal(0, 3, (rows, 1)), cols, axis=1)


def _sorted(direction: int) -> Make:
    return lambda rng, rows, cols: np.sort(rng.normal(0, 1, (rows, cols)), axis=1)[:, ::direction]


def _peak(peak: float, rest: float, spread: float) -> Make:
    """One score far above the others, anywhere in the row."""

    def make(rng: Generator, rows: int, cols: int) -> np.ndarray:
        z = rest + spread * rng.uniform(-1, 1, (rows, cols))
        if cols:
            z[np.arange(rows), rng.integers(0, cols, rows)] = peak
        return z

    return make


def _support(size: int) -> Make:
    """`size` scores within 1/size of each other, all others more than 1 below."""

    def make(rng: Generator, rows: int, cols: int) -> np.ndarray:
        z = -1.5 - rng.exponential(1, (rows, cols))
        for row in z:
            row[rng.permutation(cols)[:size]] = rng.uniform(0, 0.9 / size, min(size, cols))
        return z

    return make


def _whole_support(rng: Generator, rows: int, cols: int) -> np.ndarray:
    return rng.uniform(0, 0.9 / max(cols, 1), (rows, cols))


def _levels(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """Few distinct values, a quarter apart: ties within the support, below it, and exactly at tau."""
    return rng.integers(-8, 5, (rows, cols)) / 4


def _at_tau(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """Scores that lie exactly at the threshold: p is 0 there, by equality."""
    z = np.full((rows, cols), -3.0)
    for row in z:
        size = int(2 ** rng.integers(0, 3))
        order = rng.permutation(cols)
        row[order[:size]] = 0.0
        row[order[size : size + int(rng.integers(1, 8))]] = -1.0 / size
    return z


def _margin(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """The best is 1 above the second, to the bit or nearly."""
    z = np.minimum(-rng.exponential(1, (rows, cols)), 0)
    for row in z:
        order = rng.permutation(cols)
        row[order[:1]] = 1.0 + rng.choice([-(2.0**-20), 0.0, 2.0**-20])
        row[order[1:2]] = 0.0
    return z


def _mixed(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """Every order of magnitude, either sign."""
    return rng.choice([-1.0, 1.0], (rows, cols)) * 2.0 ** rng.uniform(-60, 3, (rows, cols))


def _harmonic(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """A curve of scores along which tau rises slowly: many steps for an iterative method."""
    curve = -np.log1p(np.arange(cols)) * rng.uniform(0.01, 2, (rows, 1))
    return rng.permuted(curve, axis=1)


def _ladder(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """Scores that halve their distance to max - 1: each is nearly at the bound of the one before."""
    steps = -1 + 2.0 ** -np.minimum(np.arange(cols), 40.0)
    return rng.permuted(np.broadcast_to(steps, (rows, cols)), axis=1)


def _huge(size: float) -> Make:
    """Differences that overflow the type; `size` is a part of its largest number, which clips it."""
    return lambda rng, rows, cols: (
        rng.choice([-1.0, 1.0], (rows, cols)) * rng.uniform(0.5, 1, (rows, cols)) * size
    )


def _huge_ties(rng: Generator, rows: int, cols: int) -> np.ndarray:
    return rng.choice([-1e308, 1e308, 0.0, 1.0], (rows, cols))


def _subnormal(rng: Generator, rows: int, cols: int) -> np.ndarray:
    """Below the smallest normal number of one type or another, beside a few ordinary scores."""
    tiny = rng.choice([5e-324, 1e-310, 1e-45, 1e-40, 6e-8, 1e-39], (rows, cols)) * rng.integers(
        -9, 10, (rows, cols)
    )
    return np.where(rng.uniform(size=(rows, cols)) < 0.02, rng.normal(0, 0.5, (rows, cols)), tiny)


def _signed_zeros(rng: Generator, rows: int, cols: int) -> np.ndarray:
    return rng.choice([-0.0, 0.0], (rows, cols))


def _without(share: float) -> Make:
    """-inf at a share of the places, but not everywhere."""

    def make(rng: Generator, rows: int, cols: int) -> np.ndarray:
        z = rng.normal(0, 1, (rows, cols))
        gone = rng.uniform(size=(rows, cols)) < share
        if cols:
            gone[np.arange(rows), rng.integers(0, cols, rows)] = False
        return np.where(gone, -np.inf, z)

    return make


def _one_left(rng: Generator, rows: int, cols: int) -> np.ndarray:
    z = np.full((rows, cols), -np.inf)
    if cols:
        z[np.arange(rows), rng.integers(0, cols, rows)] = rng.normal(0, 1e3, rows)
    return z


def _undefined(value: float) -> Make:
    """One NaN or +inf in about half of the rows, at any place; -inf at some others."""

    def make(rng: Generator, rows: int, cols: int) -> np.ndarray:
        z = _without(0.1)(rng, rows, cols)
        spoiled = np.flatnonzero(rng.uniform(size=rows) < 0.5) if cols else np.arange(0)
        if cols:
            z[spoiled, rng.integers(0, cols, len(spoiled))] = value
        return z

    return make


FAMILIES: tuple[Family, ...] = (
    Family("deviation 1e-3", _normal(1e-3)),
    Family("deviation 0.1", _normal(0.1)),
    Family("deviation 1", _normal(1)),
    Family("deviation 5", _normal(5)),
    Family("deviation 1e-6", _normal(1e-6)),
    Family("deviation 1e-30", _normal(1e-30)),
    Family("deviation 1e4", _normal(1e4)),
    Family("offset 1e4", _normal(1, 1e4)),
    Family("offset -1e4", _normal(0.1, -1e4)),
    Family("offset 1e6", _normal(1, 1e6)),
    Family("offset 1e8", _normal(1, 1e8)),
    Family("offset -1e8", _normal(5, -1e8)),
    Family("offset 1e17", _normal(40, 1e17)),
    Family("constant", _constant),
    Family("sorted up", _sorted(1)),
    Family("sorted down", _sorted(-1)),
    Family("support of 1", _support(1)),
    Family("support of 2", _support(2)),
    Family("support of 7", _support(7)),
    Family("support of 40", _support(40)),
    Family("support of all", _whole_support),
    Family("levels", _levels),
    Family("exactly at tau", _at_tau),
    Family("margin of 1", _margin),
    Family("0 and the rest near -0.9", _peak(0.0, -0.9, 1e-3)),
    Family("0.9 and the rest near 0", _peak(0.9, 0.0, 1e-9)),
    Family("0 and the rest near -1", _peak(0.0, -1.0, 1e-2)),
    Family("1e4 and the rest 0.9 below", _peak(1e4, 1e4 - 0.9, 1e-3)),
    Family("mixed magnitudes", _mixed),
    Family("harmonic", _harmonic),
    Family("ladder", _ladder),
    Family("huge", _huge(1e38)),
    Family("larger than float32", _huge(1e308)),
    Family("huge ties", _huge_ties),
    Family("subnormal", _subnormal),
    Family("signed zeros", _signed_zeros),
    Family("some -inf", _without(0.1), infinite=True),
    Family("half -inf", _without(0.5), infinite=True),
    Family("all but one -inf", _one_left, infinite=True),
    Family("all -inf", lambda rng, rows, cols: np.full((rows, cols), -np.inf), infinite=True, undefined=True),
    Family("a NaN", _undefined(np.nan), infinite=True, undefined=True),
    Family("a +inf", _undefined(np.inf), infinite=True, undefined=True),
)
FINITE = tuple(f for f in FAMILIES if not f.infinite and not f.undefined)
DEFINED = tuple(f for f in FAMILIES if not f.undefined)

SMALL = tuple(range(258))
PRIMES = (1_009, 4_099, 10_007, 100_003, 999_983)


def find(name: str) -> Family:
    return next(f for f in FAMILIES if f.name == name)


def mixture(
    seed: int, cols: int, dtype: np.dtype, each: int = 1, families: tuple[Family, ...] = FAMILIES
) -> np.ndarray:
    """`each` rows of every family in one batch, shuffled: neighbours in a lane have nothing in common."""
    rng = np.random.default_rng((seed, cols))
    z = np.concatenate([f(int(rng.integers(2**31)), each, cols, dtype) for f in families])
    return z[rng.permutation(len(z))]


def labels(seed: int, rows: int, cols: int) -> np.ndarray:
    return np.random.default_rng((seed, rows, cols)).integers(0, cols, rows)


def distributions(seed: int, rows: int, cols: int, dtype: np.dtype) -> np.ndarray:
    """Targets of every sparsity: one label, a few, all; they sum to one as nearly as the dtype allows."""
    rng = np.random.default_rng((seed, rows, cols))
    q = rng.dirichlet(np.ones(cols), rows)
    for row in q:
        size = int(rng.choice([1, 2, max(1, cols // 2), cols]))
        row[rng.permutation(cols)[size:]] = 0
    return (q / q.sum(axis=1, keepdims=True)).astype(dtype)
