"""The estimators: objective, optimum, decisions, formats, arguments."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression

import zerotail as zt
from zerotail.sklearn import ProportionRegressor, SparsemaxClassifier, _losses, _solver, _targets

LOSSES = ["sparsemax", "softmax", "logistic"]
KINDS = ["two", "labels", "sets"]


def data(kind, n=61, D=7, seed=0):
    """A problem that is not separable, with labels that are names."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    z = X @ rng.standard_normal((D, 5)) + rng.standard_normal((n, 5))
    if kind == "two":
        return X, np.array(["no", "yes"])[(z[:, 0] > 0).astype(int)]
    if kind == "labels":
        return X, np.array(list("edcba"))[z.argmax(axis=1)]
    sets = (z > 0.3).astype(int)
    sets[np.arange(n), z.argmax(axis=1)] = 1
    return X, sets


def objective(loss, kind, X, y, weight=None, alpha=0.01, fit_intercept=True, block_rows=None):
    targets = _targets.of_labels_or_sets(y, X.dtype, loss, "raise")
    settings = _solver.Settings(alpha, fit_intercept, "lbfgs", 100, 1e-8, block_rows)
    kernel = _losses.make(loss, targets.two_classes)
    return _solver.Objective(X, targets.values, weight, targets.cols, kernel, settings), targets


def by_hand(loss, kind, X, y, weight, alpha, W, b):
    """Eq. 15, from the public losses and the formulas."""
    Z = X @ W + b
    if kind == "two":
        t, s = Z[:, 0], (y == "yes").astype(float)
        rows = zt.binary_sparsemax_loss(t, s) if loss == "sparsemax" else np.logaddexp(0, t) - s * t
    else:
        on = y if kind == "sets" else (np.unique(y) == y[:, None]).astype(float)
        q = on / on.sum(axis=1, keepdims=True)
        if loss == "sparsemax":
            rows = zt.sparsemax_loss(Z, q)
        elif loss == "softmax":
            entropy = -np.where(q > 0, q * np.log(np.where(q > 0, q, 1)), 0).sum(axis=1)
            rows = np.log(np.exp(Z).sum(axis=1)) - (q * Z).sum(axis=1) - entropy
        else:
            rows = (np.logaddexp(0, Z) - on * Z).sum(axis=1)
    return alpha / 2 * (W**2).sum() + np.average(rows, weights=weight)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_is_that_of_the_paper_and_its_derivatives_are_right(loss, kind, fit_intercept):
    """Eq. 15, by hand; gradient and Hessian by differences; X dense and sparse, in blocks, with weights."""
    X, y = data(kind)
    X[np.abs(X) < 0.5] = 0
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 4, len(X)).astype(float)
    dense, targets = objective(loss, kind, X, y, weight, 0.05, fit_intercept)
    W = rng.standard_normal((X.shape[1], targets.cols)) * 0.7
    b = rng.standard_normal(targets.cols) * fit_intercept
    want = by_hand(loss, kind, X, y, weight, 0.05, W, b)
    v = rng.standard_normal(dense.start((W, b)).size)
    if dense.loss.shift_invariant and fit_intercept:
        v[-targets.cols :] -= v[-targets.cols :].mean()
    slopes = []
    for rows, features in ((None, X), (7, X), (None, sparse.csr_array(X)), (5, sparse.csr_array(X))):
        f, _ = objective(loss, kind, features, y, weight, 0.05, fit_intercept, rows)
        theta = f.start((W, b))
        order = f.products.used if sparse.issparse(features) else np.arange(X.shape[1])
        u = v.reshape(f.shape).copy()
        u[: len(order)] = v.reshape(f.shape)[order]
        u, h = u.ravel(), 1e-6
        value, gradient = f(theta)
        assert abs(value - want) < 1e-12
        slope = (f(theta + h * u)[0] - f(theta - h * u)[0]) / (2 * h)
        assert abs(gradient @ u - slope) < 1e-7
        bend = (f(theta + h * u)[1] - f(theta - h * u)[1]) / (2 * h)
        np.testing.assert_allclose(f.curvature(theta, u), bend, atol=1e-6)
        slopes.append(gradient @ u)
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-12)


