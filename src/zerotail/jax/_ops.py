"""The primitives behind the JAX front end, and what each of JAX's transforms needs to know of them.

A primitive is one operation to every transform: it has a shape, a rule for vmap, a derivative made of
primitives and plain JAX, and a lowering for each platform. On the CPU that is a call of the core through
XLA's foreign function interface, elsewhere `_lax`. Rows run along the parameter `axis`, all other axes are
batch: they are mapped and sharded where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, xla
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .. import _rules
from . import _lax

try:
    from .. import _ffi
except ImportError:  # built without jaxlib's headers
    _ffi = None  # type: ignore[assignment]

SCORES, ROWS = "scores", "rows"
"""What an array of a primitive is: of all axes, or one number for each row."""


def _spoken() -> tuple[int, int] | None:
    """The version of the foreign function interface that the installed jaxlib speaks: its header says so."""
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
    except (OSError, RuntimeError):
        return None
    found = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header, re.MULTILINE))
    return (int(found["MAJOR"]), int(found["MINOR"])) if len(found) == 2 else None


@cache
def has_kernels() -> bool:
    """Whether the CPU's kernels are in this installation, and not built for a newer jaxlib than there is.

    To register those would leave JAX without a CPU. A newer jaxlib takes older ones.
    """
    spoken = _spoken()
    if _ffi is None or spoken is None:
        return False
    (major, minor), (spoken_major, spoken_minor) = _ffi.api_version, spoken
    return major == spoken_major and minor <= spoken_minor


# ---- shapes ------------------------------------------------------------------------------------------------


def _rows_aval(z: Any, axis: int) -> Any:
    """One number of the compute type for each row, placed as the rows are."""
    spec = z.sharding.spec
    spec = PartitionSpec(*spec[:axis], *spec[axis + 1 :])
    return z.update(
        shape=z.shape[:axis] + z.shape[axis + 1 :],
        dtype=jnp.dtype(_lax.compute(z.dtype)),
        weak_type=False,
        sharding=NamedSharding(z.sharding.mesh, spec),
    )


def _varying(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inside of shard_map: all arrays as different between devices as any of them."""
    kinds = [_axes_varied(jax.typeof(x)) for x in arrays]
    every: frozenset[Any] = frozenset().union(*kinds)
    return tuple(
        x if kind == every else _vary(x, tuple(every - kind)) for x, kind in zip(arrays, kinds, strict=True)
    )


def _axes_varied(aval: Any) -> frozenset[Any]:
    axes = aval.mat.varying if hasattr(aval, "mat") else aval.vma  # the name before JAX 0.10
    return frozenset(axes)


def _vary(x: Any, names: tuple[Any, ...]) -> Any:
    if hasattr(lax, "pcast"):
        return lax.pcast(x, names, to="varying")
    return lax.pvary(x, names)  # type: ignore[attr-defined]  # before JAX 0.9


# ---- lowering ----------------------------------------------------------------------------------------------


def _without(spec: Any, axis: int, ndim: int) -> Any:
    """The placement of scores without a split along axis."""
    full = [*spec, *[None] * (ndim - len(spec))]
    return PartitionSpec(*full[:axis], None, *full[axis + 1 :])


def _explicit_axes(x: Any) -> set[Any]:
    """The axes of the mesh that x is split over, where shardings are part of types."""
    placed = jax.typeof(x).sharding
    kinds = dict(zip(placed.mesh.axis_names, placed.mesh.axis_types, strict=True))
    names = [name for part in placed.spec for name in (part if isinstance(part, tuple) else (part,))]
    return {name for name in names if kinds.get(name) == AxisType.Explicit}


def _placed(sharding: Any, kind: str, ndim: int, axis: int) -> Any:
    if sharding.is_fully_replicated:
        return sharding
    spec = _without(sharding.spec, axis, ndim)
    if kind == ROWS:
        spec = PartitionSpec(*spec[:axis], *spec[axis + 1 :])
    return NamedSharding(sharding.mesh, spec)


# Not before JAX 0.8: there a split of rows is proposed, and undone when the program is partitioned.
_KNOWS_WHOLE_AXES = "need_replication_factors" in signature(custom_partitioning.def_partition).parameters


