"""Attention, weighted sums and the linear layer with its loss, by supports: the same as the dense path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
zt = pytest.importorskip("zerotail.torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

from zerotail import _core  # noqa: E402
from zerotail.torch import _support, attention, sublinear  # noqa: E402

f32, f64, inf, nan = torch.float32, torch.float64, torch.inf, torch.nan
EPS = torch.finfo(f64).eps


def tensor(*shape: int, seed: int = 0, dtype: Any = f64, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(grad)


def mask_of(*shape: int) -> Tensor:
    """Half of it, and nothing of the third row."""
    mask = tensor(*shape, seed=7) > 0
    mask[..., min(2, shape[-2] - 1), :] = False
    return mask


@pytest.fixture(params=["lists", "dense", "both"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is kept of a block, whatever its supports are; by default, both kinds."""
    way: str = request.param
    if way != "both":
        for name in ("ATTENTION_DENSITY", "LOSS_DENSITY"):
            monkeypatch.setattr(_support, name, 1.0 if way == "lists" else 0.0)
    return way


@pytest.fixture
def every_target() -> Iterator[list[str]]:
    chosen = _core.target()
    yield _core.targets()
    _core.use_target(chosen)


def assert_same(ours: Any, dense: Any, tolerance: float = 1e-12) -> None:
    for x, y in zip(ours, dense, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


def step(f: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The value, and the gradients of a random projection of it."""
    inputs = tuple(x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs)
    value = f(*inputs)
    v = tensor(*value.shape, seed=3).to(value.dtype)
    return [value.detach(), *torch.autograd.grad(value, inputs, v)]


def dense_attention(mask: Any = None, causal: bool = False, gqa: bool = False) -> Callable[..., Tensor]:
    return lambda q, k, v: attention._dense_attention(q, k, v, mask, 0.0, causal, None, gqa)


def is_fused(value: Tensor) -> bool:
    node = value.grad_fn
    while type(node).__name__ in ("ViewBackward0", "ToCopyBackward0"):
        node = node.next_functions[0][0]
    return type(node).__name__ in ("AttentionBackward", "WeightedSumBackward")


# ---- attention: batch, heads, heads of keys, queries, keys, features, features of values -------------------

SHAPES = {
    "self": (2, 3, 3, 131, 131, 16, 16),
    "cross": (1, 2, 2, 7, 263, 5, 67),
    "groups": (2, 6, 2, 67, 131, 17, 16),
    "one key for all heads": (1, 5, 1, 130, 131, 3, 7),
    "one of each": (1, 1, 1, 1, 1, 1, 1),
    "long rows": (1, 1, 1, 5, 2500, 64, 33),
}
MASKS: dict[str, Callable[..., Tensor | None]] = {
    "no mask": lambda B, H, L, S: None,
    "boolean": lambda B, H, L, S: mask_of(B, 1, L, S),
    "of keys": lambda B, H, L, S: tensor(S, seed=5) > -0.3,
    "of queries": lambda B, H, L, S: mask_of(L, 1),
    "added": lambda B, H, L, S: torch.where(mask_of(B, H, L, S), tensor(B, H, L, S), -inf),
    "added to all heads, of float32": lambda B, H, L, S: tensor(L, S, dtype=f32),
}


def attention_inputs(shape: str, dtype: Any = f64, inside: bool = False) -> tuple[list[Tensor], bool]:
    B, H, G, L, S, E, V = SHAPES[shape]
    sizes = ((B, H, L, E), (B, G, S, E), (B, G, S, V))
    if inside:  # heads lie inside of rows, as a projection leaves them
        return [tensor(b, n, h, e, dtype=dtype).transpose(1, 2) for b, h, n, e in sizes], H != G
    return [tensor(*size, dtype=dtype, seed=i) for i, size in enumerate(sizes)], H != G


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_by_supports_is_dense_attention(shape, masked, kept):
    """Both paths agree: values and gradients, with any mask, with large supports and small ones."""
    inputs, gqa = attention_inputs(shape)
    B, H, _, L, S, _, _ = SHAPES[shape]
    mask = MASKS[masked](B, H, L, S)
    ours = partial(zt.sparsemax_attention, attn_mask=mask, enable_gqa=gqa)
    assert is_fused(ours(*(x.clone().requires_grad_() for x in inputs)))
    assert_same(step(ours, *inputs), step(dense_attention(mask, gqa=gqa), *inputs))
    assert_same([ours(*inputs)], [dense_attention(mask, gqa=gqa)(*inputs)])  # without a gradient


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_causal_attention_skips_what_is_to_come(shape, inside, kept):
    """Causal blocks end at the diagonal; heads may lie inside or outside of rows."""
    inputs, gqa = attention_inputs(shape, inside=inside)
    ours = partial(zt.sparsemax_attention, is_causal=True, enable_gqa=gqa)
    assert_same(step(ours, *inputs), step(dense_attention(causal=True, gqa=gqa), *inputs))
    assert ours(*inputs).stride() == inputs[0].new_empty(0).set_(ours(*inputs)).stride()


@pytest.mark.parametrize("leading", [(), (3,), (2, 3, 2)])
def test_attention_takes_any_leading_dimensions(leading):
    """As F.scaled_dot_product_attention."""
    q, k, v = tensor(*leading, 7, 5), tensor(*leading, 11, 5), tensor(*leading, 11, 3)
    assert is_fused(zt.sparsemax_attention(q.requires_grad_(), k, v))
    assert_same(step(zt.sparsemax_attention, q, k, v), step(dense_attention(), q, k, v))


@pytest.mark.parametrize("sd", [1e-3, 0.1, 10.0])
def test_supports_of_any_size_agree(sd):
    """From all of a row to one of it."""
    q, k, v = tensor(1, 2, 150, 16) * sd, tensor(1, 2, 160, 16), tensor(1, 2, 160, 16)
    assert_same(step(zt.sparsemax_attention, q, k, v), step(dense_attention(), q, k, v))


def test_every_instruction_set_agrees(every_target):
    """One source, compiled for each."""
    inputs = [multiples(2, 3, 131, 16, seed=1), multiples(2, 3, 131, 16, seed=2), tensor(2, 3, 131, 19)]
    want = step(dense_attention(), *inputs)
    floats = [x.float() for x in inputs]
    layer = (tensor(20, 37), tensor(301, 37))
    want_loss = step(lambda x, w: zt.sparsemax_loss(F.linear(x, w), LABELS), *layer)
    assert every_target
    for target in every_target:
        _core.use_target(target)
        assert_same(step(zt.sparsemax_attention, *inputs), want)
        assert_same(step(zt.sparsemax_attention, *floats), [x.float() for x in want], 2e-6)
        assert_same(step(lambda x, w: zt.linear_sparsemax_loss(x, w, LABELS), *layer), want_loss)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, f32])
def test_lower_types_are_those_of_the_dense_path(dtype):
    """Computed in float32, rounded once."""
    inputs, _ = attention_inputs("self")
    inputs = [x.to(dtype) for x in inputs]
    assert_same(
        step(zt.sparsemax_attention, *inputs),
        step(dense_attention(), *inputs),
        (32 if dtype == f32 else 8) * torch.finfo(dtype).eps,
    )


def test_rows_that_a_mask_empties_are_zeros_with_zero_gradients(kept):
    """By False and by -inf; a row of NaN stays in its row."""
    q, k, v = tensor(1, 1, 5, 4), tensor(1, 1, 9, 4), tensor(1, 1, 9, 3)
    mask = torch.ones(5, 9, dtype=torch.bool)
    mask[1] = False
    for m in (mask, torch.where(mask, 0.0, -inf).double()):
        value, in_q, in_k, _ = step(partial(zt.sparsemax_attention, attn_mask=m), q, k, v)
        assert (value[0, 0, 1] == 0).all()
        assert (in_q[0, 0, 1] == 0).all()
        assert in_k.isfinite().all()
    q[0, 0, 3] = nan
    value, in_q, *_ = step(partial(zt.sparsemax_attention, attn_mask=mask), q, k, v)
    rows = torch.tensor([False, False, False, True, False])
    for x in (value, in_q):
        assert x[0, 0, rows].isnan().all()
        assert x[0, 0, ~rows].isfinite().all()


@pytest.mark.parametrize("sd", [1.0, 1e-4])
def test_what_no_query_selects_is_never_read(sd):
    """NaN in keys that are masked, in their values, and infinities in values off the support."""
    q, k, v = tensor(1, 2, 40, 8) * sd, tensor(1, 2, 50, 8), tensor(1, 2, 50, 8)
    mask = torch.arange(50) % 3 != 0
    want = step(partial(zt.sparsemax_attention, attn_mask=mask), q, k, v)
    k, v = (torch.where(mask[:, None], x, nan) for x in (k, v))
    got = step(partial(zt.sparsemax_attention, attn_mask=mask), q, k, v)
    assert_same(got, want, 1e-14)


def multiples(*shape: int, seed: int) -> Tensor:
    """Of 3/32, and small: products are exact in float32, no score is at its threshold, supports are known."""
    return (tensor(*shape, seed=seed) * 32 / 3).round() * 3 / 32


def relative(x: Tensor, want: Tensor) -> float:
    return float((x.double() - want).norm() / want.norm())


@pytest.mark.parametrize("sd", [1, 1 / 64])
def test_gradients_in_float32_are_as_exact_as_plain_code(sd):
    """The error is at most twice that of the dense path in float32, against it in float64."""
    q, k = multiples(1, 2, 256, 64, seed=1) * sd, multiples(1, 2, 256, 64, seed=2)
    inputs = (q, k, tensor(1, 2, 256, 32))
    want = step(dense_attention(), *inputs)
    plain = step(dense_attention(), *(x.float() for x in inputs))
    ours = step(zt.sparsemax_attention, *(x.float() for x in inputs))
    for x, y, z in zip(ours, plain, want, strict=True):
        assert relative(x, z) <= 2 * relative(y, z) + 2.0**-24


def test_dropout_and_what_broadcasts_take_the_dense_path():
    """The fused path is chosen when it applies, and a mask that learns has its gradient."""
    q, k, v = tensor(2, 3, 7, 4, grad=True), tensor(2, 3, 11, 4), tensor(2, 3, 11, 5)
    assert not is_fused(zt.sparsemax_attention(q, k, v, dropout_p=0.5))
    assert not is_fused(zt.sparsemax_attention(q, k[0, 0], v[0, 0]))
    bias = tensor(7, 11, grad=True)
    (slope,) = torch.autograd.grad(zt.sparsemax_attention(q, k, v, bias).sum(), bias)
    assert slope.shape == bias.shape


# ---- derivatives and transforms of all three ----------------------------------------

LABELS = torch.arange(20) * 7 % 31
X, W, BIAS = tensor(20, 5), tensor(31, 5), tensor(31)
QUERY, KEY, VALUE = tensor(2, 7, 4), tensor(2, 9, 4), tensor(2, 9, 3)
USES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "attention": (zt.sparsemax_attention, dense_attention(), (QUERY, KEY, VALUE)),
    "causal": (
        partial(zt.sparsemax_attention, is_causal=True),
        dense_attention(causal=True),
        (QUERY, KEY, VALUE),
    ),
    "weighted_sum": (zt.weighted_sum, lambda s, x: zt.sparsemax(s) @ x, (tensor(2, 7, 9), tensor(9, 3))),
    "loss": (
        lambda x, w, b: zt.linear_sparsemax_loss(x, w, LABELS % 31, b),
        lambda x, w, b: zt.sparsemax_loss(F.linear(x, w, b), LABELS % 31),
        (X, W, BIAS),
    ),
    "losses": (
        lambda x, w, b: zt.linear_sparsemax_loss(x, w, LABELS, b, reduction="none", ignore_index=7),
        lambda x, w, b: zt.sparsemax_loss(F.linear(x, w, b), LABELS, reduction="none", ignore_index=7),
        (X, W, BIAS),
    ),
}
uses = pytest.mark.parametrize("use", USES)


@uses
def test_first_and_second_derivatives_are_those_of_differences(use, kept):
    """gradcheck and gradgradcheck in float64."""
    ours, _, inputs = USES[use]
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(ours, inputs, eps=1e-7, atol=1e-6, fast_mode=True)
    assert torch.autograd.gradgradcheck(ours, inputs, eps=1e-7, atol=1e-6, fast_mode=True)


@uses
def test_one_tensor_may_stand_for_several_inputs(use):
    """Its second derivative counts each once."""
    ours, dense, inputs = USES[use]
    same = min(inputs, key=Tensor.numel).flatten()[:3]
    scale = torch.tensor(1.1, dtype=f64, requires_grad=True)

    def twice(f: Callable[..., Tensor]) -> Tensor:
        value = f(*(x * scale for x in inputs)).square().sum()
        (slope,) = torch.autograd.grad(value, scale, create_graph=True)
        return torch.autograd.grad(slope, scale)[0]

    torch.testing.assert_close(twice(ours), twice(dense))
    assert same.numel()


def test_self_attention_of_one_tensor_is_differentiated_twice():
    """Query, key and value are one tensor."""
    x = tensor(1, 9, 4, grad=True)
    assert torch.autograd.gradgradcheck(lambda x: zt.sparsemax_attention(x, x, x), x, atol=1e-6)


@uses
def test_transforms_take_the_dense_path_and_are_right(use):
    """vmap, grad, jvp and jacrev of torch.func."""
    ours, dense, inputs = USES[use]
    twice = tuple(torch.stack([x, x.flip(0)]) for x in inputs)
    assert_same([func.vmap(ours)(*twice)], [func.vmap(dense)(*twice)])
    total = [func.grad(lambda *x, f=f: f(*x).sum(), argnums=(0, 1))(*inputs) for f in (ours, dense)]
    assert_same(*total)
    tangents = tuple(tensor(*x.shape, seed=9) for x in inputs)
    assert_same(func.jvp(ours, inputs, tangents), func.jvp(dense, inputs, tangents))
    assert_same(func.jacrev(ours, (0, 1))(*inputs), func.jacrev(dense, (0, 1))(*inputs))


@uses
def test_forward_mode_is_right(use):
    """Dual tensors, outside of torch.func."""
    ours, dense, inputs = USES[use]
    moved = []
    for f in (ours, dense):
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x, tensor(*x.shape, seed=9)) for x in inputs]
            moved.append(forward_ad.unpack_dual(f(*duals)))
    assert_same(*moved)


@uses
def test_batches_of_gradients_are_right(use):
    """The backward pass under vmap, as torch.autograd.functional.jacobian(vectorize=True) calls it."""
    ours, dense, inputs = USES[use]
    for x, y in zip(
        torch.autograd.functional.jacobian(ours, inputs, vectorize=True),
        torch.autograd.functional.jacobian(dense, inputs),
        strict=True,
    ):
        assert_same([x], [y])


@uses
def test_compile_and_export_take_the_dense_path_and_are_right(use):
    """fullgraph=True, forward and backward; a program that is exported."""
    ours, dense, inputs = USES[use]

    class Module(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return ours(*inputs)

    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert_same(step(compiled, *inputs), step(dense, *inputs))
    exported = torch.export.export(Module(), inputs).module()
    assert_same([exported(*inputs)], [dense(*inputs)])


@uses
def test_one_thread_and_two_are_the_same_to_the_bit(use, kept):
    """The parts of the work are those of the problem."""
    scale = {"attention": (1, 3, 300, 24), "causal": (1, 3, 300, 24)}
    ours, _, inputs = USES[use]
    if use in scale:
        inputs = tuple(tensor(*scale[use], seed=i, dtype=f32) for i in range(3))
    elif use == "weighted_sum":
        inputs = (tensor(2, 300, 400, dtype=f32), tensor(400, 24, dtype=f32))
    else:
        inputs = (tensor(20, 64, dtype=f32), tensor(5000, 64, dtype=f32), tensor(5000, dtype=f32))
    threads = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2):
            torch.set_num_threads(n)
            results.append(step(ours, *inputs))
    finally:
        torch.set_num_threads(threads)
    for x, y in zip(*results, strict=True):
        assert torch.equal(x, y)


@uses
def test_no_input_is_changed(use, kept):
    """Nor anything that was saved: a second backward pass gives the same."""
    ours, _, inputs = USES[use]
    before = [x.clone() for x in inputs]
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    value = ours(*inputs)
    v = torch.ones_like(value)
    first = torch.autograd.grad(value, inputs, v, retain_graph=True)
    assert_same(torch.autograd.grad(value, inputs, v), first, 0)
    assert_same(inputs, before, 0)


@uses
def test_checkpoints_and_hooks_of_saved_tensors_work(use):
    """All that is kept is tensors, which hooks may pack."""
    ours, _, inputs = USES[use]

    def checkpointed(*inputs: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(ours, *inputs, use_reentrant=False)

    assert_same(step(checkpointed, *inputs), step(ours, *inputs), 0)
    with torch.autograd.graph.save_on_cpu():
        assert_same(step(ours, *inputs), step(ours, *inputs), 0)


# ---- weighted sums ----------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("scores", "values"),
    [
        ((7,), (7, 5)),
        ((3, 7), (7, 5)),
        ((2, 3, 7), (7, 5)),
        ((2, 3, 7), (2, 7, 5)),
        ((2, 4, 2, 3, 7), (7, 5)),
        ((2, 4, 2, 3, 7), (2, 4, 2, 7, 5)),
        ((70, 1700), (1700, 67)),
        ((2, 3, 7), (7,)),
        ((2, 1, 3, 7), (5, 7, 2)),
        ((2, 0, 7), (7, 5)),
    ],
    ids=str,
)
def test_a_weighted_sum_is_the_product_with_sparsemax(scores, values, masked, kept):
    """Values and gradients, for all that torch.matmul takes."""
    s, x = tensor(*scores), tensor(*values)
    mask = mask_of(*scores) if masked and len(scores) > 1 and s.numel() else None
    ours = partial(zt.weighted_sum, mask=mask)
    assert_same(step(ours, s, x), step(lambda s, x: zt.sparsemax(s, mask=mask) @ x, s, x))
    assert_same([ours(s, x)], [zt.sparsemax(s, mask=mask) @ x])


@pytest.mark.parametrize("columns", [(), (3,)], ids=["numbers", "rows"])
def test_a_value_that_is_excluded_is_never_read(columns):
    """NaN there changes nothing, forward and backward."""
    s, x, mask = tensor(2, 4), tensor(4, *columns), torch.tensor([True, True, False, True])
    want = step(partial(zt.weighted_sum, mask=mask), s, x)
    lost = x.detach().clone()
    lost[2] = torch.nan
    assert_same(step(partial(zt.weighted_sum, mask=mask), s, lost), want)


def test_scores_of_any_strides_and_values_of_any_layout_are_read_where_they_lie():
    """Another axis, a step, a broadcast: without a gradient and with one."""
    s, x = tensor(9, 5).mT, tensor(18, 3)[::2]
    want = step(lambda s, x: zt.sparsemax(s) @ x, s, x)
    assert_same(step(zt.weighted_sum, s, x), want)
    wide = tensor(1, 9).expand(5, 9)
    assert_same([zt.weighted_sum(wide, x)], [zt.sparsemax(wide) @ x])


# ---- a linear layer and its loss ----------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("rows", "features", "classes", "sd"), [(37, 13, 5003, 2), (37, 130, 2100, 0.01), (150, 67, 31, 1)]
)
def test_the_loss_of_a_layer_is_the_loss_of_its_logits(rows, features, classes, sd, reduction, sparse, kept):
    """Value and all gradients, in chunks, with ignored rows, dense and row-sparse."""
    x, w, b = tensor(rows, features) * sd, tensor(classes, features), tensor(classes) / 4
    y = torch.arange(rows) * 7919 % classes
    y[::5] = -100
    ours = partial(
        zt.linear_sparsemax_loss, target=y, reduction=reduction, sparse_weight_grad=sparse, chunk_rows=16
    )

    def run(f: Callable[..., Tensor]) -> list[Tensor]:
        value, in_x, in_w, in_b = step(f, x, w, b)
        return [value, in_x, in_w.to_dense(), in_b]

    def dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return zt.sparsemax_loss(F.linear(x, w, b), y, reduction=reduction)

    assert_same(run(lambda x, w, b: ours(x, w, bias=b)), run(dense))
    assert_same([ours(x, w, bias=b)], [dense(x, w, b)])
    without = step(lambda x, w: ours(x, w), x, w)
    assert without[2].is_sparse == sparse
    assert_same(
        without[:2], step(lambda x, w: zt.sparsemax_loss(F.linear(x, w), y, reduction=reduction), x, w)[:2]
    )


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_gradients_that_are_wanted_are_made(wanted, kept):
    """A frozen weight, a frozen body, a bias alone."""
    inputs = [x.clone().requires_grad_(need) for x, need in zip((X, W, BIAS), wanted, strict=True)]
    zt.linear_sparsemax_loss(inputs[0], inputs[1], LABELS, inputs[2]).backward()
    assert [x.grad is not None for x in inputs] == list(wanted)
    want = step(USES["loss"][1], X, W, BIAS)
    got = next(x.grad for x in inputs if x.grad is not None)
    assert got.shape == want[1 + wanted.index(True)].shape
    assert got.isfinite().all()


@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam"])
def test_row_sparse_gradients_move_the_rows_of_the_supports(optimizer):
    """As dense ones do where the optimizer has no state to decay; the other classes stay as they are."""
    moved = []
    for sparse in (True, False):
        w = W.clone().requires_grad_()
        make = getattr(torch.optim, optimizer if sparse or optimizer == "SGD" else "Adam")
        loss = zt.linear_sparsemax_loss(X[:3], w, LABELS[:3], sparse_weight_grad=sparse)
        loss.backward()
        assert w.grad.is_sparse == sparse
        if sparse:
            assert 0 < w.grad._nnz() < len(W)
        make([w], lr=0.1).step()
        moved.append(w.detach())
    torch.testing.assert_close(*moved, rtol=1e-4, atol=1e-4)  # the two add their eps at different places
    assert ((moved[0] == W).all(1)).any()


def test_rows_of_one_class_that_leads_have_no_gradient():
    """The loss is 0 exactly, and no row of weight is in the gradient."""
    w = (torch.eye(5) * 3).requires_grad_()
    zt.linear_sparsemax_loss(torch.eye(5), w, torch.arange(5), sparse_weight_grad=True).backward()
    assert w.grad._nnz() == 0


def test_ignored_rows_and_no_rows_cost_and_weigh_nothing():
    """As in sparsemax_loss: the mean of no rows is 0, not NaN, and NaN in an ignored row is not read."""
    y = torch.full((20,), -100)
    value, in_x, in_w = step(lambda x, w: zt.linear_sparsemax_loss(x, w, y), X, W)
    assert value == 0
    assert not in_x.any()
    assert not in_w.any()
    bad, y = X.clone(), LABELS.clone()
    bad[3], y[3] = nan, -100
    value, in_x, in_w = step(lambda x, w: zt.linear_sparsemax_loss(x, w, y), bad, W)
    assert value.isfinite()
    assert in_w.isfinite().all()
    assert not in_x[3].any()
    empty = zt.linear_sparsemax_loss(X[:0], W, LABELS[:0])
    assert empty == 0


def test_a_row_of_nan_and_a_class_of_minus_infinity_are_as_in_the_loss(kept):
    """NaN stays in its row; a class that is excluded by its bias has no part."""
    x, b = X.clone(), BIAS.clone()
    x[2], b[5] = nan, -inf
    y = torch.where(LABELS == 5, 6, LABELS)

    def run(f: Callable[..., Tensor]) -> list[Tensor]:
        return step(f, x, W, b)

    ours = run(lambda x, w, b: zt.linear_sparsemax_loss(x, w, y, b, reduction="none", chunk_rows=4))
    dense = run(lambda x, w, b: zt.sparsemax_loss(F.linear(x, w, b), y, reduction="none"))
    assert_same(ours[:2], dense[:2])
    assert ours[0].isnan().nonzero().flatten().tolist() == [2]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_probabilities_and_any_leading_dimensions_are_taken(shape):
    """Rows of any shape, labels and probabilities."""
    x, w = tensor(*shape, 5), tensor(11, 5)
    q = torch.softmax(tensor(*shape, 11), -1)
    rows = x.reshape(-1, 5)
    for target, flat in ((q, q.reshape(-1, 11)), (q.argmax(-1), q.argmax(-1).reshape(-1))):
        for reduction in ("none", "mean"):
            got = zt.linear_sparsemax_loss(x, w, target, reduction=reduction)
            want = zt.sparsemax_loss(F.linear(rows, w), flat, reduction=reduction)
            assert_same([got], [want.view(shape) if reduction == "none" else want])


def test_autocast_is_the_composition_of_the_layers():
    """The types are those of F.linear and the loss."""
    x, w = X.float(), W.float()
    with torch.autocast("cpu", torch.bfloat16):
        ours = zt.linear_sparsemax_loss(x, w, LABELS)
        assert_same([ours], [zt.sparsemax_loss(F.linear(x, w), LABELS)])
        assert zt.sparsemax_attention(QUERY.float(), KEY.float(), VALUE.float()).dtype == torch.bfloat16
        assert zt.weighted_sum(tensor(2, 3, dtype=f32), tensor(3, 4, dtype=f32)).shape == (2, 4)


# ---- mistakes ----------------------------------------


def composed(x: Tensor, w: Tensor, y: Tensor, b: Tensor | None = None, **options: Any) -> Tensor:
    return F.cross_entropy(F.linear(x, w, b), y, **options)


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "features": (lambda f: f(X, W[:, 1:], LABELS), r"weight must be of shape \(C, 5\).*got shape \(31, 4\)"),
    "types": (
        lambda f: f(X, W.float(), LABELS),
        "weight must have the type of input.*float64.*got torch.float32",
    ),
    "bias": (lambda f: f(X, W, LABELS, BIAS[1:]), r"bias must be of shape \(31,\); got shape \(30,\)"),
    "labels": (lambda f: f(X, W, LABELS + 20), r"target must be labels in \[0, 31\).*got"),
    "rows": (lambda f: f(X, W, LABELS[1:]), r"target must be labels of shape \(20,\).*got shape \(19,\)"),
    "int32": (lambda f: f(X, W, LABELS.int()), "target must be labels of type int64.*got torch.int32"),
    "reduction": (lambda f: f(X, W, LABELS, reduction="max"), "reduction must be 'none'.*got 'max'"),
    "integers": (lambda f: f(X.long(), W.long(), LABELS), "input must be float32.*got torch.int64"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_raises_what_the_layer_and_the_loss_raise(mistake):
    """Torch's exception type, our words."""
    call, words = MISTAKES[mistake]
    with pytest.raises(Exception, match=words) as ours:
        call(zt.linear_sparsemax_loss)
    if mistake != "integers":  # F.linear takes them, the loss does not
        with pytest.raises(type(ours.value)):
            call(composed)


def test_mistakes_of_our_own_arguments_are_named():
    """Each with what it was."""
    with pytest.raises(ValueError, match="chunk_rows must be at least 1; got 0"):
        zt.linear_sparsemax_loss(X, W, LABELS, chunk_rows=0)
    with pytest.raises(TypeError, match=r"chunk_rows must be an integer; got 1\.5"):
        zt.linear_sparsemax_loss(X, W, LABELS, chunk_rows=1.5)
    q = torch.softmax(F.linear(X, W), -1)
    with pytest.raises(
        RuntimeError, match="sparse_weight_grad must be False where target holds probabilities"
    ):
        zt.linear_sparsemax_loss(X, W, q, sparse_weight_grad=True)
    s, x = tensor(3, 7), tensor(7, 2)
    with pytest.raises(
        RuntimeError, match=r"values must have 7 rows, one for each score; got shape \(6, 2\)"
    ):
        zt.weighted_sum(s, x[1:])
    with pytest.raises(RuntimeError, match="values must have the type of scores"):
        zt.weighted_sum(s, x.float())
    with pytest.raises(
        RuntimeError, match=r"mask must broadcast to scores of shape \(3, 7\); got shape \(2, 7\)"
    ):
        zt.weighted_sum(s, x, torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"mask must be boolean; got torch\.float64"):
        zt.weighted_sum(s, x, s)
    with pytest.raises(RuntimeError, match="values must have leading dimensions that broadcast"):
        zt.weighted_sum(tensor(2, 3, 7), tensor(5, 7, 2))
    with pytest.raises(TypeError, match="scores must be a Tensor; got list"):
        zt.weighted_sum([1.0], x)


def test_other_devices_and_modes_have_the_dense_path():
    """Meta tensors and fake ones have no numbers, and still a shape."""
    q, k, v = (x.to("meta") for x in (QUERY, KEY, VALUE))
    assert zt.sparsemax_attention(q, k, v).shape == (2, 7, 3)
    assert zt.weighted_sum(tensor(2, 9).to("meta"), tensor(9, 3).to("meta")).shape == (2, 3)
    assert zt.linear_sparsemax_loss(X.to("meta"), W.to("meta"), LABELS.to("meta")).shape == ()
    assert sublinear._dense_loss(X, W, LABELS, None, True, -100, "mean").isfinite()
