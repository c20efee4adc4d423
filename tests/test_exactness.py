"""Promise 1: the projection of the very floats given, at any offset, scale and K."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests import cases, exactness_sweep, frontends, judge, oracle

COLS = (1, 2, 3, 5, 8, 13, 17, 31, 64, 67, 131, 257)


@functools.cache
def rows_of(
    family: cases.Family, cols: int, dtype: np.dtype, rows: int = 3
) -> tuple[np.ndarray, oracle.Exact]:
    z = family(cols, rows, cols, dtype)
    z.flags.writeable = False
    return z, oracle.project(z)


@functools.cache
def mixed(cols: int, dtype: np.dtype) -> tuple[np.ndarray, oracle.Exact]:
    z = cases.mixture(7, cols, dtype)
    z.flags.writeable = False
    return z, oracle.project(z)


@pytest.mark.parametrize("family", cases.FAMILIES, ids=str)
def test_every_entry_row_sum_and_support_is_exact(frontend, target, family):
    """Eq. 2: entries and sums within 4 eps of the rational solution, supports right where p exceeds 4 eps."""
    for cols in COLS:
        z, exact = rows_of(family, cols, frontend.dtype)
        verdict = judge.projection(frontend.sparsemax(z), exact)
        assert verdict.right, (cols, verdict)


def test_every_number_of_scores_from_1_to_257_is_exact(frontend, target):
    """No K is special: whole vectors, remainders, padded lanes. One batch of all families a K."""
    some = frontends.REPLACED or frontend.compiles
    for cols in (*range(1, 20), 63, 64, 65, 257) if some else cases.SMALL[1:]:
        z, exact = mixed(cols, frontend.dtype)
        verdict = judge.projection(frontend.sparsemax(z), exact)
        assert verdict.right, (cols, verdict)


@pytest.mark.parametrize("cols", [258, 300, 512, 701, 1_009, 2_048, 4_099])
def test_every_family_is_exact_in_longer_rows(frontend, target, cols):
    """Where rows are read in pieces: one batch of all families a K."""
    if frontends.REPLACED and cols > 1_000:
        pytest.skip("large rows are for the library")
    z, exact = mixed(cols, frontend.dtype)
    verdict = judge.projection(frontend.sparsemax(z), exact)
    assert verdict.right, verdict
    y = cases.labels(3, len(z), cols)
    assert judge.losses(frontend.loss(z, y), *oracle.loss(z, y, exact)) <= 1
    one_hot = (np.arange(cols) == y[:, None]).astype(frontend.dtype)
    assert judge.gradients(frontend.gradient(z, y), exact, one_hot) <= 1


@pytest.mark.parametrize("cols", cases.PRIMES)
@pytest.mark.parametrize("name", ["deviation 1", "0 and the rest near -0.9", "mixed magnitudes"])
def test_a_prime_number_of_scores_is_exact(frontend, target, name, cols):
    """No K limit, no rounding that grows with K."""
    if frontends.REPLACED and cols > 5_000:
        pytest.skip("large rows are for the library")
    if cols > 200_000 and name != "deviation 1":
        pytest.skip("one family at this size")
    z, exact = rows_of(cases.find(name), cols, frontend.dtype, 1 if cols > 200_000 else 2)
    verdict = judge.projection(frontend.sparsemax(z), exact)
    assert verdict.right, verdict


@pytest.mark.parametrize("cols", [100, 1_000, 10_000, 100_000])
def test_a_row_whose_threshold_needs_more_than_float32_sums_to_one(frontend, target, cols):
    """One score 0, the rest -0.9 or so: with tau in float32 the sum is off by about K / 10 eps."""
    if frontends.REPLACED and cols > 1_000:
        pytest.skip("large rows are for the library")
    z = np.full((2, cols), -0.9)
    z[1] += np.random.default_rng(0).normal(0, 1e-2, cols)
    z[:, cols // 3] = 0
    z = frontend.array(z)
    verdict = judge.projection(frontend.sparsemax(z), oracle.project(z))
    assert verdict.right, verdict


@pytest.mark.parametrize("family", cases.DEFINED, ids=str)
def test_the_loss_and_its_gradient_are_exact(frontend, family):
    """Eqs. 20 and 26 within 4 eps max(1, L), Eqs. 19 and 27 within 4 eps, for labels and distributions."""
    for cols in COLS:
        z, exact = rows_of(family, cols, frontend.dtype)
        y = cases.labels(1, len(z), cols)
        targets = [(y, (np.arange(cols) == y[:, None]).astype(frontend.dtype))]
        if "target" in frontend.can:
            q = cases.distributions(2, len(z), cols, frontend.dtype)
            targets.append((q, q))
        for target, q in targets:
            value = frontend.loss(z, target)
            assert value.dtype == frontend.dtype
            assert value.shape == (len(z),)
            assert judge.losses(value, *oracle.loss(z, target, exact)) <= 1, cols
            gradient = frontend.gradient(z, target)
            assert gradient.dtype == frontend.dtype
            assert judge.gradients(gradient, exact, q) <= 1, cols


@pytest.mark.parametrize("family", cases.FAMILIES, ids=str)
def test_the_threshold_is_exact(frontend, family):
    """Eq. 4: tau within one unit in the last place of itself and 4 eps; NaN where there is none."""
    if "tau" not in frontend.can:
        pytest.skip("no threshold")
    for cols in COLS:
        z, exact = rows_of(family, cols, frontend.dtype)
        tau = frontend.threshold(z)
        assert tau.dtype == frontend.dtype
        assert tau.shape == (len(z),)
        assert judge.thresholds(tau, exact) <= 1, cols


@pytest.mark.skipif(frontends.REPLACED, reason="the sweep is of the NumPy front end")
def test_the_sweep_finds_no_row_beyond_its_bounds():
    """The claim of the sweep on fewer rows: every dtype and target, alone, in a batch, by 1 or 2 threads."""
    report = exactness_sweep.sweep(rows=3_000, seed=11)
    assert report.rows >= 3_000
    assert report.right, str(report)
