"""What a training step allocates: the allocator's own record of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
zt = pytest.importorskip("zerotail.torch")

ROWS, K = 256, 32000
TENSOR = ROWS * K * 4


def peak(step: Callable[[], object]) -> int:
    """The most bytes that torch's CPU allocator has given out at once, above those before the step."""
    step()  # what is made once is no part of a step
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        step()
    records = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    most = total = 0
    for event in sorted(records, key=lambda event: event.start_ns()):
        total += event.nbytes()
        most = max(most, total)
    return most


def test_the_profiler_sees_what_is_allocated():
    """Two tensors of which one is freed before the next is made, and the kernels' own."""
    z = torch.zeros(ROWS, K)

    def step() -> None:
        for _ in range(2):
            _ = (z + 1).sum()
        zt.sparsemax(z)

    assert TENSOR <= peak(step) < 1.01 * TENSOR


@pytest.mark.parametrize("target", ["labels", "distributions"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_loss_and_its_gradient_need_the_memory_of_the_gradient(target, reduction):
    """No tensor of the size of the scores but the gradient itself; cross-entropy needs three."""
    scores = torch.randn(ROWS, K, generator=torch.Generator().manual_seed(0)).requires_grad_()
    q = torch.arange(ROWS) if target == "labels" else torch.full((ROWS, K), 1 / K)

    def step() -> object:
        loss = zt.sparsemax_loss(scores, q, reduction=reduction)
        return torch.autograd.grad(loss, scores, torch.ones_like(loss))

    assert TENSOR <= peak(step) < 1.01 * TENSOR


def test_sparsemax_and_its_gradient_need_the_memory_of_both():
    """The probabilities, which the caller keeps, and the gradient."""
    scores, v = torch.randn(2, ROWS, K, generator=torch.Generator().manual_seed(0)).unbind()
    scores.requires_grad_()

    def step() -> object:
        p = zt.sparsemax(scores)
        return torch.autograd.grad(p, scores, v)

    assert 2 * TENSOR <= peak(step) < 2.01 * TENSOR
