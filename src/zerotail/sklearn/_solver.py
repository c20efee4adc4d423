"""Eq. 15: regularised empirical risk over linear scores, and its minimisers.

The parameters are one vector of float64: D rows of K weights, then K intercepts. So a row of weights is
contiguous, which is how a sparse X reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from ._losses import Loss
from ._products import of

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
    """alpha / 2 |W|^2 + the weighted mean of the losses; the intercepts are not penalised.

    A block of rows at a time, so that what it needs beside X, y and the weights has a bound.
    """

    def __init__(
        self, X: Any, target: Array, weight: Array | None, cols: int, loss: Loss, settings: Settings
    ) -> None:
        self.products, self.target, self.loss = of(X), target, loss
        self.rows, self.features = X.shape
        self.dtype = X.dtype
        total = float(self.rows) if weight is None else float(weight.sum(dtype=np.float64))
        # What a row's loss counts for.
        self.share: float | Array = 1 / total if weight is None else weight.astype(np.float64) / total
        self.alpha, self.fit_intercept = settings.alpha, settings.fit_intercept
        self.shape = (self.products.size + self.fit_intercept, cols)
        block = settings.block_rows or max(BLOCK_SCORES // max(cols, 1), 64)
        self.block = min(block, self.rows)

    def start(self, weights: tuple[Array, Array] | None) -> Array:
        """The parameters, from weights of shape (D, K) and intercepts."""
        theta = np.zeros(self.shape)
        if weights is not None:
            theta[: self.products.size] = weights[0][self.products.used]
            if self.fit_intercept:
                theta[self.products.size] = weights[1]
        return theta.ravel()

    def weights(self, theta: Array) -> tuple[Array, Array]:
        """The inverse of `start`. Features that X has not got a weight of 0."""
        used, bias = self.split(theta)
        weights = np.zeros((self.features, self.shape[1]))
        weights[self.products.used] = used
        return weights, bias

    def split(self, theta: Array) -> tuple[Array, Array]:
        matrix = theta.reshape(self.shape)
        size = self.products.size
        return matrix[:size], matrix[size] if self.fit_intercept else np.zeros(self.shape[1])

    def blocks(self) -> Iterator[slice]:
        for first in range(0, self.rows, self.block):
            yield slice(first, min(first + self.block, self.rows))

    def share_of(self, rows: slice) -> Any:
        return self.share if isinstance(self.share, float) else self.share[rows]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Its value and gradient."""
        weights, bias = self.split(theta)
        W, b = weights.astype(self.dtype, copy=False), bias.astype(self.dtype, copy=False)
        gradient = np.empty(self.shape)
        inner, outer = gradient[: self.products.size], gradient[self.products.size :]
        np.multiply(weights, self.alpha, out=inner)
        outer[:] = 0
        value = 0.5 * self.alpha * float(np.vdot(weights, weights))
        scores = np.empty((self.block, self.shape[1]), self.dtype)
        for rows in self.blocks():
            G = scores[: rows.stop - rows.start]
            self.products.scores(rows.start, W, b, G)
            losses = self.loss.gradient(G, self.target[rows])
            share = self.share_of(rows)
            value += float(np.sum(losses * share, dtype=np.float64))
            G *= share if isinstance(share, float) else share[:, None]
            self.products.add_gradient(rows.start, G, inner)
            outer += G.sum(axis=0)
        return value, gradient.ravel()


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
    weights, bias = objective.weights(done.x)
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

