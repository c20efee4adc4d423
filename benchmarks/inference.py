"""Training steps of the paper's inference network (section 4.3), on pairs of SNLI's lengths."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import gate
from benchmarks.cases import generator
from benchmarks.gate import GateError
from benchmarks.model import Call, Case, Cell, Options

WORDS = 15_000
STEPS = 40


def steps(cell: Cell, options: Options) -> Case:
    """The sparse system against the soft one: a call goes on where the last one ended."""
    import torch

    from paper._inference import Network
    from paper._pairs import LEARNT, START, Pairs, Ragged
    from paper._train import Run, optimizer_of, update

    rng = generator(cell)
    count = cell["batch"] * 400

    def lists(mean: float, sd: float) -> list[list[int]]:
        lengths = rng.normal(mean, sd, count).round().clip(2, 40).astype(int)
        return [(rng.zipf(1.2, length) % WORDS + LEARNT).tolist() for length in lengths]

    premises, hypotheses = lists(12.9, 5.5), lists(7.4, 2.9)
    labels = rng.integers(3, size=count)
    pairs = Pairs(Ragged(premises), Ragged([START, *numbers] for numbers in hypotheses), labels)
    order = pairs.shuffled(cell["batch"], 400, rng)[: STEPS if options.rounds > 2 else 2]
    vectors = torch.from_numpy(rng.standard_normal((WORDS, 300), np.float32))

    def network(system: str) -> Network:
        torch.manual_seed(0)
        return Network(vectors, system, cell["D"], "text", 0.1)

    def training(model: Network) -> Call:
        optimizer = optimizer_of(model, Run("", l2=1e-4))
        model.train()

        def call() -> Network:
            for rows in order:
                update(model, optimizer, pairs.batch(rows))
            return model

        return call

    def ours(zt: ModuleType) -> Call:
        if zt.__name__ != "zerotail":
            raise GateError("the network is made of the installed version")
        return training(network("sparse"))

    def check(model: Any) -> None:
        """The weights are sparsemax of the scores, to the bits that every function is held to."""
        seen: list[torch.Tensor] = []
        hook = model.attention.score.register_forward_hook(lambda module, inputs, output: seen.append(output))
        batch = pairs.batch(order[0])
        with torch.no_grad():
            _, weights = model(batch)
        hook.remove()
        scores = torch.where(batch.premise_mask.t(), seen[0].view(weights.shape), -torch.inf).numpy()
        gate.check_probabilities(weights.numpy(), gate.reference(scores)[0], np.dtype(np.float32))

    return Case(ours=ours, check=check, peers={"soft": training(network("soft"))})
