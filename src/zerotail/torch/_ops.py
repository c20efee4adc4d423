"""The operators behind the PyTorch front end, and what each of torch's machines needs to know of them.

An operator is opaque to compilers. Its CPU kernel is the core's; other devices run `_devices`. Derivatives
are defined here in Python, because no way to define them once is right everywhere: an `autograd.Function`
cannot be transformed by `torch.func`, and one that can be is refused by `torch.compile`. So the kernel for
autograd

- under a transform of `torch.func` or in forward mode returns the kernel's value plus an exact expansion
around it,
  in plain torch operations, from which every transform takes its own derivative;
- without a gradient calls the operator below autograd;
- else records an `autograd.Function`, whose backward is an operator again.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from .. import _core, _rules
from . import _devices

SCHEMAS = (
    "sparsemax(Tensor input, int dim) -> Tensor",
    "sparsemax_jvp(Tensor p, Tensor v, int dim) -> Tensor",
    "threshold(Tensor input, int dim) -> (Tensor hi, Tensor lo)",
    "sparsemax_loss(Tensor input, Tensor target, int dim, int ignore_index)"
    " -> (Tensor loss, Tensor hi, Tensor lo)",
    "sparsemax_loss_gradient(Tensor input, Tensor target, Tensor hi, Tensor lo, Tensor v, int dim,"
    " int ignore_index) -> Tensor",
)

library = torch.library.Library("zerotail", "DEF")
for schema in SCHEMAS:
    # Any strides will do, so a compiler may lay tensors out as it likes.
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))

sparsemax = torch.ops.zerotail.sparsemax.default
jvp = torch.ops.zerotail.sparsemax_jvp.default
threshold = torch.ops.zerotail.threshold.default
loss = torch.ops.zerotail.sparsemax_loss.default
loss_gradient = torch.ops.zerotail.sparsemax_loss_gradient.default

below_autograd = torch._C._AutoDispatchBelowAutograd


def compute(dtype: torch.dtype) -> torch.dtype:
    """The type that rows of `dtype` are computed in."""
    return dtype if dtype == torch.float64 else torch.float32


# ---- kernels -----------------------------------------------------------------------------------------------


def _libtorch() -> ctypes.CDLL:
    folder = Path(torch.__file__).parent / "lib"
    name = {"win32": "torch_cpu.dll", "darwin": "libtorch_cpu.dylib"}.get(sys.platform, "libtorch_cpu.so")
    return ctypes.CDLL(str(folder / name))


def _register_cpu() -> None:
    exported = _libtorch()

    def address(name: str) -> int:
        return ctypes.cast(getattr(exported, name), ctypes.c_void_p).value or 0

    _core.register_torch(torch, address)


_register_cpu()
for name in ("sparsemax", "sparsemax_jvp", "threshold", "sparsemax_loss", "sparsemax_loss_gradient"):
    library.impl(name, getattr(_devices, name), "CompositeExplicitAutograd")


# ---- shapes, for compilers and meta tensors ----------------------------------------------------------------


def _rows(input: Tensor, dim: int) -> Tensor:
    shape = list(input.shape)
    del shape[dim]
    return input.new_empty(shape, dtype=compute(input.dtype))


def _fake_sparsemax(input: Tensor, dim: int) -> Tensor:
    return input.new_empty(input.shape)


def _fake_jvp(p: Tensor, v: Tensor, dim: int) -> Tensor:
    return p.new_empty(p.shape)


def _fake_threshold(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _rows(input, dim), _rows(input, dim)


def _fake_loss(input: Tensor, target: Tensor, dim: int, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    return _rows(input, dim), _rows(input, dim), _rows(input, dim)


def _fake_loss_gradient(
    input: Tensor, target: Tensor, hi: Tensor, lo: Tensor, v: Tensor, dim: int, ignore_index: int
) -> Tensor:
    return input.new_empty(input.shape)


# ---- vmap: the new dimension goes first, `dim` one place on ------------------------------------------------


def _batch(op: Any, tensors: int) -> Any:
    """The rule of an operator whose first arguments are tensors, and the next one is dim."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        moved = [
            x.expand(info.batch_size, *x.shape) if batched is None else x.movedim(batched, 0)
            for x, batched in zip(args[:tensors], in_dims, strict=False)
        ]
        dim = args[tensors] % (moved[0].dim() - 1) + 1
        out = op(*moved, dim, *args[tensors + 1 :])
        return out, 0 if isinstance(out, Tensor) else (0,) * len(out)

    return rule


for op, tensors, fake in (
    (sparsemax, 1, _fake_sparsemax),
    (jvp, 2, _fake_jvp),
    (threshold, 1, _fake_threshold),
    (loss, 2, _fake_loss),
    (loss_gradient, 5, _fake_loss_gradient),
):
    torch.library.register_fake(op, fake, lib=library)
    torch.library.register_vmap(op, _batch(op, tensors), lib=library)