def _partitioned(
    function: Callable[..., Any], takes: tuple[str, ...], gives: tuple[str, ...], axis: int, ndim: int
) -> Any:
    """The function, on the shards of batch axes where they lie: only rows must be whole."""
    kinds = {SCORES: [f"d{i}" for i in range(ndim)]}
    kinds[ROWS] = [name for i, name in enumerate(kinds[SCORES]) if i != axis]
    many = len(gives) > 1

    def placements(arguments: Any) -> tuple[Any, Any]:
        like = arguments[0].sharding
        into = tuple(_placed(like, kind, ndim, axis) for kind in takes)
        out = tuple(_placed(like, kind, ndim, axis) for kind in gives)
        return into, out if many else out[0]

    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        return placements(arguments)[1]

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        into, out = placements(arguments)
        return mesh, function, out, into

    wrapped = custom_partitioning(function)
    wrapped.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=", ".join(" ".join(kinds[kind]) for kind in takes)
        + " -> "
        + ", ".join(" ".join(kinds[kind]) for kind in gives),
        **({"need_replication_factors": (f"d{axis}",)} if _KNOWS_WHOLE_AXES else {}),
    )
    return wrapped


class _Operation:
    """A primitive whose first argument is scores, and its two ways to be computed.

    `target` names the kernel, if there is one, and `gives` the kinds of the results, for the parameters
    but axis.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., str] | None,
        gives: Callable[..., tuple[str, ...]],
        plain: Callable[..., Any],
    ) -> None:
        self.target, self.gives, self.plain = target, gives, plain
        self.primitive = Primitive(name)
        self.primitive.multiple_results = True
        self.primitive.def_impl(partial(xla.apply_primitive, self.primitive))
        self.primitive.def_abstract_eval(self._abstract)
        batching.primitive_batchers[self.primitive] = self._batch
        mlir.register_lowering(self.primitive, mlir.lower_fun(self._plain, multiple_results=True))
        if self._has_kernel():
            lowering = mlir.lower_fun(self._call_kernel, multiple_results=True)
            mlir.register_lowering(self.primitive, lowering, platform="cpu")

    def _has_kernel(self) -> bool:
        return self.target is not None and has_kernels()

    def __call__(self, *arrays: Any, axis: int, **params: Any) -> list[Any]:
        if any(_explicit_axes(x) for x in arrays):
            return self._on_explicit_shards(arrays, axis, params)
        arrays = _varying(arrays)
        # A parameter, where JAX looks for what must know the devices when lowered: custom_partitioning does.
        kernel = None
        if self._has_kernel():
            kernel = jax.make_jaxpr(partial(self._kernel, axis=axis, **params))(*arrays)
        results: list[Any] = self.primitive.bind(*arrays, axis=axis, kernel=kernel, **params)
        return results

    def _on_explicit_shards(self, arrays: Any, axis: int, params: Any) -> list[Any]:
        """Where shardings are part of types: the same on each shard, with rows made whole for it."""
        placed = jax.typeof(arrays[0]).sharding
        given, whole = placed.spec, _without(placed.spec, axis, arrays[0].ndim)
        specs = {SCORES: whole, ROWS: PartitionSpec(*whole[:axis], *whole[axis + 1 :])}
        takes = [specs[SCORES if x.ndim == arrays[0].ndim else ROWS] for x in arrays]
        gives = self.gives(**params)
        arrays = [
            jax.sharding.reshard(x, NamedSharding(placed.mesh, spec))
            for x, spec in zip(arrays, takes, strict=True)
        ]

        def call(*shards: Any) -> tuple[Any, ...]:
            return tuple(self(*shards, axis=axis, **params))

        if names := _explicit_axes(arrays[0]):
            call = jax.shard_map(
                call,
                mesh=placed.mesh,
                in_specs=tuple(takes),
                out_specs=tuple(specs[kind] for kind in gives),
                axis_names=names,
            )
        results = call(*arrays)
        back = NamedSharding(placed.mesh, given)
        return [
            jax.sharding.reshard(x, back) if kind == SCORES else x
            for x, kind in zip(results, gives, strict=True)
        ]

    def _abstract(self, z: Any, *others: Any, axis: int, kernel: Any, **params: Any) -> list[Any]:
        same, rows = z.update(weak_type=False), _rows_aval(z, axis)
        return [same if kind == SCORES else rows for kind in self.gives(**params)]

    def _plain(self, *arrays: Any, kernel: Any, **params: Any) -> list[Any]:
        results = self.plain(*arrays, **params)
        return list(results) if isinstance(results, tuple) else [results]

    def _kernel(self, *arrays: Any, axis: int, **params: Any) -> list[Any]:
        assert self.target is not None
        z, name, gives = arrays[0], self.target(**params), self.gives(**params)

        def call(*shards: Any) -> Any:
            aval = jax.typeof(shards[0])
            rows = _rows_aval(aval, axis)
            made = [aval if kind == SCORES else rows for kind in gives]
            results = jax.ffi.ffi_call(name, made)(*shards, axis=np.int64(axis))
            return tuple(results) if len(gives) > 1 else results[0]

        if AxisType.Manual in jax.typeof(z).sharding.mesh.axis_types:  # inside of shard_map
            results = call(*arrays)
            return list(results) if len(gives) > 1 else [results]
        takes = tuple(SCORES if x.ndim == z.ndim else ROWS for x in arrays)
        results = _partitioned(call, takes, gives, axis, z.ndim)(*arrays)
        return list(results) if len(gives) > 1 else [results]

    def _call_kernel(self, *arrays: Any, kernel: Any, **params: Any) -> list[Any]:
        results: list[Any] = jaxpr_as_fun(kernel)(*arrays)
        return results

    def _batch(self, arrays: Any, dims: Any, *, axis: int, kernel: Any, **params: Any) -> Any:
        """The new axis goes where it is in the scores, if nothing else is to be moved; else to the front."""
        size = next(x.shape[d] for x, d in zip(arrays, dims, strict=True) if d is not None)
        to = dims[0] if len(arrays) == 1 else 0
        moved = [
            jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, to)
            for x, d in zip(arrays, dims, strict=True)
        ]
        within = axis + (to <= axis)
        results = self(*moved, axis=within, **params)
        outside = {SCORES: to, ROWS: to - (to > within)}
        return results, [outside[kind] for kind in self.gives(**params)]


def _register() -> None:
    if has_kernels():
        for name, handler in _ffi.handlers().items():
            jax.ffi.register_ffi_target(name, handler, platform="cpu")


_register()

_sparsemax = _Operation("sparsemax", lambda: "zerotail_sparsemax", lambda: (SCORES,), _lax.sparsemax)
_jvp = _Operation("sparsemax_jvp", lambda: "zerotail_jvp", lambda: (SCORES,), _lax.sparsemax_jvp)
_threshold = _Operation(
    "sparsemax_threshold", lambda: "zerotail_threshold", lambda: (ROWS, ROWS), _lax.threshold
)
_loss = _Operation(
    "sparsemax_loss",
    lambda gradient: "zerotail_loss_and_grad" if gradient else "zerotail_loss",
    lambda gradient: (ROWS, SCORES) if gradient else (ROWS,),
    _lax.sparsemax_loss,
)
_scaled = _Operation("sparsemax_loss_scaled", None, lambda: (SCORES,), _lax.scaled)


def sparsemax(z: Array, axis: int) -> Any:
    """p (Eq. 2)."""
    return _sparsemax(z, axis=axis)[0]


def jvp(p: Array, v: Array, axis: int) -> Any:
    """J(z) v, from p = sparsemax(z) (Eq. 14)."""
    return _jvp(p, v, axis=axis)[0]


def threshold(z: Array, axis: int) -> Any:
    """tau as hi + lo, in the compute type (Eq. 4); without the axis."""
    return tuple(_threshold(z, axis=axis))


def loss(z: Array, target: Array, axis: int) -> Any:
    """One value of the compute type for each row (Eqs. 20 and 26). Labels are int32 or int64."""
    return _loss(z, target, axis=axis, gradient=False)[0]


# ---- derivatives -------------------------------------------------------------------------------------------


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def _zero_like(x: Any) -> Any:
    return ad.Zero(jax.typeof(x))


def _sparsemax_rule(primals: Any, tangents: Any, *, axis: int, kernel: Any) -> Any:
    (z,), (dz,) = primals, tangents
    p = sparsemax(z, axis)
    return [p], [jvp(p, dz, axis)]


def _jvp_rule(primals: Any, tangents: Any, *, axis: int, kernel: Any) -> Any:
    """Linear in v, and constant in p but for its kinks."""
    (p, v), (_, dv) = primals, tangents
    product = jvp(p, v, axis)
    return [product], [_zero_like(product) if _is_zero(dv) else jvp(p, dv, axis)]


def _jvp_transpose(cotangents: Any, p: Any, v: Any, *, axis: int, kernel: Any) -> Any:
    """J is symmetric."""
    (ct,) = cotangents
    return [None, ad.Zero(v.aval) if _is_zero(ct) else jvp(p, ct, axis)]


def _last(x: Array, axis: int) -> Array:
    return jnp.moveaxis(x, axis, -1)


def _threshold_rule(primals: Any, tangents: Any, *, axis: int, kernel: Any) -> Any:
    (z,), (dz,) = primals, tangents
    hi, lo = threshold(z, axis)
    above = (_last(z, axis).astype(hi.dtype) - hi[..., None]) - lo[..., None]
    p = lax.stop_gradient(jnp.where(above <= 0, 0, above))
    slope = _rules.sparsemax.threshold_jvp(p, _last(dz, axis).astype(hi.dtype), jnp)
    return [hi, lo], [slope[..., 0], _zero_like(lo)]


def _scaled_rule(primals: Any, tangents: Any, *, axis: int, kernel: Any) -> Any:
    (slope, v), (dslope, dv) = primals, tangents
    moves = [] if _is_zero(dv) else _scaled(slope, dv, axis=axis)
    if not _is_zero(dslope):
        moves.append(jnp.where(jnp.isfinite(v) | (slope != 0), dslope * v, 0))
    return _scaled(slope, v, axis=axis), [sum(moves[1:], moves[0])]


def _scaled_transpose(cotangents: Any, slope: Any, v: Any, *, axis: int, kernel: Any) -> Any:
    (ct,) = cotangents
    return [None, ad.Zero(v.aval) if _is_zero(ct) else _scaled(slope, ct, axis=axis)[0]]


def _contract(slope: Array, v: Array) -> Array:
    """The sum of their products along the last axis."""
    product: Array = _scaled(slope, v, axis=slope.ndim - 1)[0]
    return product.sum(axis=-1)


def _loss_rule(primals: Any, tangents: Any, *, axis: int, gradient: bool, kernel: Any) -> Any:
    """The loss moves by (p - q) dz + (q - z + tau) dq, and p - q by J dz - dq.

    As far as the sum of q is not one, the loss moves with tau as well. It is taken for one, and to stay one,
    unless q is differentiated: so second derivatives are symmetric, and the same in every mode.
    """
    (z, target), (dz, dq) = primals, tangents
    value, grad = _loss(z, target, axis=axis, gradient=True)
    wide = value.dtype
    z_moves, q_moves = not _is_zero(dz), not _is_zero(dq)
    if q_moves:
        q, dq = (_last(x, axis).astype(wide) for x in (target, dq))
        counts = jnp.any(q != 0, axis=-1, keepdims=True)
    if q_moves or gradient:
        p = lax.stop_gradient(sparsemax(z, axis))
        last = _last(p, axis).astype(wide)

    moves = []
    if z_moves:
        slope = _last(grad, axis).astype(wide)
        if q_moves:
            excess = lax.stop_gradient(q.sum(axis=-1, keepdims=True)) - 1
            slope += jnp.where(counts, _rules.sparsemax.threshold_vjp(last, excess, jnp), 0)
        moves.append(_contract(slope, _last(dz, axis).astype(wide)))
    if q_moves:
        hi, lo = threshold(z, axis)
        slope = q + ((hi[..., None] - _last(z, axis).astype(wide)) + lo[..., None])
        # At a score of -inf there is no finite slope, and the loss itself says so.
        moves.append(_contract(jnp.where(jnp.isinf(slope) | ~counts, 0, slope), dq))
    moved = sum(moves[1:], moves[0])
    if not gradient:
        return [value], [moved]

    turns = []
    if z_moves:
        turn = jvp(p, dz, axis)
        if jnp.issubdtype(target.dtype, jnp.floating):
            turn = jnp.where(jnp.any(target != 0, axis=axis, keepdims=True), turn, 0)
        turns.append(turn)
    if q_moves:
        turn = _rules.sparsemax.threshold_vjp(last, dq.sum(axis=-1, keepdims=True), jnp) - dq
        turns.append(jnp.moveaxis(jnp.where(counts, turn, 0), -1, axis).astype(grad.dtype))
    return [value, grad], [moved, sum(turns[1:], turns[0])]


ad.primitive_jvps[_sparsemax.primitive] = _sparsemax_rule
ad.primitive_jvps[_jvp.primitive] = _jvp_rule
ad.primitive_transposes[_jvp.primitive] = _jvp_transpose
ad.primitive_jvps[_threshold.primitive] = _threshold_rule
ad.primitive_jvps[_loss.primitive] = _loss_rule
ad.primitive_jvps[_scaled.primitive] = _scaled_rule
ad.primitive_transposes[_scaled.primitive] = _scaled_transpose
