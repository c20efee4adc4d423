"""Attention: exact weights, masks as those of torch, state dicts of torch, and mistakes that are named."""

from __future__ import annotations

import copy
import io
import itertools
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import zerotail.torch as zt
from tests import oracle

f64 = torch.float64
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
N, H, L, S, E, V = 2, 3, 5, 7, 11, 2


def tensors(seed: int, dtype: torch.dtype, heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    shapes = [(N, H, L, E), (N, heads, S, E), (N, heads, S, V)]
    # Multiples of 1/64: in float64, scores do not depend on the order in which their products are added up.
    return tuple((torch.randn(shape, dtype=f64) * 64).round().div(64).to(dtype) for shape in shapes)


def exact(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The output and the weights, from the oracle on explicit scores in float64; masks as of torch."""
    q, k, v = query.double(), key.double(), value.double()
    z = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        z = z + (torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask.double())
    rows = z.numpy().reshape(-1, z.shape[-1])
    p = oracle.project(rows).hi
    p[np.isneginf(rows).all(axis=1)] = 0  # emptied by the mask
    p = p.reshape(z.shape)
    return p @ v.numpy(), p


def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """What one writes in torch, in the type given: scores, a sort, the product."""
    z = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        z = z.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else z + mask.to(z.dtype)
    ordered = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    sums = ordered.cumsum(-1)
    size = (1 + k * ordered > sums).sum(-1, keepdim=True).clamp_min(1)
    tau = (sums.gather(-1, size - 1) - 1) / size.to(z.dtype)
    p = torch.where(z.isneginf(), 0, (z - tau).clamp_min(0))
    return p @ value


def error(got: Tensor, right: np.ndarray) -> float:
    return float(np.abs(got.detach().double().numpy() - right).max())


MASKS = {
    "none": lambda: None,
    "boolean": lambda: torch.rand(N, H, L, S) < 0.6,
    "of keys": lambda: torch.rand(N, 1, 1, S) < 0.6,
    "of rows": lambda: torch.rand(L, 1) < 0.6,
    "one row for all": lambda: torch.rand(S) < 0.6,
    "causal": lambda: torch.ones(L, S, dtype=torch.bool).tril(),
    "added": lambda: torch.randn(N, 1, L, S),
    "added, with -inf": lambda: torch.where(torch.rand(H, L, S) < 0.6, torch.randn(H, L, S), -torch.inf),
    "nothing": lambda: torch.zeros(L, S, dtype=torch.bool),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_the_error_is_at_most_twice_that_of_plain_code(name, dtype):
    """Against the oracle on explicit scores; rows that a mask empties are zeros."""
    ours = theirs = 0.0
    for seed in range(5):
        args = tensors(seed, dtype)
        mask = MASKS[name]()
        right, p = exact(*args, mask)
        got = zt.sparsemax_attention(*args, mask)
        assert got.dtype == dtype
        assert not got[torch.tensor((p == 0).all(-1))].any()
        ours = max(ours, error(got, right))
        if name == "nothing":
            continue
        emptied = torch.tensor((p == 0).all(-1))[..., None]
        theirs = max(theirs, error(plain(*args, mask).masked_fill(emptied, 0), right))
    assert ours <= 2 * max(theirs, torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", TYPES[2:], ids=str)
def test_half_types_are_rounded_once(dtype):
    """The result is the one of float32, rounded; so are the gradients, of the same cotangent."""
    args = [x.requires_grad_() for x in tensors(12, dtype)]
    wide = [x.detach().float().requires_grad_() for x in args]
    mask = torch.rand(L, S) < 0.7
    got, right = zt.sparsemax_attention(*args, mask), zt.sparsemax_attention(*wide, mask)
    assert torch.equal(got, right.to(dtype))
    u = torch.randn(got.shape).to(dtype)
    pairs = torch.autograd.grad(got, args, u), torch.autograd.grad(right, wide, u.float())
    for g, e in zip(*pairs, strict=True):
        assert torch.equal(g, e.to(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_of_equal_values_the_average_is_the_value(dtype):
    """The weights sum to one: to the rounding of the type, at any score."""
    query, key, value = tensors(0, dtype)
    value = torch.full_like(value, 3.0)
    got = zt.sparsemax_attention(100 * query, key, value, torch.rand(L, S) < 2)
    assert error(got, np.full(got.shape, 3.0)) <= 3 * 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_order_of_the_keys_does_not_matter(dtype):
    """Keys, values and mask permuted alike: both within the error that is allowed."""
    args = tensors(1, dtype)
    mask, order = torch.rand(N, H, L, S) < 0.7, torch.randperm(S)
    query, key, value = args
    right, _ = exact(*args, mask)
    allowed = 2 * error(plain(*args, mask).nan_to_num(0), right) + torch.finfo(dtype).eps
    assert error(zt.sparsemax_attention(*args, mask), right) <= allowed
    turned = zt.sparsemax_attention(query, key[:, :, order], value[:, :, order], mask[..., order])
    assert error(turned, right) <= allowed


def test_gradients_are_exact_and_zero_where_a_mask_leaves_nothing():
    """Of queries, keys, values and an added mask, for a random cotangent, on the exact support."""
    args = [x.requires_grad_() for x in tensors(2, f64)]
    mask = torch.where(
        torch.rand(N, 1, L, S, dtype=f64) < 0.6, torch.randn(N, 1, L, S, dtype=f64), -torch.inf
    )
    mask[:, :, 1] = -torch.inf
    mask[0, :, :, 3] = -torch.inf
    mask.requires_grad_()
    out = zt.sparsemax_attention(*args, mask)
    u = torch.randn_like(out)
    got = torch.autograd.grad(out, [*args, mask], u)
    right, p = exact(*(x.detach() for x in args), mask.detach())
    assert error(out, right) < 1e-14
    query, key, value = args
    on = torch.tensor(p > 0)
    z = query @ key.mT / E**0.5 + mask
    size = on.sum(-1, keepdim=True).clamp_min(1)
    weights = torch.where(on, z - (torch.where(on, z, 0).sum(-1, keepdim=True) - 1) / size, 0)
    expected = torch.autograd.grad(weights @ value, [*args, mask], u)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e, rtol=1e-12, atol=1e-13)
    assert not got[0][:, :, 1].any()
    assert not got[1][0, :, 3].any()
    assert not got[3][:, :, 1].any()
    assert not got[3][mask.isneginf()].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("how", ["boolean", "float", "causal"])
def test_keys_and_values_that_no_query_may_see_are_never_read(bad, how):
    """What lies in padding harms neither the results nor the gradients."""
    query, key, value = tensors(3, torch.float32)
    take = torch.arange(S) < L
    options = {
        "boolean": {"attn_mask": take.expand(L, S)},
        "float": {"attn_mask": torch.where(take, 0.0, -torch.inf)[None]},
        "causal": {"is_causal": True},
    }[how]
    clean = zt.sparsemax_attention(query, key[:, :, :L], value[:, :, :L], is_causal=how == "causal")
    key[:, :, L:] = bad
    value[:, :, L:] = bad
    args = [x.requires_grad_() for x in (query, key, value)]
    out = zt.sparsemax_attention(*args, **options)
    torch.testing.assert_close(out, clean)
    for g in torch.autograd.grad(out.sum(), args):
        assert g.isfinite().all()
    keys = key.detach()[:, 0].requires_grad_()
    layer = zt.AdditiveAttention(E)
    if how == "boolean":
        average, weights = layer(query.detach()[:, 0, 0], keys, take)
        assert average.isfinite().all()
        average.sum().backward()
        assert keys.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in layer.parameters())
        assert not weights[:, L:].any()


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_heads_share_keys(heads, causal):
    """enable_gqa is a repetition of keys and values, and the mask may have heads or not."""
    torch.manual_seed(4)
    query, key, value = (torch.randn(2, n, 4, 5, dtype=f64, requires_grad=True) for n in (6, heads, heads))
    mask = None if causal else torch.rand(2, 6, 4, 4) < 0.6
    if mask is not None:
        mask[:, ::2, :, 3] = False
    got = zt.sparsemax_attention(query, key, value, mask, is_causal=causal, enable_gqa=True)
    wide = [x.repeat_interleave(6 // heads, 1) for x in (key, value)]
    right = zt.sparsemax_attention(query, *wide, mask, is_causal=causal)
    torch.testing.assert_close(got, right, rtol=1e-14, atol=1e-14)
    u = torch.randn_like(got)
    for g, e in zip(
        torch.autograd.grad(got, (query, key, value), u),
        torch.autograd.grad(right, (query, key, value), u),
        strict=True,
    ):
        torch.testing.assert_close(g, e, rtol=1e-13, atol=1e-13)


def test_scale_causality_and_dropout_mean_what_they_mean_in_torch():
    """Causal from the upper left, also with fewer or more keys than queries; dropout keeps the mean."""
    query, key, value = tensors(5, f64)
    for k in (3, 5, 7):
        causal = zt.sparsemax_attention(query, key[:, :, :k], value[:, :, :k], is_causal=True, scale=0.7)
        mask = torch.ones(L, k, dtype=torch.bool).tril()
        right, _ = exact(query, key[:, :, :k], value[:, :, :k], mask, 0.7)
        assert error(causal, right) < 1e-14
    torch.manual_seed(0)
    whole = zt.sparsemax_attention(query, key, value)
    assert torch.equal(zt.sparsemax_attention(query, key, value, dropout_p=1.0), torch.zeros_like(whole))
    many = [x.expand(4000, *x.shape) for x in (query[:1, :1, :1], key[:1, :1], value[:1, :1])]
    dropped = zt.sparsemax_attention(*many, dropout_p=0.5)
    assert (dropped != whole[:1, :1, :1]).any()
    assert (dropped.mean(0) - whole[:1, :1, :1]).abs().max() < 0.1


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_nothing_to_attend_to_gives_zeros(shape):
    """No batch, no queries, no keys, no features: shapes as of torch, and no NaN."""
    batch, rows, cols = shape
    for features in (0, 2):
        query, key, value = (torch.randn(batch, n, features) for n in (rows, cols, cols))
        out = zt.sparsemax_attention(query, key, torch.cat([value, value + 1], -1))
        assert out.shape == (batch, rows, 2 * features)
        assert not out.isnan().any()


def test_autocast_gives_the_type_of_torchs_attention():
    """As F.scaled_dot_product_attention: lower, but not float64; the weights are computed in float32."""
    for dtype in (torch.float32, torch.float16, f64):
        args = tensors(6, dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, theirs = zt.sparsemax_attention(*args), F.scaled_dot_product_attention(*args)
        assert got.dtype == theirs.dtype
        lowered = [x.to(got.dtype) for x in args]
        assert torch.equal(got, zt.sparsemax_attention(*lowered))
    layer = zt.MultiheadAttention(E, 1, batch_first=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.randn(2, 3, E)
        assert layer(x, x, x)[0].dtype == torch.bfloat16


def test_compiled_for_changing_shapes():
    """compile(fullgraph, dynamic): layers of each weighting and the function, with masks and gradients."""
    torch._dynamo.reset()
    torch.manual_seed(7)
    names = ("sparsemax", "softmax", "sigmoid")
    layers = [zt.MultiheadAttention(4, 2, batch_first=True, weighting=name) for name in names]
    pools = [zt.AdditiveAttention(4, weighting=name) for name in names]

    def total(x: Tensor, mask: Tensor) -> Tensor:
        y = zt.sparsemax_attention(x, x, x, is_causal=True)
        for layer, pool in zip(layers, pools, strict=True):
            y = y + layer(x, x, x, key_padding_mask=~mask, need_weights=False)[0]
            y = y + pool(x, y, mask)[0]
        return y

    compiled = torch.compile(total, fullgraph=True, dynamic=True, backend="aot_eager")
    for i, (rows, cols) in enumerate(((3, 5), (2, 7))):
        with torch._dynamo.config.patch(error_on_recompile=i > 0):
            x = torch.randn(rows, cols, 4, requires_grad=True)
            mask = torch.arange(cols) < torch.arange(rows)[:, None]
            got, right = compiled(x, mask), total(x, mask)
            torch.testing.assert_close(got, right)
            torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (got, right)))
    torch._dynamo.reset()


Q = torch.zeros(2, 4, 3, 8)
K = torch.zeros(2, 4, 5, 8)
W = torch.zeros(2, 4, 5, 6)
MISTAKES = {
    "a mask along with causality": (
        lambda f: f(Q, K, W, torch.ones(3, 5) > 0, is_causal=True),
        "attn_mask must be None where is_causal",
    ),
    "a mask of another shape": (
        lambda f: f(Q, K, W, torch.ones(4, 5) > 0),
        r"attn_mask must broadcast to scores of shape \(2, 4, 3, 5\); got shape \(4, 5\)",
    ),
    "a mask larger than the scores": (
        lambda f: f(Q, K, W, torch.ones(7, 2, 4, 3, 5) > 0),
        r"attn_mask must broadcast.*\(7, 2, 4, 3, 5\)",
    ),
    "a mask of integers": (lambda f: f(Q, K, W, torch.ones(3, 5).long()), "attn_mask must be boolean.*int64"),
    "one dimension": (
        lambda f: f(Q[0, 0, 0], K, K),
        r"query must have at least 2 dimensions; got shape \(8,\)",
    ),
    "batches that do not fit": (lambda f: f(Q[:1].expand(3, 4, 3, 8), K, K), "key must have leading dim"),
    "features that differ": (lambda f: f(Q[..., :7], K, K), "key must have the 7 features of query; got 8"),
    "positions that differ": (
        lambda f: f(Q, K, W[:, :, :4]),
        "value must have the 5 positions of key; got 4",
    ),
    "types that differ": (lambda f: f(Q.double(), K, K), "key must have the type of query, .*64; got .*32"),
    "integers": (lambda f: f(Q.long(), K.long(), K.long()), "query must be float32.*int64"),
    "a list": (lambda f: f([1.0], K, K), "query must be a Tensor; got list"),
    "too much dropout": (lambda f: f(Q, K, W, dropout_p=1.5), r"dropout_p must be in \[0, 1\]; got 1.5"),
    "heads that do not divide": (
        lambda f: f(Q, K[:, :3], K[:, :3], enable_gqa=True),
        "key must have heads that divide the 4 of query; got 3",
    ),
    "fewer heads without groups": (lambda f: f(Q, K[:, :2], K[:, :2]), "key must have leading dim"),
    "devices that differ": (
        lambda f: f(Q.to("meta"), K, K),
        "key must be on the device of query, meta; got cpu",
    ),
}


@pytest.mark.parametrize(("call", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_raises_what_torchs_attention_raises(call, words):
    """The type of the exception is torch's; the words name the argument."""
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - which one is torch's business
        call(F.scaled_dot_product_attention)
    with pytest.raises(theirs.type, match=words) as ours:
        call(zt.sparsemax_attention)
    assert ours.type is theirs.type


# ---- additive attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["sparsemax", "softmax", "sigmoid"])
def test_additive_attention_is_eqs_33_to_35(weighting):
    """One query a sequence, and several; masks; weights from the oracle, softmax or the logistic function."""
    torch.manual_seed(8)
    layer = zt.AdditiveAttention(3, 5, 7, weighting=weighting, dtype=f64)
    nn.init.normal_(layer.key_proj.bias)
    layer.score.weight.data *= 3
    keys, query = torch.randn(2, 4, 5, dtype=f64), torch.randn(2, 6, 3, dtype=f64)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    W, b, U, v = (x.detach().numpy() for x in layer.parameters())
    z = np.tanh((keys.numpy() @ W.T + b)[:, None] + (query.numpy() @ U.T)[:, :, None]) @ v[0]
    for take in (None, mask):
        on = np.ones((2, 1, 4), bool) if take is None else take.numpy()[:, None]
        if weighting == "sparsemax":
            seen = np.where(on, z, -np.inf).reshape(-1, 4)
            p = np.where(on, oracle.project(seen).hi.reshape(z.shape), 0)
        else:
            e = np.where(on, np.exp(z), 0)
            total = e.sum(-1, keepdims=True)
            p = e / np.where(total > 0, total, 1) if weighting == "softmax" else e / (1 + e)
        average, weights = layer(query, keys, take)
        np.testing.assert_allclose(weights.detach(), p, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(average.detach(), p @ keys.numpy(), rtol=1e-12, atol=1e-14)
        one, its = layer(query[:, 2], keys, take)
        torch.testing.assert_close(one, average[:, 2])
        torch.testing.assert_close(its, weights[:, 2])
        if take is not None:
            grads = torch.autograd.grad(average[1].sum() + weights[1].sum(), layer.parameters())
            assert not any(g.any() for g in grads)


def test_a_mask_of_one_number_is_for_all_keys():
    """It broadcasts, whatever it has of dimensions."""
    layer, query, keys = zt.AdditiveAttention(3), torch.randn(2, 3), torch.randn(2, 4, 3)
    for take in (True, False):
        for mask in (torch.tensor(take), torch.tensor([take])):
            for x, y in zip(layer(query, keys, mask), layer(query, keys), strict=True):
                assert torch.equal(x, y if take else torch.zeros_like(y))


ADDITIVE = {
    "a mask of another length": (
        lambda: zt.AdditiveAttention(3)(torch.zeros(2, 3), torch.zeros(2, 4, 3), torch.ones(2, 5) > 0),
        RuntimeError,
        r"mask must broadcast to the positions of keys, \(2, 4\); got shape \(2, 5\)",
    ),
    "a mask of numbers": (
        lambda: zt.AdditiveAttention(3)(torch.zeros(2, 3), torch.zeros(2, 4, 3), torch.ones(2, 4)),
        TypeError,
        "mask must be boolean; got torch.float32",
    ),
    "keys of other features": (
        lambda: zt.AdditiveAttention(3, 4)(torch.zeros(2, 3), torch.zeros(2, 4, 3)),
        RuntimeError,
        r"keys must have 4 features; got shape \(2, 4, 3\)",
    ),
    "another batch": (
        lambda: zt.AdditiveAttention(3)(torch.zeros(5, 3), torch.zeros(2, 4, 3)),
        RuntimeError,
        r"query must be of shape \(2, 3\).*got shape \(5, 3\)",
    ),
    "an unknown weighting": (
        lambda: zt.AdditiveAttention(3, weighting="entmax"),
        ValueError,
        "weighting must be 'sparsemax', 'softmax' or 'sigmoid'; got 'entmax'",
    ),
    "no features": (lambda: zt.AdditiveAttention(0), ValueError, "query_dim must be at least 1; got 0"),
    "half a feature": (lambda: zt.AdditiveAttention(1.5), TypeError, "query_dim must be an integer; got 1.5"),
}


@pytest.mark.parametrize(("call", "kind", "words"), ADDITIVE.values(), ids=ADDITIVE.keys())
def test_a_mistake_in_additive_attention_is_named(call, kind, words):
    """Argument, requirement, value."""
    with pytest.raises(kind, match=words):
        call()


# ---- several heads ----------------------------------------------------------------------------------------

FLAGS = ("bias", "add_bias_kv", "add_zero_attn", "batch_first")


# torch's own, of a boolean and a float mask.
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=4)), ids=str)
@pytest.mark.parametrize("other", [None, 5])
def test_with_softmax_it_is_torchs_layer(flags, other):
    """Constructor, call, state dict, masks, weights and shapes: with and without a batch."""
    torch.manual_seed(9)
    options = dict(zip(FLAGS, flags, strict=True), kdim=other, vdim=other and 6, dtype=f64)
    theirs = nn.MultiheadAttention(4, 2, **options)
    if theirs.in_proj_bias is not None:
        nn.init.normal_(theirs.in_proj_bias)
    ours = zt.MultiheadAttention(4, 2, **options, weighting="softmax")
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    for batch in (None, 3):

        def make(rows: int, features: int, batch: int | None = batch) -> Tensor:
            x = torch.randn(batch or 1, rows, features, dtype=f64)
            return x[0] if batch is None else x if options["batch_first"] else x.transpose(0, 1)

        query, key, value = make(3, 4), make(5, other or 4), make(5, (other and 6) or 4)
        padding = torch.rand((5,) if batch is None else (3, 5)) < 0.4
        padding[..., 0] = False
        square, cube = torch.rand(3, 5) < 0.4, torch.rand(2 * (batch or 1), 3, 5) < 0.4
        square[:, 0] = cube[..., 0] = False
        for mask, pad in (
            (None, None),
            (square, padding),
            (cube, None),
            (torch.randn(3, 5, dtype=f64), padding),
        ):
            for need, average in ((True, True), (True, False), (False, True)):
                call = {"key_padding_mask": pad, "need_weights": need, "attn_mask": mask}
                got = ours(query, key, value, **call, average_attn_weights=average)
                right = theirs(query, key, value, **call, average_attn_weights=average)
                torch.testing.assert_close(got, right, rtol=1e-12, atol=1e-12)
    x = make(3, 4)
    if other is None:
        mask = torch.ones(3, 3, dtype=torch.bool).triu(1)
        for need in (True, False):
            got = ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=need)
            # Without weights, torch lets the hint hide the added keys; the mask itself does not say so.
            right = theirs(x, x, x, attn_mask=mask, need_weights=need)
            torch.testing.assert_close(got, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (3, 0), (0, 0)])
