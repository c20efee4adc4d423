"""The functions and scorers of `metrics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import rel_entr
from sklearn.metrics import f1_score, make_scorer, multilabel_confusion_matrix
from sklearn.metrics import get_scorer as _sklearn_scorer
from sklearn.utils.validation import check_array, check_consistent_length

import zerotail as zt

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def micro_f1(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute F1 of all decisions together, label by label and example by example.

    Parameters
    ----------
    y_true, y_pred : array_like or sparse matrix
        Indicators of shape (n, K), or labels of shape (n,).
    sample_weight : array_like of shape (n,), optional

    Returns
    -------
    float
        0 where nothing is active and nothing is predicted.

    Examples
    --------
    >>> round(micro_f1([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 1]]), 6)
    0.666667
    """
    _check_sets(y_true, y_pred)
    return float(f1_score(y_true, y_pred, average="micro", sample_weight=sample_weight, zero_division=0))


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute the mean of the labels' F1 scores.

    The usual definition, and scikit-learn's. An undefined ratio counts as 0.

    Parameters
    ----------
    y_true, y_pred, sample_weight
        As in `micro_f1`.

    See Also
    --------
    macro_f1_of_averages : the definition behind the paper's table 2.

    Examples
    --------
    >>> round(macro_f1([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 1]]), 6)
    0.555556
    """
    _check_sets(y_true, y_pred)
    return float(f1_score(y_true, y_pred, average="macro", sample_weight=sample_weight, zero_division=0))


def macro_f1_of_averages(y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute the harmonic mean 2PR / (P + R) of macro-precision P and macro-recall R.

    The macro-F1 of the paper's table 2. It is never below `macro_f1`, and can be far above it. An undefined
    ratio counts as 0.

    Parameters
    ----------
    y_true, y_pred, sample_weight
        As in `micro_f1`.

    Examples
    --------
    >>> round(macro_f1_of_averages([[1, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 1, 1]]), 6)
    0.571429
    """
    _check_sets(y_true, y_pred)
    counts = multilabel_confusion_matrix(y_true, y_pred, sample_weight=sample_weight).astype(float)
    right, wrong, missed = counts[:, 1, 1], counts[:, 0, 1], counts[:, 1, 0]
    precision, recall = _ratio(right, right + wrong).mean(), _ratio(right, right + missed).mean()
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def squared_error(target: ArrayLike, p: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute the mean over rows of |target - p|^2, the paper's mean squared error.

    A sum over the K labels: scikit-learn's `mean_squared_error` is this divided by K.

    Parameters
    ----------
    target, p : array_like of float
        Distributions, shape (n, K).
    sample_weight : array_like of shape (n,), optional

    Examples
    --------
    >>> squared_error([[0.5, 0.5, 0.0]], [[0.75, 0.25, 0.0]])
    0.125
    """
    q, predicted = _proportions(target, p)
    return float(np.average(((q - predicted) ** 2).sum(axis=1), weights=sample_weight))


def jensen_shannon(target: ArrayLike, p: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute the mean over rows of the Jensen-Shannon divergence, in nats: from 0 to log 2.

    Parameters
    ----------
    target, p, sample_weight
        As in `squared_error`; entries must not be negative.

    Examples
    --------
    >>> jensen_shannon([[1.0, 0.0]], [[1.0, 0.0]])
    0.0
    >>> round(jensen_shannon([[1.0, 0.0]], [[0.0, 1.0]]), 6)
    0.693147
    """
    q, predicted = _proportions(target, p)
    for name, value in (("target", q), ("p", predicted)):
        if value.size and value.min() < 0:
            raise ValueError(f"{name} must be nonnegative; got {value.min()}")
    middle = (q + predicted) / 2
    rows = (rel_entr(q, middle) + rel_entr(predicted, middle)).sum(axis=1) / 2
    return float(np.average(rows, weights=sample_weight))


def sparsemax_loss(y_true: ArrayLike, scores: ArrayLike, *, sample_weight: Any = None) -> float:
    """Compute the mean of the sparsemax loss (Eqs. 20, 23 and 26).

    Parameters
    ----------
    y_true : array_like
        Indicators or distributions of the shape of `scores`: what is active shares the target evenly, as
        proportions do their weights. Or labels in [0, K) as integers; for one score a row, in {0, 1}.
    scores : array_like of float
        What `decision_function` gives.
    sample_weight : array_like of shape (n,), optional

    Examples
    --------
    >>> round(sparsemax_loss([0, 1], [[1.0, 0.5, -1.0], [0.25, 0.25, 0.0]]), 6)
    0.166667
    """
    z = check_array(scores, ensure_2d=False, dtype=[np.float64, np.float32], input_name="scores")
    y = check_array(y_true, ensure_2d=False, dtype=None, accept_sparse="csr", input_name="y_true")
    if hasattr(y, "toarray"):
        y = y.toarray()
    check_consistent_length(y, z, sample_weight)
    if _is_column(y, z):
        y = y[:, 0]
    if z.ndim == 1:
        if y.ndim != 1:
            raise ValueError(f"y_true must have the shape of scores, {z.shape}; got {y.shape}")
        rows = zt.binary_sparsemax_loss(z, y)
    elif y.ndim == 1:
        rows = zt.sparsemax_loss(z, _integers(y, z.shape[1]))
    else:
        total = y.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            raise ValueError(f"y_true must have a label in every row; got none in row {np.argmin(total)}")
        rows = zt.sparsemax_loss(z, y / total)
    return float(np.average(rows, weights=sample_weight))


def _check_sets(y_true: Any, y_pred: Any) -> None:
    """scikit-learn takes every number that is not 0, -1 too, for an active label."""
    for name, y in (("y_true", y_true), ("y_pred", y_pred)):
        sparse = hasattr(y, "tocsr")
        values = y.tocsr().data if sparse else np.asarray(y)
        if sparse or (values.ndim == 2 and values.shape[1] > 1):
            wrong = (values != 0) & (values != 1)
            if wrong.any():
                raise ValueError(f"{name} must be 0 or 1 for label sets; got {values[wrong][0]}")


def _is_column(y: Any, z: Any) -> bool:
    """Whether y, of shape (n, 1), has one label a row."""
    return y.ndim == 2 and y.shape[1] == 1 and (z.ndim == 1 or z.shape[1] > 1)


def _integers(y: Any, cols: int) -> Any:
    whole = y == np.floor(y) if y.dtype.kind == "f" else np.full(y.shape, y.dtype.kind in "biu")
    if not whole.all():
        raise ValueError(f"y_true must be labels in [0, {cols}) as integers; got {y[~whole][0]!r}")
    return y.astype(np.int64)


def _positions(y: Any, classes: Any) -> Any:
    """Where each label stands in the classes of an estimator."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    labels, rows = np.unique(y, return_inverse=True)
    for label in labels.tolist():
        if label not in known:
            raise ValueError(f"y must be labels that the estimator was fitted with; got {label!r}")
    return np.array([known[label] for label in labels.tolist()])[rows]


def _ratio(part: Any, whole: Any) -> Any:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def _proportions(target: Any, p: Any) -> tuple[Any, Any]:
    target, p = check_array(target, input_name="target"), check_array(p, input_name="p")
    if target.shape != p.shape:
        raise ValueError(f"p must have the shape of target, {target.shape}; got {p.shape}")
    return target, p


def _neg_sparsemax_loss(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Labels are named by the estimator's classes, so this scorer asks it for them."""
    # scikit-learn's regressors must not have a decision_function.
    classifies = hasattr(estimator, "decision_function")
    scores = estimator.decision_function(X) if classifies else estimator._scores(X)
    if classifies and not hasattr(y, "toarray"):
        y = np.asarray(y)
        if _is_column(y, scores):
            y = y[:, 0]
        if y.ndim == 1:
            y = _positions(y, estimator.classes_)
    return -sparsemax_loss(y, scores, sample_weight=sample_weight)


_SCORERS: dict[str, Callable[..., float]] = {
    "micro_f1": make_scorer(micro_f1),
    "macro_f1": make_scorer(macro_f1),
    "macro_f1_of_averages": make_scorer(macro_f1_of_averages),
    "neg_squared_error": make_scorer(squared_error, greater_is_better=False),
    "neg_jensen_shannon": make_scorer(jensen_shannon, greater_is_better=False),
    "neg_sparsemax_loss": _neg_sparsemax_loss,
}


def scorer_names() -> list[str]:
    """List the names that `get_scorer` adds to scikit-learn's.

    Examples
    --------
    >>> scorer_names()[0]
    'macro_f1'
    """
    return sorted(_SCORERS)


def get_scorer(scoring: str | Callable[..., float]) -> Callable[..., float]:
    """Find a scorer by its name: one of `scorer_names()`, or one of scikit-learn's.

    Parameters
    ----------
    scoring : str or callable
        A callable is returned as it is.

    Returns
    -------
    callable
        With the signature (estimator, X, y); greater is better.

    Examples
    --------
    >>> get_scorer("micro_f1")
    make_scorer(micro_f1, response_method='predict')
    """
    if isinstance(scoring, str) and scoring in _SCORERS:
        return _SCORERS[scoring]
    return _sklearn_scorer(scoring)
