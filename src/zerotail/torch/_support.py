"""Operators that work on supports alone, for plain tensors on the CPU; the dense path takes everything else.

Scores live for a block of rows. What is kept of a block are the lists of its supports, or, where these are
large, the thresholds of its rows, from which its scores are made again for the gradient. The second
derivatives are those of the dense path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function, forward_ad

from . import _ops

KEPT = "Tensor offsets, Tensor hi, Tensor lo, Tensor dense, Tensor indices, Tensor p"
AHEAD = "Tensor in_input, Tensor in_weight, Tensor in_bias"
SCHEMAS = (
    "support_attention(Tensor query, Tensor key, Tensor value, Tensor mask, float scale, bool causal,"
    f" int block, float density) -> (Tensor output, {KEPT})",
    f"support_attention_backward(Tensor v, Tensor query, Tensor key, Tensor value, Tensor mask, {KEPT},"
    " float scale, bool causal, int block) -> (Tensor, Tensor, Tensor)",
    "support_sum(Tensor scores, Tensor value, Tensor mask, int block, float density)"
    f" -> (Tensor output, {KEPT})",
    f"support_sum_backward(Tensor v, Tensor scores, Tensor value, Tensor mask, {KEPT}, int block)"
    " -> (Tensor, Tensor)",
    "support_linear_loss(Tensor input, Tensor weight, Tensor bias, Tensor target, int chunk_rows,"
    f" float density, bool keep, int ahead) -> (Tensor loss, {KEPT}, {AHEAD})",
    f"support_linear_loss_backward(Tensor v, Tensor input, Tensor weight, Tensor bias, Tensor target, {KEPT},"
    f" {AHEAD}, int chunk_rows, int wanted, bool sparse) -> (Tensor, Tensor, Tensor classes, Tensor)",
)
for schema in SCHEMAS:
    _ops.library.define(schema)

_ATTENTION = torch.ops.zerotail.support_attention.default
_ATTENTION_BACKWARD = torch.ops.zerotail.support_attention_backward.default
_SUM = torch.ops.zerotail.support_sum.default
_SUM_BACKWARD = torch.ops.zerotail.support_sum_backward.default
_LINEAR_LOSS = torch.ops.zerotail.support_linear_loss.default
_LINEAR_LOSS_BACKWARD = torch.ops.zerotail.support_linear_loss_backward.default

# Queries whose scores live at once, and scores at most, but for a few rows.
BLOCK, BLOCK_SCORES = 128, 1 << 20
# The part of a block's scores above their thresholds from which on it pays to multiply it as a whole.
ATTENTION_DENSITY = 1 / 4
LOSS_DENSITY = 1 / 6

Dense = Callable[..., Tensor]


def applies(*tensors: Tensor | None) -> bool:
    """Whether these are plain tensors on the CPU, outside of every mode, transform and compiler."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
        and forward_ad._current_level < 0
        and all(x is None or _is_plain(x) for x in tensors)
    )


def _is_plain(x: Tensor) -> bool:
    return (
        type(x) in (Tensor, nn.Parameter)
        and x.is_cpu
        and not x.is_neg()
        and not x._is_zerotensor()
        and not torch._C._functorch.is_legacy_batchedtensor(x)  # of a batch of gradients
    )