# ---- derivatives -------------------------------------------------------------------------------------------


def _transformed() -> bool:
    """Whether a transform of torch.func is at work, or forward mode."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def _below(op: Any, *args: Any) -> Any:
    with below_autograd():
        return op(*args)


def _move(x: Tensor, p: Tensor) -> Tensor:
    """What x moves by: 0, with the derivative 1 in every mode. Scores of -inf do not move, if p is known."""
    still = x.detach()
    return torch.where(still.isinf() & ~p.isnan(), 0, x - still).to(compute(x.dtype))


def _product(p: Tensor, v: Tensor, dim: int) -> Tensor:
    """J v (Eq. 14) in plain torch."""
    return _rules.sparsemax.jvp(p.movedim(dim, -1), v.movedim(dim, -1), torch).movedim(-1, dim)


def _moved(p: Tensor, input: Tensor, dim: int) -> Tensor:
    """p = sparsemax(input), which is piecewise linear, with its derivative in the input (Eq. 14)."""
    return p + _product(p.to(compute(p.dtype)), _move(input, p), dim).to(p.dtype)


class Sparsemax(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> Tensor:
        p = _core.torch_sparsemax(input, dim)
        if p is None:
            p = _below(sparsemax, input, dim)
        ctx.save_for_backward(p)
        ctx.dim = dim
        return p

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        return _jvp_autograd(p, v, ctx.dim), None


def _below_jvp(p: Tensor, v: Tensor, dim: int) -> Tensor:
    product = _core.torch_jvp(p, v, dim)
    return _below(jvp, p, v, dim) if product is None else product


def _sparsemax_autograd(input: Tensor, dim: int) -> Tensor:
    if _transformed():
        return _moved(_below(sparsemax, input.detach(), dim), input, dim)
    if torch.is_grad_enabled() and input.requires_grad:
        return Sparsemax.apply(input, dim)
    return _below(sparsemax, input, dim)


class Jvp(Function):
    """Linear in v, and constant in p but for its kinks."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, v: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(p)
        ctx.dim = dim
        return _below_jvp(p, v, dim)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        (p,) = ctx.saved_tensors
        return None, _jvp_autograd(p, v, ctx.dim), None


def _jvp_autograd(p: Tensor, v: Tensor, dim: int) -> Tensor:
    if _transformed():
        wide = compute(p.dtype)
        return _product(p.detach().to(wide), v.to(wide), dim).to(p.dtype)
    if torch.is_grad_enabled() and v.requires_grad:
        return Jvp.apply(p.detach(), v, dim)
    return _below_jvp(p, v, dim)


def _positive_part(input: Tensor, hi: Tensor, lo: Tensor, dim: int) -> Tensor:
    """p from tau = hi + lo (Eq. 3), in the type of tau."""
    return ((input.detach().to(hi.dtype) - hi.unsqueeze(dim)) - lo.unsqueeze(dim)).clamp_min(0)


class Threshold(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        hi, lo = _below(threshold, input, dim)
        ctx.save_for_backward(input, hi, lo)
        ctx.mark_non_differentiable(lo)
        ctx.dim = dim
        return hi, lo

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Any) -> Any:
        input, hi, lo = ctx.saved_tensors
        p = _positive_part(input, hi.detach(), lo, ctx.dim).movedim(ctx.dim, -1)
        slope = _rules.sparsemax.threshold_vjp(p, v.unsqueeze(-1), torch)
        return slope.movedim(-1, ctx.dim).to(input.dtype), None


