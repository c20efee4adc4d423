"""The table "use x function": each way to use PyTorch, with each function of the front end.

A use takes a case and compares every number that it gets with products of the exact value, Jacobian and
Hessian, for random cotangents and tangents: what is silently zero, or silently constant, shows.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import zerotail.torch as zt
from tests import attention_cases
from tests.torch_cases import CASES, Case, Exact

pytestmark = [
    # func.linearize folds constants with torch.fx, which warns of its own way to do so.
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
    # The first use of forward mode scripts torch's own decompositions.
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


class Problem:
    """A case at a random point, with random vectors of every kind that a use needs."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, *map(ord, case.name)])
        self.call = case.call
        self.arrays = case.make(rng)
        self.exact: Exact = case.exact(*self.arrays)
        self.u = rng.normal(0, 1, len(self.exact.value))
        """A cotangent."""
        self.v, self.w = (rng.normal(0, 1, self.exact.jacobian.shape[1]) for _ in range(2))
        """Tangents."""

    def inputs(self, grad: bool = False) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(x, requires_grad=grad) for x in self.arrays)

    def like_output(self, u: np.ndarray) -> Tensor:
        with torch.no_grad():
            return torch.tensor(u).reshape(self.call(*self.inputs()).shape)

    def like_inputs(self, v: np.ndarray) -> tuple[Tensor, ...]:
        ends = np.cumsum([x.size for x in self.arrays])[:-1]
        parts = zip(np.split(v, ends), self.arrays, strict=True)
        return tuple(torch.tensor(part.reshape(x.shape)) for part, x in parts)

    def scalar(self, *inputs: Tensor) -> Tensor:
        """u' f."""
        return (self.like_output(self.u) * self.call(*inputs)).sum()

    @property
    def every(self) -> tuple[int, ...]:
        return tuple(range(len(self.arrays)))

    # What is exact.
    @property
    def vjp(self) -> np.ndarray:
        return self.u @ self.exact.jacobian

    @property
    def jvp(self) -> np.ndarray:
        return self.exact.jacobian @ self.v

    @property
    def scalar_hessian(self) -> np.ndarray:
        return np.tensordot(self.u, self.exact.hessian, 1)


def flat(x: Any) -> np.ndarray:
    """Tensors of one result, or of one number for each input, in order."""
    if isinstance(x, Tensor):
        return x.detach().numpy(force=True).reshape(-1)
    return np.concatenate([flat(part) for part in x])


def close(got: Any, expected: np.ndarray) -> None:
    __tracebackhide__ = True
    got = got if isinstance(got, np.ndarray) else flat(got)
    expected = np.asarray(expected)
    assert got.dtype == np.float64
    scale = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12 * scale + 1e-15)


def blocks(rows: Any, problem: Problem) -> np.ndarray:
    """A Jacobian as func.jacrev gives it, one tensor an input: (m, n)."""
    m = len(problem.exact.value)
    parts = [np.asarray(x.detach()).reshape(m, -1) for x in rows]
    return np.concatenate(parts, axis=1)


def square(rows: Any, problem: Problem) -> np.ndarray:
    """A Hessian of a number, as nested tuples, one an input: (n, n)."""
    sizes = [x.size for x in problem.arrays]
    parts = [[np.asarray(x.detach()).reshape(n, -1) for x in row] for n, row in zip(sizes, rows, strict=True)]
    return np.block(parts)


# ---- the uses -------------------------------------------------------------------------------------------

Use = Callable[[Case], None]
USES: dict[str, Use] = {}


def use(function: Use) -> Use:
    USES[function.__name__.replace("_", " ")] = function
    return function


@use
def eager(case: Case) -> None:
    p = Problem(case)
    inputs = p.inputs(grad=True)
    out = p.call(*inputs)
    close(out, p.exact.value)
    close(torch.autograd.grad(out, inputs, p.like_output(p.u)), p.vjp)


@use
def without_gradients(case: Case) -> None:
    """Plain, no_grad and inference_mode: the same numbers, no graph."""
    p = Problem(case)
    with torch.no_grad():
        out = p.call(*p.inputs(grad=True))
    assert not out.requires_grad
    close(out, p.exact.value)
    with torch.inference_mode():
        out = p.call(*p.inputs())
    assert out.is_inference()
    close(out.clone(), p.exact.value)
    close(p.call(*p.inputs()), p.exact.value)


