"""The gated recurrent unit of Eqs. 28-31, over batches of sequences of different lengths.

Differentiated by hand: what does not depend on the step before is done for all steps at once, forward and
backward, so that a step costs two small products and a few passes over (batch, D).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Added to the update gate's input where a sequence has ended: the gate is exactly 0, and the state stays.
ENDED = -1e9


class _Scan(torch.autograd.Function):
    """All states (steps, batch, D). The rows of `weight` and `bias` are those of z, r and the candidate."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mask: Tensor,
        start: Tensor,
        weight: Tensor,
        bias: Tensor,
        gates: Tensor,
        candidate: Tensor,
    ) -> Tensor:
        steps, batch, dim = *x.shape[:2], start.shape[1]
        inputs = F.linear(x, weight, bias)
        inputs[..., :dim] += torch.where(mask, 0, ENDED).to(x.dtype).unsqueeze(-1)
        states = x.new_empty(steps + 1, batch, dim)
        opened = x.new_empty(steps, batch, 2 * dim)  # z and r
        kept = x.new_empty(steps, batch, dim)  # r * h
        proposed = x.new_empty(steps, batch, dim)  # the candidate state
        states[0] = h = start
        for gate_input, state_input, zr, z, r, rh, c, after in zip(
            inputs[..., : 2 * dim].unbind(),
            inputs[..., 2 * dim :].unbind(),
            opened.unbind(),
            opened[..., :dim].unbind(),
            opened[..., dim:].unbind(),
            kept.unbind(),
            proposed.unbind(),
            states[1:].unbind(),
            strict=True,
        ):
            torch.addmm(gate_input, h, gates, out=zr).sigmoid_()
            torch.mul(r, h, out=rh)
            torch.addmm(state_input, rh, candidate, out=c).tanh_()
            h = torch.lerp(h, c, z, out=after)
        ctx.save_for_backward(x, weight, states, opened, kept, proposed, gates, candidate)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, states, opened, kept, proposed, gates, candidate = ctx.saved_tensors
        steps, batch, dim = proposed.shape
        before = states[:-1]
        z, r = opened[..., :dim], opened[..., dim:]
        stay = 1 - z
        to_update = (proposed - before).mul_(z).mul_(stay)
        to_reset = (before * r).mul_(1 - r)
        to_candidate = (1 - proposed * proposed).mul_(z)
        grad = x.new_empty(steps, batch, 3 * dim)
        gates_t, candidate_t = gates.t(), candidate.t()
        dh = torch.zeros_like(states[0])
        for dstate, dzr, dz, dr, dc, by_z, by_r, by_c, stays, reset in zip(
            *(
                part.unbind()[::-1]
                for part in (
                    upstream,
                    grad[..., : 2 * dim],
                    grad[..., :dim],
                    grad[..., dim : 2 * dim],
                    grad[..., 2 * dim :],
                    to_update,
                    to_reset,
                    to_candidate,
                    stay,
                    r,
                )
            ),
            strict=True,
        ):
            dh += dstate
            torch.mul(dh, by_z, out=dz)
            drh = torch.mul(dh, by_c, out=dc) @ candidate_t
            torch.mul(drh, by_r, out=dr)
            dh.mul_(stays).addcmul_(drh, reset).addmm_(dzr, gates_t)
        flat = grad.view(steps * batch, 3 * dim)
        return (
            (flat @ weight).view_as(x),
            None,
            dh,
            flat.t() @ x.reshape(steps * batch, -1),
            flat.sum(0),
            before.reshape(-1, dim).t() @ flat[:, : 2 * dim],
            kept.view(-1, dim).t() @ flat[:, 2 * dim :],
        )


@torch.no_grad()
def glorot_(blocks: Iterable[Tensor], gain: float = 1.0) -> None:
    """Fill matrices with Glorot's uniform weights."""
    for block in blocks:
        bound = gain * math.sqrt(6 / sum(block.shape))
        block.uniform_(-bound, bound)


class GRU(nn.Module):
    """The text's unit: the reset gate is applied before the product with W^hh.

    Sequences are (steps, batch, dim); a state whose `mask` is False repeats the one before, so that the last
    step holds the last state of every sequence.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.input = nn.Linear(dim, 3 * dim)  # W^xz, W^xr, W^xh and the three biases
        self.gates = nn.Parameter(torch.empty(dim, 2 * dim))  # W^hz and W^hr, transposed
        self.candidate = nn.Parameter(torch.empty(dim, dim))  # W^hh, transposed
        update, reset, proposed = self.input.weight.chunk(3)
        glorot_([update, reset, *self.gates.chunk(2, dim=1)], 4.0)
        glorot_([proposed, self.candidate])
        nn.init.zeros_(self.input.bias)

    def forward(self, x: Tensor, mask: Tensor, start: Tensor) -> Tensor:
        return _Scan.apply(x, mask, start, self.input.weight, self.input.bias, self.gates, self.candidate)


class TorchGRU(nn.Module):
    """`torch.nn.GRU`, called as `GRU`: the reset gate is applied after the product with W^hh."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gru = nn.GRU(dim, dim)
        for weight in (self.gru.weight_ih_l0, self.gru.weight_hh_l0):
            reset, update, proposed = weight.chunk(3)
            glorot_([update, reset], 4.0)
            glorot_([proposed])
        nn.init.zeros_(self.gru.bias_ih_l0)
        nn.init.zeros_(self.gru.bias_hh_l0)

    def forward(self, x: Tensor, mask: Tensor, start: Tensor) -> Tensor:
        lengths = mask.sum(0)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.clamp(min=1), enforce_sorted=False)
        states, last = self.gru(packed, start.unsqueeze(0))
        states, _ = nn.utils.rnn.pad_packed_sequence(states, total_length=len(x))
        last = torch.where(lengths.unsqueeze(-1) > 0, last[0], start)
        return torch.where(mask.unsqueeze(-1), states, last)
