"""Attention that selects: weights that are exactly zero for what does not matter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from . import _check, _ops, _support, functional
from .nn import _Module

# ---- weights of scores; a row that its mask empties is zeros, and has gradient 0 --------------------------


def _sparsemax(scores: Tensor, mask: Tensor | None) -> Tensor:
    return functional.sparsemax(scores, mask=mask)


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return torch.softmax(scores, -1)
    rest = torch.where(mask.any(-1, keepdim=True), -torch.inf, 0.0).to(scores.dtype)
    return torch.where(mask, torch.softmax(torch.where(mask, scores, rest), -1), 0)


def _sigmoid(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.sigmoid(scores if mask is None else torch.where(mask, scores, -torch.inf))


WEIGHTINGS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "sparsemax": _sparsemax,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
}


# ---- scaled dot products ---------------------------------------------------------------------------------


@_check.unscriptable
def sparsemax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Average values by sparsemax (Eq. 2) of scaled dot products, as `F.scaled_dot_product_attention`.

    Parameters
    ----------
    query : Tensor
        (..., L, E), of float32, float64, float16 or bfloat16.
    key, value : Tensor
        (..., S, E) and (..., S, Ev), of the same type. Leading dimensions broadcast.
    attn_mask : Tensor, optional
        Broadcasts to (..., L, S). Boolean, True = takes part; or floating point, added to the scores, and
        differentiable. What is excluded, by False or by -inf, has weight 0 and gradient 0.
    dropout_p : float, default 0.0
        The probability of dropping a weight, whenever it is not 0.
    is_causal : bool, default False
        Query i sees the keys 0 to i, as in `F.scaled_dot_product_attention`; not along with `attn_mask`.
    scale : float, optional
        What dot products are multiplied by; 1 / sqrt(E) by default.
    enable_gqa : bool, default False
        Let key and value have fewer heads, in dimension -3, each for a group of query's heads.

    Returns
    -------
    Tensor
        (..., L, Ev), of the type of `query`; half types are computed in float32 and rounded once. A query
        whose mask leaves nothing gets zeros, and has gradient 0.

    Notes
    -----
    A key that no query may see is never read, and neither is its value. Of others, a value that is NaN
    reaches the queries that select it; where attention is computed with all weights (dropout, transforms,
    compilers, other devices), it reaches all queries of its sequence, as 0 times NaN is NaN.

    Examples
    --------
    >>> query = torch.tensor([[4.0, 0.0]])
    >>> key = torch.tensor([[1.0, 0.0], [0.75, 0.0], [-1.0, 0.0]])
    >>> value = torch.tensor([[8.0], [4.0], [torch.pi]])
    >>> sparsemax_attention(query, key, value, scale=1.0)   # the scores are 4, 3 and -4
    tensor([[8.]])
    >>> sparsemax_attention(query, key, value, scale=0.5)   # 2, 1.5 and -2: 3/4 of 8, 1/4 of 4
    tensor([[7.]])
    """
    query, key, value = _lowered(query, key, value)
    _check.attention(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _dense_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    if not dropout_p:
        output = _support.attention(query, key, value, attn_mask, is_causal, scale, dense)
        if output is not None:
            return output
    return dense(query, key, value)


def _dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """The whole matrix of scores at once, in plain torch: for every device, mode and argument."""
    return attend(query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    weighting: str = "sparsemax",
) -> tuple[Tensor, Tensor]:
    """What `sparsemax_attention` returns for arguments that are checked, and the weights (..., L, S)."""
    dtype, wide = query.dtype, _ops.compute(query.dtype)
    if scale is None:
        scale = max(query.shape[-1], 1) ** -0.5
    keys = key.shape[-2]
    if is_causal:
        # What lies behind the last query is seen by none.
        key, value = key[..., : query.shape[-2], :], value[..., : query.shape[-2], :]
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    query, key, value = query.to(wide), key.to(wide), value.to(wide)
    mask = attn_mask
    if attn_mask is not None:
        mask = attn_mask if attn_mask.dtype == torch.bool else ~attn_mask.isneginf()
        if not is_causal:
            key, value = _seen(key, mask, query), _seen(value, mask, query)
    with _without_autocast(query):
        scores = _matmul(query, key.mT) * scale
        if attn_mask is not None and mask is not attn_mask:
            scores = scores + attn_mask.to(wide)
        p = WEIGHTINGS[weighting](scores, mask)
        if dropout_p:
            p = torch.dropout(p, dropout_p, True)
        output = _matmul(p, value)
    if is_causal and keys > p.shape[-1]:
        p = nn.functional.pad(p, (0, keys - p.shape[-1]))
    return output.to(dtype), p.to(dtype)


def _seen(x: Tensor, mask: Tensor, query: Tensor) -> Tensor:
    """x (..., S, features) with zeros where no query may see: what lies there is not read."""
    seen = mask.any(-2) if mask.dim() > 1 else mask
    if seen.dim() > 1 and seen.shape[-2] > 1 and x.dim() > 2 and x.shape[-3] != query.shape[-3]:
        seen = seen.unflatten(-2, (x.shape[-3], -1)).any(-2)  # by any head of a group
    return torch.where(seen.unsqueeze(-1), x, 0)


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    """x @ y, where heads of x may share one of y: those of a group go one after another into one product."""
    if x.dim() < 3 or y.dim() < 3 or x.shape[-3] <= y.shape[-3] or not y.shape[-3]:
        return x @ y
    group, rows = x.shape[-3] // y.shape[-3], x.shape[-2]
    x = x.unflatten(-3, (y.shape[-3], group)).flatten(-3, -2)
    return (x @ y).unflatten(-2, (group, rows)).flatten(-4, -3)


def _lowered(*xs: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, in its type, as `F.scaled_dot_product_attention` takes them."""
    if not (isinstance(xs[0], Tensor) and functional._autocast(xs[0])):
        return xs
    dtype = torch.get_autocast_dtype(xs[0].device.type)
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in xs)


def _without_autocast(x: Tensor) -> Any:
    return torch.autocast(x.device.type, enabled=False) if functional._autocast(x) else nullcontext()


class MultiheadAttention(_Module, nn.MultiheadAttention):
    """Attend with several heads, as `torch.nn.MultiheadAttention`, by sparsemax (Eq. 2) of the scores.

    Constructor, call, parameters and state dict are those of `torch.nn.MultiheadAttention`, polarity of masks
    included: True = blocked.

    Parameters
    ----------
    embed_dim, num_heads
        The features of a query, and the number of heads, which divides them.
    dropout : float, default 0.0
        The probability of dropping a weight in training.
    bias, add_bias_kv, add_zero_attn : bool
        As in `torch.nn.MultiheadAttention`, as are their defaults.
    kdim, vdim : int, optional
        The features of keys and values; `embed_dim` by default.
    batch_first : bool, default False
        Whether tensors are (N, L, E) and not (L, N, E).
    device, dtype
        Of the parameters.
    weighting : {"sparsemax", "softmax", "sigmoid"}, default "sparsemax"
        What makes weights of scores; those of "sigmoid" do not sum to one.

    Notes
    -----
    A query whose masks leave nothing gets zeros before the output projection, and has gradient 0. Boolean and
    floating-point masks may be mixed. `need_weights=False` saves memory.

    Examples
    --------
    >>> attention = MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> output, weights = attention(x, x, x, key_padding_mask=torch.arange(5).expand(3, 5) > 3)
    >>> output.shape, weights.shape, weights[..., 4].count_nonzero()
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]), tensor(0))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        weighting: str = "sparsemax",
    ) -> None:
        _check.size(embed_dim, "embed_dim")
        _check.size(num_heads, "num_heads")
        _check.heads(embed_dim, num_heads)
        _check.weighting(weighting, tuple(WEIGHTINGS))
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        self.weighting = weighting

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # torch.nn.TransformerEncoderLayer would compute softmax itself, past this module, if it were True.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        features = (self.embed_dim, self.kdim, self.vdim)
        _check.multihead(query, key, value, features, self.batch_first)
        batch = (0 if self.batch_first else 1) if query.dim() == 3 else None
        q, k, v = self._project(query, key, value)
        if batch is None:
            q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        elif batch == 1:
            q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        sizes = (len(q), self.num_heads, q.shape[1], k.shape[1])
        _check.multihead_masks(query, key_padding_mask, attn_mask, is_causal, sizes)
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.to(k.dtype).expand(len(k), 1, -1)], 1)
            v = torch.cat([v, self.bias_v.to(v.dtype).expand(len(v), 1, -1)], 1)
        if self.add_zero_attn:
            k, v = nn.functional.pad(k, (0, 0, 0, 1)), nn.functional.pad(v, (0, 0, 0, 1))
        mask = _takes_part(key_padding_mask, attn_mask, sizes, k.shape[1])
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights or self.weighting != "sparsemax":
            output, weights = attend(q, k, v, mask, dropout, weighting=self.weighting)
        else:
            output = sparsemax_attention(q, k, v, mask, dropout)
        output = self.out_proj(output.transpose(1, 2).flatten(-2))
        if batch is None:
            output = output.squeeze(0)
        elif batch == 1:
            output = output.transpose(0, 1)
        if not need_weights or weights is None:
            return output, None
        if average_attn_weights:
            weights = weights.mean(1)
        return output, weights.squeeze(0) if batch is None else weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        linear = nn.functional.linear
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
        return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, weighting={self.weighting!r}"


