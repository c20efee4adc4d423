"""Linear regression of label proportions (the paper's section 4.1)."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import _losses, _search, _targets
from ._base import FLOATS, LinearModel
from ._store import Stored

Array = NDArray[Any]


class _Proportions(RegressorMixin, LinearModel):
    """Distributions, from scores."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.regressor_tags.poor_score = True  # of targets that are no proportions
        return tags

    def _check_fit(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any, Any]:
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=FLOATS, order="C", multi_output=True, y_numeric=True
        )
        if y.ndim != 2:
            raise ValueError(
                f"y must be two-dimensional, one row of proportions an example; got shape {y.shape}"
            )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        return X, y, _targets.of_proportions(y, X.dtype, self.on_invalid), sample_weight

    def predict(self, X: ArrayLike) -> Array:
        """Predict proportions: sparsemax, softmax, or normalised sigmoids of the scores.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)

        Returns
        -------
        ndarray of shape (n, K)
            Rows are distributions; for the sparsemax loss with exact zeros.
        """
        return _losses.distribution(self.loss, self._scores(X))


class ProportionRegressor(Stored, _Proportions):
    """Linear regression of label proportions, by the sparsemax loss (Eqs. 15 and 26).

    Parameters
    ----------
    loss : {"sparsemax", "softmax", "logistic"}, default "sparsemax"
        The paper's loss, or one of its baselines.
    alpha : float, default 1e-4
        The strength of the penalty, at least 0.
    on_invalid : {"raise", "project"}, default "raise"
        What to do with rows of y that are no distribution: raise, or take the nearest one (Eq. 2).
    fit_intercept, solver, max_iter, tol, warm_start, block_rows, verbose
        As in `SparsemaxClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (K, D)
    intercept_ : ndarray of shape (K,)
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (D,)

    Examples
    --------
    >>> X, y = [[0.0], [1.0], [2.0]], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> ProportionRegressor(alpha=1e-8).fit(X, y).predict([[0.5], [3.0]]).round(3)
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's protocol
        **LinearModel._parameter_constraints,
        "alpha": [LinearModel.alpha_constraint],
        "on_invalid": [StrOptions({"raise", "project"})],
    }

    def __init__(
        self,
        loss: str = "sparsemax",
        alpha: float = 1e-4,
        *,
        on_invalid: str = "raise",
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
        block_rows: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.on_invalid = on_invalid
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.block_rows = block_rows
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ProportionRegressor:
        """Minimise the regularised loss.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)
            float32 and float64 are kept.
        y : array_like of shape (n, K)
            Proportions: nonnegative rows that sum to one.
        sample_weight : array_like of shape (n,), optional
            Nonnegative weights of the rows; the losses are divided by their sum.

        Returns
        -------
        ProportionRegressor
            Itself.
        """
        X, _, targets, weight = self._check_fit(X, y, sample_weight)
        settings = self._settings(self.alpha, self.verbose)
        solution = self._solve(X, targets, weight, self._start(targets.cols, X.shape[1]), settings)
        self._keep(solution, X.dtype, settings)
        return self


class ProportionRegressorCV(_Proportions):
    """`ProportionRegressor` that chooses alpha by cross-validation.

    Parameters
    ----------
    loss : {"sparsemax", "softmax", "logistic"}, default "sparsemax"
    alphas : array_like of float, optional
        Default: the paper's, 1, 1e-1, ..., 1e-9.
    scoring : str, callable, list or dict, optional
        What to maximise: a name of `metrics.get_scorer`, or a callable (estimator, X, y). Default:
        "neg_squared_error". A list of names or a dict of scorers computes several in one go.
    refit : str, optional
        Which of several scores decides.
    cv : int, splitter or iterable, default 5
        As in `SparsemaxClassifierCV`; a number means contiguous folds.
    on_invalid, fit_intercept, solver, max_iter, tol, block_rows
        As in `ProportionRegressor`.
    warm_start, n_jobs, verbose
        As in `SparsemaxClassifierCV`.

    Attributes
    ----------
    alpha_ : float
    best_params_, best_index_, best_score_, best_estimator_, cv_results_, n_splits_, scorer_
        As in `SparsemaxClassifierCV`.
    coef_, intercept_, n_iter_, n_features_in_, feature_names_in_
        As in `ProportionRegressor`.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> y = np.hstack([(1 - X) / 2, (1 + X) / 2])
    >>> ProportionRegressorCV(cv=2).fit(X[::-1], y[::-1]).alpha_ < 1e-3
    True
    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's protocol
        **LinearModel._parameter_constraints,
        **_search.CONSTRAINTS,
        "on_invalid": [StrOptions({"raise", "project"})],
    }

    def __init__(
        self,
        loss: str = "sparsemax",
        alphas: ArrayLike | None = None,
        *,
        scoring: Any = None,
        refit: str | None = None,
        cv: Any = 5,
        on_invalid: str = "raise",
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = True,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.alphas = alphas
        self.scoring = scoring
        self.refit = refit
        self.cv = cv
        self.on_invalid = on_invalid
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.block_rows = block_rows
        self.n_jobs = n_jobs
        self.verbose = verbose

    # As in SparsemaxClassifierCV: of equal candidates the one with the strongest penalty.
    paper_alphas = tuple(10.0**j for j in range(0, -10, -1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `best_estimator_` to a file, which `ProportionRegressor.load` reads.

        Parameters
        ----------
        path : str or path
            A file that is there is replaced.
        """
        check_is_fitted(self)
        self.best_estimator_.save(path)

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ProportionRegressorCV:
        """Choose alpha, and minimise the regularised loss over all rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, D)
            float32 and float64 are kept.
        y : array_like of shape (n, K)
            Proportions: nonnegative rows that sum to one.
        sample_weight : array_like of shape (n,), optional
            Nonnegative weights of the rows, in fits and scores.

        Returns
        -------
        ProportionRegressorCV
            Itself.
        """
        X, _, targets, weight = self._check_fit(X, y, sample_weight)
        plain = ProportionRegressor(
            self.loss, **{name: getattr(self, name) for name in _search.SHARED}, on_invalid=self.on_invalid
        )
        _search.search(self, plain, X, targets.values, targets, weight, weight, [{}], "neg_squared_error")
        return self
