"""The sparsemax loss for a target distribution q (Eqs. 26-27).

A label is the q that puts everything on it (Eqs. 19-20).
"""

from typing import Any


def gap(z: Any, p: Any, xp: Any) -> Any:
    """tau - z, without tau: the largest score is in the support, so tau = max z - max p (Eq. 3).

    tau itself has too few digits for this difference where the scores have a large offset. Rows must not be
    empty.
    """
    return (xp.amax(z, axis=-1, keepdims=True) - z) - xp.amax(p, axis=-1, keepdims=True)


def value(z: Any, q: Any, p: Any, xp: Any) -> Any:
    """L(z; q) = 1/2 |p - q|^2 + sum over j outside of S of q_j (tau - z_j), one value a row (Eq. 26).

    Eq. 26 as a sum of nonnegative terms: it cannot become negative, and a common offset of z drops out. Terms
    where q_j = 0 are 0, also at z_j = -inf.
    """
    outside = xp.where((q != 0) & (p == 0), gap(z, p, xp), 0)
    return ((p - q) ** 2 / 2 + q * outside).sum(axis=-1)


def gradient(p: Any, q: Any) -> Any:
    """dL/dz = p - q (Eq. 27)."""
    return p - q


def target_gradient(z: Any, q: Any, p: Any, xp: Any) -> Any:
    """dL/dq = q - z + tau, on the support and off it."""
    return q + gap(z, p, xp)