@use
def double_backward(case: Case) -> None:
    """In the inputs and in the cotangent."""
    p = Problem(case)
    inputs = p.inputs(grad=True)
    u = p.like_output(p.u).requires_grad_()
    first = torch.autograd.grad(p.call(*inputs), inputs, u, create_graph=True)
    close(first, p.vjp)
    second = torch.autograd.grad(first, (*inputs, u), p.like_inputs(p.v), materialize_grads=True)
    close(second[:-1], p.scalar_hessian @ p.v)
    close(second[-1], p.jvp)


@use
def second_backward(case: Case) -> None:
    """With retain_graph: the same to the bit, and added up in .grad."""
    p = Problem(case)
    inputs = p.inputs(grad=True)
    out, u = p.call(*inputs), p.like_output(p.u)
    once = torch.autograd.grad(out, inputs, u, retain_graph=True)
    again = torch.autograd.grad(out, inputs, u, retain_graph=True)
    close(once, p.vjp)
    np.testing.assert_array_equal(flat(once), flat(again))
    out.backward(u, retain_graph=True)
    out.backward(u)
    close([x.grad for x in inputs], 2 * p.vjp)


@use
def each_input_alone(case: Case) -> None:
    """Where one of the inputs needs a gradient, and the other does not."""
    p = Problem(case)
    ends = np.cumsum([0, *(x.size for x in p.arrays)])
    for i in p.every:
        inputs = p.inputs()
        inputs[i].requires_grad_()
        first = torch.autograd.grad(p.call(*inputs), inputs[i], p.like_output(p.u), create_graph=True)
        part = slice(ends[i], ends[i + 1])
        close(first, p.vjp[part])
        if p.scalar_hessian[part, part].any():
            second = torch.autograd.grad(first, inputs[i], p.like_inputs(p.v)[i], materialize_grads=True)
            close(second, p.scalar_hessian[part, part] @ p.v[part])


@use
def gradcheck(case: Case) -> None:
    """Against finite differences, in reverse and forward mode, and batched."""
    p = Problem(case)
    assert torch.autograd.gradcheck(
        p.call, p.inputs(grad=True), check_forward_ad=True, check_batched_grad=True,
        check_batched_forward_grad=True,
    )  # fmt: skip


@use
def gradgradcheck(case: Case) -> None:
    """The second order: reverse over reverse, forward over reverse, and batched."""
    p = Problem(case)
    assert torch.autograd.gradgradcheck(
        p.call, p.inputs(grad=True), check_fwd_over_rev=True, check_rev_over_rev=True,
        check_batched_grad=True,
    )  # fmt: skip


@use
def func_grad(case: Case) -> None:
    p = Problem(case)
    close(func.grad(p.scalar, argnums=p.every)(*p.inputs()), p.vjp)
    gradient, value = func.grad_and_value(p.scalar, argnums=p.every)(*p.inputs())
    close(gradient, p.vjp)
    close(value, np.array(p.u @ p.exact.value))


def batch(case: Case, size: int) -> list[Problem]:
    return [Problem(case, seed) for seed in range(size)]


