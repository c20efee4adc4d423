"""Argument checks of the PyTorch front end.

Every error message stands here, in one form: *argument* must *requirement*; got *value*. The exceptions are
those that `torch.softmax` and `F.cross_entropy` raise for the same mistake.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

FLOATING = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
Function = TypeVar("Function", bound=Callable[..., Any])
REDUCTIONS = ("none", "mean", "sum")


def not_scripted(name: str) -> NoReturn:
    raise RuntimeError(f"{name} must be compiled by torch.compile or torch.export; got torch.jit.script")


def unscriptable(function: Function) -> Function:
    """Let TorchScript, which asks for this attribute before it reads a function, say what to use instead."""
    function.__prepare_scriptable__ = partial(not_scripted, function.__name__)  # type: ignore[attr-defined]
    return function


def tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a Tensor; got {type(value).__name__}")


def dense(value: Tensor, name: str) -> None:
    if value.layout != torch.strided:
        raise NotImplementedError(f"{name} must be dense; got layout {value.layout}")


def floating(value: Tensor, name: str) -> None:
    dense(value, name)
    if value.dtype not in FLOATING:
        raise NotImplementedError(
            f"{name} must be float32, float64, float16 or bfloat16 (or give dtype=); got {value.dtype}"
        )


def dtype(value: Any) -> None:
    if not isinstance(value, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype; got {type(value).__name__}")
    if value not in FLOATING:
        raise NotImplementedError(f"dtype must be float32, float64, float16 or bfloat16; got {value}")


def dim(value: Any, dims: int) -> int:
    """A dimension counted from the front. A tensor without any counts as one of one score."""
    try:
        index = operator.index(value)
    except TypeError:
        index = None
    if index is None or isinstance(value, bool):
        raise TypeError(f"dim must be an integer; got {value!r}")
    dims = max(dims, 1)
    if not -dims <= index < dims:
        raise IndexError(f"dim must be in [{-dims}, {dims}) for input of {dims} dimensions; got {index}")
    return index % dims


def same_device(value: Tensor, name: str, input: Tensor) -> None:
    if value.device != input.device:
        raise RuntimeError(f"{name} must be on the device of input, {input.device}; got {value.device}")


def mask(value: Any, input: Tensor) -> None:
    tensor(value, "mask")
    if value.dtype != torch.bool:
        raise TypeError(f"mask must be boolean; got {value.dtype}")
    same_device(value, "mask", input)
    try:
        fits = torch.broadcast_shapes(value.shape, input.shape) == input.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"mask must broadcast to input of shape {tuple(input.shape)}; got shape {tuple(value.shape)}"
        )


def class_dim(input: Tensor) -> int:
    return 1 if input.dim() > 1 else 0


def loss_target(input: Tensor, target: Tensor, ignore_index: int) -> bool:
    """Whether the target holds labels; else probabilities. As `F.cross_entropy`, by the shapes."""
    tensor(input, "input")
    tensor(target, "target")
    if input.dtype not in FLOATING:
        raise NotImplementedError(f"input must be float32, float64, float16 or bfloat16; got {input.dtype}")
    dense(input, "input")
    dense(target, "target")
    same_device(target, "target", input)
    index(ignore_index)
    if target.shape == input.shape:
        if not target.is_floating_point():
            raise RuntimeError(
                "target must be probabilities of a floating-point type where it has the shape of input; "
                f"got {target.dtype}"
            )
        if ignore_index >= 0:
            raise RuntimeError(
                f"ignore_index must be negative where target holds probabilities; got {ignore_index}"
            )
        return False
    shape = list(input.shape)
    del shape[class_dim(input)]
    if input.dim() > 1 and target.dim() and target.shape[0] != input.shape[0]:
        raise ValueError(_target_shape(input, target, shape))
    if list(target.shape) != shape and not (input.dim() == 1 and target.shape == (1,)):
        raise RuntimeError(_target_shape(input, target, shape))
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"target must be labels of type int64 or uint8; got {target.dtype}")
    return True


def _target_shape(input: Tensor, target: Tensor, rows: list[int]) -> str:
    return (
        f"target must be labels of shape {tuple(rows)} or probabilities of shape {tuple(input.shape)}; "
        f"got shape {tuple(target.shape)}"
    )


def index(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"ignore_index must be an integer; got {value!r}")


def weight(value: Any, input: Tensor) -> None:
    tensor(value, "weight")
    classes = input.shape[class_dim(input)]
    same_device(value, "weight", input)
    if value.shape != (classes,):
        raise RuntimeError(
            f"weight must have one number for each of {classes} classes; got shape {tuple(value.shape)}"
        )
    if value.dtype != input.dtype:
        raise RuntimeError(f"weight must have the type of input, {input.dtype}; got {value.dtype}")
    if value.requires_grad:
        raise RuntimeError("weight must not require a gradient; got requires_grad=True")


def reduction(value: Any) -> None:
    if value not in REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum'; got {value!r}")


def label_smoothing(value: Any) -> None:
    if not 0 <= value <= 1:
        raise RuntimeError(f"label_smoothing must be in [0, 1]; got {value}")


def binary(input: Tensor, target: Tensor) -> None:
    tensor(input, "input")
    tensor(target, "target")
    same_device(target, "target", input)
    if target.shape != input.shape:
        raise ValueError(
            f"target must have the shape of input, {tuple(input.shape)}; got {tuple(target.shape)}"
        )


def labels(target: Tensor, wrong: Tensor, classes: int, ignore_index: int) -> None:
    """Raise for the first wrong label, where it can be known now."""
    if torch.compiler.is_compiling() or type(target) is not Tensor or not _is_real(target):
        return
    if not target.is_cpu:
        torch._assert_async(~wrong.any(), f"target must be labels in [0, {classes})")
    elif wrong.any():
        raise IndexError(
            f"target must be labels in [0, {classes}) or ignore_index={ignore_index}; got {target[wrong][0]}"
        )


def _is_real(value: Tensor) -> bool:
    """Not inside of a transform or a mode, and not without numbers."""
    return (
        torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and not value.is_meta
    )


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
) -> None:
    """The arguments of `F.scaled_dot_product_attention`."""
    for x, name in ((query, "query"), (key, "key"), (value, "value")):
        tensor(x, name)
        dense(x, name)
        least = 3 if enable_gqa else 2
        if x.dim() < least:
            raise RuntimeError(f"{name} must have at least {least} dimensions; got shape {tuple(x.shape)}")
        if x.dtype not in FLOATING:
            raise RuntimeError(f"{name} must be float32, float64, float16 or bfloat16; got {x.dtype}")
        if x.dtype != query.dtype:
            raise RuntimeError(f"{name} must have the type of query, {query.dtype}; got {x.dtype}")
        _on_device(x, name, query, "query")
    if key.shape[-1] != query.shape[-1]:
        raise RuntimeError(f"key must have the {query.shape[-1]} features of query; got {key.shape[-1]}")
    if value.shape[-2] != key.shape[-2]:
        raise RuntimeError(f"value must have the {key.shape[-2]} positions of key; got {value.shape[-2]}")
    batch = query.shape[:-2]
    for x, name in ((key, "key"), (value, "value")):
        own = x.shape[:-2]
        if enable_gqa:
            if not own[-1] or query.shape[-3] % own[-1]:
                raise RuntimeError(
                    f"{name} must have heads that divide the {query.shape[-3]} of query; got {own[-1]}"
                )
            own = own[:-1] + query.shape[-3:-2]
        together = _together(batch, own)
        if together is None:
            raise RuntimeError(
                f"{name} must have leading dimensions that broadcast with those of query, {tuple(batch)}; "
                f"got {tuple(own)}"
            )
        if name == "key":  # a mask is for the scores, which the values have no part in
            scores = together + query.shape[-2:-1] + key.shape[-2:-1]
            batch = together
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout_p must be in [0, 1]; got {dropout_p}")
    if attn_mask is None:
        return
    tensor(attn_mask, "attn_mask")
    if is_causal:
        raise RuntimeError("attn_mask must be None where is_causal=True; got a Tensor")
    if attn_mask.dtype != torch.bool and attn_mask.dtype not in FLOATING:
        raise RuntimeError(f"attn_mask must be boolean or floating point; got {attn_mask.dtype}")
    _on_device(attn_mask, "attn_mask", query, "query")
    if _together(attn_mask.shape, scores) != scores:
        raise RuntimeError(
            f"attn_mask must broadcast to scores of shape {tuple(scores)}; got shape {tuple(attn_mask.shape)}"
        )


def _together(a: torch.Size, b: torch.Size) -> torch.Size | None:
    try:
        return torch.broadcast_shapes(a, b)
    except RuntimeError:
        return None


def _on_device(value: Tensor, name: str, other: Tensor, other_name: str) -> None:
    if value.device != other.device:
        raise RuntimeError(
            f"{name} must be on the device of {other_name}, {other.device}; got {value.device}"
        )


def weighting(value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"weighting must be {_either(known)}; got {value!r}")


def _either(names: tuple[str, ...]) -> str:
    *rest, last = map(repr, names)
    return f"{', '.join(rest)} or {last}"


def size(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value}")


def additive(query: Tensor, keys: Tensor, mask: Tensor | None, query_dim: int, key_dim: int) -> None:
    """The arguments of `AdditiveAttention`."""
    for x, name, features in ((keys, "keys", key_dim), (query, "query", query_dim)):
        tensor(x, name)
        dense(x, name)
        if not x.dim() or x.shape[-1] != features:
            raise RuntimeError(f"{name} must have {features} features; got shape {tuple(x.shape)}")
    if keys.dim() < 2:
        raise RuntimeError(f"keys must have at least 2 dimensions; got shape {tuple(keys.shape)}")
    batch = tuple(keys.shape[:-2])
    if query.shape[:-1] != keys.shape[:-2] and not (
        query.dim() == keys.dim() and query.shape[:-2] == keys.shape[:-2]
    ):
        raise RuntimeError(
            f"query must be of shape {(*batch, query_dim)}, or {(*batch, 'T', query_dim)}, "
            f"for keys of shape {tuple(keys.shape)}; got shape {tuple(query.shape)}"
        )
    if mask is not None:
        shape = keys.shape[:-1]
        _takes_part(mask, keys, "keys", shape, f"the positions of keys, {tuple(shape)}")


def heads(embed_dim: int, num_heads: int) -> None:
    if embed_dim % num_heads:
        raise ValueError(f"num_heads must divide embed_dim, {embed_dim}; got {num_heads}")


def multihead(
    query: Tensor, key: Tensor, value: Tensor, features: tuple[int, int, int], batch_first: bool
) -> None:
    """The tensors of `MultiheadAttention`."""
    for x, name, size in zip((query, key, value), ("query", "key", "value"), features, strict=True):
        tensor(x, name)
        dense(x, name)
        if x.is_nested:
            raise NotImplementedError(f"{name} must be dense; got a nested tensor")
        if x.dim() not in (2, 3) or x.dim() != query.dim():
            raise RuntimeError(
                f"{name} must have 2 dimensions without a batch, 3 with one, and as many as query; "
                f"got shape {tuple(x.shape)}"
            )
        if x.shape[-1] != size:
            raise RuntimeError(f"{name} must have {size} features; got {x.shape[-1]}")
    batch = 0 if batch_first else 1
    if query.dim() == 3 and key.shape[batch] != query.shape[batch]:
        raise RuntimeError(f"key must have the batch of query, {query.shape[batch]}; got {key.shape[batch]}")
    if value.shape[:-1] != key.shape[:-1]:
        raise RuntimeError(
            f"value must have the batch and the positions of key, {tuple(key.shape[:-1])}; "
            f"got {tuple(value.shape[:-1])}"
        )


def multihead_masks(
    query: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    sizes: tuple[int, int, int, int],
) -> None:
    """The masks of `MultiheadAttention`, for sizes (batch, heads, queries, keys)."""
    batch, heads, rows, cols = sizes
    if is_causal and attn_mask is None:
        raise RuntimeError("attn_mask must be given where is_causal=True, which is a hint; got None")
    padding = [(batch, cols)] if query.dim() == 3 else [(cols,)]
    for mask, name, shapes in (
        (key_padding_mask, "key_padding_mask", padding),
        (attn_mask, "attn_mask", [(rows, cols), (batch * heads, rows, cols)]),
    ):
        if mask is None:
            continue
        tensor(mask, name)
        if mask.dtype != torch.bool and mask.dtype not in FLOATING:
            raise RuntimeError(f"{name} must be boolean or floating point; got {mask.dtype}")
        if tuple(mask.shape) not in shapes:
            either = " or ".join(map(str, shapes))
            raise RuntimeError(f"{name} must be of shape {either}; got {tuple(mask.shape)}")
        _on_device(mask, name, query, "query")


REFUSED = {
    "softcap": "soft-capping",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "indices": "a choice of keys",
    "block_indices": "a choice of keys",
    "cu_seq_lens_q": "packed sequences",
    "cu_seq_lens_k": "packed sequences",
    "block_table": "a paged cache",
    "cache": "a paged cache",
}
"""Arguments of transformers' attention functions that would change the result, and are not supported."""


