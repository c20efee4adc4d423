"""Front ends that are wrong, each in one way that was seen somewhere: what the suite must refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import oracle
from tests.reference import Reference


class Softmax(Reference):
    """Another transform altogether."""

    name = "softmax"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, where = self._masked(z, where)
        if not z.size:
            return np.zeros(z.shape, self.dtype)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            wide = z.astype(np.float64)
            e = np.exp(wide - wide.max(axis=axis, keepdims=True))
            p = e / e.sum(axis=axis, keepdims=True)
        return np.where(where, self.array(p), self.array(0))


class _Sorted(Reference):
    """Algorithm 1 in floating point."""

    tau_type: Any = None

    def _tau(self, z: np.ndarray) -> np.ndarray:
        best = -np.sort(-z, axis=-1)
        k = np.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        sums = np.cumsum(best, axis=-1, dtype=z.dtype)
        size = np.maximum((1 + k * best > sums).sum(axis=-1, keepdims=True), 1)
        return (np.take_along_axis(sums, size - 1, axis=-1) - 1) / size.astype(z.dtype)

    def _shift(self, z: np.ndarray) -> np.ndarray:
        return z - z.max(axis=-1, keepdims=True)

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, where = self._masked(z, where)
        if not z.size:
            return np.zeros(z.shape, self.dtype)
        moved = np.moveaxis(z, axis, -1).astype(oracle.compute_type(self.dtype))
        with np.errstate(invalid="ignore", over="ignore"):
            shifted = self._shift(moved)
            p = np.maximum(shifted - self._tau(shifted), 0)
            lost = ~np.isfinite(moved.max(axis=-1, keepdims=True))
        p = np.moveaxis(np.where(lost, np.nan, p), -1, axis)
        return np.where(where, self.array(p), self.array(0))


class Unshifted(_Sorted):
    """Sums of the scores as they are: wrong at an offset."""

    name = "unshifted"

    def _shift(self, z: np.ndarray) -> np.ndarray:
        return z


class Float32Tau(_Sorted):
    """Shifted, but tau in the type of the scores: the sums drift with K."""

    name = "float32-tau"


class NearlyOne(Reference):
    """Within an eps, but not the whole where one score takes it."""

    name = "nearly-one"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        p = super().sparsemax(z, axis=axis, where=where)
        return np.where(p == 1, np.nextafter(p, self.array(0)), p)


class ZeroGradient(Reference):
    """A silent zero."""

    name = "zero-gradient"

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return np.zeros(z.shape, self.dtype)


class ZeroReverse(Reference):
    """Forward mode is right; reverse mode is a silent zero."""

    name = "zero-reverse"

    def vjp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return np.zeros(z.shape, self.dtype)


class MeanOverAll(Reference):
    """The mean of the tangent over the row instead of the support."""

    name = "mean-over-all"

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        p = self.sparsemax(z, axis=axis).astype(np.float64)
        wide = v.astype(np.float64)
        with np.errstate(invalid="ignore"):
            mean = wide.mean(axis=axis, keepdims=True) if z.shape[axis] else 0.0
            return self.array(np.where(p > 0, wide - mean, p * 0))


class Multiplied(Reference):
    """s * v instead of where(s, v, 0): an infinity off the support reaches the row."""

    name = "multiplied"

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        p = self.sparsemax(z, axis=axis).astype(np.float64)
        s = np.where(np.isnan(p), np.nan, p > 0)
        with np.errstate(invalid="ignore"):
            sv = s * v.astype(np.float64)
            size = np.maximum(s.sum(axis=axis, keepdims=True), 1)
            return self.array(s * (sv - sv.sum(axis=axis, keepdims=True) / size))


class LastAxis(Reference):
    """Ignores `axis`."""

    name = "last-axis"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        return super().sparsemax(z, where=where)


class Flat(Reference):
    """Projects an array as if it were one row."""

    name = "flat"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, where = self._masked(z, where)
        p = super().sparsemax(z.reshape(-1))
        return np.where(where, p.reshape(z.shape), self.array(0))


class LossOnTheSupport(Reference):
    """A loss without the term of the targets off the support."""

    name = "loss-on-the-support"

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        gradient = self.gradient(z, target, axis=axis).astype(np.float64)
        return self.array((gradient**2).sum(axis=axis) / 2)


class UnshiftedLoss(Reference):
    """Eq. 20 as printed, in the type of the scores: digits are lost to the squares."""

    name = "unshifted-loss"

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        compute = oracle.compute_type(self.dtype)
        rows, q = self._rows(z, axis).astype(compute), self._target(z, target, axis)
        if q.ndim == 1:
            q = np.arange(rows.shape[1]) == q[:, None]
        q = q.astype(compute)
        exact = oracle.project(rows)
        tau = exact.tau()[0].astype(compute)[:, None]
        with np.errstate(all="ignore"):
            squares = np.where(exact.support, rows**2 - tau**2, 0).sum(axis=1)
            value = squares / 2 + (q * q).sum(axis=1) / 2 - np.where(q > 0, q * rows, 0).sum(axis=1)
        return self.array(value).reshape(np.moveaxis(z, axis, -1).shape[:-1])


class HalfLoss(Reference):
    """A factor of 2 in the loss, but not in its gradient."""

    name = "half-loss"

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        with np.errstate(over="ignore"):
            return self.array(super().loss(z, target, axis=axis).astype(np.float64) * 2)


class TiesDropped(Reference):
    """Of equal scores only one is in the support."""

    name = "ties-dropped"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, where = self._masked(z, where)
        rows = self._rows(z, axis).astype(np.float64)
        for row in rows:
            finite = np.flatnonzero(np.isfinite(row))
            _, first = np.unique(row[finite], return_index=True)
            row[np.setdiff1d(finite, finite[first])] = -np.inf
        return np.where(where, self._back(oracle.project(rows).hi, z, axis), self.array(0))


class InPlace(Reference):
    """Shifts its argument in place: right results, a changed input."""

    name = "in-place"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        p = super().sparsemax(z, axis=axis, where=where)
        if z.size and z.flags.writeable:
            with np.errstate(invalid="ignore", over="ignore"):
                z -= z.max(axis=axis, keepdims=True)
        return p


class NanIsZero(Reference):
    """Rows without a value come out as zeros, as if all were well."""

    name = "nan-is-zero"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        p = super().sparsemax(z, axis=axis, where=where)
        return np.where(np.isnan(p), self.array(0), p)


class MaskAsScore(Reference):
    """Masks by a large negative score, and by multiplying: what is excluded is read."""

    name = "mask-as-score"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        if where is None:
            return super().sparsemax(z, axis=axis)
        where = np.broadcast_to(where, z.shape)
        with np.errstate(invalid="ignore"):
            low = self.array(z.astype(np.float64) * where - 1e4 * ~where)
        return super().sparsemax(low, axis=axis)


class RoundedTwice(Reference):
    """Half types computed in half: tau is rounded before it is used. In float32 and float64 all is right."""

    name = "rounded-twice"

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        if not self.half or not z.size:
            return super().sparsemax(z, axis=axis, where=where)
        z, where = self._masked(z, where)
        rows = self._rows(z, axis)
        exact = oracle.project(rows)
        top = np.where(exact.sizes > 0, rows.astype(np.float64).max(axis=1), 0.0)
        with np.errstate(invalid="ignore"):
            shifted = rows.astype(np.float64) - top[:, None]
            tau = self.array(oracle.project(shifted).tau()[0]).astype(np.float64)
            p = np.where(np.isnan(exact.hi), np.nan, np.maximum(shifted - tau[:, None], 0))
        return np.where(where, self._back(p, z, axis), self.array(0))


FRONTENDS = [
    kind(np.float32)
    for kind in (
        Softmax,
        Unshifted,
        Float32Tau,
        NearlyOne,
        ZeroGradient,
        ZeroReverse,
        MeanOverAll,
        Multiplied,
        LastAxis,
        Flat,
        LossOnTheSupport,
        UnshiftedLoss,
        HalfLoss,
        TiesDropped,
        InPlace,
        NanIsZero,
        MaskAsScore,
    )
] + [RoundedTwice(np.float16)]