def stack(problems: list[Problem], dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(
        torch.stack(xs, min(dim, xs[0].dim())) for xs in zip(*(p.inputs() for p in problems), strict=True)
    )


@use
def vmap(case: Case) -> None:
    """Over the first dimension and another, in two levels, and given out elsewhere."""
    problems = batch(case, 3)
    expected = np.stack([p.exact.value for p in problems])
    call = problems[0].call
    for randomness in ("error", "different", "same"):
        close(func.vmap(call, randomness=randomness)(*stack(problems)), expected)
    close(func.vmap(call, in_dims=1)(*stack(problems, 1)), expected)
    close(func.vmap(call, in_dims=-1)(*(x.movedim(0, -1) for x in stack(problems))), expected)
    out = func.vmap(call, out_dims=-1)(*stack(problems))
    close(out.movedim(-1, 0), expected)
    pairs = tuple(torch.stack([x, x.flip(0)]) for x in stack(problems))
    close(func.vmap(func.vmap(call))(*pairs), np.stack([expected, expected[::-1]]))
    pairs = tuple(x.movedim(0, -1) for x in pairs)
    close(func.vmap(func.vmap(call, in_dims=0), in_dims=-1)(*pairs), np.stack([expected, expected[::-1]]))
    close(func.vmap(call, chunk_size=2)(*stack(problems)), expected)


@use
def vmap_of_a_part(case: Case) -> None:
    """One input in a batch, the others shared; and a function in a batch of which nothing is batched."""
    problems = batch(case, 3)
    p = problems[0]
    for i in p.every:
        inputs = [stack(problems)[j] if i == j else x for j, x in enumerate(p.inputs())]
        arrays = [[(q if i == j else p).arrays[j] for j in p.every] for q in problems]
        got = func.vmap(p.call, in_dims=tuple(0 if i == j else None for j in p.every))(*inputs)
        close(got, np.stack([case.exact(*xs).value for xs in arrays]))
    weights = torch.tensor([2.0, -3.0], dtype=torch.float64)
    got = func.vmap(lambda c: c * p.call(*p.inputs()))(weights)
    close(got, np.stack([2 * p.exact.value, -3 * p.exact.value]))


@use
def vmap_of_grad(case: Case) -> None:
    """A gradient for each sample, and batches of cotangents for one point."""
    problems = batch(case, 3)
    p = problems[0]
    u = torch.stack([q.like_output(q.u) for q in problems])

    def gradient(u: Tensor, *inputs: Tensor) -> Any:
        return func.grad(lambda *xs: (u * p.call(*xs)).sum(), argnums=p.every)(*inputs)

    got = func.vmap(gradient)(u, *stack(problems))
    for i, q in enumerate(problems):
        close([g[i] for g in got], q.vjp)
    got = func.vmap(gradient, in_dims=(0, *(None for _ in p.every)))(u, *p.inputs())
    for i, q in enumerate(problems):
        close([g[i] for g in got], q.u @ p.exact.jacobian)
    inputs = p.inputs(grad=True)
    got = torch.autograd.grad(p.call(*inputs), inputs, u, is_grads_batched=True)
    for i, q in enumerate(problems):
        close([g[i] for g in got], q.u @ p.exact.jacobian)


@use
def grad_of_vmap(case: Case) -> None:
    """Through autograd and through func.grad, of a batch as a whole."""
    problems = batch(case, 3)
    u = torch.stack([q.like_output(q.u) for q in problems])

    def total(*inputs: Tensor) -> Tensor:
        return (u * func.vmap(problems[0].call)(*inputs)).sum()

    leaves = tuple(x.requires_grad_() for x in stack(problems))
    for got in (
        func.grad(total, argnums=problems[0].every)(*stack(problems)),
        torch.autograd.grad(total(*leaves), leaves),
    ):
        for i, q in enumerate(problems):
            close([g[i] for g in got], q.vjp)


@use
def grad_of_grad(case: Case) -> None:
    """Nested: along tangents, inside of vmap, and under autograd."""
    p = Problem(case)

    def along(v: tuple[Tensor, ...], *inputs: Tensor) -> Tensor:
        gradient = func.grad(p.scalar, argnums=p.every)(*inputs)
        return sum((a * b).sum() for a, b in zip(gradient, v, strict=True))

    v = p.like_inputs(p.v)
    second = p.scalar_hessian @ p.v
    at = tuple(i + 1 for i in p.every)
    close(func.grad(along, argnums=at)(v, *p.inputs()), second)
    leaves = p.inputs(grad=True)
    if case.curved:
        close(torch.autograd.grad(along(v, *leaves), leaves), second)
    both = tuple(torch.stack([a, b]) for a, b in zip(v, p.like_inputs(p.w), strict=True))
    got = func.vmap(func.grad(along, argnums=at), in_dims=(0, *(None for _ in p.every)))(both, *p.inputs())
    close([g[0] for g in got], second)
    close([g[1] for g in got], p.scalar_hessian @ p.w)


@use
def jvp(case: Case) -> None:
    p = Problem(case)
    value, tangent = func.jvp(p.call, p.inputs(), p.like_inputs(p.v))
    close(value, p.exact.value)
    close(tangent, p.jvp)
    value, tangent = func.jvp(func.grad(p.scalar, argnums=p.every), p.inputs(), p.like_inputs(p.v))
    close(value, p.vjp)
    close(tangent, p.scalar_hessian @ p.v)

    def forward(*inputs: Tensor) -> Tensor:
        return func.jvp(p.scalar, inputs, p.like_inputs(p.v))[1]

    value, tangent = func.jvp(forward, p.inputs(), p.like_inputs(p.w))
    close(value, np.array(p.u @ p.jvp))
    close(tangent, np.array(p.v @ p.scalar_hessian @ p.w))
    close(func.grad(forward, argnums=p.every)(*p.inputs()), p.scalar_hessian @ p.v)


@use
def vjp(case: Case) -> None:
    p = Problem(case)
    value, pull = func.vjp(p.call, *p.inputs())
    close(value, p.exact.value)
    close(pull(p.like_output(p.u)), p.vjp)
    both = torch.stack([p.like_output(p.u), p.like_output(-2 * p.u)])
    (close([g[1] for g in func.vmap(pull)(both)], -2 * p.vjp))


@use
def linearize(case: Case) -> None:
    p = Problem(case)
    value, push = func.linearize(p.call, *p.inputs())
    close(value, p.exact.value)
    close(push(*p.like_inputs(p.v)), p.jvp)
    close(push(*p.like_inputs(p.w)), p.exact.jacobian @ p.w)


@use
def jacrev_and_jacfwd(case: Case) -> None:
    p = Problem(case)
    for jacobian in (func.jacrev, func.jacfwd):
        close(blocks(jacobian(p.call, argnums=p.every)(*p.inputs()), p), p.exact.jacobian)
    close(blocks(func.jacrev(p.call, argnums=p.every, chunk_size=2)(*p.inputs()), p), p.exact.jacobian)


@use
def hessian(case: Case) -> None:
    """Forward over reverse, and the three other orders."""
    p = Problem(case)
    for outer in (func.jacfwd, func.jacrev):
        for inner in (func.jacfwd, func.jacrev):
            H = outer(inner(p.scalar, argnums=p.every), argnums=p.every)(*p.inputs())
            close(square(H, p), p.scalar_hessian)
    close(square(func.hessian(p.scalar, argnums=p.every)(*p.inputs()), p), p.scalar_hessian)


@use
def autograd_functional(case: Case) -> None:
    """torch.autograd.functional: loops, vectorised, and its double-backward trick for forward mode."""
    p = Problem(case)
    F = torch.autograd.functional
    for options in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        close(blocks(F.jacobian(p.call, p.inputs(), **options), p), p.exact.jacobian)
    for options in ({}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}):
        close(square(F.hessian(p.scalar, p.inputs(), **options), p), p.scalar_hessian)
    close(F.jvp(p.call, p.inputs(), p.like_inputs(p.v))[1], p.jvp)
    close(F.vhp(p.scalar, p.inputs(), p.like_inputs(p.v))[1], p.scalar_hessian @ p.v)


