"""What the estimators have in common: parameters, fitting, scores."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _losses
from ._solver import Objective, Settings, Solution, solve, warn
from ._targets import Targets

Array = NDArray[Any]
FLOATS = [np.float64, np.float32]


class LinearModel(BaseEstimator):
    """Scores X coef_^T + intercept_, from the minimum of Eq. 15."""

    coef_: Array
    intercept_: Array

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's protocol
        "loss": [StrOptions({"sparsemax", "softmax", "logistic"})],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"lbfgs", "newton"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "block_rows": [Interval(Integral, 1, None, closed="left"), None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }
    alpha_constraint = Interval(Real, 0, None, closed="left")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _settings(self, alpha: float, verbose: int = 0) -> Settings:
        return Settings(
            float(alpha), self.fit_intercept, self.solver, self.max_iter, self.tol, self.block_rows, verbose
        )

    def _solve(
        self,
        X: Any,
        targets: Targets,
        weight: Array | None,
        start: tuple[Array, Array] | None,
        settings: Settings,
    ) -> Solution:
        if targets.labelled is not None:
            X = X[targets.labelled]
            weight = None if weight is None else weight[targets.labelled]
            values = targets.values[targets.labelled]
        else:
            values = targets.values
        if weight is not None and not weight.sum() > 0:
            raise ValueError("sample_weight must have a positive sum; got zeros")
        loss = _losses.make(self.loss, targets.two_classes)
        objective = Objective(X, values, weight, targets.cols, loss, settings)
        return solve(objective, start, settings)

    def _keep(self, solution: Solution, dtype: Any, settings: Settings) -> None:
        warn(solution, settings)
        self.coef_ = np.ascontiguousarray(solution.weights.T, dtype)
        self.intercept_ = solution.bias.astype(dtype)
        self.n_iter_ = solution.n_iter

    def _start(self, cols: int, features: int) -> tuple[Array, Array] | None:
        """Where the last fit ended, if it fits the data."""
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (cols, features):
            return self.coef_.T, self.intercept_
        return None

    def _check_X(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)

    def _scores(self, X: Any) -> Array:
        """Shape (n, K), or (n, 1) for two classes."""
        z: Array = safe_sparse_dot(self._check_X(X), self.coef_.T, dense_output=True)
        z += self.intercept_
        return z
