"""The uses that make a graph of the functions first: compile, export, AOTInductor, tracing, scripting.

All functions are in one graph, which is captured, and built, once. Forms that add nothing to a graph but
another constant are left out: a test names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, func

import zerotail.torch as zt
from tests import oracle
from tests.test_torch_uses import Problem, batch, close, stack
from tests.torch_cases import CASES

pytestmark = [
    # The first use of forward mode scripts torch's own decompositions.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    # So does Inductor.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

NOT_IN_GRAPHS = {
    "sparsemax, dim 0": "dim is a constant of the graph; that of 'dim 1 of 3' is another one",
    "sparsemax, one row": "as sparsemax, with fewer dimensions",
    "sparsemax, size 1": "a size is a constant of the graph",
    "sparsemax, broadcast mask": "torch.where broadcasts, as in 'mask'",
    "sparsemax, -inf scores": "numbers are not in the graph",
    "threshold, dim 0": "dim is a constant of the graph",
    "loss, labels, sum": "a part of the mean's graph",
    "loss, labels, none": "a part of the mean's graph",
    "loss, one label": "as labels, with fewer dimensions",
    "loss, labels, weight": "in 'weight, smoothing'",
    "loss, labels, smoothing": "in 'weight, smoothing'",
    "loss, labels, ignore_index": "in 'weight, smoothing'",
    "loss, probabilities": "a part of 'in the target'",
    "loss, in the target, none": "a part of the mean's graph",
    "loss, in the target, images": "as 'in the target', at another dim",
    "loss, in the target, weight": "in 'weight, smoothing, sum'",
    "binary loss, none": "a part of the mean's graph",
    "binary loss, sum": "a part of the mean's graph",
}
GRAPHED = [case for case in CASES if case.name not in NOT_IN_GRAPHS]
PROBLEMS = [Problem(case) for case in GRAPHED]
ENDS = list(accumulate(len(p.arrays) for p in PROBLEMS))
PARTS = [slice(a, b) for a, b in pairwise([0, *ENDS])]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def of_each(xs: Any) -> list[Any]:
    """What belongs to each function, of what there is for each input."""
    return [xs[part] for part in PARTS]


def inputs(grad: bool = False) -> list[Tensor]:
    return [x for p in PROBLEMS for x in p.inputs(grad)]


def cotangents() -> list[Tensor]:
    return [p.like_output(p.u) for p in PROBLEMS]


def tangents() -> list[Tensor]:
    return [x for p in PROBLEMS for x in p.like_inputs(p.v)]


def every(*xs: Tensor) -> list[Tensor]:
    """All functions of all their inputs."""
    return [p.call(*part) for p, part in zip(PROBLEMS, of_each(xs), strict=True)]


def total(us: list[Tensor], *xs: Tensor) -> Tensor:
    return sum((u * y).sum() for u, y in zip(us, every(*xs), strict=True))


INPUTS = tuple(range(1, ENDS[-1] + 1))


def check_values(got: Any) -> None:
    for p, y in zip(PROBLEMS, got, strict=True):
        close(y, p.exact.value)


def check_gradients(got: Any) -> None:
    for p, g in zip(PROBLEMS, of_each(got), strict=True):
        close(g, p.vjp)


def test_compiled_in_one_graph_with_its_backward():
    """compile(fullgraph=True): values and gradients; then without gradients."""
    compiled = torch.compile(every, fullgraph=True, backend="aot_eager")
    xs = inputs(grad=True)
    out = compiled(*xs)
    check_values(out)
    check_gradients(torch.autograd.grad(out, xs, cotangents()))
    with torch.no_grad():
        check_values(compiled(*inputs()))


def test_what_is_left_out_of_the_graphs_is_known():
    """No name is left out twice, or without being a function of the table."""
    assert set(NOT_IN_GRAPHS) < {case.name for case in CASES}
    assert len(GRAPHED) + len(NOT_IN_GRAPHS) == len(CASES)


def test_compiled_gradients():
    """compile(func.grad): no silent zeros."""
    compiled = torch.compile(func.grad(total, argnums=INPUTS), fullgraph=True, backend="aot_eager")
    check_gradients(compiled(cotangents(), *inputs()))


def test_compiled_gradients_of_each_sample():
    """compile(vmap(grad)): no silent zeros."""
    problems = [batch(case, 2) for case in GRAPHED]
    us = [torch.stack([p.like_output(p.u) for p in both]) for both in problems]
    xs = [x for both in problems for x in stack(both)]
    compiled = torch.compile(func.vmap(func.grad(total, argnums=INPUTS)), fullgraph=True, backend="aot_eager")
    got = compiled(us, *xs)
    for both, g in zip(problems, of_each(got), strict=True):
        for i, p in enumerate(both):
            close([part[i] for part in g], p.vjp)


def test_compiled_forward_mode():
    """compile(jvp): values and tangents."""

    def forward(xs: list[Tensor], vs: list[Tensor]) -> Any:
        return func.jvp(every, tuple(xs), tuple(vs))

    values, moved = torch.compile(forward, fullgraph=True, backend="aot_eager")(inputs(), tangents())
    check_values(values)
    for p, y in zip(PROBLEMS, moved, strict=True):
        close(y, p.jvp)


# ---- shapes that change, and programs that leave the process ----------------------------------------


class Net(torch.nn.Module):
    """The functions of scores of any shape, as an exported program has them."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = zt.SparsemaxLoss(label_smoothing=0.1)

    def forward(self, scores: Tensor, labels: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        return (
            zt.sparsemax(scores),
            zt.sparsemax(scores, 0),
            zt.sparsemax(scores, mask=q > 0),
            zt.threshold(scores),
            zt.sparsemax_loss(scores, labels, reduction="none"),
            zt.sparsemax_loss(scores, q),
            self.loss(scores, labels),
            zt.binary_sparsemax(scores),
            zt.binary_sparsemax_loss(scores, q),
        )


def arguments(rows: int, cols: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng([rows, cols])
    z, q = rng.normal(0, 1, (rows, cols)), rng.dirichlet(np.ones(cols), rows)
    q[:, 1] = 0
    q /= q.sum(axis=1, keepdims=True)
    return torch.tensor(z), torch.tensor(rng.integers(0, cols, rows)), torch.tensor(q)


def expected(z: Tensor, labels: Tensor, q: Tensor) -> list[np.ndarray]:
    """From the oracle."""
    z, q, labels = z.numpy(), q.numpy(), labels.numpy()
    solved = oracle.project(z)
    one_hot = np.eye(z.shape[1])[labels]
    pairs = np.stack([z.reshape(-1), np.zeros(z.size)], 1)
    return [
        solved.hi,
        oracle.project(z.T).hi.T,
        oracle.project(np.where(q > 0, z, -np.inf)).hi,
        solved.tau()[0],
        oracle.loss(z, labels, solved)[0],
        oracle.loss(z, q, solved)[0].mean(),
        oracle.loss(z, 0.9 * one_hot + 0.1 / z.shape[1], solved)[0].mean(),
        oracle.project(pairs).hi[:, 0].reshape(z.shape),
        oracle.loss(pairs, np.stack([q.reshape(-1), 1 - q.reshape(-1)], 1))[0].mean(),
    ]


SHAPES = [(3, 5), (7, 11), (2, 19)]


def check_net(program: Any) -> None:
    for shape in SHAPES:
        args = arguments(*shape)
        for got, right in zip(program(*args), expected(*args), strict=True):
            close(got, right)


def exported(strict: bool) -> torch.export.ExportedProgram:
    rows, cols = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("cols", min=3, max=64)
    shapes = ({0: rows, 1: cols}, {0: rows}, {0: rows, 1: cols})
    return torch.export.export(Net(), arguments(*SHAPES[0]), dynamic_shapes=shapes, strict=strict)


def test_compiled_for_changing_shapes():
    """compile(dynamic=True), by Inductor, with the backward: new shapes are not compiled again."""
    net = Net()
    compiled = torch.compile(net, fullgraph=True, dynamic=True)
    for i, shape in enumerate(SHAPES):
        with torch._dynamo.config.patch(error_on_recompile=i > 0):
            z, labels, q = arguments(*shape)
            z.requires_grad_()
            out = compiled(z, labels, q)
            for got, right in zip(out, expected(z.detach(), labels, q), strict=True):
                close(got, right)
            us = [torch.tensor(np.random.default_rng(9).normal(0, 1, tuple(y.shape))) for y in out]
            (g,) = torch.autograd.grad(out, z, us)
            (right,) = torch.autograd.grad(net(z, labels, q), z, us)
            close(g, right.numpy())


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_exported(strict, tmp_path):
    """export, with dynamic shapes: the program, saved and loaded, has the operators and their values."""
    program = exported(strict)
    operators = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"zerotail.sparsemax.default", "zerotail.sparsemax_loss.default"} <= operators
    torch.export.save(program, tmp_path / "net.pt2")
    check_net(torch.export.load(tmp_path / "net.pt2").module())


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # of torch's own use of its own pytrees
def test_built_ahead_of_time(tmp_path):
    """AOTInductor: packaged, loaded and run, at shapes other than the example's."""
    with torch._inductor.config.patch({"aot_inductor.compile_wrapper_opt_level": "O0"}):
        path = torch._inductor.aoti_compile_and_package(
            exported(strict=False), package_path=str(tmp_path / "net.pt2")
        )
    check_net(torch._inductor.aoti_load_package(path))