class Holder(torch.nn.Module):
    """The function of its own parameters."""

    def __init__(self, p: Problem) -> None:
        super().__init__()
        self.call = p.call
        self.inputs = torch.nn.ParameterList([torch.nn.Parameter(x) for x in p.inputs()])

    def forward(self) -> Tensor:
        return self.call(*self.inputs)


@use
def functional_call(case: Case) -> None:
    """Parameters in, and under the transforms; other values than the module's own."""
    p, other = Problem(case), Problem(case, 1)
    module = Holder(other)
    names = [name for name, _ in module.named_parameters()]
    given = dict(zip(names, p.inputs(), strict=True))

    def scalar(given: dict[str, Tensor]) -> Tensor:
        return (p.like_output(p.u) * func.functional_call(module, given, ())).sum()

    close(func.functional_call(module, given, ()), p.exact.value)
    close(func.grad(scalar)(given).values(), p.vjp)
    module().backward(other.like_output(other.u))
    close([x.grad for x in module.parameters()], other.vjp)


@use
def forward_mode(case: Case) -> None:
    """Dual numbers: alone, over a backward pass, and of leaves that need a gradient as well."""
    p = Problem(case)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(p.inputs(), p.like_inputs(p.v), strict=True)]
        value, tangent = forward_ad.unpack_dual(p.call(*duals))
        close(value, p.exact.value)
        close(tangent, p.jvp)
        leaves = p.inputs(grad=True)
        duals = [forward_ad.make_dual(*pair) for pair in zip(leaves, p.like_inputs(p.v), strict=True)]
        out = p.call(*duals)
        first = torch.autograd.grad(out, duals, p.like_output(p.u), create_graph=True)
        for exact, part in ((p.vjp, 0), (p.scalar_hessian @ p.v, 1)):
            parts = [forward_ad.unpack_dual(g)[part] for g in first]
            parts = [torch.zeros_like(x) if g is None else g for g, x in zip(parts, leaves, strict=True)]
            close(parts, exact)
        # The tangent is differentiable in the cotangent's direction too: reverse over forward.
        tangent = forward_ad.unpack_dual(p.call(*duals)).tangent
        got = torch.autograd.grad(tangent, leaves, p.like_output(p.u), materialize_grads=True)
        close(got, p.scalar_hessian @ p.v)
    with forward_ad.dual_level():  # a tangent of one input alone, and none at all
        inputs = list(p.inputs())
        close(p.call(*inputs), p.exact.value)
        inputs[0] = forward_ad.make_dual(inputs[0], p.like_inputs(p.v)[0])
        some = p.exact.jacobian[:, : p.arrays[0].size] @ p.v[: p.arrays[0].size]
        close(forward_ad.unpack_dual(p.call(*inputs)).tangent, some)


