"""The operators as graphs of standard ONNX operators, for `torch.onnx.export`.

Every subset of a row has a tau of its own, and the largest of these is the row's. It belongs to the leading
part of the sorted row: a cumulative sum and a maximum find it, without a loop. All is in float64, shifted by
the maximum, hence exact at any offset; one correction then makes rows of float64 sum to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import onnxscript
from onnxscript import ir

from . import _ops

# What the exporter builds with, before it converts to the opset asked for. Its types are for eager tensors.
op: Any = onnxscript.opset18
Value = Any  # of the graph that is built

WIDE = ir.DataType.DOUBLE


def _constant(x: float) -> Value:
    """In the type of the sums: the exporter does not infer the type of what stands beside it."""
    return ir.tensor(x, dtype=WIDE)


ZERO, ONE, HALF, NAN = _constant(0.0), _constant(1.0), _constant(0.5), _constant(float("nan"))
GRID = _constant(2.0**26)


class Solved(NamedTuple):
    """Rows z along dim, in float64. `top` is the largest score; tau = top + t + rest."""

    z: Value
    top: Value
    t: Value
    rest: Value
    p: Value
    ranks: Value  # 1, 2, ... K
    axes: Value


def _wide(x: Value) -> Value:
    return op.Cast(x, to=WIDE)


def _positive(x: Value) -> Value:
    """max(x, 0), in which NaN stays NaN."""
    return op.Where(op.LessOrEqual(x, ZERO), ZERO, x)


def _solve(input: Value, dim: int) -> Solved:
    """Eqs. 2 and 4 along dim, in float64; NaN along rows without a solution."""
    z, axes, axis = _wide(input), op.Constant(value_ints=[dim]), op.Constant(value_int=dim)
    top = op.ReduceMax(z, axes)
    below = op.Sub(z, top)
    # NaN, +inf, and -inf everywhere: each leaves a NaN in its row, whatever a maximum makes of NaN.
    undefined = op.ReduceSum(op.Where(op.IsNaN(below), below, ZERO), axes)
    # What is at most max - 1 is at most tau. A NaN is not greater: it must not reach the sort.
    d = op.Where(op.Greater(below, _constant(-1.0)), below, _constant(-1.0))
    falling, _ = op.TopK(d, op.Shape(d, start=dim, end=dim + 1), axis=dim)
    ranks = op.CumSum(op.ConstantOfShape(op.Shape(d), value=ir.tensor([1.0], dtype=WIDE)), axis)
    bounds = op.Div(op.Sub(op.CumSum(falling, axis), ONE), ranks)
    t = op.Add(op.ReduceMax(bounds, axes), undefined)
    p = _positive(op.Sub(d, t))
    # What the sum is off by, itself exact: multiples of 1 / GRID add up without an error, the rest is small.
    coarse = op.Div(op.Round(op.Mul(p, GRID)), GRID)
    excess = op.Add(op.Sub(op.ReduceSum(coarse, axes), ONE), op.ReduceSum(op.Sub(p, coarse), axes))
    size = op.ReduceSum(_wide(op.Greater(p, ZERO)), axes)
    rest = op.Div(excess, size)
    return Solved(z, top, t, rest, _positive(op.Sub(op.Sub(d, t), rest)), ranks, axes)


def _compute(input: Value) -> ir.DataType:
    return WIDE if input.dtype == WIDE else ir.DataType.FLOAT


def _tau(row: Solved, dtype: ir.DataType) -> tuple[Value, Value]:
    """tau as hi + lo, without dim."""
    hi = op.Cast(op.Add(op.Add(row.top, row.t), row.rest), to=dtype)
    lo = op.Add(op.Add(op.Sub(row.top, _wide(hi)), row.t), row.rest)
    return op.Squeeze(hi, row.axes), op.Squeeze(op.Cast(lo, to=dtype), row.axes)


def sparsemax(input: Value, dim: int) -> Value:
    return op.Cast(_solve(input, dim).p, to=input.dtype)


def threshold(input: Value, dim: int) -> tuple[Value, Value]:
    return _tau(_solve(input, dim), _compute(input))


def sparsemax_loss(input: Value, target: Value, dim: int, ignore_index: int) -> tuple[Value, Value, Value]:
    """Eq. 26 as a sum of nonnegative terms. A label that is out of range gives NaN: a graph cannot raise."""
    row = _solve(input, dim)
    labels = target.dtype == ir.DataType.INT64
    if labels:
        label = op.Unsqueeze(target, row.axes)
        counts = op.Not(op.Equal(label, ignore_index))
        q = _wide(op.And(op.Equal(row.ranks, _wide(op.Add(label, 1))), counts))
    else:
        q = _wide(target)
        counts = op.Greater(op.ReduceMax(_wide(op.Not(op.Equal(q, ZERO))), row.axes), ZERO)
        counts = op.Or(counts, op.IsNaN(row.t))
    # Half of tau - z: the whole may be too large for its type where the loss is not. tau = max z - max p.
    half = [op.Mul(x, HALF) for x in (row.top, row.z, op.ReduceMax(row.p, row.axes))]
    gap = op.Sub(op.Sub(half[0], half[1]), half[2])
    outside = op.And(op.Not(op.Equal(q, ZERO)), op.Equal(row.p, ZERO))
    difference = op.Sub(row.p, q)
    beyond = op.Mul(op.Add(q, q), op.Where(outside, gap, ZERO))
    terms = op.Add(op.Mul(op.Mul(difference, difference), HALF), beyond)
    value = op.Where(counts, op.ReduceSum(terms, row.axes), ZERO)
    if labels:
        value = op.Where(op.Equal(op.ReduceSum(q, row.axes), _wide(counts)), value, NAN)
    hi, lo = _tau(row, _compute(input))
    return op.Squeeze(op.Cast(value, to=_compute(input)), row.axes), hi, lo


TABLE: dict[Callable[..., Any], Callable[..., Any]] = {
    _ops.sparsemax: sparsemax,
    _ops.threshold: threshold,
    _ops.loss: sparsemax_loss,
}