@pytest.mark.parametrize("solver", ["lbfgs", "newton"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_found_to_1e6(loss, kind, solver):
    """Strongly convex in W: what is left above the minimum is at most |gradient|^2 / (2 alpha)."""
    X, y = data(kind)
    alpha = 1e-2
    model = SparsemaxClassifier(loss, alpha, solver=solver, fit_intercept=False, tol=1e-6, max_iter=1000).fit(
        X, y
    )
    f, _ = objective(loss, kind, X, y, alpha=alpha, fit_intercept=False)
    _, gradient = f(f.start((model.coef_.T, model.intercept_)))
    assert gradient @ gradient / (2 * alpha) < (1e-6 if solver == "lbfgs" else 1e-18)


@pytest.mark.parametrize("solver", ["lbfgs", "newton"])
def test_an_optimum_that_is_known_is_found(solver):
    """X = cI: alpha W_i + c / n (sparsemax(c W_i) - q_i) = 0 gives the target q_i for any W_i."""
    n, K, c, alpha = 6, 4, 2.0, 1e-3
    W = np.random.default_rng(3).uniform(-0.06, 0.06, (n, K))
    W -= W.mean(axis=1, keepdims=True)
    q = zt.sparsemax(c * W) + alpha * n / c * W
    model = ProportionRegressor(alpha=alpha, fit_intercept=False, solver=solver, tol=1e-9).fit(
        c * np.eye(n), q
    )
    np.testing.assert_allclose(model.coef_.T, W, atol=1e-6)
    np.testing.assert_allclose(model.predict(c * np.eye(n)), zt.sparsemax(c * W), atol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["two", "labels"])
def test_the_softmax_loss_is_logistic_regression(kind, make):
    """C = 1 / (alpha n), weights of rows and of classes included: coefficients agree to 1e-5."""
    X, y = data(kind)
    alpha, weight = 1e-2, np.random.default_rng(5).uniform(0.5, 2, len(X))
    weight *= len(X) / weight.sum()
    options = {"class_weight": {label: 1.0 + i for i, label in enumerate(np.unique(y))}}
    total = (weight * np.vectorize(options["class_weight"].get)(y)).sum()
    ours = SparsemaxClassifier("softmax", alpha, tol=1e-9, max_iter=1000, **options).fit(make(X), y, weight)
    theirs = LogisticRegression(C=1 / (alpha * total), tol=1e-9, max_iter=1000, **options).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(make(X)), theirs.predict_proba(X), atol=1e-5)
    assert (ours.predict(make(X)) == theirs.predict(X)).all()


def test_two_classes_have_the_modified_huber_loss():
    """Eq. 23 is a quarter of it: the optimum is that of the usual formula, found by another optimiser."""
    X, y = data("two")
    sign, alpha = np.where(y == "yes", 1, -1), 1e-2

    def modified_huber(theta):
        margin = sign * (X @ theta[:-1] + theta[-1])
        loss = np.where(margin >= -1, np.maximum(0, 1 - margin) ** 2, -4 * margin)
        return alpha / 2 * theta[:-1] @ theta[:-1] + loss.mean() / 4

    best = minimize(modified_huber, np.zeros(X.shape[1] + 1), method="BFGS", options={"gtol": 1e-9})
    model = SparsemaxClassifier(alpha=alpha, solver="newton").fit(X, y)
    assert model.coef_.shape == (1, X.shape[1])
    assert abs(modified_huber(np.append(model.coef_, model.intercept_)) - best.fun) < 1e-9
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), best.x, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_decisions_follow_the_rules_of_the_paper(loss):
    """Labels: the largest score. Sets: sparsemax(scale z) is not 0; above the threshold, 1/K or 0.5."""
    X, y = data("labels")
    model = SparsemaxClassifier(loss, 1e-2, scale=1.7).fit(X, y)
    z = model.decision_function(X)
    assert (model.predict(X) == model.classes_[z.argmax(axis=1)]).all()
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    sigmoid = 1 / (1 + np.exp(-1.7 * z))
    want = {
        "sparsemax": zt.sparsemax(1.7 * z),
        "softmax": np.exp(1.7 * z) / np.exp(1.7 * z).sum(axis=1, keepdims=True),
        "logistic": sigmoid / sigmoid.sum(axis=1, keepdims=True),
    }
    np.testing.assert_allclose(p, want[loss], rtol=1e-12)

    X, Y = data("sets")
    model.fit(X, Y)
    z = model.decision_function(X)
    if loss == "sparsemax":
        assert (model.predict(X) == (zt.sparsemax(1.7 * z) != 0)).all()
        return
    p = model.predict_proba(X)
    if loss == "logistic":
        np.testing.assert_allclose(p, 1 / (1 + np.exp(-1.7 * z)), rtol=1e-12)
    assert (model.predict(X) == (p > (0.2 if loss == "softmax" else 0.5))).all()
    model.set_params(threshold=0.3)
    assert (model.predict(X) == (p > 0.3)).all()


