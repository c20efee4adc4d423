"""The rest of the table of uses, and the edges in each of them."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, func
from torch.autograd import forward_ad

import zerotail.torch as zt
from tests import oracle
from tests.torch_cases import CASES

ROOT = Path(__file__).parents[1]
inf, nan, f64 = torch.inf, torch.nan, torch.float64
scripts = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning"
)  # it is what is tested, or torch's own


# ---- edges ----------------------------------------------------------------------------------------------

ROWS = torch.tensor(
    [
        [-inf, 1, 0.5, 0.2], [nan, 1, 2, 3], [inf, 1, 2, 3], [-inf] * 4, [1] * 4, [1, 0, -1, -2],
        [9e299, 0, -9e299, 5],
    ],
    dtype=f64,
)  # fmt: skip
LABELS = torch.tensor([1, 1, 1, 1, 1, 1, 0])
ON_INF = torch.tensor([0, 1, 1, 1, 1, 1, 2])
Q = torch.tensor([[0, 0.5, 0.5, 0]] * 7, dtype=f64)
MASK = torch.tensor([[False, True, True, True]] * 3 + [[False] * 4] + [[True] * 4] * 3)
WEIGHT = torch.tensor([1, 2, 0, 3], dtype=f64)


def loss(target: Tensor, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda z: zt.sparsemax_loss(z, target, reduction="none", **options)


EDGES: dict[str, Callable[[Tensor], Tensor]] = {
    "sparsemax": zt.sparsemax,
    "mask": lambda z: zt.sparsemax(z, mask=MASK),
    "threshold": zt.threshold,
    "labels": loss(LABELS),
    "labels of -inf scores": loss(ON_INF),
    "all ignored": loss(torch.full((7,), -100)),
    "probabilities": loss(Q),
    "probabilities of -inf scores": loss(Q.flip(1).roll(1, 1)),
    "smoothing": loss(LABELS, label_smoothing=0.1),
    "weight": loss(LABELS, weight=WEIGHT),
    "probabilities, weight": loss(Q, weight=WEIGHT),
    "binary": zt.binary_sparsemax,
    "binary loss": lambda z: zt.binary_sparsemax_loss(z, Q, reduction="none"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", EDGES)
def test_rows_at_the_edges_are_the_same_in_every_mode(name):
    """NaN where the value is NaN, and nowhere else: never a silent zero, in any order or direction."""
    f = EDGES[name]
    rng = np.random.default_rng(0)
    u = torch.tensor(rng.normal(0, 1, tuple(f(ROWS).shape)))
    v = torch.tensor(rng.normal(0, 1, tuple(ROWS.shape)))
    z = ROWS.clone().requires_grad_()
    value = f(z)
    (gradient,) = torch.autograd.grad(value, z, u)

    def same(got: Tensor, expected: Tensor) -> None:
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)

    got, pull = func.vjp(f, ROWS)
    same(got, value)
    same(pull(u)[0], gradient)
    got, tangent = func.jvp(f, (ROWS,), (v,))
    same(got, value)
    with forward_ad.dual_level():
        got, dual = forward_ad.unpack_dual(f(forward_ad.make_dual(ROWS, v)))
        same(got, value)
        same(dual, tangent)
    w = u.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(z), z, w, create_graph=True)
    same(first, gradient)
    same(torch.autograd.grad(first, w, v)[0], tangent)
    if name not in ("mask", "binary", "binary loss"):
        lost = value.isnan().reshape(7, -1).all(1)
        assert lost.tolist() == (
            [False] * 7 if name == "all ignored" else [False, True, True, True] + [False] * 3
        )
        assert torch.equal(gradient.isnan().all(1), lost)
        assert torch.equal(gradient.isnan().any(1), lost)


def test_the_gradient_of_an_infinite_loss_is_still_p_minus_q():
    """A label whose score is -inf, under autograd and under a transform."""
    z = torch.tensor([[-inf, 1, 0.5]], dtype=f64)
    expected = torch.tensor([[-1, 0.75, 0.25]], dtype=f64)
    y = torch.tensor([0])
    leaf = z.clone().requires_grad_()
    assert zt.sparsemax_loss(z, y) == inf
    assert torch.equal(torch.autograd.grad(zt.sparsemax_loss(leaf, y), leaf)[0], expected)
    assert torch.equal(func.grad(zt.sparsemax_loss)(z, y), expected)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3), (0,)])
def test_empty_tensors_have_empty_gradients(shape):
    """In every dim, of the values and of tau."""
    for dim in range(len(shape)):
        for f in (zt.sparsemax, zt.threshold):
            z = torch.zeros(shape, dtype=f64, requires_grad=True)
            out = f(z, dim)
            assert torch.autograd.grad(out.sum(), z)[0].shape == shape
            assert (
                func.jvp(lambda x, f=f, dim=dim: f(x, dim), (z.detach(),), (z.detach(),))[1].shape
                == out.shape
            )
            assert func.vmap(lambda x, f=f, dim=dim: f(x, dim))(torch.zeros(3, *shape)).shape == (
                3,
                *out.shape,
            )


def test_a_number_is_a_row_of_one_in_every_mode():
    """0-d: probability 1, derivative 0, as torch.softmax."""
    x = torch.tensor(0.3, dtype=f64, requires_grad=True)
    p = zt.sparsemax(x, 0)
    assert p.shape == ()
    assert p == 1
    assert torch.autograd.grad(p, x)[0] == 0
    assert torch.equal(
        func.vmap(lambda t: zt.sparsemax(t, 0))(torch.zeros(3, dtype=f64)), torch.ones(3, dtype=f64)
    )
    assert func.jvp(lambda t: zt.sparsemax(t, -1), (x.detach(),), (x.detach(),))[1] == 0


# ---- the operators --------------------------------------------------------------------------------------


def operators() -> list[tuple[Any, tuple[Any, ...]]]:
    ops = torch.ops.zerotail
    rng = np.random.default_rng(3)
    z = torch.tensor(rng.normal(0, 1, (2, 5, 3)))
    labels, q = (
        torch.tensor(rng.integers(0, 5, (2, 3))),
        zt.sparsemax(torch.tensor(rng.normal(0, 1, z.shape)), 1),
    )
    p = zt.sparsemax(z, 1)
    out = [(ops.sparsemax, (z, 1)), (ops.sparsemax_jvp, (p, z, 1)), (ops.threshold, (z, 1))]
    for target in (labels, q):
        _, hi, lo = ops.sparsemax_loss(z, target, 1, -100)
        v = torch.tensor(rng.normal(0, 1, hi.shape))
        out += [(ops.sparsemax_loss, (z, target, 1, -100))]
        out += [(ops.sparsemax_loss_gradient, (z, target, hi, lo, v, 1, -100))]
    return out


@scripts
@pytest.mark.parametrize("number", range(7))
def test_torchs_own_check_of_operators_passes(number):
    """opcheck: schema, fake kernel, autograd registration, and the whole through AOT dispatch."""
    op, args = operators()[number]
    tracked = tuple(
        x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in args
    )
    free = [0] if op in (torch.ops.zerotail.sparsemax, torch.ops.zerotail.threshold) else [0, 1]
    if op is torch.ops.zerotail.sparsemax_jvp:
        free = [1]
    some = tuple(t if i in free else x for i, (t, x) in enumerate(zip(tracked, args, strict=True)))
    for given in (args, some):
        torch.library.opcheck(op.default, given)


# ---- torch.jit ------------------------------------------------------------------------------------------


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sparsemax = zt.Sparsemax()

    def forward(self, x: Tensor) -> Tensor:
        return self.sparsemax(x)


def calls_sparsemax(x: Tensor) -> Tensor:
    return zt.sparsemax(x)


@scripts
@pytest.mark.parametrize(
    ("thing", "name"),
    [
        *(
            (getattr(zt, name), name)
            for name in sorted(zt.__all__)
            if name[0].islower() and name not in ("onnx_translations", "register_attention")
        ),
        (calls_sparsemax, "sparsemax"),
        (zt.Sparsemax(), "Sparsemax"),
        (zt.SparsemaxLoss(), "SparsemaxLoss"),
        (zt.BinarySparsemaxLoss(), "BinarySparsemaxLoss"),
        (Attention(), "Sparsemax"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_torchscript_is_refused_in_words(thing, name):
    """Functions and modules, alone and inside of others: the error names what to use instead."""
    with pytest.raises(RuntimeError, match=f"{name} must be compiled by torch.compile or torch.export"):
        torch.jit.script(thing)


@scripts
@pytest.mark.filterwarnings(
    "ignore::torch.jit.TracerWarning"
)  # of the checks of arguments: constants are right
@pytest.mark.parametrize("grad", [False, True])
def test_a_trace_computes_and_holds_no_constant(grad):
    """torch.jit.trace, in the middle of a network, at numbers other than the example's."""
    z = torch.tensor(np.random.default_rng(5).normal(0, 1, (2, 3, 5)), requires_grad=grad)
    y = torch.tensor([0, 2, 4])
    for f in (
        lambda x: 2 * zt.sparsemax(3 * x),
        lambda x: 2 * zt.threshold(3 * x),
        lambda x: 2 * zt.sparsemax_loss(3 * x, y),
        lambda x: 2 * zt.binary_sparsemax(3 * x),
    ):
        traced = torch.jit.trace(f, (z[0],), check_trace=False)
        assert torch.equal(traced(z[1]), f(z[1]))
        if grad:
            got, expected = (torch.autograd.grad(g(z[1]).sum(), z)[0] for g in (traced, f))
            assert torch.equal(got, expected)


