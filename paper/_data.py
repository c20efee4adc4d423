"""The five data sets of section 4.2, loaded once a process, and what identifies them in the cache."""

import hashlib
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from zerotail.datasets import fetch_mulan, fetch_rcv1

DATASETS = ("Scene", "Emotions", "Birds", "CAL500", "Reuters")


@cache
def load(dataset: str, nominal: str = "number") -> Any:
    return fetch_rcv1() if dataset == "Reuters" else fetch_mulan(dataset.lower(), nominal=nominal)


@cache
def digest(dataset: str) -> str:
    """The same for the same numbers, wherever they were read."""
    bunch, found = load(dataset), hashlib.sha256()
    for matrix in (bunch.X, bunch.Y):
        parts = [matrix.data, matrix.indices, matrix.indptr] if sparse.issparse(matrix) else [matrix]
        for part in parts:
            found.update(np.ascontiguousarray(part))
    found.update(repr((len(bunch.train), len(bunch.test))).encode())
    return found.hexdigest()[:16]
