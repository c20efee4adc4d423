"""Train one system of section 4.3; what was killed goes on from its checkpoint, to the same bits."""

from __future__ import annotations

import os
import pickle
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paper._inference import LABELS, Network
from paper._pairs import Batch, Pairs

EVALUATED_AT_ONCE = 200  # pairs


@dataclass(frozen=True)
class Run:
    """What a training's result depends on; the paper's values, where it has them."""

    system: str
    seed: int = 0
    l2: float = 0.0  # added to the gradient of all but biases, before Adam scales it
    gru: str = "text"
    dim: int = 100
    dropout: float = 0.1
    learning_rate: float = 3e-4
    batch: int = 25
    pool: int = 400  # batches among which pairs are sorted by length
    epochs: int = 25
    patience: int = 3  # epochs without a better accuracy on dev, after which it ends
    data: str = ""  # a digest of pairs and vectors


@dataclass
class State:
    """What a checkpoint holds beside the parameters."""

    epoch: int = 0  # epochs that are complete
    step: int = 0  # batches of the next one that are done
    loss: float = 0.0  # their sum
    seconds: float = 0.0  # their processor time
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Checkpoint:
    """A file that is replaced as a whole. None: nothing is kept."""

    def __init__(self, path: Path | None, run: Run) -> None:
        self.path, self.run = path, asdict(run)

    def save(self, state: State, **tensors: Any) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                torch.save({"run": self.run, "state": asdict(state), **tensors}, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """Tensors and plain values, nothing else; None where there is no file."""
        if self.path is None or not self.path.exists():
            return None
        saved = self._read(self.path)
        run = saved["run"]
        for name, value in self.run.items():
            if run.get(name) != value:
                raise ValueError(
                    f"{self.path} must be a checkpoint of {name}={value!r}; "
                    f"got one of {name}={run.get(name)!r}"
                )
        return saved

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{path} must be a checkpoint; got a file of another format, or a part of one")
        try:
            saved = torch.load(path, weights_only=True)
        except (RuntimeError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path} must be a checkpoint; got a damaged one, or no plain values") from error
        if not isinstance(saved, dict) or not {"run", "state"} <= set(saved):
            raise ValueError(f"{path} must be a checkpoint of a training; got something else")
        return saved


@dataclass
class Outcome:
    """Of the epoch that is best on dev."""

    network: Network
    best_epoch: int
    history: list[dict[str, float]]  # one entry an epoch: loss, dev, seconds of processor time


def optimizer_of(network: nn.Module, run: Run) -> torch.optim.Optimizer:
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in network.named_parameters():
        groups["bias" in name.rpartition(".")[2]].append(parameter)
    return torch.optim.Adam(
        [{"params": groups[False], "weight_decay": run.l2}, {"params": groups[True]}],
        lr=run.learning_rate,
        betas=(0.9, 0.999),
        eps=1e-8,
        fused=True,
    )


def update(network: Network, optimizer: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """One step on the mean loss of a batch."""
    scores, _ = network(batch)
    loss = F.cross_entropy(scores, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@dataclass
class Evaluation:
    """How a network does on pairs, and what it says of each."""

    accuracy: float  # percent
    selected: float  # percent of the premises' words whose weight is not 0
    confusion: list[list[int]]  # [label][predicted]
    predicted: list[int]
    weights: list[list[float]]  # of the words of each premise; empty without attention


@torch.no_grad()
def evaluate(network: Network, pairs: Pairs) -> Evaluation:
    network.eval()
    predicted = np.empty(len(pairs), np.int64)
    weights: list[list[float]] = [[]] * len(pairs)
    lengths = pairs.premises.lengths
    for rows in pairs.in_order(EVALUATED_AT_ONCE):
        scores, given = network(pairs.batch(rows))
        predicted[rows] = scores.argmax(1)
        if given is not None:
            for row, values in zip(rows, given.tolist(), strict=True):
                weights[row] = values[: lengths[row]]
    confusion = np.zeros((len(LABELS), len(LABELS)), np.int64)
    np.add.at(confusion, (pairs.labels, predicted), 1)
    selected = sum(weight != 0 for row in weights for weight in row)
    return Evaluation(
        100 * int(confusion.trace()) / len(pairs),
        100 * selected / max(int(lengths.sum()), 1),
        confusion.tolist(),
        predicted.tolist(),
        weights,
    )


def train(
    run: Run,
    vectors: Tensor,
    training: Pairs,
    dev: Pairs,
    *,
    checkpoint: Path | None = None,
    every: float = 60.0,
    progress: Callable[[State, int], None] = lambda state, batches: None,
) -> Outcome:
    """Adam on the training pairs until `run.patience` epochs brought nothing on dev.

    A checkpoint is written every `every` seconds and after each epoch; `progress` is called after each batch
    and each epoch.
    """
    # The same sums wherever it goes on; for such small matrices more threads bring nothing.
    torch.set_num_threads(1)
    file = Checkpoint(checkpoint, run)
    torch.manual_seed(run.seed)
    network = Network(vectors, run.system, run.dim, run.gru, run.dropout)
    optimizer = optimizer_of(network, run)
    state, best = State(), network.state_dict()
    if (saved := file.load()) is not None:
        state, best = State(**saved["state"]), saved["best"]
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"])

    def save() -> None:
        nonlocal written
        written = time.monotonic()
        file.save(
            state,
            network=network.state_dict(),
            best=best,
            optimizer=optimizer.state_dict(),
            rng=torch.get_rng_state(),
        )

    written = time.monotonic()
    while state.epoch < run.epochs and state.epoch - state.best_epoch < run.patience:
        # Of the seed and the epoch alone, so that an interrupted epoch goes on in the same order.
        order = training.shuffled(run.batch, run.pool, np.random.default_rng([run.seed, state.epoch]))
        network.train()
        start = time.process_time()
        for rows in order[state.step :]:
            state.loss += float(update(network, optimizer, training.batch(rows)))
            state.step += 1
            state.seconds += time.process_time() - start
            start = time.process_time()
            progress(state, len(order))
            if time.monotonic() - written >= every:
                save()
        dev_accuracy = evaluate(network, dev).accuracy
        state.history.append({"loss": state.loss / len(order), "dev": dev_accuracy, "seconds": state.seconds})
        state.epoch += 1
        state.step, state.loss, state.seconds = 0, 0.0, 0.0
        if state.best_epoch == 0 or dev_accuracy > state.history[state.best_epoch - 1]["dev"]:
            state.best_epoch = state.epoch
            best = {name: value.clone() for name, value in network.state_dict().items()}
        save()
        progress(state, len(order))
    network.load_state_dict(best)
    return Outcome(network.eval(), state.best_epoch, state.history)
