"""The metrics of the paper's section 4, against hand values and other libraries."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.sparse import csr_array
from scipy.spatial.distance import jensenshannon
from sklearn.datasets import load_iris
from sklearn.metrics import f1_score, mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_score

import zerotail as zt
from zerotail.sklearn import ProportionRegressor, SparsemaxClassifier, metrics

RNG = np.random.default_rng(0)
TRUE, PREDICTED = RNG.integers(0, 2, (2, 40, 5))
TRUE[:, 4] = 0
WEIGHT = RNG.integers(0, 3, 40)
Q, P = RNG.dirichlet(np.full(7, 0.3), (2, 30))


def test_both_macro_f1_are_what_they_are_called():
    """Means of F1 scores, and F1 of means; 0 for what is undefined; the second is never the smaller."""
    right = (TRUE * PREDICTED).sum(axis=0)
    precision = right / PREDICTED.sum(axis=0)
    recall = np.array([r / t if t else 0 for r, t in zip(right, TRUE.sum(axis=0), strict=True)])
    f1 = np.array([2 * p * r / (p + r) if p + r else 0 for p, r in zip(precision, recall, strict=True)])
    assert abs(metrics.macro_f1(TRUE, PREDICTED) - f1.mean()) < 1e-15
    P_, R_ = precision.mean(), recall.mean()
    assert abs(metrics.macro_f1_of_averages(TRUE, PREDICTED) - 2 * P_ * R_ / (P_ + R_)) < 1e-15
    assert metrics.macro_f1_of_averages(TRUE, PREDICTED) > metrics.macro_f1(TRUE, PREDICTED)
    assert metrics.macro_f1_of_averages(TRUE, np.zeros_like(TRUE)) == 0
    assert metrics.micro_f1(TRUE, np.zeros_like(TRUE)) == 0
    want = f1_score(TRUE, PREDICTED, average="micro", zero_division=0)
    assert metrics.micro_f1(TRUE, PREDICTED) == want


@pytest.mark.parametrize("name", ["micro_f1", "macro_f1", "macro_f1_of_averages"])
def test_weights_of_rows_are_repetitions(name):
    """A row of weight 2 counts twice, one of weight 0 not at all."""
    metric = getattr(metrics, name)
    repeated = metric(TRUE.repeat(WEIGHT, axis=0), PREDICTED.repeat(WEIGHT, axis=0))
    assert abs(metric(TRUE, PREDICTED, sample_weight=WEIGHT) - repeated) < 1e-15


def test_distances_between_proportions_are_those_of_other_libraries():
    """SciPy's distance is the root of the divergence; scikit-learn's error is divided by K."""
    want = np.mean([jensenshannon(q, p) ** 2 for q, p in zip(Q, P, strict=True)])
    assert abs(metrics.jensen_shannon(Q, P) - want) < 1e-14
    assert abs(metrics.squared_error(Q, P) - 7 * mean_squared_error(Q, P)) < 1e-14
    weight = np.arange(30)
    assert (
        abs(
            metrics.squared_error(Q, P, sample_weight=weight)
            - np.average(((Q - P) ** 2).sum(1), weights=weight)
        )
        < 1e-14
    )


def test_the_sparsemax_loss_is_that_of_the_library():
    """For labels, sets, proportions and two classes."""
    z = RNG.standard_normal((30, 7))
    y = RNG.integers(0, 7, 30)
    sets = np.eye(7, dtype=int)[y] | np.eye(7, dtype=int)[y[::-1]]
    assert metrics.sparsemax_loss(y, z) == zt.sparsemax_loss(z, y).mean()
    assert metrics.sparsemax_loss(Q, z) == pytest.approx(zt.sparsemax_loss(z, Q).mean(), rel=1e-12)
    assert metrics.sparsemax_loss(sets, z) == zt.sparsemax_loss(z, sets / sets.sum(1, keepdims=True)).mean()
    assert metrics.sparsemax_loss(y % 2, z[:, 0]) == zt.binary_sparsemax_loss(z[:, 0], y % 2).mean()
    # Columns, and floats that are integers, are labels as well.
    assert metrics.sparsemax_loss(y[:, None] * 1.0, z) == metrics.sparsemax_loss(y, z)
    assert metrics.sparsemax_loss(y[:, None] % 2, z[:, 0]) == metrics.sparsemax_loss(y % 2, z[:, 0])


def test_the_scorers_work_by_name_here_and_in_scikit_learn():
    """`get_scorer` for our names and for scikit-learn's; errors have a minus."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["x", "y", "z"])[y]
    model = SparsemaxClassifier(alpha=1e-2, max_iter=1000).fit(X, names)
    loss = metrics.get_scorer("neg_sparsemax_loss")(model, X, names)
    assert loss == -zt.sparsemax_loss(model.decision_function(X), y).mean()
    assert metrics.get_scorer("neg_sparsemax_loss")(model, X, names[:, None]) == loss
    scores = cross_val_score(model, X, names, scoring=metrics.get_scorer("macro_f1"))
    assert scores.min() > 0.8
    search = GridSearchCV(model, {"alpha": [1e-2, 1]}, scoring=metrics.get_scorer("neg_sparsemax_loss"))
    assert search.fit(X, names).best_params_ == {"alpha": 1e-2}
    regressor = ProportionRegressor(alpha=1e-2, max_iter=1000).fit(X[:30], Q)
    for name, metric in (
        ("squared_error", metrics.squared_error),
        ("jensen_shannon", metrics.jensen_shannon),
    ):
        assert metrics.get_scorer(f"neg_{name}")(regressor, X[:30], Q) == -metric(
            Q, regressor.predict(X[:30])
        )
    assert metrics.get_scorer("accuracy")(model, X, names) == model.score(X, names)
    for name in metrics.scorer_names():
        assert callable(metrics.get_scorer(name))