def test_without_queries_or_keys_it_is_torchs_layer_too(rows, cols):
    """With masks of either shape; and groups of heads that share keys."""
    theirs = nn.MultiheadAttention(4, 2, batch_first=True)
    nn.init.normal_(theirs.out_proj.bias)
    ours = zt.MultiheadAttention(4, 2, batch_first=True, weighting="softmax")
    ours.load_state_dict(theirs.state_dict())
    query, key = torch.randn(3, rows, 4), torch.randn(3, cols, 4)
    for shape in ((rows, cols), (6, rows, cols)):
        call = {"key_padding_mask": torch.zeros(3, cols).bool(), "attn_mask": torch.zeros(shape).bool()}
        torch.testing.assert_close(ours(query, key, key, **call), theirs(query, key, key, **call))
    wide, key = torch.randn(2, 6, rows, 4), torch.randn(2, 3, cols, 4)
    shared = zt.sparsemax_attention(wide, key, key, dropout_p=0.5, enable_gqa=True)
    assert torch.equal(shared, torch.zeros(2, 6, rows, 4))


@pytest.mark.parametrize("need", [True, False])
def test_the_weights_of_several_heads_are_sparsemax(need):
    """Against the oracle on the projected heads; a query with nothing left has zeros, and gradient 0."""
    torch.manual_seed(10)
    layer = zt.MultiheadAttention(6, 2, batch_first=True, dtype=f64)
    layer.in_proj_weight.data *= 3
    x = torch.randn(2, 4, 6, dtype=f64, requires_grad=True)
    mask = torch.rand(4, 4) < 0.4
    mask[1] = True
    output, weights = layer(x, x, x, attn_mask=mask, need_weights=need, average_attn_weights=False)
    projected = (x.detach() @ layer.in_proj_weight.T + layer.in_proj_bias).chunk(3, -1)
    heads = [y.detach().unflatten(-1, (2, 3)).transpose(1, 2) for y in projected]
    right, p = exact(*heads, ~mask)
    joined = torch.tensor(right).transpose(1, 2).flatten(-2)
    assert error(output, layer.out_proj(joined).detach().numpy()) < 1e-13
    assert torch.equal(output[:, 1], layer.out_proj.bias.expand(2, 6))
    if need:
        assert error(weights, p) < 1e-13
        assert np.array_equal(weights.detach().numpy() > 0, p > 0)
    else:
        assert weights is None
    (gradient,) = torch.autograd.grad(layer(x, x[:, :1], x[:, :1], attn_mask=mask[:, :1])[0][:, 1].sum(), x)
    assert not gradient.any()