def transformers(attention_mask: Tensor | None, options: dict[str, Any]) -> None:
    for name, meaning in REFUSED.items():
        if options.get(name) is not None:
            raise ValueError(
                f'{name} ({meaning}) must be None with attn_implementation="sparsemax"; '
                f"got {_short(options[name])}"
            )
    if attention_mask is not None and attention_mask.dim() != 4:
        raise ValueError(
            f"attention_mask must have 4 dimensions in a layer; got shape {tuple(attention_mask.shape)}"
        )


def _short(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)[:80]


def linear_loss(input: Any, weight: Any, target: Any, bias: Any, ignore_index: Any, chunk_rows: Any) -> bool:
    """Whether the target holds labels; else probabilities."""
    for value, name in ((input, "input"), (weight, "weight"), (target, "target")):
        tensor(value, name)
        dense(value, name)
        same_device(value, name, input)
    if input.dtype not in FLOATING:
        raise RuntimeError(f"input must be float32, float64, float16 or bfloat16; got {input.dtype}")
    if not input.dim():
        raise RuntimeError("input must have a dimension of features; got shape ()")
    features = input.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != features:
        raise RuntimeError(
            f"weight must be of shape (C, {features}), as input has {features} features; "
            f"got shape {tuple(weight.shape)}"
        )
    _type_of(weight, "weight", input, "input")
    classes = weight.shape[0]
    if bias is not None:
        tensor(bias, "bias")
        dense(bias, "bias")
        same_device(bias, "bias", input)
        if bias.shape != (classes,):
            raise RuntimeError(f"bias must be of shape ({classes},); got shape {tuple(bias.shape)}")
        _type_of(bias, "bias", input, "input")
    index(ignore_index)
    size(chunk_rows, "chunk_rows")
    rows = input.shape[:-1]
    if target.is_floating_point() and target.shape == (*rows, classes):
        return False
    if target.shape != rows:
        raise ValueError(
            f"target must be labels of shape {tuple(rows)} or probabilities of shape {(*rows, classes)}; "
            f"got shape {tuple(target.shape)}"
        )
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"target must be labels of type int64 or uint8; got {target.dtype}")
    return True