# ---- modules --------------------------------------------------------------------------------------------

MODULES = {
    "Sparsemax": (zt.Sparsemax(0), False),
    "SparsemaxLoss": (
        zt.SparsemaxLoss(torch.arange(1.0, 6), ignore_index=2, reduction="sum", label_smoothing=0.1), True,
    ),
    "BinarySparsemaxLoss": (zt.BinarySparsemaxLoss(reduction="sum"), False),
}  # fmt: skip


def _saved(module: torch.nn.Module) -> torch.nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), _saved])
@pytest.mark.parametrize("name", MODULES)
def test_a_copy_of_a_module_is_that_module(name, again):
    """deepcopy, pickle, torch.save: the same words and the same numbers."""
    module, labels = MODULES[name]
    rng = np.random.default_rng(1)
    z = torch.tensor(rng.normal(0, 1, (4, 5)), dtype=torch.float32)
    args = {"Sparsemax": (z,), "SparsemaxLoss": (z, torch.tensor([0, 1, 2, 4]))}.get(name, (z, z.sigmoid()))
    other = again(module)
    assert other is not module
    assert repr(other) == repr(module)
    assert torch.equal(other(*args), module(*args))
    assert list(other.state_dict()) == (["weight"] if labels else [])


@pytest.mark.parametrize("name", [name for name in zt.__all__ if name[0].islower()])
def test_a_function_is_pickled_by_its_name(name):
    function = getattr(zt, name)
    assert pickle.loads(pickle.dumps(function)) is function


