"""Sparsemax attention for Hugging Face's models, through their interfaces for attention and for its masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._check import extra
from . import _check, attention


def register_attention() -> None:
    """Let transformers' models attend by sparsemax (Eq. 2): `attn_implementation="sparsemax"`.

    Registers the function and its masks under that name, for encoders, decoders and both, with padding,
    causality, sliding windows, grouped heads, position biases and KV caches. A second call changes nothing.
    Needs `pip install "zerotail[transformers]"`.

    Notes
    -----
    What is not supported is refused when the model runs: soft-capping, sinks, chosen keys, packed sequences
    and paged caches. `output_attentions=True` in a call gives the weights, where the model hands the option
    on to its layers (GPT-2 does not). Models that do not use transformers' attention interface ignore every
    `attn_implementation`, and so this one.

    Examples
    --------
    >>> register_attention()
    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(
    ...     vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...     attn_implementation="sparsemax",
    ... )
    >>> model = BertModel(config).eval()
    >>> words, is_word = torch.tensor([[1, 2, 3, 0]]), torch.tensor([[1, 1, 1, 0]])
    >>> out = model(words, attention_mask=is_word, output_attentions=True)
    >>> out.attentions[0][..., 3].count_nonzero()               # no attention to padding
    tensor(0)
    """
    extra("transformers", "transformers", "register_attention")
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register("sparsemax", attention_forward)
    # Boolean, True = takes part; None where is_causal alone says it all. Without it no mask would arrive.
    AttentionMaskInterface.register("sparsemax", sdpa_mask)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls, with tensors (N, heads, positions, features)."""
    _check.transformers(attention_mask, kwargs)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # A single query is the last one of its sequence: it may see all that is cached.
    is_causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    mask = attention_mask
    if mask is not None and mask.is_floating_point():
        mask = mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)
    if position_bias is not None:
        mask, is_causal = _biased(position_bias, mask, is_causal), False
    options = (mask, dropout, is_causal, scaling)
    weights = None
    if kwargs.get("output_attentions"):
        _check.attention(query, key, value, mask, dropout, is_causal, True)
        output, weights = attention.attend(query, key, value, *options)
    else:
        output = attention.sparsemax_attention(query, key, value, *options, enable_gqa=True)
    return output.transpose(1, 2).contiguous(), weights


def _biased(position_bias: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """The bias, with -inf for what does not take part."""
    if is_causal:
        mask = torch.ones(position_bias.shape[-2:], dtype=torch.bool, device=position_bias.device).tril()
    if mask is None:
        return position_bias
    if mask.dtype == torch.bool:
        return torch.where(mask, position_bias, -torch.inf)
    return position_bias + mask
