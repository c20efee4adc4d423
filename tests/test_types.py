"""The dtypes of NumPy: what is computed in itself, what becomes float64, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle
from tests.frontends import DTYPES


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_results_have_the_dtype_of_the_scores(zt, dtype):
    """Every function, every shape of result."""
    z = np.array([[1.0, 0.5, -1.0]]).astype(dtype)
    q = np.array([[0.5, 0.5, 0.0]]).astype(dtype)
    p = zt.sparsemax(z)
    results = [p, zt.threshold(z), zt.sparsemax_jvp(p, z), zt.sparsemax_jacobian(p), zt.binary_sparsemax(z)]
    results += [zt.sparsemax_loss(z, [0]), zt.sparsemax_loss(z, q), zt.binary_sparsemax_loss(z, q)]
    results += [*zt.sparsemax_loss_and_grad(z, [1]), *zt.sparsemax_loss_and_grad(z, q)]
    for result in results:
        assert np.asarray(result).dtype == dtype


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
)
def test_booleans_and_integers_become_float64(zt, dtype):
    """As in `np.exp` or SciPy's softmax. uint16 is a number, not the bits of a bfloat16."""
    z = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1]]).astype(dtype)
    p = zt.sparsemax(z)
    assert p.dtype == np.float64
    np.testing.assert_array_equal(p, zt.sparsemax(z.astype(np.float64)))
    np.testing.assert_allclose(p, [[1, 0, 0], [0, 0.5, 0.5], [1 / 3] * 3], rtol=0, atol=9e-16)
    np.testing.assert_array_equal(zt.threshold(z), zt.threshold(z.astype(np.float64)))
    assert zt.sparsemax_loss(z, [0, 1, 2]).dtype == np.float64
    assert zt.sparsemax_jvp(p, np.ones((3, 3), dtype)).dtype == np.float64


def test_large_unsigned_numbers_are_numbers(zt):
    """16256 is the bits of 1 in bfloat16."""
    np.testing.assert_array_equal(zt.sparsemax(np.array([16256, 16000, 0], np.uint16)), [1, 0, 0])
    np.testing.assert_array_equal(zt.sparsemax(np.array([16256, 16256], np.uint16)), [0.5, 0.5])
    z = np.array([[16256, 0]], np.uint16)
    assert zt.threshold(z)[0] == 16255
    assert zt.sparsemax_loss(z, [1])[0] == 16256


def test_lists_and_scalars_of_numpy_are_arrays(zt):
    """Anything that `np.asarray` takes."""
    np.testing.assert_array_equal(zt.sparsemax([1, 0.5, -1]), [0.75, 0.25, 0])
    np.testing.assert_array_equal(zt.sparsemax(((1.0, 0.5, -1.0),)), [[0.75, 0.25, 0]])
    assert zt.sparsemax([np.float32(1), np.float32(0.5)]).dtype == np.float32
    np.testing.assert_array_equal(zt.sparsemax([]), [])


def test_a_subclass_of_the_array_is_read_as_an_array(zt):
    """A matrix, a memory map or a record's field."""

    class Mine(np.ndarray):
        pass

    z = np.array([[1.0, 0.5, -1.0]])
    np.testing.assert_array_equal(zt.sparsemax(z.view(Mine)), [[0.75, 0.25, 0]])
    record = np.zeros(3, dtype=[("a", "i1"), ("score", "f8")])
    record["score"] = z[0]
    np.testing.assert_array_equal(zt.sparsemax(record["score"]), [0.75, 0.25, 0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_other_byte_order_is_read(zt, dtype):
    """Numbers, wherever they were written."""
    z = cases.mixture(0, 17, np.dtype(dtype))
    other = z.astype(np.dtype(dtype).newbyteorder())
    assert zt.sparsemax(other).astype(dtype).tobytes() == zt.sparsemax(z).tobytes()
    k = cases.labels(1, len(z), 17)
    assert zt.sparsemax_loss(other, k).astype(dtype).tobytes() == zt.sparsemax_loss(z, k).tobytes()
    swapped = k.astype(k.dtype.newbyteorder())
    assert zt.sparsemax_loss(z, swapped).tobytes() == zt.sparsemax_loss(z, k).tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64])