def test_two_classes_have_probabilities_of_both():
    """Eq. 6 of the one score, exact zeros included; nothing is lost to 1 - p."""
    X, y = data("two")
    for loss in LOSSES:
        model = SparsemaxClassifier(loss, 1e-3, scale=3).fit(X, y)
        t, p = model.decision_function(X), model.predict_proba(X)
        second = zt.binary_sparsemax(3 * t) if loss == "sparsemax" else 1 / (1 + np.exp(-3 * t))
        np.testing.assert_allclose(p[:, 1], second, rtol=1e-12)
        assert (model.predict(X) == np.where(t > 0, "yes", "no")).all()
    assert (SparsemaxClassifier(alpha=1e-3, scale=3).fit(X, y).predict_proba(X) == 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_compact_probabilities_are_the_same_without_zeros(kind):
    """`predict_proba_csr` stores the support alone; the other losses have none."""
    X, y = data(kind)
    model = SparsemaxClassifier(alpha=1e-2, scale=2).fit(X, y)
    p, compact = model.predict_proba(X), model.predict_proba_csr(X)
    assert (compact.toarray() == p).all()
    assert compact.nnz == (p > 0).sum() < p.size
    with pytest.raises(AttributeError, match="predict_proba_csr"):
        _ = SparsemaxClassifier("softmax", 1e-2).fit(X, y).predict_proba_csr


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
def test_sparse_features_give_the_same_model(make, dtype):
    """csr, csc and coo; float32 and float64 are kept; columns of zeros and unsorted columns too."""
    X, y = data("labels")
    X[np.abs(X) < 0.7] = 0
    X[:, 3] = 0
    X = X.astype(dtype)
    dense = SparsemaxClassifier(alpha=1e-2, solver="newton").fit(X, y)
    features = make(X)
    model = SparsemaxClassifier(alpha=1e-2, solver="newton").fit(features, y)
    assert model.coef_.dtype == model.predict_proba(features).dtype == dense.coef_.dtype == dtype
    near = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=near)
    assert (model.coef_[:, 3] == 0).all()
    if features.format == "csr":
        shuffled = features.copy()
        for begin, end in zip(features.indptr[:-1], features.indptr[1:], strict=True):
            shuffled.indices[begin:end] = features.indices[begin:end][::-1]
            shuffled.data[begin:end] = features.data[begin:end][::-1]
        shuffled.has_sorted_indices = False
        np.testing.assert_allclose(
            SparsemaxClassifier(alpha=1e-2, solver="newton").fit(shuffled, y).coef_, dense.coef_, atol=near
        )


def test_threads_do_not_change_a_sparse_fit(threads):
    """The features are shared out to threads, the order of every sum is not changed: to the bit the same."""
    X, y = load_digits(return_X_y=True)
    f, _ = objective("sparsemax", "labels", sparse.csr_array(X / 16), y)
    W = np.random.default_rng(0).standard_normal((X.shape[1], 10))
    _, gradient = f(f.start((W, np.zeros(10))))
    weights, bias = f.weights(gradient)
    before = zt.get_num_threads()
    zt.set_num_threads(1)
    try:
        g, _ = objective("sparsemax", "labels", sparse.csr_array(X / 16), y)
        one, one_bias = g.weights(g(g.start((W, np.zeros(10))))[1])
    finally:
        zt.set_num_threads(before)
    # The penalty's product is the caller's own BLAS.
    assert (weights == one).all()
    assert (bias == one_bias).all()


def test_memory_beside_the_data_has_a_bound():
    """Blocks of rows: twenty times the rows do not need more for an evaluation; all rows at once do."""
    rng = np.random.default_rng(0)

    def peak(n, block_rows):
        X, y = rng.standard_normal((n, 3)), rng.integers(0, 50, n)
        y[:50] = np.arange(50)
        f, _ = objective("sparsemax", "labels", X, y, block_rows=block_rows)
        theta = f.start(None)
        f(theta)
        tracemalloc.start()
        f(theta)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(60000, None) < 1.2 * peak(3000, None) + 10000
    assert peak(60000, 60000) > 8 * peak(60000, None)


