"""The operators in plain torch, for every device that has no kernel of its own. No sort.

Rows are solved as in the core: Newton's method on tau from the lower bound max z - 1, shifted by the maximum,
with tau and its sums in float64 where the device has it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _rules


def _wide(x: Tensor) -> Tensor:
    """In the type that sums are taken in."""
    return x if x.dtype == torch.float64 or x.device.type == "mps" else x.double()


def _compute(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _captured(x: Tensor) -> bool:
    """Whether the host may not look at results now."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _newton(above: Tensor) -> tuple[Tensor, Tensor]:
    """How far tau moves so that what is above it adds up to one, and how many scores are above."""
    on = above > 0
    size = on.sum(dim=-1, keepdim=True)
    return (torch.where(on, above, 0).sum(dim=-1, keepdim=True) - 1) / size, size


def _solve(z: Tensor) -> tuple[Tensor, Tensor]:
    """tau = hi + lo of each row along the last dimension (Eq. 4), which is kept; NaN for rows without tau.

    Steps from a lower bound only grow, and the scores above only become fewer: when a step drops none, it was
    the last. A captured graph cannot ask for that: it halves the interval of tau instead, to the last bit.
    """
    z = _wide(z)
    top = z.amax(dim=-1, keepdim=True)
    d = z - top
    t = top * 0 - 1  # NaN where the row has no tau
    if _captured(z):
        high = torch.zeros_like(t)
        for _ in range(torch.finfo(t.dtype).bits):
            middle = (t + high) / 2
            low = (d - middle).clamp_min(0).sum(dim=-1, keepdim=True) >= 1
            t, high = torch.where(low, middle, t), torch.where(low, high, middle)
    else:
        step, size = _newton(d - t)
        while True:
            t = t + step
            step, kept = _newton(d - t)
            if torch.equal(kept, size):
                break
            size = kept
    hi = top + t
    lo = (top - hi) + t
    return hi, lo + _newton((z - hi) - lo)[0]


def _rows(input: Tensor, dim: int) -> Tensor:
    return input.movedim(dim, -1).to(_compute(input.dtype))


def sparsemax(input: Tensor, dim: int) -> Tensor:
    if not input.numel():
        return torch.empty_like(input, memory_format=torch.contiguous_format)
    z = _rows(input, dim)
    hi, lo = _solve(z)
    p = ((_wide(z) - hi) - lo).clamp_min(0)
    return p.to(input.dtype).movedim(-1, dim).contiguous()


def sparsemax_jvp(p: Tensor, v: Tensor, dim: int) -> Tensor:
    product: Tensor = _rules.sparsemax.jvp(_rows(p, dim), _rows(v, dim), torch)
    return product.to(p.dtype).movedim(-1, dim).contiguous()


def threshold(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    z = _rows(input, dim)
    if not z.shape[-1]:
        hi = z.new_full(z.shape[:-1], torch.nan)
        return hi, torch.zeros_like(hi)
    hi, lo = (x.squeeze(-1) for x in _solve(z))
    tau = (hi + lo).to(z.dtype)
    rest = ((hi - _wide(tau)) + lo).to(z.dtype)
    return tau, torch.where(tau.isnan(), 0, rest)


def _one_hot(target: Tensor, input: Tensor, dim: int, ignore_index: int) -> Tensor:
    """Labels as distributions along the last dimension; an ignored label is zeros."""
    cols = input.shape[dim]
    counts = target != ignore_index
    known = ~counts | ((target >= 0) & (target < cols))
    torch._assert_async(known.all(), f"target must be labels in [0, {cols}) or ignore_index={ignore_index}")
    classes = torch.arange(cols, device=input.device)
    return (classes == target.unsqueeze(-1)) & counts.unsqueeze(-1)


def _distribution(target: Tensor, input: Tensor, dim: int, ignore_index: int) -> Tensor:
    if target.is_floating_point():
        return _rows(target, dim)
    return _one_hot(target, input, dim, ignore_index).to(_compute(input.dtype))


def sparsemax_loss(
    input: Tensor, target: Tensor, dim: int, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    z, q = _rows(input, dim), _distribution(target, input, dim, ignore_index)
    hi, lo = threshold(input, dim)
    if not z.shape[-1]:
        return torch.zeros_like(hi), torch.full_like(hi, torch.inf), lo
    p = _rows(sparsemax(input.to(z.dtype), dim), dim)
    value: Tensor = _rules.loss.value(z, q, p, torch)
    nothing = (q == 0).all(dim=-1)
    return torch.where(nothing, 0, value), torch.where(nothing, torch.inf, hi), torch.where(nothing, 0, lo)


def sparsemax_loss_gradient(
    input: Tensor, target: Tensor, hi: Tensor, lo: Tensor, v: Tensor, dim: int, ignore_index: int
) -> Tensor:
    z, q = _rows(input, dim), _distribution(target, input, dim, ignore_index)
    p = ((z - hi.unsqueeze(-1)) - lo.unsqueeze(-1)).clamp_min(0)
    product = v.unsqueeze(-1) * _rules.loss.gradient(p, q)
    product = torch.where(hi.isinf().unsqueeze(-1), 0, product)
    return product.to(input.dtype).movedim(-1, dim).contiguous()
