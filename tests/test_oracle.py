"""The oracle itself, against the definition and against enumeration, in rational arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests import cases, frontends, oracle


def rationals(x: np.ndarray) -> list[Fraction]:
    return [Fraction(float(v)) for v in x]


@pytest.mark.parametrize("family", [f for f in cases.FAMILIES if not f.infinite], ids=str)
@pytest.mark.parametrize("cols", [1, 2, 7, 31])
def test_the_oracle_solves_the_conditions_of_optimality(family, cols):
    """Eq. 2, by the conditions of Karush, Kuhn and Tucker: they have one solution, and this is it."""
    z = family(1, 3, cols, np.dtype(np.float64))
    for scores, row in zip(z, oracle.project(z).rows, strict=True):
        p = row.fractions(cols)
        assert sum(p) == 1
        for p_j, z_j in zip(p, rationals(scores), strict=True):
            assert p_j == max(z_j - row.tau, 0)


def test_the_oracle_finds_the_nearest_of_all_faces():
    """Eq. 2 by enumeration: the best feasible point over all supports."""
    rng = np.random.default_rng(2)
    for z in np.concatenate([rng.normal(0, 1, (20, 5)), rng.integers(-2, 3, (20, 5)) / 2]):
        exact = rationals(z)
        best, nearest = None, None
        for size in range(1, 6):
            for face in itertools.combinations(range(5), size):
                tau = (sum(exact[j] for j in face) - 1) / size
                p = [exact[j] - tau if j in face else Fraction(0) for j in range(5)]
                far = sum((a - b) ** 2 for a, b in zip(p, exact, strict=True))
                if min(p) >= 0 and (best is None or far < best):
                    best, nearest = far, p
        assert oracle.solve(z).fractions(5) == nearest


def test_the_oracle_computes_the_loss_of_the_paper():
    """Eq. 26, with q that sums to one exactly, equals the oracle's form of it."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        z = rng.normal(0, 1, (1, 8))
        q = rng.multinomial(16, np.full(8, 1 / 8), 1) / 16
        (row,) = oracle.project(z).rows
        zs, qs, p = rationals(z[0]), rationals(q[0]), row.fractions(8)
        paper = Fraction(1, 2) * sum(x * x - row.tau**2 for x, on in zip(zs, p, strict=True) if on > 0)
        paper += Fraction(1, 2) * sum(x * x for x in qs) - sum(a * b for a, b in zip(qs, zs, strict=True))
        hi, lo = oracle.loss(z, q)
        assert abs(Fraction(hi[0]) + Fraction(lo[0]) - paper) <= abs(paper) * Fraction(1, 2**100)


def test_the_oracle_computes_the_product_with_the_jacobian():
    """Eq. 14 from Eq. 12, in rationals."""
    rng = np.random.default_rng(4)
    p = np.maximum(rng.normal(0, 1, (20, 9)), 0)
    v = rng.normal(0, 1, (20, 9))
    hi, lo = oracle.jvp(p, v)
    for i in range(20):
        on = p[i] > 0
        size = int(on.sum())
        for j in range(9):
            row = [Fraction(int(on[j] and on[k])) * ((j == k) - Fraction(1, max(size, 1))) for k in range(9)]
            exact = sum(a * b for a, b in zip(row, rationals(v[i]), strict=True))
            assert abs(Fraction(hi[i, j]) + Fraction(lo[i, j]) - exact) <= abs(exact) * Fraction(1, 2**100)


@pytest.mark.parametrize("dtype", frontends.DTYPES, ids=lambda d: d.name)
def test_an_ulp_is_the_distance_to_the_next_number(dtype):
    """The unit that results in half precision are measured in."""
    bits = np.dtype(f"u{dtype.itemsize}")
    x = np.array([0, 1e-45, 6e-8, 1e-7, 6e-5, 1e-3, 0.3, 0.5, 1.0, 1.999, 3.0, 1e4], dtype=dtype)
    after = (x.view(bits) + bits.type(1)).view(dtype)
    steps = after.astype(np.float64) - x.astype(np.float64)
    np.testing.assert_array_equal(oracle.ulp(x.astype(np.float64), dtype), steps)


@pytest.mark.parametrize("dtype", frontends.DTYPES, ids=lambda d: d.name)
def test_the_largest_number_is_the_last_before_infinity(dtype):
    """What families are clipped to."""
    bits = np.dtype(f"u{dtype.itemsize}")
    top = np.array(oracle.largest(dtype)).astype(dtype)
    assert float(top) == oracle.largest(dtype)
    assert np.isposinf((top.view(bits) + bits.type(1)).view(dtype))


def test_every_family_makes_what_it_says():
    """Shapes for any K, and -inf, NaN and +inf where the registry says so."""
    for family in cases.FAMILIES:
        for cols in (0, 1, 2, 53):
            z = family(0, 12, cols, np.dtype(np.float32))
            assert z.shape == (12, cols)
            assert z.dtype == np.float32
        defined = oracle.project(z).sizes > 0
        assert defined.all() != family.undefined, family
        assert np.isinf(z).any() == family.infinite, family
