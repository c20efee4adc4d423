"""The three losses of the paper's section 4.2, on blocks of scores, and their probabilities.

A loss works in place: scores go in, gradients come out. Its target is either one label a row (int64) or one
number a score: a distribution, or for `Logistic` and `Huber` the probability of each label by itself.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import zerotail as zt

from .. import _core

Array = NDArray[Any]


class Loss(Protocol):
    """A loss in the scores, and whether it stays the same when a row's scores move together."""

    shift_invariant: bool

    def gradient(self, z: Array, target: Array) -> Array:
        """The loss of each row; `z` becomes its gradient."""

    def curvature(self, z: Array, v: Array) -> Array:
        """The Hessian of each row's loss at the scores z, times the row of v."""


def _at(z: Array, labels: Array) -> Array:
    return np.take_along_axis(z, labels[:, None], axis=1)[:, 0]


def _minus_target(p: Array, target: Array) -> None:
    if target.ndim == 1:
        p[np.arange(len(p)), target] -= 1
    else:
        p -= target


class Sparsemax:
    """Eqs. 19-20 and 26-27, fused in the core. Targets were checked when they were made."""

    shift_invariant = True

    def gradient(self, z: Array, target: Array) -> Array:
        loss = np.empty(len(z), z.dtype)
        done = _core.loss(z, target, loss, z, 1)
        assert done
        return loss

    def curvature(self, z: Array, v: Array) -> Array:
        return zt.sparsemax_jvp(zt.sparsemax(z), v)


class Softmax:
    """Eqs. 16 and 24: KL(target || softmax(z)), the cross-entropy less what does not depend on z."""

    shift_invariant = True

    def gradient(self, z: Array, target: Array) -> Array:
        z -= z.max(axis=1, keepdims=True)
        if target.ndim == 1:
            loss = -_at(z, target)
        else:
            log = np.log(target, out=np.zeros_like(target), where=target > 0)
            loss = np.einsum("ij,ij->i", target, log - z)
        np.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss += np.log(total[:, 0])
        z /= total
        _minus_target(z, target)
        return loss

    def curvature(self, z: Array, v: Array) -> Array:
        p = softmax(z)
        return p * (v - np.einsum("ij,ij->i", p, v)[:, None])


class Logistic:
    """Independent labels: log(1 + exp z) - target z, summed over the labels."""

    shift_invariant = False

    def gradient(self, z: Array, target: Array) -> Array:
        tail = np.exp(-np.abs(z))
        loss = np.log1p(tail)
        loss += np.maximum(z, 0)
        if target.ndim == 1:
            rows = loss.sum(axis=1) - _at(z, target)
        else:
            loss -= target * z
            rows = loss.sum(axis=1)
        np.divide(np.where(z >= 0, 1, tail), 1 + tail, out=z)
        _minus_target(z, target)
        return rows

    def curvature(self, z: Array, v: Array) -> Array:
        p = expit(z)
        return p * (1 - p) * v


class Huber:
    """Eq. 23, the sparsemax loss of two classes, for one score a row."""

    shift_invariant = False

    def gradient(self, z: Array, target: Array) -> Array:
        loss: Array = zt.binary_sparsemax_loss(z, target)[:, 0]
        np.subtract(zt.binary_sparsemax(z), target, out=z)
        return loss

    def curvature(self, z: Array, v: Array) -> Array:
        return np.where(np.abs(z) < 1, 0.5 * v, 0)


def make(loss: str, two_classes: bool) -> Loss:
    if two_classes:
        return Huber() if loss == "sparsemax" else Logistic()
    kinds: dict[str, type[Loss]] = {"sparsemax": Sparsemax, "softmax": Softmax, "logistic": Logistic}
    return kinds[loss]()


def softmax(z: Array) -> Array:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def distribution(loss: str, z: Array) -> Array:
    """Rows that sum to one. The logistic loss's are normalised."""
    if loss == "sparsemax":
        return zt.sparsemax(z)
    if loss == "softmax":
        return softmax(z)
    # In logarithms: a row of very negative scores has probabilities that are 0 in floating point.
    log = np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z)))
    return softmax(log)


def pair(loss: str, z: Array) -> Array:
    """The probabilities of two classes, from the one score of the second."""
    second = zt.binary_sparsemax(z) if loss == "sparsemax" else expit(z)
    first = zt.binary_sparsemax(-z) if loss == "sparsemax" else expit(-z)
    return np.hstack([first, second])
