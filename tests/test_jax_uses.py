"""The table "transform x function": each way to use JAX, with each function of the front end, in float64.

A use takes a case and compares every number that it gets with products of the exact value, Jacobian and
Hessian, for random cotangents and tangents: what is silently zero, or silently constant, shows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
zt = pytest.importorskip("zerotail.jax")

from jax import export  # noqa: E402 - where it is installed
from jax.test_util import check_grads  # noqa: E402

from tests import calculus  # noqa: E402
from tests.calculus import Exact  # noqa: E402

jnp = jax.numpy
Arrays = list[np.ndarray]


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# ---- the functions --------------------------------------------------------------------------------------


class Case:
    """A function of one or two arrays at a random point, with its exact derivatives and vectors for them."""

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        make: Callable[[np.random.Generator], Arrays],
        exact: Callable[..., Exact],
        curved: bool = False,
    ) -> None:
        self.name, self.call, self.make, self.solve, self.curved = name, call, make, exact, curved

    def __str__(self) -> str:
        return self.name

    def at(self, seed: int = 0) -> Point:
        return Point(self, np.random.default_rng([seed, *map(ord, self.name)]))


class Point:
    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.arrays = case.make(rng)
        self.exact = case.solve(*self.arrays)
        self.shape = jax.eval_shape(case.call, *self.arrays).shape
        self.u = rng.normal(0, 1, self.shape)
        """A cotangent."""
        self.v = [rng.normal(0, 1, x.shape) for x in self.arrays]
        """Tangents."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        return tuple(jnp.asarray(x) for x in self.arrays)

    @property
    def vjp(self) -> np.ndarray:
        return self.u.reshape(-1) @ self.exact.jacobian

    @property
    def jvp(self) -> np.ndarray:
        return self.exact.jacobian @ flat(self.v)

    @property
    def hessian(self) -> np.ndarray:
        """Of u' f."""
        return np.tensordot(self.u.reshape(-1), self.exact.hessian, 1)