def test_label_sets_may_be_sparse_and_come_back_sparse():
    """As in scikit-learn's own multi-label classifiers."""
    X, Y = data("sets")
    model = SparsemaxClassifier().fit(X, sparse.csr_array(Y))
    predicted = model.predict(X)
    assert sparse.issparse(predicted)
    assert (predicted.toarray() == SparsemaxClassifier().fit(X, Y).predict(X)).all()


def test_a_column_of_labels_and_booleans_of_sets_are_read_as_they_are_meant():
    """As in scikit-learn: a column with a warning."""
    X, y = data("labels")
    with pytest.warns(DataConversionWarning, match="1d array was expected"):
        column = SparsemaxClassifier(alpha=1e-2).fit(X, y[:, None])
    assert (column.coef_ == SparsemaxClassifier(alpha=1e-2).fit(X, y).coef_).all()
    X, Y = data("sets")
    booleans = SparsemaxClassifier(alpha=1e-2).fit(X, Y == 1)
    assert (booleans.coef_ == SparsemaxClassifier(alpha=1e-2).fit(X, Y).coef_).all()


def test_rows_without_labels_are_left_out_or_refused():
    """The paper drops them; so does the default, with a warning."""
    X, Y = data("sets")
    Y[[4, 9]] = 0
    with pytest.warns(UserWarning, match="rows of y without labels are left out: 2 of 61"):
        model = SparsemaxClassifier().fit(X, Y)
    kept = np.delete(np.arange(len(X)), [4, 9])
    assert (model.coef_ == SparsemaxClassifier().fit(X[kept], Y[kept]).coef_).all()
    with pytest.raises(ValueError, match="y must have a label in every row; got none in row 4"):
        SparsemaxClassifier(on_unlabeled="raise").fit(X, Y)


def test_a_warm_start_begins_where_the_last_fit_ended():
    """Nothing is left to do; without it, all is done again."""
    X, y = data("labels")
    model = SparsemaxClassifier(alpha=1e-2, warm_start=True).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ <= 2 < first
    assert model.set_params(warm_start=False).fit(X, y).n_iter_ == first


def test_a_fit_that_stops_early_says_so(capsys):
    """A warning that names max_iter; verbose prints a line for each iteration."""
    X, y = data("labels")
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = SparsemaxClassifier(alpha=1e-6, max_iter=5, verbose=1).fit(X, y)
    assert model.n_iter_ == 5
    assert capsys.readouterr().out.count("objective") == 5


def test_digits_are_fitted_without_a_warning_at_the_defaults():
    """A classifier that a user picks up works at once, and most of its probabilities are exactly 0."""
    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SparsemaxClassifier(alpha=1e-2).fit(X / 16, y)
    assert model.score(X / 16, y) > 0.95
    assert (model.predict_proba(X / 16) == 0).mean() > 0.5


