"""A front end in plain Python on the oracle: right by construction, rounded once. To be accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import oracle
from tests.frontends import DTYPES, Frontend


class Reference(Frontend):
    name = "reference"
    can = frozenset({"where", "tau", "target", "binary"})

    def _rows(self, x: np.ndarray, axis: int) -> np.ndarray:
        moved = np.moveaxis(x, axis, -1)
        return (
            np.array(moved).reshape(-1, moved.shape[-1])
            if x.size
            else np.zeros((0, moved.shape[-1]), x.dtype)
        )

    def _back(self, rows: np.ndarray, like: np.ndarray, axis: int) -> np.ndarray:
        shape = np.moveaxis(like, axis, -1).shape
        return np.ascontiguousarray(np.moveaxis(self.array(rows).reshape(shape), -1, axis))

    def _masked(self, z: np.ndarray, where: Any) -> tuple[np.ndarray, np.ndarray]:
        where = np.broadcast_to(True if where is None else where, z.shape)
        return np.where(where, z, self.array(-np.inf)), where

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, where = self._masked(z, where)
        p = self._back(oracle.project(self._rows(z, axis)).hi, z, axis)
        return np.where(where, p, self.array(0))

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        z, _ = self._masked(z, where)
        shape = np.moveaxis(z, axis, -1).shape[:-1]
        if not z.size:
            return np.full(shape, np.nan, self.dtype)
        return self.array(oracle.project(self._rows(z, axis)).tau()[0]).reshape(shape)

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        p = oracle.project(self._rows(z, axis)).hi
        return self._back(oracle.jvp(p, self._rows(v, axis))[0], z, axis)

    def vjp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return self.jvp(z, v, axis=axis)

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        exact = oracle.project(self._rows(z, -1))
        s = exact.support[..., None]
        sizes = np.maximum(exact.sizes, 1)[:, None, None]
        J = np.where(s & s.swapaxes(1, 2), np.eye(z.shape[-1]) - 1 / sizes, 0.0)
        return self.array(np.where(np.isnan(exact.hi)[..., None], np.nan, J)).reshape(z.shape + z.shape[-1:])

    def _target(self, z: np.ndarray, target: np.ndarray, axis: int) -> np.ndarray:
        return target.reshape(-1) if np.issubdtype(target.dtype, np.integer) else self._rows(target, axis)

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        value, _ = oracle.loss(self._rows(z, axis), self._target(z, target, axis))
        return self.array(value).reshape(np.moveaxis(z, axis, -1).shape[:-1])

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        rows, q = self._rows(z, axis), self._target(z, target, axis)
        if q.ndim == 1:
            q = np.arange(rows.shape[1]) == q[:, None]
        return self._back(oracle.project(rows).hi - q.astype(np.float64), z, axis)

    def binary(self, t: np.ndarray) -> np.ndarray:
        return self.array(oracle.project(self._pairs(t)).hi[:, 0]).reshape(t.shape)

    def binary_loss(self, t: np.ndarray, target: np.ndarray) -> np.ndarray:
        q = target.reshape(-1).astype(np.float64)
        value, _ = oracle.loss(self._pairs(t), np.stack([q, 1 - q], axis=-1))
        return self.array(value).reshape(t.shape)

    @staticmethod
    def _pairs(t: np.ndarray) -> np.ndarray:
        t = t.reshape(-1).astype(np.float64)
        return np.stack([t, np.zeros_like(t)], axis=-1)


FRONTENDS = [Reference(dtype) for dtype in DTYPES]