def test_labels_may_be_of_any_integer_type(zt, dtype):
    """The same loss, to the bit."""
    z = cases.find("deviation 1")(1, 10, 7, np.dtype(np.float32))
    k = cases.labels(2, 10, 7)
    assert zt.sparsemax_loss(z, k.astype(dtype)).tobytes() == zt.sparsemax_loss(z, k).tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("other", DTYPES, ids=lambda d: d.name)
def test_a_target_may_have_another_float_type_than_the_scores(zt, dtype, other):
    """The result has the scores' dtype; q is exact in either, and so is the loss."""
    rng = np.random.default_rng(3)
    z = rng.normal(0, 1, (20, 7)).astype(dtype)
    q = (rng.multinomial(16, np.full(7, 1 / 7), 20) / 16).astype(other)
    value, gradient = zt.sparsemax_loss_and_grad(z, q)
    assert value.dtype == gradient.dtype == dtype
    assert judge.losses(value, *oracle.loss(z, q)) <= 1
    assert judge.gradients(gradient, oracle.project(z), q) <= 1
    assert zt.sparsemax_loss(z, q).dtype == dtype


def test_a_half_result_is_the_float32_result_rounded_once(zt):
    """No rounding to half in between: the entries are those of float32, cast."""
    for dtype in [d for d in DTYPES if oracle.is_half(d)]:
        z = cases.mixture(4, 129, dtype)
        wide = zt.sparsemax(z.astype(np.float32))
        p = zt.sparsemax(z)
        # The two kernels may differ by the rounding of float32, which shows where it falls on a midpoint.
        same = (p == wide.astype(dtype)) | np.isnan(p) & np.isnan(wide)
        assert same.mean() > 0.999


def test_one_row_gives_one_number(zt):
    """A row without batch: what NumPy's own reductions return, a scalar or 0-d array of the dtype."""
    z = np.array([1.0, 0.5, -1.0], np.float32)
    for result in (zt.threshold(z), zt.sparsemax_loss(z, 0), zt.sparsemax_loss(z, np.int32(0))):
        assert np.shape(result) == ()
        assert np.asarray(result).dtype == np.float32
    assert float(zt.threshold(z)) == 0.25
    assert float(zt.sparsemax_loss(z, 1)) == 0.5625
    value, gradient = zt.sparsemax_loss_and_grad(z, np.array([0.5, 0.5, 0.0], np.float32))
    assert np.shape(value) == ()
    assert gradient.shape == (3,)


def test_the_threshold_keeps_its_axis_when_asked(zt):
    """keepdims, so that scores - tau broadcasts."""
    z = np.random.default_rng(5).normal(0, 1, (3, 5, 7))
    for axis in (-3, -2, -1, 0, 1, 2):
        tau = zt.threshold(z, axis=axis, keepdims=True)
        assert tau.shape == tuple(1 if i == axis % 3 else n for i, n in enumerate(z.shape))
        np.testing.assert_array_equal(np.squeeze(tau, axis), zt.threshold(z, axis=axis))
        np.testing.assert_allclose(np.maximum(z - tau, 0), zt.sparsemax(z, axis=axis), rtol=0, atol=1e-15)


def test_a_vector_broadcasts_against_the_value(zt):
    """One tangent for all rows, of another dtype too."""
    z = np.random.default_rng(6).normal(0, 1, (5, 7)).astype(np.float32)
    p, v = zt.sparsemax(z), np.random.default_rng(7).normal(0, 1, 7)
    full = np.broadcast_to(v, (5, 7)).copy()
    assert zt.sparsemax_jvp(p, v).tobytes() == zt.sparsemax_jvp(p, full).tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_score_decides_two_classes(zt, value):
    """Eq. 6 at its ends, as the sigmoid; NaN stays NaN."""
    p = zt.binary_sparsemax([value, np.nan])
    assert p[0] == (value > 0)
    assert np.isnan(p[1])
    certain = zt.binary_sparsemax_loss([value, value, np.nan], [float(value > 0), 0.5, 1.0])
    np.testing.assert_array_equal(certain, [0, np.inf, np.nan])