def test_proportions_are_recovered():
    """Targets that are sparsemax of linear scores are fitted exactly, the zeros too; softmax cannot."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    q = zt.sparsemax(X @ rng.standard_normal((4, 5)))
    p = ProportionRegressor(alpha=0, solver="newton").fit(X, q).predict(X)
    assert np.abs(p - q).max() < 1e-6
    assert ((p > 1e-9) == (q > 1e-9)).mean() > 0.99
    soft = ProportionRegressor("softmax", alpha=0, max_iter=1000).fit(X, q)
    assert np.abs(soft.predict(X) - q).mean() > 100 * np.abs(p - q).mean()
    for loss in LOSSES:
        regressor = ProportionRegressor(loss, alpha=1e-2).fit(X, q)
        np.testing.assert_allclose(regressor.predict(1e4 * X).sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_proportions_may_be_less_exact_than_the_features(dtype):
    """What their sums may miss one by is a matter of their own type; float64 ones must be better."""
    q = np.random.default_rng(0).dirichlet(np.ones(5), 61).astype(dtype)
    X, wide = data("labels")[0], q.astype(np.float64)
    wide /= wide.sum(axis=1, keepdims=True)
    p = ProportionRegressor(alpha=1e-2).fit(X, q).predict(X)
    np.testing.assert_allclose(p, ProportionRegressor(alpha=1e-2).fit(X, wide).predict(X), atol=0.01)
    with pytest.raises(ValueError, match="y must have rows that sum to one"):
        ProportionRegressor().fit(X, wide * (1 + np.finfo(dtype).eps))


def test_targets_that_are_no_proportions_are_refused_or_projected():
    """Which row, what sum."""
    X, q = np.eye(3), np.array([[0.5, 0.5], [0.7, 0.2], [1.0, 0.0]])
    with pytest.raises(ValueError, match=r"y must have rows that sum to one; got 0\.9 in row 1"):
        ProportionRegressor().fit(X, q)
    with pytest.raises(ValueError, match=r"y must be nonnegative; got -0\.5 in row 2"):
        ProportionRegressor().fit(X, np.array([[0.5, 0.5], [0.7, 0.3], [1.5, -0.5]]))
    projected = ProportionRegressor(on_invalid="project").fit(X, q)
    assert (projected.coef_ == ProportionRegressor().fit(X, zt.sparsemax(q)).coef_).all()


IRIS = load_iris(return_X_y=True)
SETS = make_multilabel_classification(40, 5, n_classes=4, allow_unlabeled=False, random_state=0)


@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (SparsemaxClassifier("hinge"), IRIS, "'loss' parameter of SparsemaxClassifier must be a str among"),
        (SparsemaxClassifier(alpha=-1), IRIS, r"'alpha' parameter .* must be a float in the range \[0"),
        (SparsemaxClassifier(scale=0), IRIS, "'scale' parameter"),
        (SparsemaxClassifier(block_rows=0), IRIS, "'block_rows' parameter"),
        (SparsemaxClassifier(), (np.full((3, 2), np.nan), [0, 1, 2]), "Input X contains NaN"),
        (SparsemaxClassifier(), (np.eye(3), [0, 0, 0]), "y must have at least two classes; got one class: "),
        (SparsemaxClassifier(), (np.eye(3), [0.5, 0.2, 0.1]), "Unknown label type"),
        (SparsemaxClassifier(), (np.eye(3), [0, 1]), "inconsistent numbers of samples"),
        (SparsemaxClassifier(), (np.eye(2), [[0, 0], [0, 0]]), "y must have a label in some row"),
        (
            SparsemaxClassifier(),
            (np.eye(3), [[0, 1], [2, 0], [1, 2]]),
            r"y must be labels of shape \(n,\), or 0 and 1 for label sets; got shape \(3, 2\)",
        ),
        (SparsemaxClassifier(), (np.eye(2), [[-1, 1], [1, -1]]), "y must be 0 or 1 for label sets; got -1"),
        (
            SparsemaxClassifier(),
            (np.eye(2), sparse.csr_array([[0, 2], [2, 0]])),
            "y must be 0 or 1 for label sets; got 2",
        ),
        (SparsemaxClassifier(threshold=0.5), IRIS, "threshold must be None but for label sets"),
        (SparsemaxClassifier(threshold=0.5), SETS, "threshold must be None but for label sets"),
        (SparsemaxClassifier(class_weight="balanced"), SETS, "class_weight must be None for label sets"),
        (
            SparsemaxClassifier(),
            (1e200 * np.eye(3), [0, 1, 2]),
            "X must not be so large that scores overflow",
        ),
        (ProportionRegressor(), (np.eye(2), [1.0, 1.0]), "y must be two-dimensional"),
        (ProportionRegressor(), (np.eye(2), [[np.nan, 1], [0, 1]]), "contains NaN"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else x[:40],
)
def test_bad_input_is_named_with_what_it_was(model, rows, message):
    """scikit-learn's own messages where it has them, the library's form elsewhere."""
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match=message):
        model.fit(*rows)


def test_features_and_weights_are_checked():
    """Another number of features at predict; negative weights; a model that was not fitted."""
    X, y = IRIS
    model = SparsemaxClassifier(alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but SparsemaxClassifier is expecting 4 features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, y, -np.ones(len(y)))
    with pytest.raises(ValueError, match="sample_weight must be positive for two classes of y at least"):
        model.fit(X, y, (y == 1).astype(float))
    with pytest.raises(ValueError, match=r"(?i)sample.weights? must"):
        ProportionRegressor().fit(np.eye(2), np.eye(2), np.zeros(2))
    with pytest.raises(NotFittedError):
        SparsemaxClassifier().predict(X)


def test_a_sparse_matrix_that_is_broken_is_refused():
    """An index beyond the columns would be read by the core."""
    X = sparse.csr_array(np.eye(3))
    X.indices[1] = 99
    with pytest.raises(ValueError, match="indices"):
        SparsemaxClassifier().fit(X, [0, 1, 2])
