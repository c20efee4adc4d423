"""What steps by supports need, each in a process of its own: the system's record of the most memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak memory of a process is read from /proc")

# Prints by how many bytes the most memory rises over a step. A small step loads what is loaded once; inputs
# are made in place, so that nothing before the step needs more than they do.
MEASURE = """
import torch, torch.nn.functional as F
import zerotail.torch as zt
torch.set_num_threads(1)
{setup}
def most():
    # Not of getrusage, which begins with what the parent needed.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
small()
before = most()
kept = step()
print(most() - before)
"""

ATTENTION = """
def inputs(n):
    return [torch.randn(1, 1, n, 64).requires_grad_() for _ in range(3)]
large, v = inputs({length}), torch.randn(1, 1, {length}, 64)
def run(x, v):
    return torch.autograd.grad({function}(*x), x, v)
def small():
    run(inputs(256), torch.randn(1, 1, 256, 64))
def step():
    return run(large, v)
"""

LOSS = """
def inputs(classes):
    weight = torch.randn(classes, 512).mul_(512**-0.5).requires_grad_({trained})
    return torch.randn(256, 512).requires_grad_(), weight, torch.randint(classes, (256,))
large = inputs({classes})
def run(x, w, y):
    return torch.autograd.grad({function}, (x, w) if w.requires_grad else x)
def small():
    run(*inputs(1000))
def step():
    return run(*large)
"""


def rise(setup: str) -> int:
    """In bytes."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(setup=setup)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@linux
def test_attention_needs_no_matrix_of_scores():
    """At N = 8192 less than a tenth of N x N floats; the record sees what dense products need."""
    length = 8192
    matrix = 4 * length**2
    ours = rise(ATTENTION.format(length=length, function="zt.sparsemax_attention"))
    print(f"attention at N = {length}: {ours / matrix:.3f} of N x N floats")
    assert ours < matrix / 10
    length = 2048
    dense = rise(ATTENTION.format(length=length, function="(lambda q, k, v: zt.sparsemax(q @ k.mT / 8) @ v)"))
    assert dense > 4 * length**2


@linux
@pytest.mark.parametrize("classes", [32000, 131072])
def test_the_loss_needs_a_chunk_of_logits(classes):
    """Beyond the gradients that it returns, at most a fifth of what cross-entropy needs before it has any."""

    def step(function: str, trained: bool = True) -> int:
        return rise(LOSS.format(classes=classes, function=function, trained=trained))

    # The gradient of the weight is made when some of it is free again: without it, all is seen.
    theirs = step("F.cross_entropy(F.linear(x, w), y)", trained=False)
    ours = {
        "dense": step("zt.linear_sparsemax_loss(x, w, y)") - 4 * 512 * classes,
        "row-sparse": step("zt.linear_sparsemax_loss(x, w, y, sparse_weight_grad=True)"),
    }
    for name, most in ours.items():
        print(f"{classes} classes, {name}: {most >> 20} of {theirs >> 20} MiB, {most / theirs:.3f}")
    assert max(ours.values()) <= theirs / 5
