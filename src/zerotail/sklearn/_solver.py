"""Eq. 15: regularised empirical risk over linear scores, and its minimisers.

The parameters are one vector of float64: D rows of K weights, then K intercepts. So a row of weights is
contiguous, which is how a sparse X reads them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from ._losses import Loss

Array = NDArray[Any]

# Scores in a block: large enough for the products, small enough to stay in the cache.
BLOCK_SCORES = 1 << 17


@dataclass(frozen=True)
class Settings:
    """How to minimise; the estimators' parameters of the same names."""

    alpha: float
    fit_intercept: bool
    solver: str
    max_iter: int
    tol: float
    block_rows: int | None
    verbose: int = 0


class Objective:
    """alpha / 2 |W|^2 + the weighted mean of the losses; the intercepts are not penalised."""

    def __init__(
        self, X: Any, target: Array, weight: Array | None, cols: int, loss: Loss, settings: Settings
    ) -> None:
        self.X, self.target, self.loss = X, target, loss
        self.weight = None if weight is None else weight.astype(X.dtype, copy=False)
        self.total = float(X.shape[0]) if weight is None else float(weight.sum(dtype=np.float64))
        self.alpha, self.fit_intercept = settings.alpha, settings.fit_intercept
        self.shape = (X.shape[1] + self.fit_intercept, cols)
        self.features = X.shape[1]
        self.block = settings.block_rows or max(BLOCK_SCORES // max(cols, 1), 64)

    def start(self, weights: tuple[Array, Array] | None) -> Array:
        theta = np.zeros(self.shape)
        if weights is not None:
            theta[: self.features] = weights[0]
            if self.fit_intercept:
                theta[self.features] = weights[1]
        return theta.ravel()

    def split(self, theta: Array) -> tuple[Array, Array]:
        """Weights (D, K) and intercepts (K,)."""
        matrix = theta.reshape(self.shape)
        weights = matrix[: self.features]
        return weights, matrix[self.features] if self.fit_intercept else np.zeros(self.shape[1])

    def blocks(self) -> Any:
        for begin in range(0, self.X.shape[0], self.block):
            rows = slice(begin, begin + self.block)
            whole = begin == 0 and self.block >= self.X.shape[0]
            yield self.X if whole else self.X[rows], rows

    def scores(self, X: Any, weights: Array, bias: Array) -> Array:
        z: Array = X @ weights
        z += bias
        return z

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Its value and gradient."""
        weights, bias = self.split(theta)
        W, b = weights.astype(self.X.dtype, copy=False), bias.astype(self.X.dtype, copy=False)
        gradient = np.zeros(self.shape)
        value = 0.0
        for X, rows in self.blocks():
            G = self.scores(X, W, b)
            losses = self.loss.gradient(G, self.target[rows])
            if self.weight is None:
                value += float(losses.sum(dtype=np.float64))
            else:
                value += float(np.dot(self.weight[rows].astype(np.float64), losses))
                G *= self.weight[rows, None]
            gradient[: self.features] += X.T @ G
            if self.fit_intercept:
                gradient[self.features] += G.sum(axis=0)
        gradient /= self.total
        gradient[: self.features] += self.alpha * weights
        flat = weights.ravel()
        return value / self.total + 0.5 * self.alpha * float(flat @ flat), gradient.ravel()


@dataclass(frozen=True)
class Solution:
    weights: Array
    bias: Array
    n_iter: int
    value: float
    converged: bool
    message: str


def solve(objective: Objective, start: tuple[Array, Array] | None, settings: Settings) -> Solution:
    """L-BFGS with 10 corrections. tol = 1e-8 gives the paper's pgtol 1e-8 and factr 100."""
    done = minimize(
        objective,
        objective.start(start),
        jac=True,
        method="L-BFGS-B",
        callback=_reporter() if settings.verbose else None,
        options={
            "maxcor": 10,
            "maxiter": settings.max_iter,
            "maxfun": np.iinfo(np.int32).max,
            "gtol": settings.tol,
            "ftol": settings.tol * (100 * np.finfo(float).eps / 1e-8),
        },
    )
    if not np.isfinite(done.fun):
        raise ValueError("X must not be so large that scores overflow; got a loss that is not finite")
    weights, bias = objective.split(done.x)
    return Solution(weights, bias, max(int(done.nit), 1), float(done.fun), done.status == 0, str(done.message))


def warn(solution: Solution, settings: Settings) -> None:
    if not solution.converged:
        warnings.warn(
            f"{settings.solver} stopped after {solution.n_iter} iterations ({solution.message}): raise max_iter, "
            "raise tol, or scale the features",
            ConvergenceWarning,
            stacklevel=3,
        )


def _reporter() -> Any:
    count = 0

    def report(intermediate_result: Any) -> None:
        nonlocal count
        count += 1
        print(f"iteration {count}: objective {intermediate_result.fun:.8g}")

    return report


def rows_of(X: Any, index: Array) -> Any:
    return X.tocsr()[index] if sparse.issparse(X) else X[index]
