"""Exported graphs, run by onnxruntime, are held to the promises of the functions that they come from."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from tests import judge, oracle
from tests.cases import FAMILIES

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
zt = pytest.importorskip("zerotail.torch")

DTYPES = {np.float32: torch.float32, np.float64: torch.float64, np.float16: torch.float16}
Run = Callable[..., np.ndarray]
NONE: frozenset[int] = frozenset()


class Model(torch.nn.Module):
    """A function of tensors as a model."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def export(model: torch.nn.Module, *args: torch.Tensor, dynamic: Any = None) -> Any:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it regrets that torchvision is missing
    return torch.onnx.export(
        model.eval(),
        args,
        dynamo=True,
        verbose=False,
        custom_translation_table=zt.onnx_translations(),
        dynamic_shapes=dynamic,
    )


def session(function: Callable[..., torch.Tensor], *args: torch.Tensor, fixed: frozenset[int] = NONE) -> Run:
    """The exported function as one of arrays, of any sizes but along the dimensions in `fixed`."""
    any_size = torch.export.Dim.DYNAMIC
    dynamic = tuple({dim: any_size for dim in range(x.dim()) if dim not in fixed} for x in args)
    proto = export(Model(function), *args, dynamic=(dynamic,)).model_proto
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    loaded = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [argument.name for argument in loaded.get_inputs()]
    return lambda *arrays: loaded.run(None, dict(zip(names, arrays, strict=True)))[0]


@cache
def rows(name: str, dtype: type) -> Run:
    """A function of (rows, K) scores."""
    return session(getattr(zt, name), torch.zeros(3, 5, dtype=DTYPES[dtype]))


@cache
def loss(dtype: type, target: str, *, weight: tuple[float, ...] | None = None, **options: Any) -> Run:
    """The losses of (rows, K) scores for labels, or for distributions."""
    scores = torch.zeros(3, 5, dtype=DTYPES[dtype])
    if weight is not None:
        options["weight"] = torch.tensor(weight, dtype=scores.dtype)
    q = torch.zeros(3, dtype=torch.int64) if target == "labels" else torch.full_like(scores, 0.2)
    fixed = NONE if weight is None else frozenset([1])
    return session(partial(zt.sparsemax_loss, **options), scores, q, fixed=fixed)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_an_exported_sparsemax_is_the_exact_projection(dtype, family):
    """Eq. 2 within 4 eps, NaN and -inf included: one graph for any number of rows and columns."""
    for K in (1, 2, 3, 7, 31, 257):
        z = family(K, 5, K, np.dtype(dtype))
        p = rows("sparsemax", dtype)(z)
        assert p.dtype == z.dtype
        verdict = judge.projection(p, oracle.project(z))
        assert verdict.right, f"K = {K}: {verdict}"


@pytest.mark.parametrize("deviation", [1e-6, 0.1, 1.0])
def test_an_exported_sparsemax_of_a_long_row_of_float64_sums_to_one(deviation):
    """32,003 probabilities, whose naive sum would be off by more than is allowed."""
    z = np.random.default_rng(0).normal(0, deviation, (2, 32003)) + 1e6
    assert judge.projection(rows("sparsemax", np.float64)(z), oracle.project(z)).right


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_exported_sparsemax_of_nothing_is_empty(shape):
    """No rows, or no columns."""
    assert rows("sparsemax", np.float32)(np.zeros(shape, np.float32)).shape == shape


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_exported_sparsemax_works_along_any_dim(dim):
    """Of distinct prime sizes, none of them known when the graph is made."""
    run = session(partial(zt.sparsemax, dim=dim), torch.zeros(2, 3, 5))
    z = np.random.default_rng(1).normal(0, 1, (7, 11, 13)).astype(np.float32)
    p = np.moveaxis(run(z), dim, -1)
    flat = np.moveaxis(z, dim, -1)
    cols = flat.shape[-1]
    assert judge.projection(p.reshape(-1, cols), oracle.project(flat.reshape(-1, cols))).right


def test_what_an_exported_mask_excludes_is_never_read():
    """NaN there is harmless, and a row with nothing left is zeros."""
    run = session(
        lambda input, mask: zt.sparsemax(input, mask=mask),
        torch.zeros(3, 5),
        torch.ones(3, 5, dtype=torch.bool),
    )
    rng = np.random.default_rng(2)
    z = rng.normal(0, 1, (6, 17)).astype(np.float32)
    mask = rng.random(z.shape) < 0.5
    mask[0] = False
    z[~mask] = rng.choice([np.nan, np.inf, 1e30], (~mask).sum())
    p = run(z, mask)
    exact = oracle.project(np.where(mask, z, -np.inf)[1:])
    assert not p[0].any()
    assert not p[~mask].any()
    assert judge.projection(p[1:], exact).right


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_an_exported_threshold_is_exact(dtype):
    """Eq. 4: within 4 eps and one rounding, NaN where there is none."""
    for family in FAMILIES:
        z = family(0, 7, 31, np.dtype(dtype))
        assert judge.thresholds(rows("threshold", dtype)(z), oracle.project(z)) <= 1, str(family)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("target", ["labels", "distributions"])
