"""Linear classifiers of labels and of label sets (the paper's sections 3 and 4.2)."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

import zerotail as zt

from . import _losses, _search, _targets
from ._base import FLOATS, LinearModel
from ._store import Stored

Array = NDArray[Any]


def _is_sparsemax(estimator: Any) -> bool:
    if estimator.loss != "sparsemax":
        raise AttributeError(f"loss must be 'sparsemax' for sparse probabilities; got {estimator.loss!r}")
    return True


class _Classifier(ClassifierMixin, LinearModel):
    """Probabilities and decisions, from scores."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _rule(self) -> tuple[float, float | None]:
        """The scale of the scores, and the threshold."""
        raise NotImplementedError

    def _check_fit(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Any, Any]:
        """X, y, what the losses read, the weights of the rows with the classes' weights, and without."""
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=FLOATS, order="C", multi_output=True, y_numeric=False
        )
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y.toarray() if sparse.issparse(y) else y, warn=True)
        targets = _targets.of_labels_or_sets(y, X.dtype, self.loss, self.on_unlabeled)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        weight = sample_weight
        if self.class_weight is not None:
            if targets.multilabel:
                raise ValueError(f"class_weight must be None for label sets; got {self.class_weight!r}")
            weight = compute_sample_weight(self.class_weight, np.ravel(y))
            weight = weight if sample_weight is None else weight * sample_weight
        if weight is not None and not targets.multilabel:
            weighed = np.unique(np.ravel(y)[weight > 0])
            if len(weighed) < 2:
                raise ValueError(
                    f"sample_weight must be positive for two classes of y at least; got {weighed!r}"
                )
        return X, y, targets, weight, sample_weight

    def decision_function(self, X: ArrayLike) -> Array:
        """Compute the scores z = W x + b.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)

        Returns
        -------
        ndarray
            Shape (n, K); (n,) for two classes: the score of the second, against 0 for the first.
        """
        z = self._scores(X)
        return z[:, 0] if self._two_classes() else z

    def predict_proba(self, X: ArrayLike) -> Array:
        """Compute the probabilities of the scores times the scale.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)

        Returns
        -------
        ndarray of shape (n, K)
            For the sparsemax loss with exact zeros. Rows sum to one, but for label sets under the logistic
            loss, whose labels are independent.
        """
        return self._probabilities(self._scores(X))

    @available_if(_is_sparsemax)
    def predict_proba_csr(self, X: ArrayLike) -> Any:
        """Compute the probabilities without their zeros.

        For the sparsemax loss only.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)

        Returns
        -------
        scipy.sparse.csr_array of shape (n, K)
        """
        z = self._scores(X)
        if self._two_classes():
            return sparse.csr_array(self._probabilities(z))
        return zt.sparsemax_csr(z * self._scale(z))

    def predict(self, X: ArrayLike) -> Any:
        """Predict labels or label sets.

        Labels: the largest score. Sets: under the sparsemax loss the labels with a probability, else those
        above the threshold.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)

        Returns
        -------
        ndarray
            Shape (n,), of `classes_`; or indicators of shape (n, K), sparse where `fit` got them sparse.
        """
        z = self._scores(X)
        if not self.multilabel_:
            index = (z[:, 0] > 0).astype(int) if self._two_classes() else z.argmax(axis=1)
            return self.classes_[index]
        on = self._probabilities(z) > self._threshold()
        return sparse.csr_matrix(on, dtype=np.int64) if self._sparse_output else on.astype(np.int64)

    def _two_classes(self) -> bool:
        check_is_fitted(self)
        return not self.multilabel_ and len(self.classes_) == 2

    def _scale(self, z: Array) -> Any:
        return z.dtype.type(self._rule()[0])

    def _threshold(self) -> float:
        """What a probability must exceed."""
        if self.loss == "sparsemax":
            return 0.0
        given = self._rule()[1]
        if given is not None:
            return given
        return 0.5 if self.loss == "logistic" else 1 / len(self.classes_)

    def _probabilities(self, z: Array) -> Array:
        z = z * self._scale(z)
        if self._two_classes():
            return _losses.pair(self.loss, z)
        if self.multilabel_ and self.loss == "logistic":
            return expit(z)
        return _losses.distribution(self.loss, z)


