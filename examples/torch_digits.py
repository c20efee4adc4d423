"""Train a small network on scikit-learn's digits, with the sparsemax loss and with cross-entropy.

The network is the same, and so are its first weights and the order of the images: only the loss differs, and
what turns scores into probabilities. With sparsemax most images end with a single class; the rest have 0.

Command: ``python examples/torch_digits.py``, seconds; --help has options. Needs ``zerotail[torch,sklearn]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from zerotail.torch import Sparsemax, SparsemaxLoss

BATCH = 64
RATE = 0.01


@dataclass(frozen=True)
class Data:
    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits(seed: int) -> Data:
    """1,797 images of 8 x 8 pixels, scaled to [0, 1], a quarter of them for the test."""
    bunch = load_digits()
    images, test_images, labels, test_labels = train_test_split(
        (bunch.data / 16).astype("float32"),
        bunch.target.astype("int64"),
        test_size=0.25,
        stratify=bunch.target,
        random_state=seed,
    )
    return Data(*(torch.from_numpy(x) for x in (images, labels, test_images, test_labels)))


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(
    model: nn.Module, loss: nn.Module, data: Data, epochs: int, seed: int, say: Callable[[int, float], None]
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    order = torch.Generator().manual_seed(seed)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(data.labels), generator=order).split(BATCH):
            optimizer.zero_grad()
            value = loss(model(data.images[batch]), data.labels[batch])
            value.backward()
            optimizer.step()
            total += value.item() * len(batch)
        say(epoch, total / len(data.labels))


@torch.no_grad()
def evaluate(model: nn.Module, probabilities: nn.Module, data: Data) -> tuple[float, Tensor]:
    """Accuracy, and the number of classes with a positive probability for each image of the test."""
    p = probabilities(model(data.test_images))
    accuracy = (p.argmax(dim=-1) == data.test_labels).float().mean().item()
    return accuracy, (p > 0).sum(dim=-1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the images (30)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and split (0)")
    chosen = parser.parse_args(arguments)
    if chosen.epochs < 1:
        parser.error(f"--epochs must be at least 1; got {chosen.epochs}")

    torch.set_num_threads(1)  # the products are too small for more
    data = digits(chosen.seed)
    results = {}
    for name, loss, probabilities in (
        ("sparsemax", SparsemaxLoss(), Sparsemax()),
        ("softmax", nn.CrossEntropyLoss(), nn.Softmax(dim=-1)),
    ):
        model = network(chosen.seed)
        print(f"{name}, {type(loss).__name__}")

        def say(epoch: int, value: float) -> None:
            if epoch in (1, chosen.epochs) or epoch % 5 == 0:
                print(f"  epoch {epoch:3d}  loss {value:.4f}", flush=True)

        train(model, loss, data, chosen.epochs, chosen.seed, say)
        results[name] = evaluate(model, probabilities, data)

    print(f"\non {len(data.test_labels)} images that were not trained on")
    print(f"{'':11}{'accuracy':>9}{'classes with p > 0':>20}{'images with one class':>23}")
    for name, (accuracy, classes) in results.items():
        mean, single = classes.float().mean().item(), (classes == 1).float().mean().item()
        print(f"{name:11}{accuracy:9.1%}{mean:14.2f} of 10{single:23.1%}")


if __name__ == "__main__":
    main()
