"""The functions that zerotail is held against. Each maker returns a call without arguments.

They are imported here, where they are used: a peer that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.gate import Array
from benchmarks.model import Call


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


def cross_entropy(scores: Array, labels: Array) -> Call:
    """Loss and gradient, as a training step asks for them."""
    import torch

    x, y = tensor(scores).requires_grad_(), tensor(labels)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(x, y, reduction="sum")
        return torch.autograd.grad(loss, x)

    return step


def entmax(scores: Array) -> Call:
    sparsemax, x = import_module("entmax").sparsemax, tensor(scores)
    return lambda: sparsemax(x, dim=-1)


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