def _threshold_autograd(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if _transformed():
        hi, lo = _below(threshold, input.detach(), dim)
        p = _positive_part(input, hi, lo, dim)
        move = _move(input, p).movedim(dim, -1)
        return hi + _rules.sparsemax.threshold_jvp(p.movedim(dim, -1), move, torch).squeeze(-1), lo
    if torch.is_grad_enabled() and input.requires_grad:
        return Threshold.apply(input, dim)
    return _below(threshold, input, dim)


def distribution(target: Tensor, like: Tensor, dim: int, ignore_index: int) -> Tensor:
    """The target as a distribution of the shape and type of `like`; zeros where a label is ignored."""
    if target.is_floating_point():
        return target.to(like.dtype)
    shape = [1] * like.dim()
    shape[dim] = -1
    classes = torch.arange(like.shape[dim], device=like.device).view(shape)
    labels = target.unsqueeze(dim)
    return ((classes == labels) & (labels != ignore_index)).to(like.dtype)


def _counted(hi: Tensor, x: Tensor) -> Tensor:
    """x, but 0 in rows that do not count; hi is infinite there."""
    return torch.where(hi.isinf(), 0, x)


class Loss(Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, target: Tensor, dim: int, ignore_index: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        value, hi, lo = _below(loss, input, target, dim, ignore_index)
        ctx.save_for_backward(input, target, hi, lo)
        ctx.mark_non_differentiable(hi, lo)
        ctx.dim, ctx.ignore_index = dim, ignore_index
        return value, hi, lo

    @staticmethod
    def backward(ctx: Any, v: Tensor, *_: Any) -> Any:
        input, target, hi, lo = ctx.saved_tensors
        in_input = in_target = None
        if ctx.needs_input_grad[0]:
            way = _in_scores if ctx.needs_input_grad[1] else _loss_gradient_autograd
            in_input = way(input, target, hi, lo, v, ctx.dim, ctx.ignore_index)
        if ctx.needs_input_grad[1]:
            in_target = _in_target(input, target, hi, lo, v, ctx.dim)
        return in_input, in_target, None, None


def _in_target(input: Tensor, target: Tensor, hi: Tensor, lo: Tensor, v: Tensor, dim: int) -> Tensor:
    """v (q - z + tau), differentiable in the scores, the target and v."""
    p = _positive_part(input, hi, lo, dim)
    move = _move(input, p).movedim(dim, -1)
    move = _rules.sparsemax.threshold_jvp(p.movedim(dim, -1), move, torch).movedim(-1, dim)
    slope = target.to(hi.dtype) + ((hi.unsqueeze(dim) - input.to(hi.dtype)) + lo.unsqueeze(dim)) + move
    return (v.unsqueeze(dim) * _counted(hi.unsqueeze(dim), slope)).to(target.dtype)


def _in_scores(
    input: Tensor, target: Tensor, hi: Tensor, lo: Tensor, v: Tensor, dim: int, ignore_index: int
) -> Tensor:
    """v (p - q), differentiable in the scores, the target and v."""
    p = _counted(hi.unsqueeze(dim), _positive_part(input, hi, lo, dim))
    slope = _rules.loss.gradient(_moved(p, input, dim), distribution(target, p, dim, ignore_index))
    if target.is_floating_point():
        # As far as the sum of q is not one, L moves with tau. It is taken for one unless q is differentiated.
        free = target.requires_grad
        excess = (target if free else target - target.detach()).to(p.dtype).sum(dim, keepdim=True) - int(free)
        slope = slope + _rules.sparsemax.threshold_vjp(
            p.movedim(dim, -1), excess.movedim(dim, -1), torch
        ).movedim(-1, dim)
    return (v.unsqueeze(dim) * _counted(hi.unsqueeze(dim), slope)).to(input.dtype)


def _loss_gradient_autograd(
    input: Tensor, target: Tensor, hi: Tensor, lo: Tensor, v: Tensor, dim: int, ignore_index: int
) -> Tensor:
    args = (input, target, hi, lo, v, dim, ignore_index)
    tracked = input.requires_grad or target.requires_grad or v.requires_grad
    if _transformed() or (torch.is_grad_enabled() and tracked):
        return _in_scores(*args)
    gradient: Tensor = _below(loss_gradient, *args)
    return gradient


def _loss_autograd(
    input: Tensor, target: Tensor, dim: int, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    if not _transformed():
        if torch.is_grad_enabled() and (input.requires_grad or target.requires_grad):
            return Loss.apply(input, target, dim, ignore_index)
        return _below(loss, input, target, dim, ignore_index)
    value, hi, lo = _below(loss, input.detach(), target.detach(), dim, ignore_index)
    # The loss is quadratic around a point: its expansion to the second order is exact.
    p = _counted(hi.unsqueeze(dim), _positive_part(input, hi, lo, dim))
    q = distribution(target, p, dim, ignore_index).movedim(dim, -1)
    move, p = _move(input, p).movedim(dim, -1), p.movedim(dim, -1)
    terms = _rules.loss.gradient(p, q.detach()) * move + move * _product(p, move, -1) / 2
    # An infinite loss moves with the scores of -inf that are wanted.
    scores = input.movedim(dim, -1).to(hi.dtype)
    terms = terms - q * torch.where(scores.detach().isneginf() & (q.detach() > 0), scores, 0)
    if target.is_floating_point():
        shift = q - q.detach()
        slope = q.detach() + ((hi.unsqueeze(-1) - scores.detach()) + lo.unsqueeze(-1))
        mean = _rules.sparsemax.threshold_jvp(p, move, torch)
        terms = terms + torch.where(slope.isinf(), 0, slope) * shift + shift * (shift / 2 - move + mean)
    return value + _counted(hi, terms.sum(-1)), hi, lo


for op, fn in (
    (sparsemax, _sparsemax_autograd),
    (jvp, _jvp_autograd),
    (threshold, _threshold_autograd),
    (loss, _loss_autograd),
    (loss_gradient, _loss_gradient_autograd),
):
    library.impl(op, fn, "Autograd")
