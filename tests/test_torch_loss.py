"""The loss as a drop-in for `F.cross_entropy`: weights, smoothing, ignored rows, proportions, reductions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests import oracle

torch = pytest.importorskip("torch")
F = torch.nn.functional
zt = pytest.importorskip("zerotail.torch")

N, C = 11, 5
WEIGHTS = (None, [0.5, 2.0, 0.0, 1.25, 3.0])
SMOOTHINGS = (0.0, 0.25)


def scores(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def labels(*shape: int) -> torch.Tensor:
    return torch.randint(0, C, shape, generator=torch.Generator().manual_seed(1))


def proportions(n: int) -> torch.Tensor:
    q = np.random.default_rng(2).dirichlet(np.full(C, 0.5), n)
    q[:2] = np.eye(C)[2]
    return torch.from_numpy(q)


def defined(
    z: torch.Tensor, q: torch.Tensor, w: torch.Tensor, p: torch.Tensor
) -> tuple[np.ndarray, torch.Tensor]:
    """s L(z; w q / s), exactly, and s (p - w q / s), with s = sum of w q: the definition, row by row."""
    s = (w * q).sum(1)
    q = w * q / torch.where(s == 0, 1, s)[:, None]
    hi, lo = oracle.loss(z.numpy(), q.numpy())
    return np.where(s == 0, 0, s.numpy() * (hi + lo)), torch.where(s[:, None] == 0, 0, s[:, None] * (p - q))


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("kind", ["labels", "proportions"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_weights_and_smoothing_are_those_of_the_definition(weight, smoothing, kind, reduction):
    """Smooth first, q' = w q / s; loss s L(z; q'), gradient s (p - q'); the mean as in cross_entropy."""
    z = scores(N, C).requires_grad_()
    w = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    y = labels(N) if kind == "labels" else proportions(N)
    value = zt.sparsemax_loss(z, y, w, reduction=reduction, label_smoothing=smoothing)

    q = F.one_hot(y, C).double() if kind == "labels" else y
    each = torch.ones(C, dtype=torch.float64) if w is None else w
    rows, gradient = defined(z.detach(), q * (1 - smoothing) + smoothing / C, each, zt.sparsemax(z.detach()))
    number = {"none": 1.0, "sum": 1.0, "mean": N if kind == "proportions" else float(each[y].sum())}[
        reduction
    ]
    expected = rows if reduction == "none" else rows.sum()
    np.testing.assert_allclose(value.detach().numpy(), expected / number, rtol=1e-12, atol=1e-14)
    (found,) = torch.autograd.grad(value.sum(), z)
    torch.testing.assert_close(found, gradient / number, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("kind", ["labels", "proportions"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_with_softmax_for_sparsemax_the_gradient_is_that_of_cross_entropy(weight, smoothing, kind, reduction):
    """The same s, q' and mean: only the transform differs."""
    z = scores(N, C).requires_grad_()
    w = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    y = labels(N) if kind == "labels" else proportions(N)
    if kind == "labels":
        y[3] = -100
    options = {"weight": w, "reduction": reduction, "label_smoothing": smoothing}
    (theirs,) = torch.autograd.grad(F.cross_entropy(z, y, **options), z)
    (ours,) = torch.autograd.grad(zt.sparsemax_loss(z, y, **options), z)
    # Both gradients are c (transform - q'), row by row, with the same c and q'.
    difference = (ours - theirs).detach()
    p = zt.sparsemax(z.detach()) - torch.softmax(z.detach(), 1)
    c = (difference * p).sum(1, keepdim=True) / (p * p).sum(1, keepdim=True)
    torch.testing.assert_close(difference, c * p, rtol=1e-9, atol=1e-12)
    if kind == "labels":
        own = torch.ones(N, dtype=torch.float64) if w is None else w[y.clamp_min(0)]
        own = own * (1 - smoothing) + (smoothing if w is None else smoothing * w.mean())
        total = 1.0 if reduction == "sum" else (y != -100).sum() if w is None else w[y[y != -100]].sum()
        expected = torch.where(y == -100, 0, own)[:, None] / total
        torch.testing.assert_close(c, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(C,), (N, C), (N, C, 3), (N, C, 2, 3), (0, C), (N, C, 0)])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_classes_run_along_dimension_1(shape, smoothing):
    """Any trailing shape: each place is a row of its own; a vector is one row."""
    z = scores(*shape).requires_grad_()
    dim = min(1, len(shape) - 1)
    rest = [*shape[:dim], *shape[dim + 1 :]]
    y = labels(*rest)
    value = zt.sparsemax_loss(z, y, reduction="none", label_smoothing=smoothing)
    assert list(value.shape) == rest
    rows = z.detach().movedim(dim, -1).reshape(-1, C)
    flat = zt.sparsemax_loss(rows, y.reshape(-1), reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(value.reshape(-1), flat, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    q = F.one_hot(y, C).double() * (1 - smoothing) + smoothing / C
    expected = (zt.sparsemax(z.detach(), dim).movedim(dim, -1) - q).movedim(-1, dim)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("ignored", [-100, -1, 2, 99])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_an_ignored_row_has_no_part_in_anything(ignored, smoothing, weight):
    """Loss and gradient 0, whatever its scores are, and no part in the mean; the others are as without it."""
    z = scores(N, C)
    y = torch.where(labels(N) == 2, 1, labels(N))
    rows = torch.arange(N) % 3 == 1
    y[rows] = ignored
    z[1], z[4], z[7] = torch.nan, torch.inf, -torch.inf
    z.requires_grad_()
    w = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    options = {"ignore_index": ignored, "label_smoothing": smoothing}
    each = zt.sparsemax_loss(z, y, w, reduction="none", **options)
    assert (each[rows] == 0).all()
    mean = zt.sparsemax_loss(z, y, w, **options)
    kept = z.detach()[~rows].requires_grad_()
    alone = zt.sparsemax_loss(kept, y[~rows], w, **options)
    torch.testing.assert_close(mean, alone, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(mean, z)
    (expected,) = torch.autograd.grad(alone, kept)
    assert (gradient[rows] == 0).all()
    torch.testing.assert_close(gradient[~rows], expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_where_no_row_counts_the_mean_is_zero(smoothing):
    """And its gradient: all ignored, all of weight 0, or no rows at all. Not NaN."""
    zero = torch.zeros(C, dtype=torch.float64)
    for z, y, w in (
        (scores(N, C), torch.full((N,), -100), None),
        (scores(N, C), torch.full((N,), -100), zero + 1),
        (scores(N, C), labels(N), zero),
        (scores(0, C), labels(0), None),
        (scores(0, C), scores(0, C), None),
    ):
        z.requires_grad_()
        value = zt.sparsemax_loss(z, y, w, label_smoothing=smoothing)
        assert value.item() == 0
        (gradient,) = torch.autograd.grad(value, z)
        assert gradient.shape == z.shape
        assert (gradient == 0).all()


def test_a_target_of_nothing_costs_nothing():
    """Proportions that are all zero, as padding: loss and gradient 0, as in cross_entropy."""
    z = scores(N, C).requires_grad_()
    q = proportions(N)
    q[4] = 0
    value = zt.sparsemax_loss(z, q, reduction="none")
    assert value[4] == 0
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert (gradient[4] == 0).all()
    assert (gradient[5] != 0).any()


def test_the_gradient_scales_with_what_comes_in():
    """Ten times the loss has ten times the gradient, row by row, also on a second backward."""
    z = scores(N, C).requires_grad_()
    y, v = labels(N), scores(N)
    value = zt.sparsemax_loss(z, y, reduction="none")
    expected = v[:, None] * (zt.sparsemax(z.detach()) - F.one_hot(y, C))
    for factor in (1, 10):
        (gradient,) = torch.autograd.grad(value, z, factor * v, retain_graph=True)
        torch.testing.assert_close(gradient, factor * expected, rtol=1e-14, atol=0)


def test_the_hessian_is_the_jacobian_of_sparsemax():
    """Eq. 12, not zeros: by double backward and by torch.func."""
    z, y = scores(1, C)[0], torch.tensor(1)
    s = (zt.sparsemax(z) > 0).double()
    expected = torch.diag(s) - torch.outer(s, s) / s.sum()
    found = torch.autograd.functional.hessian(lambda x: zt.sparsemax_loss(x, y), z)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
    found = torch.func.hessian(lambda x: zt.sparsemax_loss(x, y))(z)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def test_the_gradient_in_the_target_is_that_of_the_contract():
    """q - z + tau, on the support and off it, and it is differentiable itself."""
    z = scores(N, C)
    q = proportions(N).requires_grad_()
    value = zt.sparsemax_loss(z, q, reduction="sum")
    (gradient,) = torch.autograd.grad(value, q, create_graph=True)
    expected = q.detach() - z + zt.threshold(z)[:, None]
    torch.testing.assert_close(gradient.detach(), expected, rtol=1e-12, atol=1e-14)
    (second,) = torch.autograd.grad(gradient.sum(), q)
    torch.testing.assert_close(second, torch.ones_like(second), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loss_is_never_negative_and_half_types_are_rounded_once(dtype):
    """Many random rows: >= 0, and what float32 gives of the same scores, rounded."""
    z = (3 * scores(2_000, C)).to(dtype)
    y = labels(2_000)
    value = zt.sparsemax_loss(z, y, reduction="none")
    assert value.dtype == dtype
    assert (value >= 0).all()
    assert torch.equal(value, zt.sparsemax_loss(z.float(), y, reduction="none").to(dtype))
    mean = zt.sparsemax_loss(z, y)
    assert mean.dtype == dtype
    assert torch.equal(mean, zt.sparsemax_loss(z.float(), y).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_jacobian_of_half_types_kills_constants(dtype):
    """J 1 = 0 to rounding, and rows sum to one to 1 ulp an entry."""
    x = scores(500, 40, dtype=dtype).requires_grad_()
    p = zt.sparsemax(x)
    (gradient,) = torch.autograd.grad(p, x, torch.ones_like(p))
    assert (gradient.abs() <= torch.finfo(torch.float32).eps * 4).all()
    ulp = (p.detach().double() * torch.finfo(dtype).eps).sum(1)
    assert ((p.detach().double().sum(1) - 1).abs() <= ulp).all()


def test_minus_infinity_is_free_where_it_has_no_target_and_infinite_where_it_has():
    """-inf scores with q = 0: as if the class were not there; with q > 0: +inf, with the gradient p - q."""
    z = torch.tensor([[1.0, 0.5, -torch.inf]], requires_grad=True)
    value = zt.sparsemax_loss(z, torch.tensor([1]))
    assert value.item() == 0.5625
    value = zt.sparsemax_loss(z, torch.tensor([2]))
    assert value.item() == torch.inf
    (gradient,) = torch.autograd.grad(value, z)
    torch.testing.assert_close(gradient, torch.tensor([[0.75, 0.25, -1.0]]))


def test_a_row_without_a_value_spoils_no_other():
    """NaN, +inf and all -inf: NaN in their own rows, in the loss and in the gradient."""
    z = scores(5, C)
    z[1, 2], z[2, 0], z[3] = torch.nan, torch.inf, -torch.inf
    z.requires_grad_()
    for y in (labels(5), proportions(5)):
        value = zt.sparsemax_loss(z, y, reduction="none")
        assert value.isnan().tolist() == [False, True, True, True, False]
        (gradient,) = torch.autograd.grad(value, z, torch.ones_like(value))
        assert gradient.isnan().any(1).tolist() == [False, True, True, True, False]
        assert gradient.isnan().all(1).tolist() == [False, True, True, True, False]


def test_other_types_promote_as_in_cross_entropy():
    """uint8 labels; probabilities of another floating-point type; autocast."""
    z, y, q = scores(N, C, dtype=torch.float32), labels(N), proportions(N)
    torch.testing.assert_close(
        zt.sparsemax_loss(z, y.to(torch.uint8)), zt.sparsemax_loss(z, y), rtol=0, atol=0
    )
    for left, right in itertools.product((torch.float16, torch.float32, torch.float64), repeat=2):
        ours, theirs = (f(z.to(left), q.to(right)) for f in (zt.sparsemax_loss, F.cross_entropy))
        assert ours.dtype == theirs.dtype
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            for x in (z, z.to(dtype)):
                assert zt.sparsemax_loss(x, y).dtype == F.cross_entropy(x, y).dtype
                assert zt.sparsemax(x).dtype == torch.softmax(x, -1).dtype


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_binary_loss_is_the_loss_of_two_scores(reduction):
    """Eq. 23 is Eq. 26 of (t, 0) and (y, 1 - y), in y too; the gradient is p - y at the kinks as well."""
    t = torch.tensor([-3.0, -1.0, -0.4, 0.0, 0.7, 1.0, 2.5], dtype=torch.float64)
    for y in (torch.zeros(7), torch.ones(7), torch.linspace(0, 1, 7)):
        y = y.double().requires_grad_()
        pairs, q = torch.stack([t, 0 * t], 1), torch.stack([y, 1 - y], 1)
        x = t.clone().requires_grad_()
        value = zt.binary_sparsemax_loss(x, y, reduction=reduction)
        right = zt.sparsemax_loss(pairs, q, reduction=reduction)
        torch.testing.assert_close(value, right, rtol=1e-14, atol=1e-16)
        gradient, in_y = torch.autograd.grad(value.sum(), (x, y))
        torch.testing.assert_close(in_y, torch.autograd.grad(right.sum(), y)[0], rtol=1e-14, atol=1e-16)
        expected = (zt.binary_sparsemax(t) - y) / (7 if reduction == "mean" else 1)
        torch.testing.assert_close(gradient, expected, rtol=1e-14, atol=1e-16)


def test_an_infinite_score_decides_two_classes():
    """It costs nothing if the target is on its side, else it is infinite; no NaN in value or gradient."""
    t = torch.tensor([torch.inf, -torch.inf, torch.inf, -torch.inf], requires_grad=True)
    y = torch.tensor([1.0, 0.0, 0.5, 1.0], requires_grad=True)
    value = zt.binary_sparsemax_loss(t, y, reduction="none")
    assert value.tolist() == [0, 0, torch.inf, torch.inf]
    gradient, in_y = torch.autograd.grad(value, (t, y), torch.ones(4), create_graph=True)
    assert gradient.tolist() == [0, 0, 0.5, -1]
    assert in_y.tolist() == [0, 0, -torch.inf, torch.inf]
    (second,) = torch.autograd.grad(in_y[:2].sum(), y)
    assert second.tolist() == [2, 2, 0, 0]
    assert zt.binary_sparsemax(t).tolist() == [1, 0, 1, 0]
    assert zt.binary_sparsemax(torch.tensor(torch.nan)).isnan()
    (slope,) = torch.autograd.grad(zt.binary_sparsemax(t).sum(), t)
    assert slope.tolist() == [0, 0, 0, 0]
