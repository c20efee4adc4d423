"""Attention and what else works on supports, with exact values and derivatives, for the table of uses.

Around a point the support stays, and attention is smooth in its inputs: on the support that the oracle finds,
plain code is differentiated as often as is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, func

import zerotail.torch as zt
from tests import oracle
from tests.torch_cases import Arrays, Case, Exact

f64 = torch.float64


def on_support(z: Tensor, support: Tensor) -> Tensor:
    """Eqs. 3 and 4 where S is known; zeros where it is empty."""
    size = support.sum(-1, keepdim=True).clamp_min(1)
    tau = (torch.where(support, z, 0).sum(-1, keepdim=True) - 1) / size
    return torch.where(support, z - tau, 0)


def support_of(z: Tensor) -> tuple[Tensor, float]:
    """The exact support of each row, none where all is -inf, and how far the scores are from a kink."""
    rows = z.detach().numpy().reshape(-1, z.shape[-1])
    some = np.isfinite(rows).any(axis=1)
    support = np.zeros(rows.shape, dtype=bool)
    solved = oracle.project(rows[some])
    support[some] = solved.support
    margin = np.abs(rows[some] - solved.tau()[0][:, None]).min(initial=np.inf)
    return torch.tensor(support.reshape(z.shape)), margin


def attention_case(
    name: str,
    call: Callable[..., Tensor],
    shapes: list[tuple[int, ...]],
    scores: Callable[..., Tensor],
    average: Callable[..., Tensor],
) -> Case:
    """`scores` of the inputs, with -inf where a mask is; `average` of the weights and the inputs."""

    def make(rng: np.random.Generator) -> Arrays:
        while True:
            arrays = [rng.normal(0, 1, shape) for shape in shapes]
            if support_of(scores(*map(torch.tensor, arrays)))[1] > 0.02:
                return arrays

    def exact(*arrays: np.ndarray) -> Exact:
        inputs = tuple(map(torch.tensor, arrays))
        support, _ = support_of(scores(*inputs))
        every = tuple(range(len(inputs)))

        def plain(*xs: Tensor) -> Tensor:
            return average(on_support(scores(*xs), support), *xs).reshape(-1)

        first = func.jacrev(plain, argnums=every)
        m, n = len(plain(*inputs)), sum(x.numel() for x in inputs)
        J = torch.cat([x.reshape(m, -1) for x in first(*inputs)], 1)
        second = func.jacfwd(first, argnums=every)(*inputs)
        H = torch.cat(
            [
                torch.cat([y.reshape(m, x.numel(), -1) for y in row], 2)
                for row, x in zip(second, inputs, strict=True)
            ],
            1,
        )
        assert H.shape == (m, n, n)
        return Exact(plain(*inputs).numpy(), J.numpy(), H.numpy())

    return Case(name, call, make, exact, None, curved=True)


def blocked(mask: Tensor) -> Tensor:
    return torch.where(mask, 0.0, -torch.inf).to(f64)


def dot_product(
    name: str, *, added: Tensor | None = None, call: Callable[..., Tensor], heads: int = 1
) -> Case:
    """Queries of 2 groups of `heads` heads, 2 rows each; 3 keys."""

    def scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        z = q @ k.repeat_interleave(heads, -3).mT / q.shape[-1] ** 0.5
        return z if added is None else z + added

    return attention_case(
        name,
        call,
        [(2 * heads, 2, 2), (2, 3, 2), (2, 3, 1)],
        scores,
        lambda p, q, k, v: p @ v.repeat_interleave(heads, -3),
    )


MASK = torch.tensor([[[True, True, False], [True, True, True]], [[False, False, False], [True, False, True]]])


def _on(x: Any, like: Tensor) -> Any:
    return x.to(like.device)


def _additive() -> Case:
    torch.manual_seed(1)
    layer = zt.AdditiveAttention(2, 2, 3, dtype=f64)
    with torch.no_grad():
        layer.score.weight.mul_(3)
        layer.key_proj.bias.uniform_(-0.5, 0.5)
    layer.requires_grad_(False)
    mask = torch.tensor([[True, True, True, True], [True, True, False, True], [False] * 4])
    W, b, U, s = (x.detach() for x in layer.parameters())

    def call(query: Tensor, keys: Tensor) -> Tensor:
        moved = layer if keys.is_cpu else zt.AdditiveAttention(2, 2, 3, dtype=f64, device=keys.device)
        return moved(query, keys, _on(mask, keys))[0]

    def scores(query: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(keys @ W.T + (query @ U.T)[:, None] + b) @ s[0] + blocked(mask)

    return attention_case(
        "AdditiveAttention",
        call,
        [(3, 2), (3, 4, 2)],
        scores,
        lambda p, query, keys: (p[:, None] @ keys)[:, 0],
    )


def _multihead() -> Case:
    torch.manual_seed(2)
    layer = zt.MultiheadAttention(4, 2, batch_first=True, kdim=2, vdim=3, dtype=f64)
    with torch.no_grad():
        layer.in_proj_bias.uniform_(-0.5, 0.5)
        layer.q_proj_weight.mul_(2)
    layer.requires_grad_(False)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    biases = layer.in_proj_bias.chunk(3)

    def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        moved = layer
        if not key.is_cpu:
            moved = zt.MultiheadAttention(
                4, 2, batch_first=True, kdim=2, vdim=3, dtype=f64, device=key.device
            )
        return moved(query, key, value, _on(padding, key), need_weights=False)[0]

    def heads(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (x @ weight.T + bias).unflatten(-1, (2, 2)).transpose(-3, -2)

    def scores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = heads(query, layer.q_proj_weight, biases[0])
        k = heads(key, layer.k_proj_weight, biases[1])
        return q @ k.mT / 2**0.5 + blocked(~padding)[:, None, None]

    def average(p: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        v = heads(value, layer.v_proj_weight, biases[2])
        return (p @ v).transpose(-3, -2).flatten(-2) @ layer.out_proj.weight.T

    return attention_case("MultiheadAttention", call, [(2, 1, 4), (2, 3, 2), (2, 3, 3)], scores, average)


def _sum() -> Case:
    drop = blocked(MASK)
    return attention_case(
        "weighted_sum, mask",
        lambda z, v: zt.weighted_sum(z, v, _on(MASK, z)),
        [(2, 2, 3), (2, 3, 2)],
        lambda z, v: z + drop,
        lambda p, z, v: p @ v,
    )


def _linear_loss() -> Case:
    labels = torch.tensor([1, -100, 0])
    q = torch.zeros(3, 4, dtype=f64)
    q[0, 1] = q[2, 0] = 1

    def scores(x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        return x @ W.T + b

    def loss(p: Tensor, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        rows = ((p - q) * scores(x, W, b)).sum(-1) - (p**2).sum(-1) / 2 + 0.5
        return torch.where(labels >= 0, rows, 0)

    return attention_case(
        "linear_sparsemax_loss",
        lambda x, W, b: zt.linear_sparsemax_loss(x, W, _on(labels, x), b, reduction="none"),
        [(3, 2), (4, 2), (4,)],
        scores,
        loss,
    )


def _cases() -> list[Case]:
    drop = blocked(MASK)
    bias = torch.tensor([[0.5, -0.25, 1.0], [0.0, 0.75, -torch.inf]], dtype=f64)
    causal = blocked(torch.ones(2, 3, dtype=torch.bool).tril())
    attend = zt.sparsemax_attention
    return [
        dot_product("sparsemax_attention", call=attend),
        dot_product(
            "sparsemax_attention, mask", added=drop, call=lambda q, k, v: attend(q, k, v, _on(MASK, q))
        ),
        dot_product(
            "sparsemax_attention, bias", added=bias, call=lambda q, k, v: attend(q, k, v, _on(bias, q))
        ),
        dot_product(
            "sparsemax_attention, causal groups",
            added=causal,
            call=lambda q, k, v: attend(q, k, v, is_causal=True, enable_gqa=True),
            heads=2,
        ),
        _additive(),
        _multihead(),
        _sum(),
        _linear_loss(),
    ]


CASES = _cases()