def test_torchs_encoder_layer_does_not_go_past_it():
    """In eval mode torch's own layer computes softmax in one kernel: not with this attention in it."""
    torch.manual_seed(11)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    layer.self_attn = zt.MultiheadAttention(4, 2, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(3, 5, 4)
    padding = torch.arange(5).expand(3, 5) > 3
    trained = encoder(x, src_key_padding_mask=padding)
    encoder.eval()
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, src_key_padding_mask=padding), trained)
        layer.self_attn.weighting = "softmax"
        assert not torch.allclose(encoder.layers[0](x), layer(x))


def test_dropout_is_for_training():
    """As in torch: weights are dropped in training, and come back dropped."""
    layer, x = zt.MultiheadAttention(4, 2, dropout=0.9), torch.randn(5, 3, 4)
    torch.manual_seed(0)
    assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.eval()
    output, weights = layer(x, x, x)
    assert torch.equal(layer(x, x, x, need_weights=False)[0], output)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5))


@pytest.mark.parametrize(
    "layer", [zt.MultiheadAttention(4, 2), zt.AdditiveAttention(4)], ids=lambda x: type(x).__name__
)
def test_a_copy_of_a_layer_is_that_layer(layer):
    """deepcopy, and save and load; a new start gives other parameters; TorchScript is refused in words."""
    x = torch.randn(2, 3, 4)
    args = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x, x)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for copied in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert torch.equal(copied(*args)[0], layer(*args)[0])
        assert repr(copied) == repr(layer)
        assert "weighting='sparsemax'" in repr(layer)
    getattr(copied, "reset_parameters", getattr(copied, "_reset_parameters", None))()
    assert not torch.equal(copied(*args)[0], layer(*args)[0])
    with pytest.raises(RuntimeError, match=f"{type(layer).__name__} must be compiled by torch.compile"):
        torch.jit.script(layer)