def test_bad_input_is_named_with_what_it_was():
    """Shapes, signs, rows without a label."""
    with pytest.raises(ValueError, match=r"p must have the shape of target, \(30, 7\); got \(30, 6\)"):
        metrics.squared_error(Q, P[:, :6])
    with pytest.raises(ValueError, match=r"p must be nonnegative; got -0\.1"):
        metrics.jensen_shannon([[0.5, 0.5]], [[1.1, -0.1]])
    with pytest.raises(ValueError, match="y_true must have a label in every row; got none in row 1"):
        metrics.sparsemax_loss([[1, 0], [0, 0]], [[0.0, 1.0], [0.0, 1.0]])
    for metric in (metrics.micro_f1, metrics.macro_f1, metrics.macro_f1_of_averages):
        with pytest.raises(ValueError, match="y_true must be 0 or 1 for label sets; got -1"):
            metric(2 * TRUE - 1, PREDICTED)
        with pytest.raises(ValueError, match="y_pred must be 0 or 1 for label sets; got 2"):
            metric(TRUE, csr_array(2 * PREDICTED))
        assert metric(TRUE[:, :1] + 3, PREDICTED[:, 0] + 3) == metric(TRUE[:, 0], PREDICTED[:, 0])
    with pytest.raises(ValueError, match=r"y_true must be labels in \[0, 2\) as integers; got .*0\.9"):
        metrics.sparsemax_loss([0.0, 0.9], [[0.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"y_true must have the shape of scores, \(2,\); got \(2, 2\)"):
        metrics.sparsemax_loss([[1, 0], [0, 1]], [0.0, 1.0])
    model = SparsemaxClassifier().fit([[0.0], [1.0], [2.0]], ["a", "c", "e"])
    for unseen in ("b", "f"):
        with pytest.raises(
            ValueError, match=f"y must be labels that the estimator was fitted with; got '{unseen}'"
        ):
            metrics.get_scorer("neg_sparsemax_loss")(model, [[0.0], [1.0]], ["a", unseen])
