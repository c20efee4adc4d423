"""The functions that zerotail is held against. Each maker returns a call without arguments.

They are imported here, where they are used: a peer that is not installed is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.gate import Array
from benchmarks.model import Call

Function = Callable[..., Any]


def installed(**makers: Callable[[], Call]) -> dict[str, Call]:
    """The calls of those peers whose packages are there."""
    calls = {}
    for name, make in makers.items():
        try:
            calls[name] = make()
        except ImportError:
            continue
    return calls


def tensor(array: Array) -> Any:
    """A torch tensor over the same memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def softmax(scores: Array, out: Array, axis: int = -1) -> Call:
    import torch

    x, p = tensor(scores), tensor(out)
    return lambda: torch.softmax(x, axis, out=p)


def copy(scores: Array, out: Array) -> Call:
    x, p = tensor(scores), tensor(out)
    return lambda: p.copy_(x)


def softmax_backward(y: Array, v: Array, out: Array | None) -> Call:
    """J v of softmax from its output y, into `out` or into a new tensor."""
    import torch

    output, gradient = tensor(y), tensor(v)
    if out is None:
        return lambda: torch.ops.aten._softmax_backward_data(gradient, output, -1, output.dtype)
    result, into = tensor(out), torch.ops.aten._softmax_backward_data.out
    return lambda: into(gradient, output, -1, output.dtype, grad_input=result)


def backward(function: Function, scores: Array, v: Array) -> Call:
    """The result of function(scores, dim) and v times its Jacobian, through autograd."""
    import torch

    x, gradient = tensor(scores).requires_grad_(), tensor(v)

    def step() -> Any:
        p = function(x, -1)
        return p, torch.autograd.grad(p, x, gradient)[0]

    return step


def training_step(loss: Function, scores: Array, labels: Array) -> Call:
    """Loss and gradient, as a training step asks for them."""
    import torch

    x, y = tensor(scores).requires_grad_(), tensor(labels)

    def step() -> Any:
        value = loss(x, y)
        return value, torch.autograd.grad(value, x)[0]

    return step


def without_gradient(function: Function, scores: Array) -> Call:
    """The seconds of one call of function(scores, dim): the mode is set around many."""
    import torch

    x = tensor(scores)

    def seconds() -> float:
        with torch.no_grad():
            for _ in range(50):
                function(x, -1)
            start = time.perf_counter()
            for _ in range(200):
                function(x, -1)
            return (time.perf_counter() - start) / 200

    return seconds


@cache
def compiled(function: Function) -> Function:
    """As torch.compile makes it, for each shape anew. Once a process: compiling takes seconds."""
    import torch

    # Every shape and number of threads is compiled on purpose, from one line of source.
    torch._dynamo.config.recompile_limit = 100
    return torch.compile(lambda x, dim: function(x, dim), fullgraph=True, dynamic=False)


def cross_entropy(scores: Array, labels: Array) -> Call:
    import torch

    return training_step(partial(torch.nn.functional.cross_entropy, reduction="sum"), scores, labels)


def entmax_loss(scores: Array, labels: Array) -> Call:
    return training_step(import_module("entmax").SparsemaxLoss(reduction="sum"), scores, labels)


def entmax(scores: Array) -> Call:
    sparsemax, x = import_module("entmax").sparsemax, tensor(scores)
    return lambda: sparsemax(x, dim=-1)


def jitted(function: Function, scores: Array, v: Array | None) -> Call:
    """function(scores) under jit, and with v also v times its Jacobian. Each call waits for its result."""
    import jax

    def step(x: Any, v: Any) -> Any:
        if v is None:
            return function(x)
        p, back = jax.vjp(function, x)
        return p, back(v)[0]

    call = jax.jit(step)
    arrays = jax.numpy.asarray(scores), None if v is None else jax.numpy.asarray(v)
    return lambda: jax.block_until_ready(call(*arrays))


def optax(scores: Array) -> Call:
    import jax

    project = jax.jit(jax.vmap(import_module("optax.projections").projection_simplex))
    x = jax.numpy.asarray(scores)
    return lambda: project(x).block_until_ready()


def scipy_softmax(scores: Array) -> Call:
    from scipy.special import softmax

    return lambda: softmax(scores, axis=-1)


def scipy_csr(dense: Call) -> Call:
    """The sparse matrix by way of the dense one."""
    from scipy.sparse import csr_array

    return lambda: csr_array(dense())
