"""`out=` as in NumPy: the result itself, wherever it lies, whatever it held, even over the scores."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases
from tests.frontends import DTYPES


@pytest.fixture(params=DTYPES, ids=lambda d: d.name)
def dtype(request):
    return request.param


def test_out_is_returned_and_written_everywhere(zt, dtype):
    """The very array, with no entry left as it was, whatever axis and mask."""
    for cols in (1, 2, 3, 16, 37, 258):
        z = cases.mixture(0, cols, dtype)
        for axis in (0, 1):
            expected = zt.sparsemax(z, axis=axis)
            out = np.full(z.shape, 7, dtype)
            assert zt.sparsemax(z, axis=axis, out=out) is out
            assert out.tobytes() == expected.tobytes()
            out = np.full(z.shape, np.nan, dtype)
            where = z.astype(np.float64) > 0
            assert zt.sparsemax(z, axis=axis, where=where, out=out) is out
            assert out.tobytes() == zt.sparsemax(z, axis=axis, where=where).tobytes()


def test_scores_may_be_their_own_out(zt, dtype):
    """The exact alias."""
    for cols in (1, 2, 17, 257, 4_099):
        z = cases.mixture(1, cols, dtype)
        for axis in (0, 1):
            for where in (None, np.arange(cols) % 2 == 0):
                expected = zt.sparsemax(z, axis=axis, where=where)
                both = z.copy()
                assert zt.sparsemax(both, axis=axis, where=where, out=both) is both
                assert both.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shift", [1, 3, 16, 40])
def test_an_out_that_overlaps_the_scores_in_part_works(zt, dtype, shift):
    """Through a copy, ahead of the scores and behind them."""
    z = cases.mixture(2, 33, dtype)
    expected = zt.sparsemax(z)
    for ahead in (False, True):
        memory = np.zeros(z.size + shift, dtype)
        first, second = memory[: z.size].reshape(z.shape), memory[shift:].reshape(z.shape)
        scores, out = (first, second) if ahead else (second, first)
        scores[...] = z
        assert zt.sparsemax(scores, out=out) is out
        assert out.tobytes() == expected.tobytes()


def test_an_out_that_is_the_scores_transposed_works(zt, dtype):
    """The same memory in another order is an overlap, not an alias."""
    z = cases.find("deviation 1")(3, 37, 37, dtype)
    expected = zt.sparsemax(z)
    both = z.copy()
    zt.sparsemax(both, out=both.T)
    assert np.ascontiguousarray(both.T).tobytes() == expected.tobytes()


def test_out_may_have_any_stride(zt, dtype):
    """Only the places of the view are written."""
    z = cases.mixture(4, 13, dtype)
    expected = zt.sparsemax(z)
    wide = np.full((len(z), 3 * 13), 7, dtype)
    out = wide[:, 1::3]
    assert zt.sparsemax(z, out=out) is out
    assert np.ascontiguousarray(out).tobytes() == expected.tobytes()
    assert (wide[:, ::3] == 7).all()
    assert (wide[:, 2::3] == 7).all()
    fortran = np.full(z.shape, 7, dtype, order="F")
    backwards = np.full(z.shape, 7, dtype)[::-1, ::-1]
    for out in (fortran, backwards):
        assert zt.sparsemax(z, out=out) is out
        assert np.ascontiguousarray(out).tobytes() == expected.tobytes()


def test_out_takes_what_integers_become(zt):
    """Integer scores become float64: so is their out."""
    out = np.full((2, 3), np.nan)
    assert zt.sparsemax([[1, 0, 0], [0, 0, 0]], out=out) is out
    np.testing.assert_array_equal(out, zt.sparsemax([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))


def test_an_empty_out_is_an_out(zt):
    """No rows, or no columns."""
    for shape in ((0, 3), (3, 0)):
        out = np.empty(shape)
        assert zt.sparsemax(np.empty(shape), out=out) is out


def test_an_out_that_is_refused_is_not_written(zt):
    """Wrong shape, dtype or memory: an error, and nothing else happens."""
    z = np.array([[1.0, 0.5, -1.0]])
    readonly = np.full((1, 3), 7.0)
    readonly.flags.writeable = False
    for out in (np.full((3, 1), 7.0), np.full((1, 3), 7.0, np.float32), np.full((1, 3), 7), readonly):
        with pytest.raises((TypeError, ValueError)):
            zt.sparsemax(z, out=out)
        assert (out == 7).all()
    np.testing.assert_array_equal(z, [[1.0, 0.5, -1.0]])


def test_an_out_larger_by_broadcasting_is_refused(zt):
    """The shape of the result, not one that it would broadcast to."""
    with pytest.raises(ValueError, match="out must have the shape"):
        zt.sparsemax(np.zeros((1, 3)), out=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="out must have the shape"):
        zt.sparsemax(np.zeros(3), out=np.zeros((1, 3)))


def test_a_broadcast_out_is_refused(zt):
    """Its places are not its own."""
    out = np.broadcast_to(np.zeros(3), (2, 3))
    with pytest.raises(ValueError, match="out must be writable"):
        zt.sparsemax(np.zeros((2, 3)), out=out)
