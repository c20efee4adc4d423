"""The functions of the PyTorch front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._check import extra
from . import _check, _ops

_direct = _core.torch_sparsemax
_compiling = torch.compiler.is_compiling


@_check.unscriptable
def sparsemax(
    input: Tensor, dim: int = -1, *, mask: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Project scores onto the probability simplex (Eq. 2), as `torch.softmax` but with exact zeros.

    Differentiable in every mode of PyTorch: autograd and its second order, forward mode, `torch.func`,
    `torch.compile`, `torch.export`.

    Parameters
    ----------
    input : Tensor
        float32, float64, float16 or bfloat16, of any shape and strides; () counts as one score. Scores of
        -inf get probability 0.
    dim : int, default -1
        The dimension that sums to one.
    mask : Tensor of bool, optional
        True = takes part. Broadcasts to `input`. What is excluded gets 0, has gradient 0 and is never read; a
        row with nothing left is zeros.
    dtype : torch.dtype, optional
        Cast `input` to it first, integers too.

    Returns
    -------
    Tensor
        Shape of `input`. NaN along `dim` where the scores that take part hold NaN or +inf, or are all -inf,
        as softmax.

    Notes
    -----
    The gradient is Eq. 14 with S = {p > 0}; at a tie, an element of Clarke's Jacobian. Under autocast the
    type is the one that `torch.softmax` gives.

    Examples
    --------
    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    >>> sparsemax(torch.tensor([1.0, 0.5, torch.nan]), mask=torch.tensor([True, True, False]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    if mask is None and dtype is None and not _compiling():
        p = _direct(input, dim)
        if p is True:
            return _ops.Sparsemax.apply(input, dim)
        if p is not None:
            return p
    return _sparsemax(input, dim, mask, dtype)


def _sparsemax(input: Tensor, dim: int, mask: Tensor | None, dtype: torch.dtype | None) -> Tensor:
    scores, dim = _prepared(input, dim, dtype)
    if mask is None:
        return _ops.sparsemax(scores, dim).view(input.shape)
    _check.mask(mask, input)
    mask = mask.view([1] * (scores.dim() - mask.dim()) + list(mask.shape))
    # A row with nothing left is solved as zeros, not as -inf: no NaN that anomaly detection would find.
    rest = torch.where(mask.any(dim, keepdim=True), -torch.inf, 0.0).to(scores.dtype)
    p = _ops.sparsemax(torch.where(mask, scores, rest), dim)
    return torch.where(mask, p, 0).view(input.shape)


def _prepared(input: Tensor, dim: int, dtype: torch.dtype | None) -> tuple[Tensor, int]:
    """The scores as operators take them, with a dimension at least, and dim counted from the front."""
    _check.tensor(input, "input")
    dim = _check.dim(dim, input.dim())
    if dtype is not None:
        _check.dtype(dtype)
        input = input.to(dtype)
    _check.floating(input, "input")
    if _autocast(input):
        input = input.to(torch.softmax(input.detach().new_empty(0), 0).dtype)
    return (input if input.dim() else input.unsqueeze(0)), dim


def _autocast(input: Tensor) -> bool:
    device = input.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


@_check.unscriptable
def threshold(input: Tensor, dim: int = -1) -> Tensor:
    """Find the tau for which sparsemax is max(input - tau, 0) (Eq. 4).

    Differentiable like `sparsemax`: the gradient of tau is 1 / |S| on the support S (Eq. 10).

    Parameters
    ----------
    input : Tensor
        As in `sparsemax`.
    dim : int, default -1
        The dimension along which sparsemax sums to one.

    Returns
    -------
    Tensor
        One number a row: the shape of `input` without `dim`. NaN where a row is empty or is NaN in
        `sparsemax`.

    Examples
    --------
    >>> threshold(torch.tensor([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]]))
    tensor([0.2500, 2.0000])
    """
    scores, dim = _prepared(input, dim, None)
    hi, _ = _ops.threshold(scores, dim)
    return hi.to(scores.dtype)


@_check.unscriptable
def sparsemax_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Measure how far scores are from a target (Eqs. 20 and 26): `F.cross_entropy` for sparsemax.

    Convex, never negative, and 0 exactly where sparsemax(input) is the target: for a label, where its score
    leads all others by at least 1. The gradient is sparsemax(input) - target.

    Parameters
    ----------
    input : Tensor
        Scores of shape (C,), (N, C) or (N, C, d1, ...), not probabilities.
    target : Tensor
        Labels: int64 (or uint8) in [0, C), of shape (), (N,) or (N, d1, ...). Or probabilities: floating
        point, of the shape of `input`; that they sum to one is not checked. Differentiable in probabilities.
    weight : Tensor, optional
        A weight for each class, of shape (C,) and the type of `input`.
    ignore_index : int, default -100
        Rows of this label have loss and gradient 0 and do not count in the mean.
    reduction : {"mean", "sum", "none"}, default "mean"
        The mean divides by the weights of the rows' labels; for probabilities by the number of rows. It is 0,
        and not NaN, where no row counts.
    label_smoothing : float, default 0.0
        The part of the target that is spread over all classes.

    Returns
    -------
    Tensor
        A scalar, or the shape of the rows for "none"; the type of `input`. +inf where a score of -inf has a
        positive target.

    Examples
    --------
    >>> scores = torch.tensor([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]])
    >>> sparsemax_loss(scores, torch.tensor([1, 0]), reduction="none")
    tensor([0.5625, 0.0000])
    >>> sparsemax_loss(scores, torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    tensor(0.0312)
    """
    is_labels = _check.loss_target(input, target, ignore_index)
    _check.reduction(reduction)
    _check.label_smoothing(label_smoothing)
    if weight is not None:
        _check.weight(weight, input)
    dim = _check.class_dim(input)
    dtype = input.dtype if is_labels else torch.promote_types(input.dtype, target.dtype)
    if _autocast(input):  # as cross_entropy, on every device
        dtype = torch.promote_types(dtype, torch.float32)
    # Half types are rounded once, at the end.
    plain = weight is None and not label_smoothing
    wide = dtype if plain else _ops.compute(dtype)
    scores = input.to(wide)
    scale = None if weight is None else weight.to(wide)

    if is_labels:
        labels = target.to(torch.int64).view(_rows_shape(input, dim))
        own = None if scale is None else _label_weights(labels, scale, ignore_index)
        rows = _label_rows(scores, labels, dim, scale, own, ignore_index, label_smoothing)
    else:
        q = target.to(wide)
        if label_smoothing:
            q = q * (1 - label_smoothing) + label_smoothing / input.shape[dim]
        rows = _distribution_rows(scores, q, dim, scale)
    if reduction == "none":
        return rows.to(dtype)
    total = rows.sum()
    if reduction == "mean":
        if not is_labels:
            total = total / max(rows.numel(), 1)
        elif own is None:
            total = total / (labels != ignore_index).sum().clamp_min(1)
        else:
            total = total / _or_one(own.sum())
    return total.to(dtype)


