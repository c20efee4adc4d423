"""Derivatives of sparsemax, from its output alone."""

from typing import Any


def jvp(p: Any, v: Any, xp: Any) -> Any:
    """J(z) v, from p = sparsemax(z) alone (Eq. 14). J is symmetric, so this is the VJP too."""
    on = p > 0
    size = xp.where(on, xp.ones_like(p), 0).sum(axis=-1, keepdims=True)
    # where, not on * v: an infinity off the support must not reach the row. An empty support gives zeros.
    mean = xp.where(on, v, 0).sum(axis=-1, keepdims=True) / xp.where(size > 0, size, 1)
    return xp.where(on, v - mean, _off(p, v, xp))


def jacobian(p: Any, xp: Any) -> Any:
    """J(z) = Diag(s) - s s^T / |S|, with s = [p > 0] (Eq. 12): row i is J e_i."""
    return jvp(p[..., None, :], xp.eye(p.shape[-1], dtype=p.dtype), xp)


def threshold_jvp(p: Any, v: Any, xp: Any) -> Any:
    """The derivative of tau along v: the mean of v over the support (Eq. 10). Keeps the last axis."""
    on = p > 0
    size = xp.where(on, xp.ones_like(p), 0).sum(axis=-1, keepdims=True)
    return xp.where(on, v, _off(p, v, xp)).sum(axis=-1, keepdims=True) / size  # 0 / 0 for a row without tau


def threshold_vjp(p: Any, v: Any, xp: Any) -> Any:
    """v times the gradient of tau: v / |S| on S, 0 off it (Eq. 10). v has one number a row."""
    on = p > 0
    size = xp.where(on, xp.ones_like(p), 0).sum(axis=-1, keepdims=True)
    return xp.where(on, v / xp.where(size > 0, size, 1), _off(p, v, xp))


def _off(p: Any, v: Any, xp: Any) -> Any:
    """A product off the support: 0, whatever v holds there; but NaN rows stay NaN, derivatives included."""
    return xp.where(p <= 0, xp.zeros_like(p), p * v)
