"""Eq. 15: regularised empirical risk over linear scores, and its minimisers.

The parameters are one vector of float64: D rows of K weights, then K intercepts. So a row of weights is
contiguous, which is how a sparse X reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
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

    def centre(self, gradient: Array) -> None:
        """Where nothing depends on the mean of the intercepts, rounding must not move it."""
        if self.loss.shift_invariant:
            gradient -= gradient.mean(axis=1, keepdims=True)

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
        self.centre(outer)
        return value, gradient.ravel()

    def curvature(self, theta: Array, v: Array) -> Array:
        """The product of an element of its generalised Hessian at theta with v."""
        (weights, bias), (tangent, lift) = self.split(theta), self.split(v)
        W, b = weights.astype(self.dtype, copy=False), bias.astype(self.dtype, copy=False)
        V, c = tangent.astype(self.dtype, copy=False), lift.astype(self.dtype, copy=False)
        result = np.empty(self.shape)
        inner, outer = result[: self.products.size], result[self.products.size :]
        np.multiply(tangent, self.alpha, out=inner)
        outer[:] = 0
        scores, moved = np.empty((2, self.block, self.shape[1]), self.dtype)
        for rows in self.blocks():
            count = rows.stop - rows.start
            z, dz = scores[:count], moved[:count]
            self.products.scores(rows.start, W, b, z)
            self.products.scores(rows.start, V, c, dz)
            G = self.loss.curvature(z, dz)
            share = self.share_of(rows)
            G *= share if isinstance(share, float) else share[:, None]
            self.products.add_gradient(rows.start, G, inner)
            outer += G.sum(axis=0)
        self.centre(outer)
        return result.ravel()


@dataclass(frozen=True)
class Solution:
    weights: Array
    bias: Array
    n_iter: int
    value: float
    converged: bool


def solve(objective: Objective, start: tuple[Array, Array] | None, settings: Settings) -> Solution:
    """The minimum, from `start` or from zero."""
    theta, value, n_iter, converged = lbfgs(objective, objective.start(start), settings)
    if settings.solver == "newton":
        theta, value, steps, converged = newton(objective, theta, settings)
        n_iter += steps
    if not np.isfinite(value):
        raise ValueError("X must not be so large that scores overflow; got a loss that is not finite")
    return Solution(*objective.weights(theta), max(n_iter, 1), value, converged)


def lbfgs(objective: Objective, theta: Array, settings: Settings) -> tuple[Array, float, int, bool]:
    """SciPy's L-BFGS with 10 corrections. tol = 1e-8 gives the paper's pgtol 1e-8 and factr 100."""
    done = optimize.minimize(
        objective,
        theta,
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
    return done.x, float(done.fun), int(done.nit), done.status == 0


def newton(objective: Objective, theta: Array, settings: Settings) -> tuple[Array, float, int, bool]:
    """Semismooth Newton steps until rounding stops them: for quadratic pieces a finite number.

    The objective is convex and its gradient piecewise smooth, so a step along an element of the generalised
    Hessian descends; it is halved until it descends enough.
    """
    value, gradient = objective(theta)
    steps = 0
    while steps < settings.max_iter and np.abs(gradient).max(initial=0) > 0:
        step = _conjugate_gradients(partial(objective.curvature, theta), -gradient)
        slope = float(gradient @ step)
        # Near the minimum the value moves by less than its rounding: there the gradient decides.
        noise = 4 * np.finfo(objective.dtype).eps * max(abs(value), np.finfo(float).tiny)
        size = 1.0
        while size > 1e-10:
            new_value, new_gradient = objective(theta + size * step)
            flat = new_value <= value + noise and np.abs(new_gradient).max() < 0.5 * np.abs(gradient).max()
            if flat or new_value < value + 1e-4 * size * slope - noise:
                break
            size /= 2
        else:
            break
        theta, value, gradient = theta + size * step, new_value, new_gradient
        steps += 1
        if settings.verbose:
            print(f"Newton step {steps}: objective {value:.8g}, gradient {np.abs(gradient).max():.3g}")
    return theta, value, steps, bool(np.abs(gradient).max(initial=0) <= settings.tol)


def _conjugate_gradients(times: Callable[[Array], Array], b: Array) -> Array:
    """x with `times`(x) = b, for a semidefinite `times`; less exactly, the farther b is from zero."""
    x, r = np.zeros_like(b), b.copy()
    d, size = r.copy(), float(r @ r)
    enough = size * min(1e-4, size**0.5)
    for _ in range(10 * len(b)):
        Hd = times(d)
        bend = float(d @ Hd)
        if not bend > np.finfo(float).eps * 1e-4 * float(d @ d):
            return x if x.any() else d
        x += size / bend * d
        r -= size / bend * Hd
        size, last = float(r @ r), size
        if size <= enough:
            break
        d = r + size / last * d
    return x


def warn(solution: Solution, settings: Settings) -> None:
    if not solution.converged:
        warnings.warn(
            f"{settings.solver} stopped after {solution.n_iter} iterations, before the gradient was below "
            f"tol={settings.tol:g}: raise max_iter or tol, or scale the features",
            ConvergenceWarning,
            stacklevel=4,
        )


def _reporter() -> Callable[..., None]:
    count = 0

    def report(intermediate_result: Any) -> None:
        nonlocal count
        count += 1
        print(f"iteration {count}: objective {intermediate_result.fun:.8g}")

    return report