def _rows_shape(input: Tensor, dim: int) -> list[int]:
    shape = list(input.shape)
    del shape[dim]
    return shape


def _or_one(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1, x)


def _label_weights(labels: Tensor, weight: Tensor, ignore_index: int) -> Tensor:
    """What each row counts in the mean: the weight of its label, 0 where it is ignored."""
    cols = weight.shape[0]
    counts = (labels != ignore_index) & (labels >= 0) & (labels < cols)
    return torch.where(counts, weight[labels.clamp(0, max(cols - 1, 0))], 0)


def _label_rows(
    scores: Tensor,
    labels: Tensor,
    dim: int,
    weight: Tensor | None,
    own: Tensor | None,
    ignore_index: int,
    smoothing: float,
) -> Tensor:
    """The loss of each row. `own` is what it counts, where there are weights."""
    cols = scores.shape[dim]
    if smoothing:
        counts, known = labels != ignore_index, (labels >= 0) & (labels < cols)
        _check.labels(labels, counts & ~known, cols, ignore_index)
        q = _ops.distribution(labels, scores, dim, ignore_index) * (1 - smoothing) + smoothing / cols
        q = torch.where(known.unsqueeze(dim), q, torch.nan)
        return _distribution_rows(scores, torch.where(counts.unsqueeze(dim), q, 0), dim, weight)
    if weight is None or own is None:
        rows, _, _ = _ops.loss(scores, labels, dim, ignore_index)
        return rows
    # A label of weight 0 does not count, whatever its score is.
    known = (labels >= 0) & (labels < cols)
    rows, _, _ = _ops.loss(scores, torch.where(known & (own == 0), ignore_index, labels), dim, ignore_index)
    return rows * own