@use
def backward_of_what_was_made_outside_of_forward_mode(case: Case) -> None:
    """A graph that was recorded before a dual level begins, with a cotangent that has a tangent."""
    p = Problem(case)
    leaves = p.inputs(grad=True)
    out = p.call(*leaves)
    with forward_ad.dual_level():
        u = forward_ad.make_dual(p.like_output(0 * p.u), p.like_output(p.u))
        got = torch.autograd.grad(out, leaves, u)
        close([forward_ad.unpack_dual(g).tangent for g in got], p.vjp)


@use
def activation_checkpointing(case: Case) -> None:
    p = Problem(case)
    for reentrant in (False, True):
        inputs = p.inputs(grad=True)
        out = checkpoint(p.call, *inputs, use_reentrant=reentrant)
        close(out, p.exact.value)
        close(torch.autograd.grad(out, inputs, p.like_output(p.u)) if not reentrant else
              _grads(out, inputs, p.like_output(p.u)), p.vjp)  # fmt: skip
    inputs = p.inputs(grad=True)
    u = p.like_output(p.u)
    first = torch.autograd.grad(
        checkpoint(p.call, *inputs, use_reentrant=False), inputs, u, create_graph=True
    )
    if case.curved:
        close(torch.autograd.grad(first, inputs, p.like_inputs(p.v)), p.scalar_hessian @ p.v)


def _grads(out: Tensor, inputs: tuple[Tensor, ...], u: Tensor) -> list[Tensor | None]:
    out.backward(u)
    return [x.grad for x in inputs]


@use
def hooks(case: Case) -> None:
    """Hooks on tensors and on what is saved, with tensors packed away; anomaly mode."""
    p = Problem(case)
    inputs = p.inputs(grad=True)
    inputs[0].register_hook(lambda g: 2 * g)
    seen = []

    def pack(x: Tensor) -> np.ndarray:
        seen.append(x.shape)
        return x.detach().numpy().copy()

    with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
        out = p.call(*inputs)
    out.register_hook(lambda g: 3 * g)
    expected = 3 * p.vjp
    expected[: p.arrays[0].size] *= 2
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        close(torch.autograd.grad(out, inputs, p.like_output(p.u)), expected)
    assert seen
    with torch.autograd.graph.save_on_cpu():
        out = p.call(*inputs)
    out.backward(p.like_output(p.u))
    close(inputs[0].grad, 2 * p.vjp[: p.arrays[0].size])