def _takes_part(
    key_padding_mask: Tensor | None, attn_mask: Tensor | None, sizes: tuple[int, int, int, int], keys: int
) -> Tensor | None:
    """The masks, in which True = blocked, as one of `sparsemax_attention`. Keys that were added take part."""
    batch, heads, rows, cols = sizes
    masks = []
    if key_padding_mask is not None:
        masks.append(key_padding_mask.view(batch, 1, 1, cols))
    if attn_mask is not None:
        own = (1, 1) if attn_mask.dim() == 2 else (batch, heads)
        masks.append(attn_mask.view(*own, rows, cols))
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        blocked = nn.functional.pad(masks[0] if len(masks) == 1 else masks[0] | masks[1], (0, keys - cols))
        return ~blocked
    added = [
        torch.where(mask, -torch.inf, 0.0) if mask.dtype == torch.bool else mask.to(_ops.compute(mask.dtype))
        for mask in masks
    ]
    return nn.functional.pad(added[0] if len(added) == 1 else added[0] + added[1], (0, keys - cols))


# ---- additive scores -------------------------------------------------------------------------------------


class AdditiveAttention(_Module):
    """Average keys by weights of v' tanh(W k_t + U q + b) (Eqs. 33-35), for a query q and keys k_1, ..., k_L.

    Parameters
    ----------
    query_dim : int
        The features of a query.
    key_dim : int, optional
        The features of a key; `query_dim` by default.
    hidden_dim : int, optional
        The size of v; `key_dim` by default.
    weighting : {"sparsemax", "softmax", "sigmoid"}, default "sparsemax"
        What makes weights of scores; those of "sigmoid" do not sum to one.
    device, dtype
        Of the parameters.

    Notes
    -----
    Called with

    - query: (..., query_dim), one for each sequence, or (..., T, query_dim), T for each;
    - keys: (..., L, key_dim);
    - mask: boolean, broadcasts to (..., L), True = token. What is excluded has weight 0 and is never read; a
      sequence with nothing left gives zeros, and has gradient 0;

    it returns the averages, (..., key_dim) or (..., T, key_dim), and the weights, (..., L) or (..., T, L).
    The matrices start as Glorot's uniform ones, b as zeros.

    Examples
    --------
    >>> attention = AdditiveAttention(query_dim=3, key_dim=5)
    >>> average, weights = attention(torch.randn(2, 3), torch.randn(2, 7, 5), torch.arange(7) < 4)
    >>> average.shape, weights.shape
    (torch.Size([2, 5]), torch.Size([2, 7]))
    >>> weights[:, 4:].count_nonzero()
    tensor(0)
    """

    def __init__(
        self,
        query_dim: int,
        key_dim: int | None = None,
        hidden_dim: int | None = None,
        *,
        weighting: str = "sparsemax",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        key_dim = query_dim if key_dim is None else key_dim
        hidden_dim = key_dim if hidden_dim is None else hidden_dim
        for value, name in ((query_dim, "query_dim"), (key_dim, "key_dim"), (hidden_dim, "hidden_dim")):
            _check.size(value, name)
        _check.weighting(weighting, tuple(WEIGHTINGS))
        self.query_dim, self.key_dim, self.hidden_dim = query_dim, key_dim, hidden_dim
        self.weighting = weighting
        self.key_proj = nn.Linear(key_dim, hidden_dim, device=device, dtype=dtype)
        self.query_proj = nn.Linear(query_dim, hidden_dim, bias=False, device=device, dtype=dtype)
        self.score = nn.Linear(hidden_dim, 1, bias=False, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.key_proj, self.query_proj, self.score):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.key_proj.bias)

    def forward(self, query: Tensor, keys: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        _check.additive(query, keys, mask, self.query_dim, self.key_dim)
        one = query.dim() < keys.dim()
        if one:
            query = query.unsqueeze(-2)
        if mask is not None:
            mask = mask.expand(keys.shape[:-1])
            keys = torch.where(mask.unsqueeze(-1), keys, 0)
            mask = mask.unsqueeze(-2)
        hidden = self.key_proj(keys).unsqueeze(-3) + self.query_proj(query).unsqueeze(-2)
        scores = self.score(torch.tanh(hidden)).squeeze(-1)
        weights = WEIGHTINGS[self.weighting](scores, mask)
        average = weights @ keys
        return (average.squeeze(-2), weights.squeeze(-2)) if one else (average, weights)

    def extra_repr(self) -> str:
        return (
            f"query_dim={self.query_dim}, key_dim={self.key_dim}, hidden_dim={self.hidden_dim}, "
            f"weighting={self.weighting!r}"
        )
