"""The cells of the benchmarks, prepared: input, our call, its check, the peers' calls."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import gate, peers
from benchmarks.gate import Array, GateError
from benchmarks.model import Call, Case, Cell, Options, label, size


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array on a cache line's boundary: where malloc would put it depends on the size."""
    dtype = np.dtype(dtype)
    line = 64
    raw: Array = np.zeros(int(np.prod(shape)) * dtype.itemsize + line, np.uint8)
    start = -raw.ctypes.data % line
    whole: Array = raw[start : raw.size - line + start].view(dtype)
    return whole.reshape(shape)


def aligned(x: Array, dtype: Any) -> Array:
    out = empty(x.shape, dtype)
    out[...] = x
    return out


def generator(cell: Cell) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(label(cell).encode()))


def poison(out: Array) -> Array:
    out[...] = np.nan
    return out


def check_into(out: Array, want: Array, axis: int = -1) -> Callable[[Any], None]:
    """The check of a call that writes `out`: all of it, this time."""
    poison(out)

    def check(p: Any) -> None:
        if p is not out:
            raise GateError("the result is not the array given as out=")
        gate.check_probabilities(p, want, out.dtype, axis)
        poison(out)

    return check


# Rows that are not a plain sample of a normal distribution; all of shape (rows, K).
KINDS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "constant": lambda rng, rows, K: np.broadcast_to(rng.standard_normal((rows, 1)), (rows, K)),
    "sd-0.001": lambda rng, rows, K: rng.standard_normal((rows, K)) * 1e-3,
    "sorted-up": lambda rng, rows, K: np.sort(rng.standard_normal((rows, K)), axis=-1),
    "sorted-down": lambda rng, rows, K: -np.sort(rng.standard_normal((rows, K)), axis=-1),
    "half-inf": lambda rng, rows, K: np.where(
        rng.random((rows, K)).argsort(axis=-1) < K // 2, -np.inf, rng.standard_normal((rows, K))
    ),
    "offset-1e6": lambda rng, rows, K: rng.standard_normal((rows, K)) + 1e6,
}


def scores_of(cell: Cell, options: Options, dtype: Any = np.float32) -> Array:
    rng = generator(cell)
    rows, K = size(options, cell["K"])
    rows = cell.get("rows", rows)
    if "kind" in cell:
        return aligned(KINDS[cell["kind"]](rng, rows, K), dtype)
    return aligned(rng.standard_normal((rows, K), np.float32) * cell["sd"], dtype)


