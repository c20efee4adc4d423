"""The front ends that the suite runs on: one entry each.

An adapter takes and gives NumPy arrays of its own dtype and lets the library under test do the work. A new
front end is a class like `NumPy` and an entry in `KINDS`; what it cannot do it leaves out of `can`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

import numpy as np

from tests import oracle

DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float64, np.float16))
try:
    import ml_dtypes
except ImportError:
    pass
else:
    DTYPES += (np.dtype(ml_dtypes.bfloat16),)


def poison(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Leave NaN in the memory that the allocator likely gives out next: what is not written must show."""
    spoiled = np.empty(shape, dtype)
    spoiled.fill(np.nan)
    del spoiled


class Frontend:
    """What the suite asks of a front end. Every method leaves its arguments as they are."""

    name = "?"
    can: frozenset[str] = frozenset()
    """Of "where", "tau" (threshold), "target" (distributions), "binary"."""
    compiles = False
    """Whether each new shape costs a compilation: tests of very many shapes then take a part of them."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype.name}"

    @property
    def eps(self) -> float:
        """Of the compute type."""
        return oracle.eps(self.dtype)

    @property
    def half(self) -> bool:
        return oracle.is_half(self.dtype)

    def array(self, x: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(self.dtype)

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        raise NotImplementedError

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        raise NotImplementedError

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        """J(z) v: forward mode."""
        raise NotImplementedError

    def vjp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        """v' J(z): reverse mode."""
        raise NotImplementedError

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Eq. 12, along the last axis: shape (..., K, K)."""
        raise NotImplementedError

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        """One value a row; target: int64 labels, or distributions."""
        raise NotImplementedError

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        """Of the rows' losses in z."""
        raise NotImplementedError

    def binary(self, t: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def binary_loss(self, t: np.ndarray, target: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class NumPy(Frontend):
    name = "numpy"
    can = frozenset({"where", "tau", "target", "binary"})

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.zt = importlib.import_module("zerotail")

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        out = np.full(z.shape, np.nan, z.dtype)
        p = self.zt.sparsemax(z, axis=axis, where=where, out=out)
        assert p is out
        poison(z.shape, z.dtype)
        fresh = self.zt.sparsemax(z, axis=axis, where=where)
        assert fresh.dtype == z.dtype
        assert fresh.shape == z.shape
        assert fresh.tobytes() == p.tobytes(), "with and without out= differ"
        return p

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        return np.asarray(self.zt.threshold(z, axis=axis, where=where))

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        p = self.zt.sparsemax(z, axis=axis)
        poison(z.shape, z.dtype)
        return self.zt.sparsemax_jvp(p, v, axis=axis)

    vjp = jvp  # J is symmetric: NumPy has one name for both

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        return self.zt.sparsemax_jacobian(self.zt.sparsemax(z))

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return np.asarray(self.zt.sparsemax_loss(z, target, axis=axis))

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        poison(z.shape, z.dtype)
        value, gradient = self.zt.sparsemax_loss_and_grad(z, target, axis=axis)
        same = np.asarray(value).tobytes() == np.asarray(self.loss(z, target, axis=axis)).tobytes()
        assert same, "the loss is another one with its gradient than alone"
        return gradient

    def binary(self, t: np.ndarray) -> np.ndarray:
        return np.asarray(self.zt.binary_sparsemax(t))

    def binary_loss(self, t: np.ndarray, target: np.ndarray) -> np.ndarray:
        return np.asarray(self.zt.binary_sparsemax_loss(t, target))


class Upright(NumPy):
    """The same rows along the first axis of C-ordered arrays: the kernels for columns."""

    name = "numpy-axis0"

    @staticmethod
    def _lay(x: Any, axis: int) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(x, axis, 0))

    def _mask(self, where: Any, z: np.ndarray, axis: int) -> Any:
        return None if where is None else self._lay(np.broadcast_to(where, z.shape), axis)

    def _target(self, target: np.ndarray, axis: int) -> np.ndarray:
        return target if np.issubdtype(target.dtype, np.integer) else self._lay(target, axis)

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        p = super().sparsemax(self._lay(z, axis), axis=0, where=self._mask(where, z, axis))
        return np.moveaxis(p, 0, axis)

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        return super().threshold(self._lay(z, axis), axis=0, where=self._mask(where, z, axis))

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return np.moveaxis(super().jvp(self._lay(z, axis), self._lay(v, axis), axis=0), 0, axis)

    vjp = jvp

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return super().loss(self._lay(z, axis), self._target(target, axis), axis=0)

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        z, target = self._lay(z, axis), self._target(target, axis)
        return np.moveaxis(NumPy(self.dtype).gradient(z, target, axis=0), 0, axis)


class Torch(Frontend):
    """PyTorch on the CPU: the direct call, autograd, forward mode and `torch.func` in turn."""

    name = "torch"
    can = frozenset({"where", "tau", "target", "binary"})

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.torch = importlib.import_module("torch")
        self.zt = importlib.import_module("zerotail.torch")

    def tensor(self, x: np.ndarray) -> Any:
        """Over the same memory, where torch can have it so."""
        readable = x.flags.writeable and x.flags.aligned and min(x.strides, default=0) >= 0
        x = x if readable else x.copy()
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(x)

    def numpy(self, x: Any) -> np.ndarray:
        assert x.dtype == self.tensor(np.zeros(0, self.dtype)).dtype
        x = x.detach()
        if x.dtype == self.torch.bfloat16:
            return x.view(self.torch.int16).numpy().view(self.dtype)
        return x.numpy()

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        x = self.tensor(z)
        mask = None if where is None else self.torch.from_numpy(np.array(where))
        poison(z.shape, z.dtype)
        p = self.zt.sparsemax(x, axis, mask=mask)
        assert p.is_contiguous()
        recorded = self.zt.sparsemax(x.detach().requires_grad_(), axis, mask=mask)
        assert recorded.requires_grad
        same = self.numpy(recorded).tobytes() == self.numpy(p).tobytes()
        assert same, "with and without a gradient differ"
        return self.numpy(p)

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        x = self.tensor(z)
        if where is not None:
            x = self.torch.where(self.torch.from_numpy(np.array(where)), x, -self.torch.inf)
        return self.numpy(self.zt.threshold(x, axis))

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        def f(x: Any) -> Any:
            return self.zt.sparsemax(x, axis)

        _, product = self.torch.func.jvp(f, (self.tensor(z),), (self.tensor(v),))
        return self.numpy(product)

    def vjp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        x = self.tensor(z).detach().requires_grad_()
        p = self.zt.sparsemax(x, axis)
        poison(z.shape, z.dtype)
        (product,) = self.torch.autograd.grad(p, x, self.tensor(v))
        return self.numpy(product)

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        rows = self.tensor(z).reshape(-1, z.shape[-1])
        return self.numpy(self.torch.func.vmap(self.torch.func.jacrev(self.zt.sparsemax))(rows)).reshape(
            z.shape + z.shape[-1:]
        )

    def _laid(self, z: np.ndarray, target: np.ndarray, axis: int) -> tuple[Any, Any]:
        """The classes along dimension 1, or along the only one."""
        to = min(1, z.ndim - 1)
        x = self.tensor(z).movedim(axis, to)
        if np.issubdtype(target.dtype, np.integer):
            return x, self.torch.from_numpy(np.array(target))
        return x, self.tensor(target).movedim(axis, to)

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        x, y = self._laid(z, target, axis)
        return self.numpy(self.zt.sparsemax_loss(x, y, reduction="none"))

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        x, y = self._laid(z, target, axis)
        x = x.detach().requires_grad_()
        poison(z.shape, z.dtype)
        value = self.zt.sparsemax_loss(x, y, reduction="none")
        same = self.numpy(value).tobytes() == self.loss(z, target, axis=axis).tobytes()
        assert same, "the loss is another one with its gradient than alone"
        (gradient,) = self.torch.autograd.grad(value, x, self.torch.ones_like(value))
        return self.numpy(gradient.movedim(min(1, z.ndim - 1), axis))

    def binary(self, t: np.ndarray) -> np.ndarray:
        return self.numpy(self.zt.binary_sparsemax(self.tensor(t)))

    def binary_loss(self, t: np.ndarray, target: np.ndarray) -> np.ndarray:
        y = self.tensor(np.broadcast_to(target, t.shape).astype(self.dtype))
        return self.numpy(self.zt.binary_sparsemax_loss(self.tensor(t), y, reduction="none"))


class Jax(Frontend):
    """JAX on the CPU: the jitted entries, forward and reverse mode, vmap. float64 by JAX's switch for it."""

    name = "jax"
    compiles = True
    can = frozenset({"where", "tau", "target"})

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.jax = importlib.import_module("jax")
        self.zt = importlib.import_module("zerotail.jax")

    def call(self, function: Any, *arrays: np.ndarray) -> Any:
        with self.jax.enable_x64(self.dtype.itemsize == 8):
            results = function(*(self.jax.numpy.asarray(x) for x in arrays))
            return self.jax.tree.map(self.numpy, results)

    def numpy(self, x: Any) -> np.ndarray:
        assert x.dtype == self.dtype
        return np.asarray(x)

    def sparsemax(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        poison(z.shape, z.dtype)
        if where is None:
            return self.call(lambda x: self.zt.sparsemax(x, axis), z)
        return self.call(lambda x, mask: self.zt.sparsemax(x, axis, where=mask), z, np.asarray(where))

    def threshold(self, z: np.ndarray, *, axis: int = -1, where: Any = None) -> np.ndarray:
        if where is None:
            return self.call(lambda x: self.zt.threshold(x, axis), z)
        return self.call(lambda x, mask: self.zt.threshold(x, axis, where=mask), z, np.asarray(where))

    def jvp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        def product(x: Any, v: Any) -> Any:
            return self.jax.jvp(lambda x: self.zt.sparsemax(x, axis), (x,), (v,))[1]

        poison(z.shape, z.dtype)
        return self.call(product, z, v)

    def vjp(self, z: np.ndarray, v: np.ndarray, *, axis: int = -1) -> np.ndarray:
        def product(x: Any, v: Any) -> Any:
            return self.jax.vjp(lambda x: self.zt.sparsemax(x, axis), x)[1](v)[0]

        poison(z.shape, z.dtype)
        return self.call(product, z, v)

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        rows = z.reshape(-1, z.shape[-1])
        J = self.call(self.jax.vmap(self.jax.jacrev(self.zt.sparsemax)), rows)
        return J.reshape(z.shape + z.shape[-1:])

    def loss(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        return self.call(lambda x, y: self.zt.sparsemax_loss(x, y, axis), z, target)

    def gradient(self, z: np.ndarray, target: np.ndarray, *, axis: int = -1) -> np.ndarray:
        def both(x: Any, y: Any) -> Any:
            value, back = self.jax.vjp(lambda x: self.zt.sparsemax_loss(x, y, axis), x)
            return value, back(self.jax.numpy.ones_like(value))[0]

        poison(z.shape, z.dtype)
        value, gradient = self.call(both, z, target)
        same = value.tobytes() == self.loss(z, target, axis=axis).tobytes()
        assert same, "the loss is another one with its gradient than alone"
        return gradient


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


KINDS: tuple[type[Frontend], ...] = (
    NumPy,
    Upright,
    *((Torch,) if _installed("torch") else ()),
    *((Jax,) if _installed("jax") else ()),
)


def load() -> list[Frontend]:
    """The registry; ZEROTAIL_TEST_FRONTENDS names a module with another list, for `test_the_tests.py`."""
    module = os.environ.get("ZEROTAIL_TEST_FRONTENDS")
    if module:
        return list(importlib.import_module(module).FRONTENDS)
    return [kind(dtype) for kind in KINDS for dtype in DTYPES]


REPLACED = "ZEROTAIL_TEST_FRONTENDS" in os.environ