def _distribution_rows(scores: Tensor, q: Tensor, dim: int, weight: Tensor | None) -> Tensor:
    """s L(z; w q / s) with s = sum of w q, or L(z; q) without weights."""
    if weight is None:
        rows, _, _ = _ops.loss(scores, q, dim, -1)
        return rows
    shape = [1] * scores.dim()
    shape[dim] = -1
    q = q * weight.view(shape)
    sums = q.sum(dim)
    counts = sums != 0
    rows, _, _ = _ops.loss(scores, q / _or_one(sums).unsqueeze(dim), dim, -1)
    return torch.where(counts, sums * rows, 0)


@_check.unscriptable
def binary_sparsemax(input: Tensor) -> Tensor:
    """Give each score t its probability against a score of 0 (Eq. 6): (t + 1) / 2, between 0 and 1.

    What the sigmoid is to softmax.

    Parameters
    ----------
    input : Tensor
        Floating point, any shape.

    Returns
    -------
    Tensor
        Shape and type of `input`. +inf gives 1 and -inf gives 0; NaN stays NaN. The derivative is 1/2 between
        -1 and 1, and 0 elsewhere.

    Examples
    --------
    >>> binary_sparsemax(torch.tensor([-3.0, 0.0, 0.5, 1.0]))
    tensor([0.0000, 0.5000, 0.7500, 1.0000])
    """
    _check.tensor(input, "input")
    _check.floating(input, "input")
    ramp = input * 0.5 + 0.5
    return torch.where(input >= 1, 1, torch.where(input <= -1, 0, ramp))


@_check.unscriptable
def binary_sparsemax_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Measure how far scores t are from probabilities y of the positive class: a Huber loss (Eq. 23).

    It is `sparsemax_loss` of the scores (t, 0) and the probabilities (y, 1 - y): what
    `F.binary_cross_entropy_with_logits` is to the cross-entropy.

    Parameters
    ----------
    input : Tensor
        Scores, floating point, any shape.
    target : Tensor
        In [0, 1], which is not checked, of the shape of `input`; labels are 0 and 1.
    reduction : {"mean", "sum", "none"}, default "mean"
        The mean of no score is 0.

    Returns
    -------
    Tensor
        A scalar, or the shape of `input` for "none". An infinite score costs nothing if the target is the 0
        or 1 on its side, else +inf.

    Examples
    --------
    >>> scores = torch.tensor([-3.0, 0.0, 0.5, 1.0])
    >>> binary_sparsemax_loss(scores, torch.ones(4), reduction="none")
    tensor([3.0000, 0.2500, 0.0625, 0.0000])
    """
    _check.binary(input, target)
    _check.reduction(reduction)
    dtype = input.dtype
    if _autocast(input):  # as binary_cross_entropy_with_logits
        dtype = torch.promote_types(dtype, torch.float32)
    t = input.to(_ops.compute(dtype))
    y = target.to(t.dtype)
    # The linear terms are 0 where t is in [-1, 1]. No infinity meets a zero, in derivatives neither.
    over = torch.where((y < 1) | (t < torch.inf), t.clamp(min=1) - 1, 0)
    under = torch.where((y > 0) | (t > -torch.inf), -1 - t.clamp(max=-1), 0)
    rows = (binary_sparsemax(t) - y) ** 2 + ((1 - y) * over + y * under)
    if reduction == "none":
        return rows.to(dtype)
    total = rows.sum()
    return (total / max(rows.numel(), 1) if reduction == "mean" else total).to(dtype)


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translate sparsemax, its threshold and its loss (Eqs. 2, 4 and 26) for `torch.onnx.export`.

    The graphs consist of standard ONNX operators, so that every runtime can run them, and are as exact as the
    functions: they compute in float64. Any dim and mask; batch and K may be dynamic. They cost a sort.

    Returns
    -------
    dict
        What the option `custom_translation_table` takes, of `torch.onnx.export(..., dynamo=True)`.

    Notes
    -----
    A graph cannot raise: in an exported loss, a label out of range gives NaN in its row.

    Examples
    --------
    >>> table = onnx_translations()
    >>> [str(operator) for operator in table]
    ['zerotail.sparsemax.default', 'zerotail.threshold.default', 'zerotail.sparsemax_loss.default']
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), Sparsemax()).eval()
    >>> program = torch.onnx.export(
    ...     model, (torch.zeros(2, 4),), dynamo=True, verbose=False, custom_translation_table=table
    ... )
    >>> {node.domain for node in program.model.graph}  # ONNX's own operators
    {''}
    """
    extra("onnxscript", "onnx", "onnx_translations")
    from . import _onnx

    return dict(_onnx.TABLE)
