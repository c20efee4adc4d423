"""Every function on DTensors, in one of two processes: `python -m tests.torch_dtensor RANK STORE`.

Prints a line for each function and placement: whether rows were whole, what moved, where the result is.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.distributed as dist

import zerotail.torch  # before DTensor: its rules are given when that is imported  # noqa: F401

assert "torch.distributed.tensor" not in sys.modules, "zerotail.torch imports DTensor"

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.experimental import implicit_replication  # noqa: E402

from tests.test_torch_uses import Problem, close  # noqa: E402
from tests.torch_cases import CASES, Case  # noqa: E402

WORLD = 2


def full(xs):
    return [x.full_tensor() if isinstance(x, DTensor) else x for x in xs]


def check(case: Case, placement, mesh) -> tuple[dict[str, int], object]:
    """Value, gradient and second order on inputs of this placement; what went between the processes."""
    p = Problem(case)
    inputs = [distribute_tensor(x, mesh, [placement]).requires_grad_() for x in p.inputs()]
    with implicit_replication():
        u = p.like_output(p.u)
        with CommDebugMode() as moved:
            out = p.call(*inputs)
            where = out.placements[0]
            whole = [Replicate()] if where.is_partial() else [where]
            u = distribute_tensor(u, mesh, whole, src_data_rank=None)
            out.backward(u)
        close(out.full_tensor(), p.exact.value)
        close(full([x.grad for x in inputs]), p.vjp)
        if case.curved:
            inputs = [x.detach().requires_grad_() for x in inputs]
            first = torch.autograd.grad(p.call(*inputs), inputs, u, create_graph=True)
            v = [distribute_tensor(x, mesh, [placement]) for x in p.like_inputs(p.v)]
            close(full(torch.autograd.grad(first, inputs, v)), p.scalar_hessian @ p.v)
        with torch.inference_mode():
            plain = [distribute_tensor(x, mesh, [placement]) for x in p.inputs()]
            close(p.call(*plain).full_tensor().clone(), p.exact.value)
    counts = {str(op).split(".")[-1]: n for op, n in moved.get_comm_counts().items() if n}
    return counts, where


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    for case in CASES:
        dims = np.ndim(case.make(np.random.default_rng(0))[0])
        for placement in (Replicate(), *(Shard(d) for d in range(dims))):
            moved, where = check(case, placement, mesh)
            if rank == 0:
                whole = "split" if isinstance(placement, Shard) and placement.dim == case.dim else "whole"
                print(case.name, whole, moved, where, sep=" | ", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