def weighted_sum(scores: Any, values: Any, mask: Any) -> None:
    for value, name in ((scores, "scores"), (values, "values")):
        tensor(value, name)
        dense(value, name)
        if value.dtype not in FLOATING:
            raise RuntimeError(f"{name} must be float32, float64, float16 or bfloat16; got {value.dtype}")
        if not value.dim():
            raise RuntimeError(f"{name} must have at least one dimension; got shape ()")
        _on_device(value, name, scores, "scores")
    _type_of(values, "values", scores, "scores")
    positions = values.shape[-2] if values.dim() > 1 else values.shape[0]
    if positions != scores.shape[-1]:
        raise RuntimeError(
            f"values must have {scores.shape[-1]} rows, one for each score; got shape {tuple(values.shape)}"
        )
    if _together(scores.shape[:-2], values.shape[:-2]) is None:
        raise RuntimeError(
            f"values must have leading dimensions that broadcast with those of scores, "
            f"{tuple(scores.shape[:-2])}; got {tuple(values.shape[:-2])}"
        )
    if mask is not None:
        _takes_part(mask, scores, "scores", scores.shape, f"scores of shape {tuple(scores.shape)}")


def _takes_part(mask: Any, x: Tensor, name: str, shape: Any, where: str) -> None:
    """A mask of `shape`, or one that broadcasts to it, beside the argument `x`."""
    tensor(mask, "mask")
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be boolean; got {mask.dtype}")
    _on_device(mask, "mask", x, name)
    if _together(mask.shape, shape) != shape:
        raise RuntimeError(f"mask must broadcast to {where}; got shape {tuple(mask.shape)}")


def _type_of(value: Tensor, name: str, other: Tensor, other_name: str) -> None:
    if value.dtype != other.dtype:
        raise RuntimeError(f"{name} must have the type of {other_name}, {other.dtype}; got {value.dtype}")
