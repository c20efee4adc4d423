"""Cross-validation: it is what a loop over plain estimators gives, only faster."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.metrics import accuracy_score, f1_score, log_loss
from sklearn.model_selection import KFold, PredefinedSplit, StratifiedKFold

from zerotail.sklearn import (
    ProportionRegressor,
    ProportionRegressorCV,
    SparsemaxClassifier,
    SparsemaxClassifierCV,
    metrics,
)

X, Y = make_multilabel_classification(90, 6, n_classes=4, allow_unlabeled=False, random_state=0)
X = (X - X.mean(axis=0)) / X.std(axis=0)
ALPHAS = [1e-3, 1e-1, 10.0]
IRIS = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("loss", "rule", "grid"),
    [
        ("sparsemax", "scale", np.arange(1, 11) / 2),
        ("softmax", "threshold", np.arange(1, 4) / 4),
        ("logistic", "threshold", np.arange(1, 11) / 20),
    ],
)
def test_every_candidate_has_the_score_of_its_own_fits(loss, rule, grid):
    """The paper's grids; rules without a fit of their own; to the bit the same; the best is fitted again."""
    folds = list(KFold(3).split(X))
    model = SparsemaxClassifierCV(loss, ALPHAS, cv=3, warm_start=False).fit(X, Y)
    results = model.cv_results_
    assert len(results["params"]) == len(ALPHAS) * len(grid)
    for i, parameters in enumerate(results["params"]):
        assert parameters["alpha"] == ALPHAS[i // len(grid)]
        assert parameters[rule] == grid[i % len(grid)]
        for k, (train, held_out) in enumerate(folds):
            plain = SparsemaxClassifier(loss, **parameters).fit(X[train], Y[train])
            want = f1_score(Y[held_out], plain.predict(X[held_out]), average="micro", zero_division=0)
            assert results[f"split{k}_test_score"][i] == want
    scores = np.stack([results[f"split{k}_test_score"] for k in range(3)])
    np.testing.assert_array_equal(results["mean_test_score"], scores.mean(axis=0))
    assert model.best_index_ == scores.mean(axis=0).argmax()
    assert model.best_params_ == results["params"][model.best_index_]
    assert results["rank_test_score"][model.best_index_] == 1
    best = SparsemaxClassifier(loss, **model.best_params_).fit(X, Y)
    assert (model.coef_ == best.coef_).all()
    assert (model.predict(X) == best.predict(X)).all()
    assert (model.alpha_, model.scale_, model.threshold_) == (best.alpha, best.scale, best.threshold)


def test_the_default_grids_are_those_of_the_paper():
    """Alphas 1e-8 to 1e2, of proportions 1e-9 to 1; labels need no scale."""
    model = SparsemaxClassifierCV(max_iter=2, cv=2)
    with pytest.warns(match="stopped"):
        model.fit(*IRIS)
    np.testing.assert_allclose(np.sort(model.cv_results_["param_alpha"]), 10.0 ** np.arange(-8, 3))
    assert set(model.cv_results_["param_scale"]) == {1.0}
    with pytest.warns(match="stopped"):
        regressor = ProportionRegressorCV(max_iter=2, cv=2).fit(X, Y / Y.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(np.sort(regressor.cv_results_["param_alpha"]), 10.0 ** np.arange(-9, 1))


@pytest.mark.parametrize("verbose", [0, 1])
def test_jobs_and_the_progress_bar_change_nothing(verbose, capfd):
    """joblib's workers give the results of this process."""
    one = SparsemaxClassifierCV(alphas=ALPHAS, cv=3).fit(X, Y)
    two = SparsemaxClassifierCV(alphas=ALPHAS, cv=3, n_jobs=2, verbose=verbose).fit(X, Y)
    assert (one.cv_results_["mean_test_score"] == two.cv_results_["mean_test_score"]).all()
    assert (one.coef_ == two.coef_).all()
    assert ("SparsemaxClassifierCV: 100%" in capfd.readouterr().err) == bool(verbose)


def test_a_warm_path_takes_fewer_iterations_to_the_same_scores():
    """Each alpha starts from the next larger one's solution."""
    alphas = 10.0 ** np.arange(-3, 2)
    cold = SparsemaxClassifierCV(alphas=alphas, cv=3, tol=1e-7, max_iter=2000, warm_start=False).fit(X, Y)
    warm = SparsemaxClassifierCV(alphas=alphas, cv=3, tol=1e-7, max_iter=2000).fit(X, Y)
    assert warm.cv_results_["mean_n_iter"].sum() < cold.cv_results_["mean_n_iter"].sum()
    np.testing.assert_allclose(
        warm.cv_results_["mean_test_score"], cold.cv_results_["mean_test_score"], atol=0.01
    )


def test_several_scores_are_computed_in_one_go_and_one_decides():
    """As the paper chooses for micro- and for macro-F1."""
    names = ["micro_f1", "macro_f1_of_averages"]
    for refit in names:
        model = SparsemaxClassifierCV(alphas=ALPHAS, cv=3, scoring=names, refit=refit).fit(X, Y)
        assert model.best_index_ == model.cv_results_[f"mean_test_{refit}"].argmax()
        single = SparsemaxClassifierCV(alphas=ALPHAS, cv=3, scoring=refit).fit(X, Y)
        assert model.best_params_ == single.best_params_
        assert model.best_score_ == single.best_score_


def test_scorers_see_probabilities_scores_and_labels():
    """Any scorer of scikit-learn, any callable; for labels the scale shows in the log loss."""
    features, y = IRIS
    held_out = np.arange(len(y)) % 3 == 0
    model = SparsemaxClassifierCV(
        "softmax", [1e-1], scales=[1, 4], scoring="neg_log_loss", cv=PredefinedSplit(held_out - 1)
    ).fit(features, y)
    for i, scale in enumerate([1, 4]):
        plain = SparsemaxClassifier("softmax", 1e-1, scale).fit(features[~held_out], y[~held_out])
        want = -log_loss(y[held_out], plain.predict_proba(features[held_out]))
        assert abs(model.cv_results_["mean_test_score"][i] - want) < 1e-12
    assert model.n_splits_ == 1

    def scorer(estimator, X, y):
        assert set(estimator.classes_) == {0, 1, 2}
        return accuracy_score(y, estimator.predict(X)) + 0 * estimator.decision_function(X).sum()

    model = SparsemaxClassifierCV(alphas=[1e-1], scoring={"mine": scorer}, refit="mine").fit(features, y)
    want = [
        SparsemaxClassifier(alpha=1e-1).fit(features[a], y[a]).score(features[b], y[b])
        for a, b in StratifiedKFold(5).split(features, y)
    ]
    assert model.best_score_ == np.mean(want)


def test_a_fold_may_lack_a_class():
    """Sorted labels in contiguous folds: the class keeps its column."""
    features, y = IRIS
    model = SparsemaxClassifierCV(alphas=[1e-1], cv=KFold(3)).fit(features, y)
    assert model.coef_.shape == (3, 4)
    assert model.best_score_ == 0  # no fold has seen the class that it is asked for


def test_rows_without_labels_are_left_out_of_fits_and_scores():
    """Splits count the rows that were given, whatever is left out."""
    more_X, more_Y = np.vstack([np.ones((2, 6)), X]), np.vstack([np.zeros((2, 4), int), Y])
    folds = list(KFold(3).split(X))
    shifted = [(np.append([0, 1], a + 2), b + 2) for a, b in folds]
    with pytest.warns(UserWarning, match="left out: 2 of 92"):
        model = SparsemaxClassifierCV(alphas=ALPHAS, cv=shifted).fit(more_X, more_Y)
    want = SparsemaxClassifierCV(alphas=ALPHAS, cv=folds).fit(X, Y)
    assert (model.cv_results_["mean_test_score"] == want.cv_results_["mean_test_score"]).all()
    assert (model.coef_ == want.coef_).all()
    masks = [tuple(np.isin(np.arange(92), part) for part in fold) for fold in shifted]
    with pytest.warns(UserWarning, match="left out: 2 of 92"):
        masked = SparsemaxClassifierCV(alphas=ALPHAS, cv=masks).fit(more_X, more_Y)
    assert (masked.cv_results_["mean_test_score"] == want.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("scoring", [None, "neg_jensen_shannon", "neg_sparsemax_loss", "r2"])
def test_proportions_choose_their_alpha(scoring):
    """By the mean over folds of the named score."""
    q = Y / Y.sum(axis=1, keepdims=True)
    model = ProportionRegressorCV(alphas=ALPHAS, cv=3, scoring=scoring, warm_start=False).fit(X, q)
    scorer = metrics.get_scorer(scoring or "neg_squared_error")
    for i, alpha in enumerate(ALPHAS):
        want = [
            scorer(ProportionRegressor(alpha=alpha).fit(X[a], q[a]), X[b], q[b]) for a, b in KFold(3).split(X)
        ]
        assert model.cv_results_["mean_test_score"][i] == np.mean(want)
    assert (model.predict(X) == ProportionRegressor(alpha=model.alpha_).fit(X, q).predict(X)).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SparsemaxClassifierCV(alphas=[-1.0]), r"alphas must be at least 0; got -1\.0"),
        (SparsemaxClassifierCV(alphas=[]), "alphas must be a list of at least one number"),
        (SparsemaxClassifierCV(scales=[0]), r"scales must be positive; got 0\.0"),
        (SparsemaxClassifierCV(thresholds=[0.5]), "thresholds must be None but for label sets"),
        (SparsemaxClassifierCV("softmax", thresholds=[2]), r"thresholds must be in \[0, 1\]; got 2\.0"),
        (SparsemaxClassifierCV(scoring=["accuracy"]), "refit must be one of"),
        (SparsemaxClassifierCV(refit="accuracy"), "refit must be None where there is one score"),
        (SparsemaxClassifierCV(scoring=[]), "scoring must name at least one scorer"),
        (SparsemaxClassifierCV(scoring="no_such"), "no_such"),
        (SparsemaxClassifierCV(cv=[([0, 1], [])]), "cv must leave rows with labels"),
        (
            SparsemaxClassifierCV(cv=[(np.arange(89) < 50, np.arange(89) >= 50)]),
            r"cv must have masks of shape \(90,\), as y has 90 rows; got \(89,\)",
        ),
        (SparsemaxClassifierCV(class_weight="balanced"), "class_weight must be None for label sets"),
    ],
    ids=lambda x: x[:30] if isinstance(x, str) else "",
)
def test_bad_input_is_named_with_what_it_was(model, message):
    """Before anything is fitted."""
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