def _records(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _block(rows: int, keys: int) -> int:
    return min(rows, max(16, min(BLOCK, BLOCK_SCORES // keys)))


def _is_transformed(v: Tensor) -> bool:
    """Whether a gradient along v is to be differentiated, or is one of a batch of them."""
    return torch.is_grad_enabled() or not applies(v)


def _dense_gradients(dense: Dense, inputs: tuple[Tensor, ...], v: Tensor) -> list[Tensor | None]:
    """Those of the dense path, as functions of the inputs and v."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # One tensor may stand for several inputs.
        own = [x.view_as(x) if x.requires_grad else x for x in inputs]
        wanted = [x for x in own if x.requires_grad]
        found = iter(torch.autograd.grad(dense(*own), wanted, v, create_graph=create_graph))
    return [next(found) if x.requires_grad else None for x in own]


def _last_dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


# ---- attention ---------------------------------------------------------------------------------------------


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    dense: Dense,
) -> Tensor | None:
    """What `dense(query, key, value)` is, or None where it must be called. Checked arguments."""
    if not applies(query, key, value, mask) or (mask is not None and mask.requires_grad):
        return None
    if key.shape[:-2] != value.shape[:-2] or query.shape[:-3] != key.shape[:-3] or query.dim() != key.dim():
        return None
    if query.dim() > 2 and (key.shape[-3] == 0 or query.shape[-3] % key.shape[-3]):
        return None  # one head of queries for several of keys
    if not (query.numel() and key.numel() and value.numel()):
        return None
    allowed = _mask(mask, query, (*query.shape[:-1], key.shape[-2]))
    settings = (
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        causal,
        _block(query.shape[-2], key.shape[-2]),
    )
    if _records(query, key, value):
        return _shaped(Attention.apply(query, key, value, allowed, settings, dense), query)
    with _ops.below_autograd():
        output, *_ = _ATTENTION(
            _heads(query), _heads(key), _heads(value), allowed, *settings, ATTENTION_DENSITY
        )
    return _shaped(output, query)


def _heads(x: Tensor) -> Tensor:
    """As batch x heads x rows x features, in the type of the computation."""
    x = x.to(_ops.compute(x.dtype))
    if x.dim() > 4:
        x = x.flatten(0, -4)
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return _last_dense(x)


def _mask(mask: Tensor | None, input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """For each score; a tensor without dimensions to look at stands for none."""
    wide = _ops.compute(input.dtype)
    if mask is None:
        return input.new_empty(0, dtype=wide)
    mask = mask.detach().expand(shape)
    return _plain_dims(mask if mask.dtype == torch.bool else mask.to(wide))


def _plain_dims(x: Tensor) -> Tensor:
    if x.dim() > 4:
        x = x.flatten(0, -4)
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x


def _shaped(x: Tensor, like: Tensor) -> Tensor:
    """With the leading dimensions and the type of `like`."""
    return x.view(*like.shape[:-1], x.shape[-1]).to(like.dtype)


class Attention(Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, settings: Any, dense: Dense
    ) -> Tensor:
        with _ops.below_autograd():
            output, *kept = _ATTENTION(
                _heads(query), _heads(key), _heads(value), mask, *settings, ATTENTION_DENSITY
            )
        ctx.save_for_backward(query, key, value, mask, *kept)
        ctx.settings, ctx.dense = settings, dense
        return output

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        query, key, value, mask, *kept = ctx.saved_tensors
        if _is_transformed(v):
            return *_dense_gradients(ctx.dense, (query, key, value), _shaped(v, query)), None, None, None
        q, k, along = _heads(query), _heads(key), _last_dense(v)
        if q.shape[1] != k.shape[1]:  # the rows of a group of heads are one table
            q, along = q.contiguous(), along.contiguous()
        with _ops.below_autograd():
            found = _ATTENTION_BACKWARD(along, q, k, _heads(value), mask, *kept, *ctx.settings)
        pairs = zip(found, (query, key, value), strict=True)
        return *(_shaped(gradient, x) for gradient, x in pairs), None, None, None


# ---- weighted sums -----------------------------------------------------------------------------------------


def weighted_sum(scores: Tensor, values: Tensor, mask: Tensor | None, dense: Dense) -> Tensor | None:
    """What `dense(scores, values)` is, or None where it must be called. Checked arguments."""
    if not applies(scores, values, mask) or not (scores.numel() and values.numel()):
        return None
    shared = values.dim() == 2
    if scores.dtype != values.dtype or not (shared or scores.shape[:-2] == values.shape[:-2]):
        return None
    allowed = _mask(mask, scores, tuple(scores.shape))
    if shared:
        allowed = allowed if mask is None else allowed.flatten(0, 1).unsqueeze(0)
    if _records(scores, values):
        return _shaped(WeightedSum.apply(scores, values, allowed, shared, dense), scores)
    with _ops.below_autograd():
        output, *_ = _SUM(_scores(scores, shared), _heads(values), allowed, _rows(scores), ATTENTION_DENSITY)
    return _shaped(output, scores)


def _scores(scores: Tensor, shared: bool) -> Tensor:
    """Where values are shared, by all heads of one sequence."""
    x = _heads(scores)
    return x.flatten(0, 1).unsqueeze(0) if shared else x


def _rows(scores: Tensor) -> int:
    return _block(scores.shape[-2] if scores.dim() > 1 else 1, scores.shape[-1])


class WeightedSum(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, mask: Tensor, shared: bool, dense: Dense) -> Tensor:
        block = _rows(scores)
        with _ops.below_autograd():
            output, *kept = _SUM(_scores(scores, shared), _heads(values), mask, block, ATTENTION_DENSITY)
        ctx.save_for_backward(scores, values, mask, *kept)
        ctx.block, ctx.shared, ctx.dense = block, shared, dense
        return output

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        scores, values, mask, *kept = ctx.saved_tensors
        if _is_transformed(v):
            return *_dense_gradients(ctx.dense, (scores, values), _shaped(v, scores)), None, None, None
        along = v.contiguous() if ctx.shared else _last_dense(v)
        with _ops.below_autograd():
            in_scores, in_values = _SUM_BACKWARD(
                along, _scores(scores, ctx.shared), _heads(values), mask, *kept, ctx.block
            )
        return _shaped(in_scores, scores), _shaped(in_values, values), None, None, None


# ---- a linear layer and its loss ---------------------------------------------------------------------------


class LinearLoss(Function):
    """Losses of rows: `dense(input, weight, bias)` for labels. Arguments dense, of one type."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        chunk_rows: int,
        uniform: bool,
        sparse: bool,
        dense: Dense,
    ) -> Tensor:
        ahead = _wanted(ctx) if uniform else 0
        loss, *kept = _linear_loss(input, weight, bias, target, chunk_rows, True, ahead)
        ctx.save_for_backward(input, weight, bias, target, *kept)
        ctx.chunk_rows, ctx.sparse, ctx.dense = chunk_rows, sparse, dense
        return loss

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        input, weight, bias, target, *kept = ctx.saved_tensors
        rest = (None, None, None, None, None)
        if _is_transformed(v):
            inputs = (input, weight) if bias is None else (input, weight, bias)
            found = _dense_gradients(ctx.dense, inputs, v)
            return *found, *((None,) if bias is None else ()), *rest
        needs = ctx.needs_input_grad[:3]
        layer = (input, _last_dense(weight), _or_nothing(bias, input), target)
        with _ops.below_autograd():
            in_input, in_weight, classes, in_bias = _LINEAR_LOSS_BACKWARD(
                v, *layer, *kept, ctx.chunk_rows, _wanted(ctx), ctx.sparse
            )
        if ctx.sparse and needs[1]:
            in_weight = _row_sparse(in_weight, classes, weight)
        gradients = (in_input, in_weight, in_bias)
        return *(x if need else None for x, need in zip(gradients, needs, strict=True)), *rest


def _wanted(ctx: Any) -> int:
    return sum(1 << i for i, need in enumerate(ctx.needs_input_grad[:3]) if need)


def _or_nothing(bias: Tensor | None, input: Tensor) -> Tensor:
    return input.new_empty(0) if bias is None else bias


def _linear_loss(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    chunk_rows: int,
    keep: bool,
    ahead: int,
) -> Any:
    layer = (input, _last_dense(weight), _or_nothing(bias, input), target)
    with _ops.below_autograd():
        return _LINEAR_LOSS(*layer, chunk_rows, LOSS_DENSITY, keep, ahead)


def _row_sparse(rows: Tensor, classes: Tensor, weight: Tensor) -> Tensor:
    """The gradient of weight; `rows` are those of `classes`, or all."""
    if rows.shape[0] == weight.shape[0] and not classes.numel():
        classes = (rows != 0).any(1).nonzero().squeeze(1)
        rows = rows[classes]
    return torch.sparse_coo_tensor(
        classes.unsqueeze(0), rows, weight.shape, is_coalesced=True, check_invariants=False
    )


def linear_loss(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    chunk_rows: int,
    uniform: bool,
    sparse: bool,
    dense: Dense,
) -> Tensor:
    """The losses of rows, for tensors to which this `applies`; `uniform` if all weigh the same in the end."""
    if _records(input, weight, bias):
        rows: Tensor = LinearLoss.apply(input, weight, bias, target, chunk_rows, uniform, sparse, dense)
        return rows
    loss: Tensor = _linear_loss(input, weight, bias, target, chunk_rows, False, 0)[0]
    return loss
