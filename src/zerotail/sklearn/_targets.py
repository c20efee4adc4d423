"""What users call y, as the losses read it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target

import zerotail as zt

Array = NDArray[Any]


@dataclass(frozen=True)
class Targets:
    """One label a row (int64), or a matrix: sets, proportions, or the second of two classes."""

    values: Array
    classes: Array
    cols: int  # scores a row
    multilabel: bool = False
    labelled: Array | None = None  # the rows that count, where some have no label

    @property
    def two_classes(self) -> bool:
        return not self.multilabel and self.cols == 1


def of_classes(y: Array, dtype: Any) -> Targets:
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes; got one class: {classes[0]!r}")
    if len(classes) == 2:
        return Targets(index.astype(dtype)[:, None], classes, 1)
    return Targets(index.astype(np.int64), classes, len(classes))


def of_sets(y: Any, dtype: Any, loss: str, on_unlabeled: str) -> Targets:
    """Indicators for the logistic loss, for the others the uniform distribution over the active labels."""
    given = y.toarray() if sparse.issparse(y) else y
    wrong = (given != 0) & (given != 1)
    if wrong.any():
        raise ValueError(f"y must be 0 or 1 for label sets; got {given[wrong][0]}")
    active = given.astype(dtype)
    total = active.sum(axis=1, keepdims=True)
    labelled = None
    if not total.all():
        empty = np.flatnonzero(total == 0)
        if on_unlabeled == "raise":
            raise ValueError(f"y must have a label in every row; got none in row {empty[0]}")
        if len(empty) == len(active):
            raise ValueError(f"y must have a label in some row; got {len(empty)} rows without")
        warnings.warn(
            f"rows of y without labels are left out: {len(empty)} of {len(active)}", UserWarning, stacklevel=4
        )
        labelled = np.flatnonzero(total)
    if loss != "logistic":
        active /= np.where(total > 0, total, 1)
    return Targets(active, np.arange(active.shape[1]), active.shape[1], multilabel=True, labelled=labelled)


def of_labels_or_sets(y: Any, dtype: Any, loss: str, on_unlabeled: str) -> Targets:
    check_classification_targets(y)
    if type_of_target(y, input_name="y") == "multilabel-indicator":
        return of_sets(y, dtype, loss, on_unlabeled)
    if y.ndim != 1:
        raise ValueError(f"y must be labels of shape (n,), or 0 and 1 for label sets; got shape {y.shape}")
    return of_classes(y, dtype)


def of_proportions(y: Array, dtype: Any, on_invalid: str) -> Targets:
    """Distributions; what is none is an error, or is moved to the nearest one."""
    eps = max(np.finfo(t).eps for t in (dtype, y.dtype) if np.dtype(t).kind == "f")
    y = np.ascontiguousarray(y, dtype)
    if on_invalid == "project":
        y = zt.sparsemax(y)
    else:
        total = y.sum(axis=1, dtype=np.float64)
        wrong = ~(np.abs(total - 1) <= eps**0.5)
        negative = (y < 0).any(axis=1)
        if negative.any():
            row = int(np.argmax(negative))
            raise ValueError(f"y must be nonnegative; got {y[row].min()} in row {row}")
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"y must have rows that sum to one; got {total[row]:.10g} in row {row} "
                '(on_invalid="project" takes the nearest distribution)'
            )
    return Targets(y, np.arange(y.shape[1]), y.shape[1], multilabel=True)
