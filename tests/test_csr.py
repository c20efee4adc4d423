"""The compact form: the same projection without its zeros."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle
from tests.frontends import DTYPES

sparse = pytest.importorskip("scipy.sparse")
WIDE = [d for d in DTYPES if not oracle.is_half(d)]


@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
@pytest.mark.parametrize("cols", [1, 2, 5, 16, 37, 131, 257, 4_099])
def test_the_compact_form_is_the_value_without_zeros(zt, target, dtype, cols):
    """The same numbers as the dense form, in order of columns, no zero stored, NaN rows in full."""
    z = cases.mixture(0, cols, dtype)
    compact, dense = zt.sparsemax_csr(z), zt.sparsemax(z)
    assert isinstance(compact, sparse.csr_array)
    assert compact.dtype == dtype
    assert compact.shape == z.shape
    assert compact.has_canonical_format
    assert not (compact.data == 0).any()
    np.testing.assert_array_equal(compact.toarray(), dense)
    np.testing.assert_array_equal(
        np.diff(compact.indptr), np.where(np.isnan(dense), 1, dense != 0).sum(axis=1)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_the_compact_form_is_exact(zt, dtype):
    """Eq. 2; half types give float32, for SciPy has no half types."""
    z = cases.mixture(1, 67, dtype)
    compact = zt.sparsemax_csr(z)
    assert compact.dtype == oracle.compute_type(dtype)
    assert judge.projection(compact.toarray(), oracle.project(z)).right


def test_the_compact_form_of_nothing_is_empty(zt):
    """No rows, no columns, neither."""
    for shape in ((0, 3), (3, 0), (0, 0)):
        compact = zt.sparsemax_csr(np.zeros(shape))
        assert compact.shape == shape
        assert compact.nnz == 0


def test_the_compact_form_takes_any_layout_and_integers(zt):
    """As the dense form does."""
    z = np.random.default_rng(2).normal(0, 1, (6, 10))
    wide = np.zeros((6, 20))
    wide[:, ::2] = z
    for same in (np.asfortranarray(z), wide[:, ::2], z.tolist()):
        np.testing.assert_array_equal(zt.sparsemax_csr(same).toarray(), zt.sparsemax(z))
    np.testing.assert_array_equal(zt.sparsemax_csr([[2, 0], [0, 0]]).toarray(), [[1, 0], [0.5, 0.5]])


def test_the_compact_form_is_the_same_by_any_number_of_threads(zt, threads):
    """Rows find their places before they are filled."""
    z = np.random.default_rng(3).normal(0, 1, (400, 1_009)).astype(np.float32)
    compact = zt.sparsemax_csr(z)
    np.testing.assert_array_equal(compact.toarray(), zt.sparsemax(z))