def rows_of(z: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Which flat entries are the rows, along one axis or several."""
    moved = np.moveaxis(np.arange(z.size).reshape(z.shape), axes, range(z.ndim - len(axes), z.ndim))
    return moved.reshape(-1, int(np.prod([z.shape[i] for i in axes])))


def loss_exact(z: np.ndarray, q: np.ndarray, at: np.ndarray, in_target: bool) -> Exact:
    n = z.size
    value, J, H = np.zeros(len(at)), np.zeros((len(at), 2 * n)), np.zeros((len(at), 2 * n, 2 * n))
    for r, row in enumerate(at):
        both = np.concatenate([row, n + row])
        scores = z.reshape(-1)[row]
        if np.isneginf(scores).all():
            continue
        value[r], g, h = calculus.plain_row(scores, q.reshape(-1)[row])
        J[r, both], H[np.ix_([r], both, both)] = g, h
    return Exact(value, J, H) if in_target else Exact(value, J[:, :n], H[:, :n, :n])


def sparsemax_case(name: str, shape: tuple[int, ...], axis: Any, mask: Any = None) -> Case:
    axes = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(a % len(shape) for a in axes)
    where = None if mask is None else np.broadcast_to(mask, shape)

    def exact(z: np.ndarray) -> Exact:
        seen = z if where is None else np.where(where, z, -np.inf)
        return calculus.projection(seen, rows_of(z, axes))

    def make(rng: np.random.Generator) -> Arrays:
        while True:
            z = rng.normal(0, 0.6, shape)
            if calculus.is_smooth((z if where is None else np.where(where, z, -np.inf)), rows_of(z, axes)):
                return [z]

    given = None if mask is None else np.asarray(mask)
    return Case(name, lambda x: zt.sparsemax(x, axis, where=given), make, exact)


def loss_case(
    name: str,
    shape: tuple[int, ...],
    axis: int,
    *,
    labels: bool = False,
    in_target: bool = False,
    mask: Any = None,
) -> Case:
    rng = np.random.default_rng(sum(map(ord, name)))
    z0 = np.zeros(shape)
    at = rows_of(z0, (axis,))
    where = None if mask is None else np.broadcast_to(mask, shape)
    moved = np.moveaxis(z0, axis, -1).shape
    classes = np.zeros(moved[:-1], int)
    fixed = np.moveaxis(calculus.simplex(rng, moved), -1, axis)
    if labels:
        classes = rng.integers(0, moved[-1], moved[:-1])
        fixed = np.moveaxis((np.arange(moved[-1]) == classes[..., None]).astype(float), -1, axis)
    if where is not None:
        fixed = np.where(where, fixed, 0)
        fixed = fixed / np.maximum(fixed.sum(axis=axis, keepdims=True), 1e-300)

    def call(z: Any, q: Any = None) -> Any:
        target = (classes if labels else fixed) if q is None else q
        return zt.sparsemax_loss(z, target, axis, where=None if mask is None else np.asarray(mask))

    def make(rng: np.random.Generator) -> Arrays:
        while True:
            z = rng.normal(0, 0.6, shape)
            if calculus.is_smooth(z if where is None else np.where(where, z, -np.inf), at):
                return [z, np.moveaxis(calculus.simplex(rng, moved), -1, axis)] if in_target else [z]

    def exact(z: np.ndarray, q: np.ndarray | None = None) -> Exact:
        seen = z if where is None else np.where(where, z, -np.inf)
        return loss_exact(seen, fixed if q is None else q, at, in_target)

    return Case(name, call, make, exact, curved=True)


def _threshold_case(name: str, shape: tuple[int, ...], axis: int) -> Case:
    def make(rng: np.random.Generator) -> Arrays:
        while True:
            z = rng.normal(0, 0.6, shape)
            if calculus.is_smooth(z, rows_of(z, (axis,))):
                return [z]

    return Case(name, lambda x: zt.threshold(x, axis), make, lambda z: calculus.tau(z, rows_of(z, (axis,))))


SOME = [[True, True, False, True, True], [False] * 5]
CASES = [
    sparsemax_case("sparsemax", (2, 5), -1),
    sparsemax_case("sparsemax, axis 1 of 3", (2, 5, 2), 1),
    sparsemax_case("sparsemax, two axes", (2, 3, 2), (2, 0)),
    sparsemax_case("sparsemax, all axes", (2, 3), None),
    sparsemax_case("sparsemax, where", (2, 5), -1, SOME),
    _threshold_case("threshold, axis 0", (5, 2), 0),
    loss_case("sparsemax_loss, labels", (3, 5), 1, labels=True),
    loss_case("sparsemax_loss, distributions", (5, 2), 0),
    loss_case("sparsemax_loss, where", (2, 5), 1, mask=SOME),
    loss_case("sparsemax_loss, in the target", (2, 4), 1, in_target=True),
]


# ---- comparing ------------------------------------------------------------------------------------------


def flat(x: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part).reshape(-1) for part in jax.tree.leaves(x)])


def close(got: Any, expected: np.ndarray) -> None:
    __tracebackhide__ = True
    got = flat(got)
    assert got.dtype == np.float64
    scale = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(got, expected.reshape(-1), rtol=1e-12, atol=1e-12 * scale + 1e-15)


def close_matrix(rows: Any, expected: np.ndarray) -> None:
    """A Jacobian, one array an input: (m, n)."""
    m = expected.shape[0]
    close(np.concatenate([np.asarray(x).reshape(m, -1) for x in rows], axis=1), expected)


def every(case: Case) -> tuple[int, ...]:
    return tuple(range(len(case.at().arrays)))


def scalar(case: Case, point: Point) -> Callable[..., Any]:
    """u' f."""
    return lambda *x: (point.u * case.call(*x)).sum()


# ---- the uses -------------------------------------------------------------------------------------------

Use = Callable[[Case], None]
USES: dict[str, Use] = {}


def use(function: Use) -> Use:
    USES[function.__name__.replace("_", " ")] = function
    return function


@use
def eager(case: Case) -> None:
    p = case.at()
    close(case.call(*p.inputs), p.exact.value)
    close(case.call(*p.arrays), p.exact.value)  # of NumPy


@use
def without_jit(case: Case) -> None:
    """Each primitive by itself."""
    p = case.at()
    with jax.disable_jit():
        close(case.call(*p.inputs), p.exact.value)


@use
def jit(case: Case) -> None:
    p = case.at()
    close(jax.jit(case.call)(*p.inputs), p.exact.value)
    value, gradient = jax.jit(jax.value_and_grad(scalar(case, p), every(case)))(*p.inputs)
    close(value, flat(p.u) @ p.exact.value)
    close(gradient, p.vjp)


@use
def grad(case: Case) -> None:
    p = case.at()
    close(jax.grad(scalar(case, p), every(case))(*p.inputs), p.vjp)


@use
def vjp(case: Case) -> None:
    p = case.at()
    value, back = jax.vjp(case.call, *p.inputs)
    close(value, p.exact.value)
    close(back(p.u), p.vjp)


@use
def jvp(case: Case) -> None:
    p = case.at()
    value, tangent = jax.jvp(case.call, p.inputs, tuple(map(jnp.asarray, p.v)))
    close(value, p.exact.value)
    close(tangent, p.jvp)


@use
def linearize(case: Case) -> None:
    p = case.at()
    value, push = jax.linearize(case.call, *p.inputs)
    close(value, p.exact.value)
    close(push(*p.v), p.jvp)
    close(jax.jit(push)(*p.v), p.jvp)


@use
def linear_transpose(case: Case) -> None:
    p = case.at()

    def push(*v: Any) -> Any:
        return jax.jvp(case.call, p.inputs, v)[1]

    back = jax.linear_transpose(push, *p.inputs)
    close(back(jnp.asarray(p.u)), p.vjp)
    again = jax.linear_transpose(lambda u: back(u), jnp.asarray(p.u))
    close(again(tuple(map(jnp.asarray, p.v))), p.jvp)


@use
def jacfwd(case: Case) -> None:
    p = case.at()
    close_matrix(jax.jacfwd(case.call, every(case))(*p.inputs), p.exact.jacobian)


@use
def jacrev(case: Case) -> None:
    p = case.at()
    close_matrix(jax.jacrev(case.call, every(case))(*p.inputs), p.exact.jacobian)


@use
def hessian(case: Case) -> None:
    """Forward over reverse, and the three other ways; 0 where the function is piecewise linear."""
    p = case.at()
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            blocks = jax.jit(outer(inner(scalar(case, p), every(case)), every(case)))(*p.inputs)
            sizes = [x.size for x in p.arrays]
            square = [
                [np.asarray(x).reshape(n, -1) for x in row] for n, row in zip(sizes, blocks, strict=True)
            ]
            close(np.block(square), p.hessian)


@use
def check_gradients(case: Case) -> None:
    """JAX's own finite differences, of the second order, in both modes."""
    check_grads(case.call, case.at().inputs, order=2, modes=("fwd", "rev"), atol=2e-3, rtol=2e-3)


def stacked(case: Case, axis: int, count: int = 3) -> tuple[list[Point], list[Any]]:
    points = [case.at(seed) for seed in range(count)]
    columns = zip(*(p.arrays for p in points), strict=True)
    return points, [jnp.asarray(np.stack(column, axis)) for column in columns]


@use
def vmap(case: Case) -> None:
    """A new axis in front, in the middle or at the end, of what goes in and of what comes out."""
    for axis in (0, 1, -1):
        points, arrays = stacked(case, axis)
        out = jax.vmap(case.call, axis, axis if points[0].shape else 0)(*arrays)
        out = np.moveaxis(np.asarray(out), axis if points[0].shape else 0, 0)
        for p, value in zip(points, out, strict=True):
            close(value, p.exact.value)


@use
def vmap_of_a_part(case: Case) -> None:
    """One argument has the new axis, the others are the same for all; so are the point or the tangent."""
    p = case.at()
    for i in range(len(p.arrays)):
        axes = [None] * len(p.arrays)
        axes[i] = 0
        arrays = [np.stack([y, y]) if j == i else y for j, y in enumerate(p.arrays)]
        for value in jax.vmap(case.call, axes)(*arrays):
            close(value, p.exact.value)
    both = jnp.stack([jnp.asarray(p.u), 2 * jnp.asarray(p.u)])
    _, back = jax.vjp(case.call, *p.inputs)
    rows = jax.vmap(back)(both)
    close([x[0] for x in rows], p.vjp)
    close([x[1] for x in rows], 2 * p.vjp)


@use
def vmap_of_vmap(case: Case) -> None:
    points, arrays = stacked(case, 0, 6)
    twice = jax.vmap(jax.vmap(case.call, 1), 0)(
        *(jnp.moveaxis(x.reshape(2, 3, *x.shape[1:]), 1, 2) for x in arrays)
    )
    for p, value in zip(points, np.asarray(twice).reshape(6, -1), strict=True):
        close(value, p.exact.value)


@use
def vmap_of_grad(case: Case) -> None:
    points, arrays = stacked(case, -1)
    u = jnp.stack([jnp.asarray(p.u) for p in points])

    def gradient(u: Any, *x: Any) -> Any:
        return jax.grad(lambda *x: (u * case.call(*x)).sum(), every(case))(*x)

    rows = jax.vmap(gradient, (0, *[-1] * len(arrays)))(u, *arrays)
    for i, p in enumerate(points):
        close([x[i] for x in rows], p.vjp)


@use
def grad_of_vmap(case: Case) -> None:
    points, arrays = stacked(case, 0)
    u = jnp.stack([jnp.asarray(p.u) for p in points])
    rows = jax.grad(lambda *x: (u * jax.vmap(case.call)(*x)).sum(), every(case))(*arrays)
    for i, p in enumerate(points):
        close([x[i] for x in rows], p.vjp)


@use
def remat(case: Case) -> None:
    p = case.at()
    saved = jax.checkpoint(scalar(case, p))
    close(jax.jit(jax.grad(saved, every(case)))(*p.inputs), p.vjp)
    nothing = jax.checkpoint(scalar(case, p), policy=jax.checkpoint_policies.nothing_saveable)
    close(jax.grad(nothing, every(case))(*p.inputs), p.vjp)


@use
def scan(case: Case) -> None:
    """Over a new axis, with the derivative through the loop; and under cond."""
    points, arrays = stacked(case, 0)
    u = jnp.stack([jnp.asarray(p.u) for p in points])

    def total(*arrays: Any) -> Any:
        def step(carry: Any, slices: Any) -> Any:
            u, *x = slices
            value = jax.lax.cond(carry > -1, case.call, lambda *x: 2 * case.call(*x), *x)
            return carry + 0.0, (value, (u * value).sum())

        _, (values, sums) = jax.lax.scan(step, 0.0, (u, *arrays))
        return sums.sum(), values

    (_, values), rows = jax.value_and_grad(total, every(case), has_aux=True)(*arrays)
    for i, p in enumerate(points):
        close(values[i], p.exact.value)
        close([x[i] for x in rows], p.vjp)


@use
def export_and_deserialise(case: Case) -> None:
    """Saved as bytes, with its gradient; loaded, called."""
    p = case.at()
    names = ("sparsemax", "jvp", "threshold", "loss", "loss_and_grad")
    allowed = [export.DisabledSafetyCheck.custom_call(f"zerotail_{name}") for name in names]
    exported = export.export(jax.jit(case.call), disabled_checks=allowed)(*p.inputs)
    loaded = export.deserialize(exported.serialize(vjp_order=1))
    close(loaded.call(*p.inputs), p.exact.value)
    _, back = jax.vjp(loaded.call, *p.inputs)
    close(back(p.u), p.vjp)


@use
def donated_buffers(case: Case) -> None:
    """The result may lie where an input lay, whose numbers are gone."""
    p = case.at()
    inputs = tuple(jnp.array(x) for x in p.arrays)
    fits = any(x.shape == p.shape for x in inputs)
    call = jax.jit(case.call, donate_argnums=0 if fits else ())
    close(call(*inputs), p.exact.value)
    assert inputs[0].is_deleted() == fits
    inputs = tuple(jnp.array(x) for x in p.arrays)
    close(jax.jit(jax.grad(scalar(case, p), every(case)), donate_argnums=every(case))(*inputs), p.vjp)
    assert all(x.is_deleted() for x in inputs)


@use
def ahead_of_time(case: Case) -> None:
    """Traced, lowered, compiled, called."""
    p = case.at()
    compiled = jax.jit(case.call).trace(*p.inputs).lower().compile()
    close(compiled(*p.inputs), p.exact.value)


@use
def debug_nans(case: Case) -> None:
    """Nothing on the way is NaN where the result is not."""
    p = case.at()
    with jax.debug_nans(True):
        close(jax.grad(scalar(case, p), every(case))(*p.inputs), p.vjp)


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function_is_right_under_every_transform(case, name):
    """Values, derivatives and second derivatives, at rtol 1e-12 in float64."""
    USES[name](case)


# ---- no hole --------------------------------------------------------------------------------------------

ON_TWO = "test_jax_shards.test_on_two_devices_every_use_is_right_and_no_batch_axis_is_gathered"
WANTED = {
    "jit": "jit",
    "vmap": "vmap",
    "vmap of vmap": "vmap of vmap",
    "grad": "grad",
    "jvp": "jvp",
    "jacfwd": "jacfwd",
    "jacrev": "jacrev",
    "hessian": "hessian",
    "linearize": "linearize",
    "linear_transpose": "linear transpose",
    "remat": "remat",
    "scan": "scan",
    "export and deserialise": "export and deserialise",
    "donated buffers": "donated buffers",
    "check_grads": "check gradients",
    "shard_map": ON_TWO,
    "jit of sharded inputs": ON_TWO,
}
"""Each transform that is promised, and where it is tested: a row of the table, or a test of all functions."""


def test_the_table_has_no_hole():
    """Every public function is in it, and every promised transform, with derivatives that are not 0."""
    for place in WANTED.values():
        if place not in USES:
            module, name = place.split(".")
            assert callable(getattr(importlib.import_module(f"tests.{module}"), name))
    names = " ".join(case.name for case in CASES)
    assert all(name in names for name in zt.__all__)
    for case in CASES:
        exact = case.at().exact
        assert np.abs(exact.jacobian).max() > 0.01
        assert case.curved == (np.abs(exact.hessian).max() > 0.01)