@use
def in_place_changes(case: Case) -> None:
    """Of an input or of the result, after the forward pass: right, or torch says so."""
    p = Problem(case)
    for i in p.every:
        leaves = p.inputs(grad=True)
        inputs = [1 * x for x in leaves]
        out = p.call(*inputs)
        inputs[i].zero_()
        _right_or_refused(out, leaves, p, p.vjp)
    leaves = p.inputs(grad=True)
    out = p.call(*(1 * x for x in leaves))
    out.mul_(2)
    _right_or_refused(out, leaves, p, 2 * p.vjp)
    leaves = p.inputs(grad=True)
    inputs = [x.clone().mul_(2).div_(2) for x in leaves]  # changed before it
    close(torch.autograd.grad(p.call(*inputs), leaves, p.like_output(p.u)), p.vjp)


def _right_or_refused(out: Tensor, leaves: tuple[Tensor, ...], p: Problem, expected: np.ndarray) -> None:
    try:
        got = torch.autograd.grad(out, leaves, p.like_output(p.u))
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017 - either is right
    else:
        close(got, expected)


@use
def any_strides(case: Case) -> None:
    """Transposed, spread and negative-stepped views, whose base gets the gradient; cotangents too."""
    p = Problem(case)
    u = p.like_output(p.u)
    layouts: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
        "transposed": lambda x: (base := x.mT.contiguous() if x.dim() > 1 else x.clone(),
                                 base.requires_grad_().mT if x.dim() > 1 else base.requires_grad_()),
        "spread": lambda x: (base := torch.stack([x, x + 1], -1).requires_grad_(), base[..., 0]),
        "expanded": lambda x: (base := x.unsqueeze(0).clone().requires_grad_(), base.expand(2, *x.shape)[1]),
        "flipped": lambda x: (base := x.flip(-1).requires_grad_(), base.flip(-1)),
        "negated": lambda x: (base := (-x).requires_grad_(), torch._neg_view(base)),
    }  # fmt: skip
    wide = torch.stack([u, u], -1)[..., 0] if u.dim() else u
    for name, lay in layouts.items():
        pairs = [lay(x) for x in p.inputs()]
        views = [view for _, view in pairs]
        for view in views:
            view.retain_grad()
        out = p.call(*views)
        close(out, p.exact.value)
        out.backward(wide)
        close([view.grad for view in views], p.vjp)
        total = sum(float(base.grad.abs().sum()) for base, _ in pairs)
        assert np.isclose(total, np.abs(p.vjp).sum(), rtol=1e-10), name


@use
def deterministic_memory(case: Case) -> None:
    """With every new tensor full of NaN: each number of the results is written."""
    p = Problem(case)
    before = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        eager(case)
        without_gradients(case)
        close(func.jvp(p.call, p.inputs(), p.like_inputs(p.v))[1], p.jvp)
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fill


@use
def subclasses_and_parameters(case: Case) -> None:
    """A Parameter, and a Tensor of a class of its own, which stays one."""

    class Mine(Tensor):
        pass

    p = Problem(case)
    parameters = [torch.nn.Parameter(x) for x in p.inputs()]
    out = p.call(*parameters)
    close(out, p.exact.value)
    close(torch.autograd.grad(out, parameters, p.like_output(p.u)), p.vjp)
    mine = [x.as_subclass(Mine) for x in p.inputs()]
    with torch.no_grad():
        close(p.call(*mine).as_subclass(Tensor), p.exact.value)
    leaves = p.inputs(grad=True)
    out = p.call(*(x.as_subclass(Mine) for x in leaves))
    close(torch.autograd.grad(out, leaves, p.like_output(p.u)), p.vjp)