# ---- types, defaults and modes --------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, f64, torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_the_types_of_softmax_and_cross_entropy(dtype, enabled):
    """On the CPU, inside and outside of it."""
    z = torch.tensor(np.random.default_rng(0).normal(0, 1, (3, 5)), dtype=dtype)
    y, q = torch.tensor([0, 4, 2]), torch.full((3, 5), 0.2, dtype=dtype)
    pairs = [
        (lambda: zt.sparsemax(z), lambda: torch.softmax(z, -1)),
        (lambda: zt.sparsemax(z, dtype=torch.float32), lambda: torch.softmax(z, -1, dtype=torch.float32)),
        (lambda: zt.sparsemax_loss(z, y), lambda: F.cross_entropy(z, y)),
        (lambda: zt.sparsemax_loss(z, q), lambda: F.cross_entropy(z, q)),
        (lambda: zt.sparsemax_loss(z, y, reduction="none"), lambda: F.cross_entropy(z, y, reduction="none")),
        (lambda: zt.binary_sparsemax(z), lambda: torch.sigmoid(z)),
        (lambda: zt.binary_sparsemax_loss(z, q), lambda: F.binary_cross_entropy_with_logits(z, q)),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        for ours, theirs in pairs:
            assert ours().dtype == theirs().dtype
        p = zt.sparsemax(z)
    exact = oracle.project(z.double().numpy()).hi
    np.testing.assert_allclose(p.double().numpy(), exact, rtol=0, atol=torch.finfo(p.dtype).eps)


def test_defaults_of_type_and_device_change_nothing():
    """torch.set_default_dtype, torch.set_default_device: results follow the input."""
    z = torch.tensor(np.random.default_rng(2).normal(0, 1, (3, 5)), requires_grad=True)
    y, mask = torch.tensor([0, 4, 2]), z.detach() > -1
    functions = [
        zt.sparsemax,
        lambda z: zt.sparsemax(z, mask=mask),
        zt.threshold,
        lambda z: zt.sparsemax_loss(z, y, label_smoothing=0.1),
        lambda z: zt.sparsemax_loss(z, zt.sparsemax(z.detach() * 2), z.detach()[0].exp()),
        zt.binary_sparsemax,
        lambda z: zt.binary_sparsemax_loss(z, z.detach().sigmoid()),
    ]

    def results() -> list[Tensor]:
        outs = [f(z) for f in functions]
        gradients = [torch.autograd.grad(out.sum(), z)[0] for out in outs]
        return [*outs, *gradients, *(func.grad(lambda x, f=f: f(x).sum())(z.detach()) for f in functions)]

    expected = results()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"):
            got = results()
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.device) == (f64, torch.device("cpu"))
        assert torch.equal(a, b)