def test_an_exported_loss_is_exact(dtype, target):
    """Eqs. 20 and 26 within 4 eps max(1, L), +inf for a score of -inf that is wanted."""
    rng = np.random.default_rng(3)
    run = loss(dtype, target, reduction="none")
    for family in FAMILIES:
        for K in (1, 3, 131):
            z = family(K, 7, K, np.dtype(dtype))
            q = rng.integers(0, K, 7) if target == "labels" else _distributions(rng, 7, K, dtype)
            value = run(z, q)
            assert value.dtype == z.dtype
            exact = oracle.loss(z, q)
            assert judge.losses(value, *exact) <= 1, f"{family}, K = {K}"


def _distributions(rng: np.random.Generator, count: int, cols: int, dtype: type) -> np.ndarray:
    """Multiples of 1/64 with some zeros: they sum to one without an error."""
    return (rng.multinomial(64, np.full(cols, 1 / cols), count) / 64).astype(dtype)


@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}], ids=["default", "2"])
def test_an_exported_loss_ignores_what_it_shall(options):
    """Also -100 of more than 100 classes, where it could count from the end, and NaN in an ignored row."""
    ignored = options.get("ignore_index", -100)
    rng = np.random.default_rng(4)
    z = rng.normal(0, 1, (5, 131)).astype(np.float32)
    y = np.array([7, ignored, 31, ignored, 130])
    z[3] = np.nan
    hi, _ = oracle.loss(z[y != ignored], y[y != ignored])
    mean = loss(np.float32, "labels", **options)
    np.testing.assert_allclose(mean(z, y), hi.mean(), rtol=1e-6)
    assert mean(z, np.full(5, ignored)) == 0


@pytest.mark.parametrize("label", [-1, 131, 2**40])
def test_a_label_that_is_out_of_range_gives_nan_in_its_row(label):
    """A graph cannot raise, and silence would be a wrong number."""
    z = np.zeros((3, 131), np.float32)
    value = loss(np.float32, "labels", reduction="none")(z, np.array([1, label, 2]))
    assert np.isnan(value).tolist() == [False, True, False]


@pytest.mark.parametrize("target", ["labels", "distributions"])
@pytest.mark.parametrize(
    "options", [{"label_smoothing": 0.1}, {"weight": (0.5, 2.0, 0.0, 1.0, 3.0)}], ids=lambda o: next(iter(o))
)
def test_an_exported_loss_has_the_options_of_the_function(target, options):
    """In float32, the type of the constants that torch exports."""
    rng = np.random.default_rng(5)
    z = rng.normal(0, 2, (7, 5)).astype(np.float32)
    y = np.array([0, 1, 2, 3, 4, -100, 1])
    q = y if target == "labels" else _distributions(rng, 7, 5, np.float32)
    tensors = {name: torch.tensor(x) for name, x in options.items() if name == "weight"}
    want = zt.sparsemax_loss(torch.from_numpy(z), torch.from_numpy(q), **{**options, **tensors})
    got = loss(np.float32, target, **options)(z, q)
    np.testing.assert_allclose(got, want.numpy(), rtol=8 * np.finfo(np.float32).eps)


def test_the_modules_for_one_logit_need_no_translation():
    """They are made of torch's own operations."""
    t = np.array([-np.inf, -3.0, -0.5, 0.0, 0.75, 2.0], np.float32)
    y = np.array([0.0, 0.5, 1.0, 0.25, 0.0, 1.0], np.float32)
    ramp = session(zt.binary_sparsemax, torch.from_numpy(t))(t)
    np.testing.assert_array_equal(ramp, zt.binary_sparsemax(torch.from_numpy(t)).numpy())
    both = (torch.from_numpy(t), torch.from_numpy(y))
    value = session(zt.binary_sparsemax_loss, *both)(t, y)
    np.testing.assert_allclose(value, zt.binary_sparsemax_loss(*both).numpy(), rtol=1e-6)


def test_exported_models_are_made_of_standard_operators():
    """ONNX's own, in the opset that torch exports by default; nothing of ours is left."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), zt.Sparsemax())
    proto = export(model, torch.zeros(2, 4)).model_proto
    assert [imported.domain for imported in proto.opset_import] == [""]
    assert not proto.functions
    assert {node.domain for node in proto.graph.node} == {""}


def test_a_missing_extra_names_itself(tmp_path):
    """onnx_translations says how to get what it needs."""
    (tmp_path / "onnxscript.py").write_text("raise ImportError('no onnxscript')\n")
    script = """
import zerotail.torch as zt
try:
    zt.onnx_translations()
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'pip install "zerotail[onnx]"' in done.stdout