@use
def fake_and_meta(case: Case) -> None:
    """Shapes and types without numbers, as of the numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    p = Problem(case)
    out = p.call(*p.inputs())
    metas = [x.to("meta").requires_grad_() for x in p.inputs()]
    meta = p.call(*metas)
    assert (meta.device.type, meta.shape, meta.dtype) == ("meta", out.shape, out.dtype)
    assert [g.shape for g in torch.autograd.grad(meta.sum(), metas)] == [x.shape for x in metas]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(x) for x in p.inputs(grad=True)]
        fake = p.call(*fakes)
        assert (fake.shape, fake.dtype) == (out.shape, out.dtype)
        for g, x in zip(torch.autograd.grad(fake.sum(), fakes), p.inputs(), strict=True):
            assert (g.shape, g.dtype) == (x.shape, x.dtype)


@use
def threads(case: Case) -> None:
    """Many Python threads at once, forward and backward: the results of one, to the bit."""
    problems = batch(case, 2)

    def work(p: Problem) -> bytes:
        inputs = p.inputs(grad=True)
        out = p.call(*inputs)
        gradient = torch.autograd.grad(out, inputs, torch.tensor(p.u).reshape(out.shape))
        return flat(out).tobytes() + flat(gradient).tobytes()

    alone = [work(p) for p in problems]
    wrong: list[str] = []

    def repeat(i: int) -> None:
        wrong.extend(case.name for _ in range(5) if work(problems[i % 2]) != alone[i % 2])

    crew = [threading.Thread(target=repeat, args=(i,)) for i in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function_is_right_in_every_use(case, name):
    """Values, derivatives and second derivatives, at rtol 1e-12 in float64."""
    USES[name](case)


# ---- no hole --------------------------------------------------------------------------------------------

WANTED = {
    "eager": "eager",
    "no_grad, inference_mode": "without gradients",
    "double backward": "double backward",
    "second backward": "second backward",
    "gradcheck, forward and batched": "gradcheck",
    "gradgradcheck, forward over reverse and batched": "gradgradcheck",
    "func.grad": "func grad",
    "vmap": "vmap",
    "vmap, partly batched": "vmap of a part",
    "vmap(grad)": "vmap of grad",
    "grad(vmap)": "grad of vmap",
    "grad(grad)": "grad of grad",
    "jvp": "jvp",
    "vjp": "vjp",
    "linearize": "linearize",
    "jacrev, jacfwd": "jacrev and jacfwd",
    "hessian": "hessian",
    "autograd.functional": "autograd functional",
    "functional_call": "functional call",
    "forward-mode AD": "forward mode",
    "checkpoint": "activation checkpointing",
    "hooks": "hooks",
    "in-place": "in place changes",
    "threads": "threads",
    "fake and meta tensors": "fake and meta",
    "compile": "test_torch_graphs.test_compiled_in_one_graph_with_its_backward",
    "compile, dynamic": "test_torch_graphs.test_compiled_for_changing_shapes",
    "compile of grad": "test_torch_graphs.test_compiled_gradients",
    "compile of vmap(grad)": "test_torch_graphs.test_compiled_gradients_of_each_sample",
    "compile of jvp": "test_torch_graphs.test_compiled_forward_mode",
    "export": "test_torch_graphs.test_exported",
    "AOTInductor": "test_torch_graphs.test_built_ahead_of_time",
    "opcheck": "test_torch_modes.test_torchs_own_check_of_operators_passes",
    "autocast": "test_torch_modes.test_autocast_gives_the_types_of_softmax_and_cross_entropy",
    "DTensor": "test_torch_modes.test_shards_stay_where_they_are",
    "deepcopy and pickle": "test_torch_modes.test_a_copy_of_a_module_is_that_module",
    "TorchScript": "test_torch_modes.test_torchscript_is_refused_in_words",
    "torch.jit.trace": "test_torch_modes.test_a_trace_computes_and_holds_no_constant",
}
"""Each use that is promised, and where it is tested: a row of the table, or a test of all functions."""


def test_the_table_has_no_hole():
    """Every public function and module is in it, and every promised use, with derivatives that are not 0."""
    for place in WANTED.values():
        if place not in USES:
            module, name = place.split(".")
            assert callable(getattr(importlib.import_module(f"tests.{module}"), name))
    names = " ".join(case.name for case in (*CASES, *attention_cases.CASES))
    short = {"sparsemax_loss": "loss, labels", "binary_sparsemax_loss": "binary loss"}
    for name in zt.__all__:
        if name not in ("onnx_translations", "register_attention"):  # of others, with tests of their own
            assert short.get(name, name) in names
    for case in CASES:
        exact = Problem(case).exact
        assert case.name == "sparsemax, size 1" or np.abs(exact.jacobian).max() > 0.01
        assert case.curved == (np.abs(exact.hessian).max() > 0.01)
