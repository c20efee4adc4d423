"""Two devices on this host: each function on sharded inputs, under jit, shard_map, and with explicit types.

Run by test_jax_shards.py in a process of its own, as JAX counts devices once. Prints one line for each use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from zerotail.jax import sparsemax, sparsemax_loss, threshold

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(6, 4, 10)).astype(np.float32)
V = RNG.normal(size=Z.shape).astype(np.float32)
Y = RNG.integers(0, 10, Z.shape[:-1]).astype(np.int32)
Q = RNG.dirichlet(np.ones(10), Z.shape[:-1]).astype(np.float32)
MASK = RNG.random(Z.shape) < 0.7
GATHERS = ("all-gather", "all-to-all", "collective-permute", "all-reduce")


def total_loss(z: Any, q: Any) -> Any:
    return sparsemax_loss(z, q).sum()


# Function, arguments, and which of their axes is split: a batch axis.
USES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "sparsemax": (sparsemax, (Z,), (P("i"),)),
    "sparsemax, the second axis split": (sparsemax, (Z,), (P(None, "i"),)),
    "sparsemax, axis 1": (lambda z: sparsemax(z, 1), (Z,), (P("i"),)),
    "sparsemax, axis 1, the last split": (lambda z: sparsemax(z, 1), (Z,), (P(None, None, "i"),)),
    "sparsemax, two axes": (lambda z: sparsemax(z, (1, 2)), (Z,), (P("i"),)),
    "sparsemax, where": (lambda z, m: sparsemax(z, where=m), (Z, MASK), (P("i"), P("i"))),
    "threshold": (threshold, (Z,), (P("i"),)),
    "threshold, axis 0": (lambda z: threshold(z, 0), (Z,), (P(None, "i"),)),
    "loss, labels": (sparsemax_loss, (Z, Y), (P("i"), P("i"))),
    "loss, distributions": (sparsemax_loss, (Z, Q), (P(None, "i"), P(None, "i"))),
    "vmap": (jax.vmap(sparsemax), (Z,), (P("i"),)),
    "vjp": (lambda z, v: jax.vjp(sparsemax, z)[1](v)[0], (Z, V), (P("i"), P("i"))),
    "jvp": (lambda z, v: jax.jvp(sparsemax, (z,), (v,))[1], (Z, V), (P("i"), P("i"))),
    "gradient of the loss, labels": (jax.grad(total_loss), (Z, Y), (P("i"), P("i"))),
    "gradient of the loss in both": (jax.grad(total_loss, (0, 1)), (Z, Q), (P("i"), P("i"))),
    "Jacobian": (jax.vmap(jax.vmap(jax.jacrev(sparsemax))), (Z,), (P("i"),)),
    "Hessian": (jax.vmap(jax.vmap(jax.hessian(total_loss))), (Z, Q), (P("i"), P("i"))),
}


def close(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=2e-6)


def is_split(x: Any) -> bool:
    return bool(x.sharding.shard_shape(x.shape) != x.shape)


def under_jit(mesh: Any) -> None:
    """Each shard of a batch axis is worked on where it lies, and the result is split as it is."""
    for name, (call, arrays, specs) in USES.items():
        placed = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(arrays, specs, strict=True)]
        compiled = jax.jit(call).lower(*placed).compile()
        text = compiled.as_text()
        assert not any(word in text for word in GATHERS), (name, text)
        result = compiled(*placed)
        close(result, call(*arrays))
        assert all(map(is_split, jax.tree.leaves(result))), name
        print("jit:", name)


def split_rows(mesh: Any) -> None:
    """Rows that are split are gathered: slow, but right."""
    for call in (sparsemax, threshold, lambda z: sparsemax_loss(z, Y)):
        placed = jax.device_put(Z, NamedSharding(mesh, P(None, None, "i")))
        close(jax.jit(call)(placed), call(Z))
        close(
            jax.jit(jax.grad(lambda z, call=call: (call(z) ** 2).sum()))(placed),
            jax.grad(lambda z, call=call: (call(z) ** 2).sum())(Z),
        )
    print("jit: rows that are split")


def under_shard_map(mesh: Any) -> None:
    for name, (call, arrays, specs) in USES.items():
        for check in (True, False):
            mapped = jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=P(*specs[0]), check_vma=check)
            if name == "threshold, axis 0":
                mapped = jax.shard_map(call, mesh=mesh, in_specs=specs, out_specs=P("i"), check_vma=check)
            close(jax.jit(mapped)(*arrays), call(*arrays))
        print("shard_map:", name)
    # A target that is the same on both devices: its gradient is the sum of theirs.
    mapped = jax.shard_map(jax.grad(total_loss, 1), mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
    close(mapped(Z, Q[:3]), sum(jax.grad(total_loss, 1)(z, Q[:3]) for z in (Z[:3], Z[3:])))
    print("shard_map: a shared target")
    # Of two axes of a mesh, one is mapped by hand.
    both = jax.make_mesh((2, 1), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
    mapped = jax.shard_map(sparsemax, mesh=both, in_specs=P("i"), out_specs=P("i"), axis_names={"i"})
    close(jax.jit(mapped)(Z), sparsemax(Z))
    print("shard_map: one axis of two")


def with_explicit_types() -> None:
    """Shardings that are part of types."""
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,))
    expected = {name: call(*arrays) for name, (call, arrays, _) in USES.items()}
    with jax.set_mesh(mesh):
        for name, (call, arrays, specs) in USES.items():
            placed = [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(arrays, specs, strict=True)]
            result = jax.jit(call)(*placed)
            close(result, expected[name])
            assert all(map(is_split, jax.tree.leaves(result))), name
            print("explicit:", name)
        placed = jax.device_put(Z, NamedSharding(mesh, P(None, None, "i")))
        result = jax.jit(sparsemax)(placed)
        close(result, expected["sparsemax"])
        assert jax.typeof(result).sharding == jax.typeof(placed).sharding
        close(jax.jit(sparsemax)(Z), expected["sparsemax"])  # the same on both
        print("explicit: rows that are split")


def main() -> None:
    assert jax.device_count() == 2
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    under_jit(mesh)
    split_rows(mesh)
    under_shard_map(mesh)
    with_explicit_types()
    print("values:", float(jnp.abs(sparsemax(Z).sum(-1) - 1).max()) < 1e-6)


if __name__ == "__main__":
    main()