def test_a_dispatch_mode_sees_the_operators():
    """No number is computed behind a TorchDispatchMode's back."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    z = torch.zeros(3, 5)
    with Mode():
        zt.sparsemax(z), zt.threshold(z), zt.sparsemax_loss(z, torch.tensor([0, 1, 2]))
    names = {name.split(".")[1] for name in seen if name.startswith("zerotail")}
    assert names == {"sparsemax", "threshold", "sparsemax_loss"}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # compressed layouts say that they are new
@pytest.mark.parametrize("kind", ["complex", "sparse", "compressed", "integers"])
def test_what_softmax_refuses_is_refused_with_its_exception(kind):
    """Complex numbers, sparse layouts, integers."""
    z = {
        "complex": lambda: torch.zeros(3, 5, dtype=torch.complex64),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "compressed": lambda: torch.eye(3).to_sparse_csr(),
        "integers": lambda: torch.zeros(3, 5, dtype=torch.int64),
    }[kind]()
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever it is
        torch.softmax(z, -1)
    for f in (zt.sparsemax, zt.threshold, lambda z: zt.sparsemax_loss(z, torch.tensor([0, 1, 2]))):
        with pytest.raises(type(theirs.value), match=r"^input must be "):
            f(z)


def test_backward_inside_of_vmap_is_right_or_refused():
    """torch refuses autograd.grad there for its own operations, or it is the gradient of each sample."""
    z = torch.tensor(np.random.default_rng(4).normal(0, 1, (4, 5)))

    def gradient(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad((zt.sparsemax(x) ** 2).sum(), x)[0]

    expected = torch.stack([gradient(x) for x in z])
    try:
        got = func.vmap(gradient)(z)
    except RuntimeError:
        return
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-15)


# ---- two processes --------------------------------------------------------------------------------------


def test_shards_stay_where_they_are(tmp_path):
    """DTensor over gloo: values and derivatives right from every placement; a row's whole moves nothing."""
    pytest.importorskip("torch.distributed")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    command = [sys.executable, "-W", "ignore", "-m", "tests.torch_dtensor"]
    processes, end = [], time.monotonic() + 300
    try:
        for rank in range(2):
            with (tmp_path / f"{rank}.out").open("w") as out, (tmp_path / f"{rank}.err").open("w") as err:
                arguments = [*command, str(rank), str(tmp_path / "store")]
                processes.append(subprocess.Popen(arguments, cwd=ROOT, stdout=out, stderr=err))
        # One that dies leaves the other waiting for it.
        while any(p.poll() is None for p in processes) and not any(p.poll() for p in processes):
            assert time.monotonic() < end, "two processes wait for each other"
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0, 0], "".join((tmp_path / f"{rank}.err").read_text() for rank in range(2))
    lines = [line.split(" | ") for line in (tmp_path / "0.out").read_text().splitlines()]
    assert {name for name, *_ in lines} == {case.name for case in CASES}
    for name, classes, moved, result in lines:
        if classes == "whole":
            assert moved == "{}", (name, moved, result)