def dtype_named(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def forward_into(scores: Array, out: Array, axis: int = -1) -> Callable[[ModuleType], Call]:
    return lambda zt: partial(zt.sparsemax, scores, axis=axis, out=out)


def forward(cell: Cell, options: Options, *, dtype: str = "float32") -> Case:
    scores = scores_of(cell, options, dtype_named(dtype))
    out = empty(scores.shape, scores.dtype)
    want, _ = gate.reference(scores)
    return Case(
        ours=forward_into(scores, out),
        check=check_into(out, want),
        peers=peers.installed(
            softmax=lambda: peers.softmax(scores, out), copy_=lambda: peers.copy(scores, out)
        ),
    )


def against_entmax(cell: Cell, options: Options) -> Case:
    case = forward(cell, options)
    case.peers = peers.installed(entmax=lambda: peers.entmax(scores_of(cell, options)))
    return case


def against_optax(cell: Cell, options: Options) -> Case:
    case = forward(cell, options)
    case.peers = peers.installed(optax=lambda: peers.optax(scores_of(cell, options)))
    return case


def jvp(cell: Cell, options: Options) -> Case:
    scores = scores_of(cell, options)
    exact, _ = gate.reference(scores)
    p = aligned(exact, scores.dtype)
    v = aligned(generator(cell).standard_normal(p.shape), p.dtype)
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = aligned(exp / exp.sum(axis=-1, keepdims=True), p.dtype)
    return Case(
        ours=lambda zt: partial(zt.sparsemax_jvp, p, v),
        check=lambda got: gate.check_jvp(got, p, v),
        peers=peers.installed(
            softmax_out=lambda: peers.softmax_backward(y, v, empty(p.shape, p.dtype)),
            softmax_new=lambda: peers.softmax_backward(y, v, None),
        ),
    )


def other_axis(cell: Cell, options: Options) -> Case:
    shape, axis = cell["shape"], cell["axis"]
    scores = aligned(generator(cell).standard_normal(shape) * cell["sd"], np.float32)
    turned = aligned(np.moveaxis(scores, axis, -1), np.float32)  # the same rows, along the last axis
    out, last = empty(shape, np.float32), empty(turned.shape, np.float32)
    want = np.moveaxis(gate.reference(turned)[0], -1, axis)

    def last_axis() -> Call:
        import zerotail

        return forward_into(turned, last)(zerotail)

    return Case(
        ours=forward_into(scores, out, axis),
        check=check_into(out, want, axis),
        peers=peers.installed(last_axis=last_axis, softmax=lambda: peers.softmax(scores, out, axis)),
    )


def loss(cell: Cell, options: Options) -> Case:
    scores = scores_of(cell, options)
    labels = generator(cell).integers(scores.shape[1], size=scores.shape[:1])
    return Case(
        ours=lambda zt: partial(zt.sparsemax_loss_and_grad, scores, labels),
        check=lambda got: gate.check_loss(got, scores, labels),
        peers=peers.installed(cross_entropy=lambda: peers.cross_entropy(scores, labels)),
    )


def torch_front_end(zt: ModuleType) -> ModuleType:
    import zerotail

    if zt is not zerotail:
        raise GateError("torch's operators can be registered once a process")
    return import_module("zerotail.torch")


def check_step(p: Array, v: Array) -> Callable[[Any], None]:
    """The check of probabilities and a gradient, both tensors."""

    def check(got: Any) -> None:
        value, gradient = (x.detach().numpy() for x in got)
        gate.check_probabilities(value, p, v.dtype)
        gate.check_jvp(gradient, value, v)

    return check


def autograd(cell: Cell, options: Options, *, compiled: bool = False, against: str = "softmax") -> Case:
    """Forward and backward through autograd, against the same of `softmax` or `entmax`."""
    import torch

    scores = scores_of(cell, options) if "K" in cell else one_row(cell)
    v = aligned(generator(cell).standard_normal(scores.shape), scores.dtype)
    compiling = peers.compiled if compiled else lambda function: function

    def ours(zt: ModuleType) -> Call:
        return peers.backward(compiling(torch_front_end(zt).sparsemax), scores, v)

    def peer() -> Call:
        function = torch.softmax if against == "softmax" else import_module("entmax").sparsemax
        return peers.backward(compiling(function), scores, v)

    return Case(
        ours=ours,
        check=check_step(gate.reference(scores)[0], v),
        peers=peers.installed(**{against: peer}),
    )


def torch_loss(cell: Cell, options: Options, *, against: str = "cross_entropy") -> Case:
    import_module("torch")
    scores = scores_of(cell, options)
    labels = generator(cell).integers(scores.shape[1], size=scores.shape[:1])

    def ours(zt: ModuleType) -> Call:
        function = partial(torch_front_end(zt).sparsemax_loss, reduction="sum")
        return peers.training_step(function, scores, labels)

    return Case(
        ours=ours,
        check=lambda got: gate.check_loss([x.detach().numpy() for x in got], scores, labels),
        peers=peers.installed(**{against: lambda: getattr(peers, against)(scores, labels)}),
    )


def jax_front_end(zt: ModuleType) -> ModuleType:
    import zerotail

    if zt is not zerotail:
        raise GateError("XLA's targets can be registered once a process")
    return import_module("zerotail.jax")


def jax_step(cell: Cell, options: Options, *, backward: bool = False) -> Case:
    """Jitted, forward, or forward and v times the Jacobian, against the same of `jax.nn.softmax`."""
    jax = import_module("jax")
    scores = scores_of(cell, options)
    want, _ = gate.reference(scores)
    v = aligned(generator(cell).standard_normal(scores.shape), scores.dtype) if backward else None

    def check(got: Any) -> None:
        p, *gradient = map(np.asarray, got) if backward else (np.asarray(got),)
        gate.check_probabilities(p, want, scores.dtype)
        for product in gradient:
            gate.check_jvp(product, p, v)

    return Case(
        ours=lambda zt: peers.jitted(jax_front_end(zt).sparsemax, scores, v),
        check=check,
        peers={"softmax": peers.jitted(jax.nn.softmax, scores, v)},
    )


def jax_against_optax(cell: Cell, options: Options) -> Case:
    import_module("jax")
    case = jax_step(cell, options)
    case.peers = peers.installed(optax=lambda: peers.optax(scores_of(cell, options)))
    return case


def one_row(cell: Cell) -> Array:
    return aligned(generator(cell).standard_normal((1, 16)), np.float32)


def torch_call(cell: Cell, options: Options) -> Case:
    if cell["grad"]:
        return autograd(cell, options)
    import torch

    scores = one_row(cell)
    want, _ = gate.reference(scores)

    def ours(zt: ModuleType) -> Call:
        sparsemax = torch_front_end(zt).sparsemax
        with torch.no_grad():
            gate.check_probabilities(sparsemax(peers.tensor(scores), -1).numpy(), want, scores.dtype)
        return peers.without_gradient(sparsemax, scores)

    return Case(
        ours=ours,
        check=check_seconds,
        peers={"softmax": peers.without_gradient(torch.softmax, scores)},
        self_timed=True,
    )


def csr(cell: Cell, options: Options) -> Case:
    scores = scores_of(cell, options)
    out = empty(scores.shape, scores.dtype)
    want, _ = gate.reference(scores)

    def dense() -> Call:
        import zerotail

        return forward_into(scores, out)(zerotail)

    def check(got: Any) -> None:
        if not got.has_canonical_format or (got.data <= 0).any():
            raise GateError("the sparse rows hold zeros, or columns out of order")
        gate.check_probabilities(got.toarray(), want, scores.dtype)

    return Case(
        ours=lambda zt: partial(zt.sparsemax_csr, scores),
        check=check,
        peers=peers.installed(dense=dense, dense_then_scipy=lambda: peers.scipy_csr(dense())),
    )


def call(cell: Cell, options: Options) -> Case:
    scores = one_row(cell)
    out = empty(scores.shape, scores.dtype)
    want, _ = gate.reference(scores)

    # Written out: a functools.partial would add its own dictionary to every call.
    def ours(zt: ModuleType) -> Call:
        sparsemax = zt.sparsemax
        return (lambda: sparsemax(scores, out=out)) if cell["out"] else (lambda: sparsemax(scores))

    def check_new(p: Any) -> None:
        gate.check_probabilities(p, want, scores.dtype)

    return Case(
        ours=ours,
        check=check_into(out, want) if cell["out"] else check_new,
        peers=peers.installed(
            scipy_softmax=lambda: peers.scipy_softmax(scores), softmax=lambda: peers.softmax(scores, out)
        ),
    )


def check_seconds(seconds: Any) -> None:
    """Of a call that returns its own time; its result was checked before."""
    if not seconds > 0:
        raise GateError(f"a call took {seconds} seconds")


IMPORT = """
import sys, time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
if {folder!r}:
    from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
    sys.path.insert(0, {folder!r})
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
    middle = time.perf_counter()
import zerotail
end = time.perf_counter()
print(end - middle, middle - start, *{{"torch", "jax", "scipy", "sklearn"}} & set(sys.modules))
"""


def import_time(cell: Cell, options: Options) -> Case:
    def run(folder: str) -> list[str]:
        # -P: the current folder may hold a folder called zerotail.
        command = [sys.executable, "-P", "-c", IMPORT.format(folder=folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    def ours(zt: ModuleType) -> Call:
        import zerotail

        folder = "" if zt is zerotail else str(Path(zt.__path__[0]).parent)
        heavy = run(folder)[2:]
        if heavy:
            raise GateError(f"import zerotail loads {', '.join(sorted(heavy))}")
        return lambda: float(run(folder)[0])

    return Case(ours=ours, check=check_seconds, peers={"numpy": lambda: float(run("")[1])}, self_timed=True)
