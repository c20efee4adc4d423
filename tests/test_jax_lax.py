"""The primitives in XLA's own operations: for devices without a kernel, and for builds without JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from tests import cases, judge, oracle

jax = pytest.importorskip("jax")
zt = pytest.importorskip("zerotail.jax")
_lax = pytest.importorskip("zerotail.jax._lax")
jnp = jax.numpy

FAMILIES = tuple(f for f in cases.FAMILIES if f.name not in ("huge", "larger than float32", "huge ties"))
Z = np.random.default_rng(0).normal(0, 1, (3, 5)).astype(np.float32)
USES = {
    "sparsemax": zt.sparsemax,
    "sparsemax, axis 0": partial(zt.sparsemax, axis=0),
    "threshold": zt.threshold,
    "loss, labels": lambda x: zt.sparsemax_loss(x, np.array([0, 1, 2])),
    "loss, distributions": lambda x: zt.sparsemax_loss(x, jax.nn.softmax(x)),
    "gradient": jax.grad(lambda x: (zt.sparsemax(x) ** 2).sum()),
    "gradient of the loss": jax.grad(lambda x: zt.sparsemax_loss(x, np.array([0, 1, 2])).sum()),
    "Hessian": jax.hessian(lambda x: zt.sparsemax_loss(x, np.array([0, 1, 2])).sum()),
    "vmap": jax.vmap(zt.sparsemax),
    "where": lambda x: zt.sparsemax(x, where=x > 0),
}


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
@pytest.mark.parametrize("name", USES)
def test_other_platforms_call_nothing_and_sort_nothing(name, platform):
    """The lowered module holds no foreign call and no sort; the CPU's holds the call."""
    traced = jax.jit(USES[name]).trace(Z)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "custom_call" not in text
    assert "sort" not in text
    assert "zerotail" not in text
    if zt._ops.has_kernels():
        assert "zerotail_" in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_one_program_for_two_platforms_has_both_ways():
    """Exported for the CPU and for GPUs: each takes its own."""
    from jax import export

    if not zt._ops.has_kernels():
        pytest.skip("built without JAX")
    allowed = [export.DisabledSafetyCheck.custom_call("zerotail_sparsemax")]
    exported = export.export(jax.jit(zt.sparsemax), platforms=("cpu", "cuda"), disabled_checks=allowed)(Z)
    assert "zerotail_sparsemax" in exported.mlir_module()
    assert "stablehlo.while" in exported.mlir_module()
    np.testing.assert_array_equal(exported.call(Z), zt.sparsemax(Z))