class SparsemaxClassifier(Stored, _Classifier):
    """Linear classifier of labels or of label sets, by the sparsemax loss (Eqs. 15 and 26).

    Minimises alpha / 2 |W|^2 plus the weighted mean of the losses; the intercepts are not penalised. Two
    classes have one score and the loss of Eq. 23, so that LogisticRegression's C is 1 / (alpha n).

    Parameters
    ----------
    loss : {"sparsemax", "softmax", "logistic"}, default "sparsemax"
        The paper's loss, or one of its baselines. Label sets under "logistic" are independent labels; under
        the others the target is uniform over the active labels.
    alpha : float, default 1e-4
        The strength of the penalty, at least 0.
    scale : float, default 1.0
        What scores are multiplied by before they become probabilities; above 1, sparsemax has more zeros.
    threshold : float, optional
        The probability above which a label of a set is predicted, for "softmax" (default 1 / K) and
        "logistic" (default 0.5). An error elsewhere.
    fit_intercept : bool, default True
    solver : {"lbfgs", "newton"}, default "lbfgs"
        SciPy's L-BFGS; or the same, and then semismooth Newton steps to full accuracy.
    max_iter : int, default 100
        The most iterations of each of the solver's phases.
    tol : float, default 1e-4
        The largest entry of the gradient at which to stop. L-BFGS also stops where an iteration improves the
        objective by less than 2.2e-6 tol: tol=1e-8 gives the paper's two tolerances.
    class_weight : dict or "balanced", optional
        Weights of the classes, for labels only.
    on_unlabeled : {"drop", "raise"}, default "drop"
        What to do with rows of label sets without a label: leave them out, with a warning, or raise.
    warm_start : bool, default False
        Start from the last fit.
    block_rows : int, optional
        How many rows are worked on at a time. The default bounds the memory to a few megabytes.
    verbose : int, default 0
        1 prints the objective at each iteration.

    Attributes
    ----------
    coef_ : ndarray of shape (K, D); (1, D) for two classes
    intercept_ : ndarray of shape (K,); (1,) for two classes
    classes_ : ndarray of shape (K,)
    multilabel_ : bool
        Whether `fit` got label sets.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (D,)

    See Also
    --------
    SparsemaxClassifierCV : chooses alpha, and the scale or threshold.

    Examples
    --------
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["a", "b", "b", "c"]
    >>> model = SparsemaxClassifier(alpha=1e-3).fit(X, y)
    >>> model.predict([[0.2], [2.9]])
    array(['a', 'c'], dtype='<U1')
    >>> bool((model.predict_proba(X) == 0).any())
    True
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's protocol
        **LinearModel._parameter_constraints,
        "alpha": [LinearModel.alpha_constraint],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "threshold": [Interval(Real, 0, 1, closed="both"), None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "on_unlabeled": [StrOptions({"drop", "raise"})],
    }

    def __init__(
        self,
        loss: str = "sparsemax",
        alpha: float = 1e-4,
        scale: float = 1.0,
        threshold: float | None = None,
        *,
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-4,
        class_weight: Any = None,
        on_unlabeled: str = "drop",
        warm_start: bool = False,
        block_rows: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.scale = scale
        self.threshold = threshold
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.on_unlabeled = on_unlabeled
        self.warm_start = warm_start
        self.block_rows = block_rows
        self.verbose = verbose

    def _rule(self) -> tuple[float, float | None]:
        return self.scale, self.threshold

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparsemaxClassifier:
        """Minimise the regularised loss.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)
            float32 and float64 are kept.
        y : array_like of shape (n,), or array_like or sparse matrix of shape (n, K)
            Labels, or the indicators of label sets.
        sample_weight : array_like of shape (n,), optional
            Nonnegative weights of the rows; the losses are divided by their sum.

        Returns
        -------
        SparsemaxClassifier
            Itself.
        """
        X, y, targets, weight, _ = self._check_fit(X, y, sample_weight)
        if self.threshold is not None and (self.loss == "sparsemax" or not targets.multilabel):
            raise ValueError(
                "threshold must be None but for label sets and the losses 'softmax' and 'logistic'; "
                f"got {self.threshold!r}"
            )
        settings = self._settings(self.alpha, self.verbose)
        solution = self._solve(X, targets, weight, self._start(targets.cols, X.shape[1]), settings)
        self._keep(solution, X.dtype, settings)
        self.classes_, self.multilabel_ = targets.classes, targets.multilabel
        self._sparse_output = sparse.issparse(y)
        return self


class SparsemaxClassifierCV(_Classifier):
    """`SparsemaxClassifier` that chooses alpha, and the scale or threshold, by cross-validation.

    The scales and thresholds are tried on the fitted scores, without another fit. Then all data are fitted
    with the best alpha, from zero.

    Parameters
    ----------
    loss : {"sparsemax", "softmax", "logistic"}, default "sparsemax"
    alphas : array_like of float, optional
        Default: the paper's, 1e2, 1e1, ..., 1e-8.
    scales : array_like of float, optional
        Default: the paper's 0.5, 1, ..., 5 for label sets under the sparsemax loss, else 1.
    thresholds : array_like of float, optional
        Default, for label sets: the paper's 0.05, 0.1, ..., 0.5 under the logistic loss, and 1/K, 2/K, ...,
        10/K (as far as they are below 1) under the softmax loss. An error elsewhere.
    scoring : str, callable, list or dict, optional
        What to maximise: a name of `metrics.get_scorer`, or a callable (estimator, X, y). Default:
        "accuracy", for label sets "micro_f1". Of a list of names, or a dict, several are computed in one go.
    refit : str, optional
        Which of several scores decides.
    cv : int, splitter or iterable, default 5
        Folds as in scikit-learn: a number (stratified for labels, contiguous for label sets), a splitter, or
        pairs of training and validation rows; one pair is a held-out validation set.
    fit_intercept, solver, max_iter, tol, class_weight, on_unlabeled, block_rows
        As in `SparsemaxClassifier`.
    warm_start : bool, default True
        Within a fold, start each alpha from the next larger one's solution. The paper starts from zero.
    n_jobs : int, optional
        Folds (without `warm_start`, single fits) at a time, as in joblib, whose backends work.
    verbose : int, default 0
        1 shows a progress bar.

    Attributes
    ----------
    alpha_, scale_, threshold_ : float
        What was chosen; `threshold_` is None where there is none.
    best_params_ : dict
    best_index_ : int
        The position of the best candidate in `cv_results_`; of equals the first, in the order of `alphas`.
    best_score_ : float
    best_estimator_ : SparsemaxClassifier
    cv_results_ : dict of ndarrays
        As GridSearchCV's, one entry a candidate; `mean_n_iter` has the mean number of iterations.
    n_splits_ : int
    scorer_ : callable, or dict of callables
    coef_, intercept_, classes_, multilabel_, n_iter_, n_features_in_, feature_names_in_
        As in `SparsemaxClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SparsemaxClassifierCV(alphas=[1e-2, 1.0]).fit(X, y)
    >>> model.alpha_
    0.01
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's protocol
        **LinearModel._parameter_constraints,
        **_search.CONSTRAINTS,
        "scales": ["array-like", None],
        "thresholds": ["array-like", None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "on_unlabeled": [StrOptions({"drop", "raise"})],
    }

    def __init__(
        self,
        loss: str = "sparsemax",
        alphas: ArrayLike | None = None,
        scales: ArrayLike | None = None,
        thresholds: ArrayLike | None = None,
        *,
        scoring: Any = None,
        refit: str | None = None,
        cv: Any = 5,
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-4,
        class_weight: Any = None,
        on_unlabeled: str = "drop",
        warm_start: bool = True,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alphas = alphas
        self.scales = scales
        self.thresholds = thresholds
        self.scoring = scoring
        self.refit = refit
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.on_unlabeled = on_unlabeled
        self.warm_start = warm_start
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    # Of equal candidates the first is chosen: the one with the strongest penalty.
    paper_alphas = tuple(10.0**j for j in range(2, -9, -1))

    def _rule(self) -> tuple[float, float | None]:
        return self.scale_, self.threshold_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `best_estimator_` to a file, which `SparsemaxClassifier.load` reads.

        Parameters
        ----------
        path : str or path
            A file that is there is replaced.
        """
        check_is_fitted(self)
        self.best_estimator_.save(path)

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparsemaxClassifierCV:
        """Choose the parameters, and minimise the regularised loss over all rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)
            float32 and float64 are kept.
        y : array_like of shape (n,), or array_like or sparse matrix of shape (n, K)
            Labels, or the indicators of label sets.
        sample_weight : array_like of shape (n,), optional
            Nonnegative weights of the rows, in fits and scores.

        Returns
        -------
        SparsemaxClassifierCV
            Itself.
        """
        X, y, targets, weight, sample_weight = self._check_fit(X, y, sample_weight)
        rules = self._rules(targets)
        plain = SparsemaxClassifier(
            self.loss,
            **{name: getattr(self, name) for name in _search.SHARED},
            class_weight=self.class_weight,
            on_unlabeled=self.on_unlabeled,
        )
        plain.classes_, plain.multilabel_ = targets.classes, targets.multilabel
        plain._sparse_output = self._sparse_output = sparse.issparse(y)
        self.classes_, self.multilabel_ = targets.classes, targets.multilabel
        default = "micro_f1" if targets.multilabel else "accuracy"
        _search.search(self, plain, X, y, targets, weight, sample_weight, rules, default)
        self.scale_, self.threshold_ = self.best_estimator_.scale, self.best_estimator_.threshold
        return self

    def _rules(self, targets: _targets.Targets) -> list[dict[str, float | None]]:
        """The candidates for scale and threshold."""
        sets, K = targets.multilabel, len(targets.classes)
        scales: Any = self.scales
        thresholds: Any = self.thresholds
        if thresholds is not None and (self.loss == "sparsemax" or not sets):
            raise ValueError(
                "thresholds must be None but for label sets and the losses 'softmax' and 'logistic'; "
                f"got {thresholds!r}"
            )
        steps = np.arange(1, 11)
        if scales is None:
            scales = steps / 2 if sets and self.loss == "sparsemax" else [1.0]
        if thresholds is None:
            thresholds = [None]
            if sets and self.loss == "logistic":
                thresholds = steps / 20
            elif sets and self.loss == "softmax":
                thresholds = steps[steps < max(K, 2)] / K
        else:
            thresholds = _search.grid("thresholds", thresholds, "in [0, 1]", lambda v: (v >= 0) & (v <= 1))
        scales = _search.grid("scales", scales, "positive", lambda v: v > 0)
        return [
            {"scale": float(s), "threshold": None if t is None else float(t)}
            for s in scales
            for t in thresholds
        ]
