"""Layers whose cost after the scores is that of the support: on the CPU, zeros are skipped, not multiplied.

Everywhere else, and under transforms and compilers, the same functions are compositions of the others.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from . import _check, _ops, _support, functional
from .attention import _seen


@_check.unscriptable
def linear_sparsemax_loss(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    sparse_weight_grad: bool = False,
    chunk_rows: int = 128,
) -> Tensor:
    """Compute `sparsemax_loss(F.linear(input, weight, bias), target)` (Eqs. 20, 26) without all the logits.

    On the CPU, with labels, logits exist for `chunk_rows` rows at a time, and the gradients are sums over
    the supports alone. With supports of a sixth of the classes and more they are matrix products.

    Parameters
    ----------
    input : Tensor
        Features, of shape (..., D).
    weight : Tensor
        Of shape (C, D), a row for each class, as in `F.linear`.
    target : Tensor
        Labels: int64 (or uint8) in [0, C), of shape (...). Or probabilities, of shape (..., C).
    bias : Tensor, optional
        Of shape (C,).
    ignore_index : int, default -100
        Rows of this label have loss and gradient 0, do not count in the mean, and cost nothing.
    reduction : {"mean", "sum", "none"}, default "mean"
        The mean is 0, and not NaN, where no row counts.
    sparse_weight_grad : bool, default False
        Let the gradient of `weight` be a sparse tensor of the rows that it moves, for `optim.SGD` and
        `optim.SparseAdam`: as `nn.Embedding(sparse=True)`. Where all the logits are needed (transforms,
        compilers, second derivatives, other devices), the gradient is dense.
    chunk_rows : int, default 128
        How many rows of logits exist at once. Has no part in the result but for rounding.

    Returns
    -------
    Tensor
        A scalar, or the shape (...) for "none"; of the type of `input`. Half types are computed in float32.

    Examples
    --------
    >>> input = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> weight = torch.tensor([[3.0, 0.0], [2.5, 1.0], [-4.0, 0.0]], requires_grad=True)
    >>> loss = linear_sparsemax_loss(input, weight, torch.tensor([1, 1]), sparse_weight_grad=True)
    >>> loss
    tensor(0.2812, grad_fn=<DivBackward0>)
    >>> loss.backward()
    >>> weight.grad  # two of the three classes; the second row of input is where it should be
    tensor(indices=tensor([[0, 1]]),
           values=tensor([[ 0.3750,  0.0000],
                          [-0.3750,  0.0000]]),
           size=(3, 2), nnz=2, layout=torch.sparse_coo)
    """
    is_labels = _check.linear_loss(input, weight, target, bias, ignore_index, chunk_rows)
    _check.reduction(reduction)
    if not is_labels and sparse_weight_grad:
        raise RuntimeError("sparse_weight_grad must be False where target holds probabilities; got True")
    rows_shape = input.shape[:-1]
    if (
        not is_labels
        or not (input.numel() and weight.numel())
        or functional._autocast(input)
        or not _support.applies(input, weight, bias, target)
    ):
        return _dense_loss(input, weight, target, bias, is_labels, ignore_index, reduction)

    labels = target.reshape(-1).to(torch.int64)
    counts = labels != ignore_index
    wrong = counts & ((labels < 0) | (labels >= weight.shape[0]))
    _check.labels(labels, wrong, weight.shape[0], ignore_index)
    wide = _ops.compute(input.dtype)
    x = input.reshape(-1, input.shape[-1]).to(wide)
    kept = None
    if not bool(counts.all()):
        kept = counts.nonzero().squeeze(1)
        if not kept.numel():
            return _dense_loss(input, weight, target, bias, is_labels, ignore_index, reduction)
        x, labels = x[kept], labels[kept]
    rows = _support.linear_loss(
        x,
        weight.to(wide),
        None if bias is None else bias.to(wide),
        labels,
        min(chunk_rows, len(labels)),
        reduction != "none",
        sparse_weight_grad,
        partial(_label_losses, labels),
    )
    if reduction == "none":
        if kept is not None:
            rows = rows.new_zeros(counts.shape).index_copy(0, kept, rows)
        return rows.view(rows_shape).to(input.dtype)
    total = rows.sum()
    return (total / len(labels) if reduction == "mean" else total).to(input.dtype)


def _label_losses(labels: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.sparsemax_loss(
        torch.nn.functional.linear(input, weight, bias), labels, reduction="none"
    )


def _dense_loss(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    is_labels: bool,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """All logits at once, in plain torch: for every device, mode and target."""
    logits = torch.nn.functional.linear(input.reshape(-1, input.shape[-1]), weight, bias)
    target = target.reshape(-1) if is_labels else target.reshape(-1, weight.shape[0])
    loss = functional.sparsemax_loss(logits, target, ignore_index=ignore_index, reduction=reduction)
    return loss.view(input.shape[:-1]) if reduction == "none" else loss


@_check.unscriptable
def weighted_sum(scores: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute `sparsemax(scores) @ values` (Eq. 2): the mean of the few values that scores select.

    For memories and readouts. On the CPU, value and gradients cost as many rows of `values` as the supports
    are large.

    Parameters
    ----------
    scores : Tensor
        Of shape (..., N), floating point.
    values : Tensor
        Of the same type, and of shape (N,) or (N, D), shared by all rows of scores, or (..., N, D), as in
        `torch.matmul`. One row of scores for each matrix of values is
        `weighted_sum(scores.unsqueeze(-2), values)`.
    mask : Tensor of bool, optional
        True = takes part. Broadcasts to `scores`. A value that is excluded has weight 0 and gradient 0; a row
        with nothing left gives zeros.

    Returns
    -------
    Tensor
        (..., D); (...) for values of shape (N,). Half types are computed in float32 and rounded once.

    Examples
    --------
    >>> memory = torch.tensor([[8.0, 0.0], [4.0, 4.0], [1.0, 9.0]])
    >>> weighted_sum(torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 5.0]]), memory)
    tensor([[7., 1.],
            [1., 9.]])
    """
    _check.weighted_sum(scores, values, mask)
    if values.dim() == 1:
        return weighted_sum(scores, values.unsqueeze(-1), mask).squeeze(-1)
    if not functional._autocast(scores):
        output = _support.weighted_sum(scores, values, mask, partial(_dense_sum, mask))
        if output is not None:
            return output
    return _dense_sum(mask, scores, values)


def _dense_sum(mask: Tensor | None, scores: Tensor, values: Tensor) -> Tensor:
    wide = _ops.compute(scores.dtype)
    p = functional.sparsemax(scores.to(wide), mask=mask)
    x = values.to(wide)
    if mask is not None:
        x = _seen(x, mask.expand(scores.shape), scores)
    return (p @ x).to(scores.dtype)
