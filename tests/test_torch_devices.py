"""The path of devices without a kernel: plain torch, held to the same oracle on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle

torch = pytest.importorskip("torch")
pytest.importorskip("zerotail.torch")
devices = pytest.importorskip("zerotail.torch._devices")
ops = pytest.importorskip("zerotail.torch._ops")

DTYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))


@pytest.fixture(params=[False, True], ids=["free", "captured"])
def captured(request, monkeypatch):
    """As on a device, and as in a captured graph, where the host may not look at results."""
    if request.param:
        monkeypatch.setattr(devices, "_captured", lambda x: True)
        monkeypatch.setattr(torch, "equal", None)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cols", [1, 2, 7, 64, 257])
def test_values_are_exact(captured, dtype, cols):
    """Eqs. 2 and 4 on every family, within the bounds of the kernels."""
    z = cases.mixture(0, cols, dtype, 3)
    exact = oracle.project(z)
    x = torch.from_numpy(z)
    assert judge.projection(devices.sparsemax(x, 1).numpy(), exact).right
    upright = devices.sparsemax(x.T.contiguous(), 0)
    assert upright.is_contiguous()
    assert judge.projection(np.ascontiguousarray(upright.numpy().T), exact).right
    hi, lo = devices.threshold(x, -1)
    assert judge.thresholds(hi.numpy().astype(dtype), exact) <= 1
    p = ((x.to(hi.dtype) - hi[:, None]) - lo[:, None]).clamp_min(0).numpy().astype(dtype)
    assert judge.projection(p, exact).right


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["labels", "distributions"])
def test_every_operator_agrees_with_its_kernel(dtype, kind):
    """The same outputs, NaN and infinite rows and rows that do not count included."""
    cols = 13
    z = cases.mixture(1, cols, dtype, 3)
    x, v = torch.from_numpy(z), torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    v = v.to(x.dtype)
    p = ops.sparsemax(x, 1)
    eps = 8 * judge.BOUND * oracle.eps(dtype) + (
        float(torch.finfo(x.dtype).eps) if dtype.itemsize == 2 else 0
    )
    close = {"rtol": eps, "atol": eps, "equal_nan": True}
    torch.testing.assert_close(devices.sparsemax_jvp(p, v, 1), ops.jvp(p, v, 1), **close)
    if kind == "labels":
        y = torch.from_numpy(cases.labels(2, len(z), cols))
        y[::4] = -100
    else:
        y = torch.from_numpy(cases.distributions(2, len(z), cols, dtype))
        y[::4] = 0
    for ours, theirs in zip(devices.sparsemax_loss(x, y, 1, -100), ops.loss(x, y, 1, -100), strict=True):
        finite = ours.isfinite() & (ours.abs() < 1e30)
        assert torch.equal(finite, theirs.isfinite() & (theirs.abs() < 1e30))
        torch.testing.assert_close(ours[finite], theirs[finite], **close)
        assert torch.equal(ours.isnan(), theirs.isnan())
    _, hi, lo = ops.loss(x, y, 1, -100)
    g = torch.linspace(-1, 2, len(z), dtype=hi.dtype)
    args = (x, y, hi, lo, g, 1, -100)
    torch.testing.assert_close(devices.sparsemax_loss_gradient(*args), ops.loss_gradient(*args), **close)


def test_a_label_out_of_range_is_an_assertion():
    """Asynchronous on devices; here it raises at once."""
    with pytest.raises(RuntimeError, match=r"target must be labels in \[0, 3\)"):
        devices.sparsemax_loss(torch.zeros(2, 3), torch.tensor([0, 3]), 1, -100)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 3)])
def test_empty_tensors_stay_empty(shape):
    """No rows, or rows of nothing."""
    x = torch.zeros(shape)
    for dim in range(len(shape)):
        assert devices.sparsemax(x, dim).shape == shape
        hi, lo = devices.threshold(x, dim)
        assert hi.shape == lo.shape == ops.threshold(x, dim)[0].shape
        assert torch.equal(hi.isnan(), ops.threshold(x, dim)[0].isnan())


def test_other_devices_take_this_path():
    """The dispatcher's table: the kernel for the CPU, plain torch for everything else."""
    for op in (ops.sparsemax, ops.jvp, ops.threshold, ops.loss, ops.loss_gradient):
        name = op.name().split(".")[0]
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd")
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")


def test_there_is_no_sort():
    """Neither path sorts, nor takes the top k."""
    seen: set[str] = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.add(func.name())
            return func(*args, **(kwargs or {}))

    with Watch():
        devices.sparsemax(torch.randn(3, 100), 1)
    assert seen
    assert not {name for name in seen if "sort" in name or "topk" in name}
