"""The two products of a linear model, a block of rows at a time: X W + b, and X' G."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import zerotail as zt

from .. import _core

Array = NDArray[Any]


class Products(Protocol):
    """`used` are the features that have weights; the others have only zeros in X."""

    used: Array | slice
    size: int

    def scores(self, first: int, weights: Array, bias: Array, out: Array) -> None:
        """Write the scores of the rows from `first` on; weights of the used features, in their order."""

    def add_gradient(self, first: int, G: Array, gradient: Array) -> None:
        """Add those rows' X' G."""


class Dense:
    def __init__(self, X: Array) -> None:
        self.X = X
        self.used: Array | slice = slice(None)
        self.size: int = X.shape[1]

    def scores(self, first: int, weights: Array, bias: Array, out: Array) -> None:
        np.matmul(self.X[first : first + len(out)], weights, out=out)
        out += bias

    def add_gradient(self, first: int, G: Array, gradient: Array) -> None:
        gradient += self.X[first : first + len(G)].T @ G


class Sparse:
    """Reads X as it is: no column is moved, and none that is empty has weights."""

    def __init__(self, X: Any) -> None:
        X.check_format(full_check=True)  # the core reads where the indices say
        wide = np.int64 if np.int64 in (X.indices.dtype, X.indptr.dtype) else np.int32
        self.values = np.ascontiguousarray(X.data)
        self.indices = np.ascontiguousarray(X.indices, wide)
        self.offsets = np.ascontiguousarray(X.indptr, wide)
        count = np.bincount(self.indices, minlength=X.shape[1])
        parts = zt.get_num_threads() if X.has_sorted_indices else 1
        # As many entries in each part of the features.
        inner = np.searchsorted(np.cumsum(count), np.arange(1, parts) * (len(self.values) / parts))
        self.bounds = np.concatenate(([0], inner, [X.shape[1]])).astype(np.int64)
        # Parts apart, as threads write to them; in each frequent features side by side, to stay in the cache.
        part = np.searchsorted(inner, np.arange(X.shape[1]), side="right")
        order = np.lexsort((-count, part))
        self.used: Array | slice = order[count[order] > 0]
        self.size = int(np.count_nonzero(count))
        self.position = np.zeros(X.shape[1], np.int64)
        self.position[self.used] = np.arange(self.size)

    def scores(self, first: int, weights: Array, bias: Array, out: Array) -> None:
        done = _core.csr_scores(
            self.values, self.indices, self.offsets, self.position, weights, bias, out, first
        )
        assert done

    def add_gradient(self, first: int, G: Array, gradient: Array) -> None:
        done = _core.csr_gradient(
            self.values, self.indices, self.offsets, self.position, G, gradient, first, self.bounds
        )
        assert done


def of(X: Any) -> Products:
    return Sparse(X) if sparse.issparse(X) else Dense(X)