X, Y = torch.zeros(3, 2, 4), torch.zeros(5, 2, 4)
HEADS = {
    "heads that do not divide": (
        lambda: zt.MultiheadAttention(4, 3),
        ValueError,
        "num_heads must divide embed_dim, 4; got 3",
    ),
    "no heads": (lambda: zt.MultiheadAttention(4, 0), ValueError, "num_heads must be at least 1; got 0"),
    "an unknown weighting": (
        lambda: zt.MultiheadAttention(4, 2, weighting="entmax"),
        ValueError,
        "weighting must be .*got 'entmax'",
    ),
    "a mask of another shape": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y, Y, attn_mask=torch.ones(5, 3) > 0),
        RuntimeError,
        r"attn_mask must be of shape \(3, 5\) or \(4, 3, 5\); got \(5, 3\)",
    ),
    "padding of another shape": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y, Y, torch.ones(5, 2) > 0),
        RuntimeError,
        r"key_padding_mask must be of shape \(2, 5\); got \(5, 2\)",
    ),
    "a mask of integers": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y, Y, attn_mask=torch.ones(3, 5).long()),
        RuntimeError,
        "attn_mask must be boolean or floating point; got torch.int64",
    ),
    "causality without a mask": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y, Y, is_causal=True),
        RuntimeError,
        "attn_mask must be given where is_causal=True",
    ),
    "another batch": (
        lambda: zt.MultiheadAttention(4, 2)(X[:, :1], Y, Y),
        RuntimeError,
        "key must have the batch of query, 1; got 2",
    ),
    "other features": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y[..., :3], Y),
        RuntimeError,
        "key must have 4 features; got 3",
    ),
    "values of another length": (
        lambda: zt.MultiheadAttention(4, 2)(X, Y, Y[:4]),
        RuntimeError,
        "value must have the batch and the positions of key",
    ),
    "a nested tensor": (
        lambda: zt.MultiheadAttention(4, 2)(*[torch.nested.nested_tensor([X[0], X[1]])] * 3),
        NotImplementedError,
        "query must be dense; got",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize(("call", "kind", "words"), HEADS.values(), ids=HEADS.keys())
def test_a_mistake_with_heads_is_named(call, kind, words):
    """Argument, requirement, value."""
    with pytest.raises(kind) as caught:
        call()
    assert re.search(words, str(caught.value)), str(caught.value)