def test_a_program_for_any_number_of_rows_is_exported():
    """A batch of symbolic size."""
    from jax import export

    shape = jax.ShapeDtypeStruct(export.symbolic_shape("rows, 5"), jnp.float32)
    allowed = [export.DisabledSafetyCheck.custom_call("zerotail_sparsemax")]
    for platform in ("cpu", "cuda"):
        export.export(jax.jit(zt.sparsemax), platforms=(platform,), disabled_checks=allowed)(shape)
    exported = export.export(jax.jit(zt.sparsemax), disabled_checks=allowed)(shape)
    for rows in (1, 3):
        np.testing.assert_array_equal(exported.call(Z[:rows]), zt.sparsemax(Z[:rows]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("cols", [1, 2, 7, 67, 1_009])
def test_rows_are_exact_without_a_kernel(dtype, cols):
    """Entries, sums, supports, thresholds, losses and products within the bounds of the kernels."""
    dtype = jnp.dtype(dtype)
    z = cases.mixture(1, cols, dtype, 2, FAMILIES)
    exact = oracle.project(z)
    v = np.random.default_rng(2).normal(0.7, 2, z.shape).astype(dtype)
    y = cases.labels(3, len(z), cols)
    q = cases.distributions(4, len(z), cols, dtype)
    with jax.enable_x64(dtype.itemsize == 8):

        @jax.jit
        def work(z, v, y, q):
            p = _lax.sparsemax(z, axis=1)
            hi, _ = _lax.threshold(z, axis=1)
            losses = [_lax.sparsemax_loss(z, t, axis=1, gradient=True) for t in (y, q)]
            return p, hi.astype(z.dtype), _lax.sparsemax_jvp(p, v, axis=1), losses

        p, tau, product, losses = jax.tree.map(np.asarray, work(z, v, y, q))
    assert judge.projection(p, exact).right
    assert judge.thresholds(tau, exact) <= 1
    assert judge.tangents(product, p, v) <= 1
    one_hot = (np.arange(cols) == y[:, None]).astype(dtype)
    for (value, gradient), target, wide in zip(losses, (y, q), (one_hot, q), strict=True):
        assert judge.losses(value.astype(dtype), *oracle.loss(z, target, exact)) <= 1
        assert judge.gradients(gradient, exact, wide) <= 1


def test_a_row_whose_threshold_needs_more_than_float32_sums_to_one_without_a_kernel():
    """One score 0, the rest -0.9 or so, 100,000 of them, and no float64 to be had."""
    z = np.full((2, 100_000), -0.9, np.float32)
    z[1] += np.random.default_rng(0).normal(0, 1e-2, 100_000)
    z[:, 33_333] = 0
    p = np.asarray(jax.jit(partial(_lax.sparsemax, axis=1))(z))
    verdict = judge.projection(p, oracle.project(z))
    assert verdict.right, verdict


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_empty_arrays_without_a_kernel(shape):
    """As with one."""
    z = jnp.zeros(shape)
    assert _lax.sparsemax(z, axis=len(shape) - 1).shape == shape
    assert np.isnan(_lax.threshold(z, axis=len(shape) - 1)[0]).all()
    value, grad = _lax.sparsemax_loss(z, z, axis=len(shape) - 1, gradient=True)
    assert (value == 0).all()
    assert grad.shape == shape


def test_without_the_extension_everything_works_and_says_so():
    """A build without JAX: the same numbers, derivatives and batches, and a line in `python -m zerotail`."""
    script = """
import sys
sys.modules["zerotail._ffi"] = None
import jax, jax.numpy as jnp, numpy as np
from jax.test_util import check_grads
from zerotail.jax import _ops, sparsemax, sparsemax_loss, threshold
assert not _ops.has_kernels()
z = jnp.array([[1.0, 0.5, -1.0], [0.5, 0.5, 0.0]])
assert "zerotail" not in jax.jit(sparsemax).lower(z).as_text()
print(sparsemax(z).tolist(), threshold(z).tolist(), sparsemax_loss(z, jnp.array([0, 2])).tolist())
print(jax.vmap(jax.jacrev(sparsemax))(z).tolist())
with jax.enable_x64(True):
    x = jnp.array(np.random.default_rng(0).normal(0, 1, (3, 5)))
    for f in (sparsemax, threshold, lambda x: sparsemax_loss(x, jnp.array([0, 1, 2]))):
        check_grads(jax.vmap(f) if f is sparsemax else f, (x,), order=2)
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said.stderr
    values, jacobian = said.stdout.splitlines()
    assert values == "[[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]] [0.25, 0.0] [0.0625, 0.75]"
    block = "[[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]"
    assert jacobian == f"[{block}, {block}]"


def test_kernels_for_a_newer_jaxlib_are_left_alone():
    """To register them would leave JAX without a CPU: the versions are compared first."""
    pytest.importorskip("zerotail._ffi")
    script = """
import zerotail._ffi as ffi
major, minor = ffi.api_version
ffi.api_version = (major, minor + 1)
import zerotail.jax, jax
assert not zerotail.jax._ops.has_kernels()
print(zerotail.jax.sparsemax(jax.numpy.array([1.0, 0.5, -1.0])).tolist())
from zerotail.__main__ import kernels
print(kernels())
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said.stderr
    values, line = said.stdout.splitlines()
    assert values == "[0.75, 0.25, 0.0]"
    assert "newer jaxlib" in line


@pytest.mark.parametrize("there", [True, False])
def test_the_module_says_whether_the_kernels_are_there(there):
    """`python -m zerotail`."""
    hide = "" if there else "import importlib.util as u; f = u.find_spec; "
    hide += "" if there else "u.find_spec = lambda n, *a: None if n == 'zerotail._ffi' else f(n, *a); "
    said = subprocess.run(
        [sys.executable, "-c", f"{hide}from zerotail.__main__ import main; main([])"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ZEROTAIL_NUM_THREADS": "1"},
        check=False,
    )
    assert said.returncode == 0, said.stderr
    line = next(line for line in said.stdout.splitlines() if line.startswith("JAX's kernels"))
    built = there and zt._ops.has_kernels()
    assert line.startswith("JAX's kernels: built" if built else "JAX's kernels: not built")
