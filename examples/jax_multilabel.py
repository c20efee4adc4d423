"""Train a multi-label classifier with JAX and optax: the sparsemax loss against the softmax cross-entropy.

Each example has a few of the labels, chosen by a hidden linear rule; the target is the set of them, each with
its share. With sparsemax the labels whose probability is not 0 are a prediction already; softmax gives every
label something, so that a level must be chosen. One is chosen for both, on the training set.

Command: ``python examples/jax_multilabel.py``, seconds; --help has options. Needs ``zerotail[jax]``, optax.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from zerotail.jax import sparsemax, sparsemax_loss

FEATURES, LABELS = 32, 12
RATE = 0.02
LEVELS = np.linspace(0.02, 0.5, 25)


@dataclass(frozen=True)
class Data:
    features: jax.Array
    labels: jax.Array
    """Of which each example has at least one."""


def documents(key: jax.Array, count: int) -> tuple[Data, Data]:
    """Normal features; an example has the labels whose hidden score is near its best. Half are for tests."""
    features, rule = jax.random.split(key)
    x = jax.random.normal(features, (2 * count, FEATURES))
    scores = x @ jax.random.normal(rule, (FEATURES, LABELS)) / FEATURES**0.5
    labels = scores > scores.max(axis=1, keepdims=True) - 0.4
    return Data(x[:count], labels[:count]), Data(x[count:], labels[count:])


def shares(labels: jax.Array) -> jax.Array:
    return labels / labels.sum(axis=1, keepdims=True)


def train(
    loss: Callable[[jax.Array, jax.Array], jax.Array],
    data: Data,
    steps: int,
    say: Callable[[int, float], None],
) -> dict[str, jax.Array]:
    target = shares(data.labels)
    parameters = {"weights": jnp.zeros((FEATURES, LABELS)), "bias": jnp.zeros(LABELS)}
    optimizer = optax.adam(RATE)

    def risk(parameters: dict[str, jax.Array]) -> jax.Array:
        return loss(scores(parameters, data), target).mean()

    @jax.jit
    def step(parameters, state):
        value, gradient = jax.value_and_grad(risk)(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, value

    state = optimizer.init(parameters)
    for number in range(1, steps + 1):
        parameters, state, value = step(parameters, state)
        if number == 1 or number % 100 == 0 or number == steps:
            say(number, float(value))
    return parameters


def scores(parameters: dict[str, jax.Array], data: Data) -> jax.Array:
    return data.features @ parameters["weights"] + parameters["bias"]


def micro_f1(predicted: jax.Array, labels: jax.Array) -> float:
    return float(2 * (predicted & labels).sum() / (predicted.sum() + labels.sum()))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="of Adam, on the whole set (500)")
    parser.add_argument(
        "--examples", type=int, default=2000, help="to train on, and as many to test on (2000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the examples (0)")
    chosen = parser.parse_args(arguments)
    for name in ("steps", "examples"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1; got {getattr(chosen, name)}")

    training, test = documents(jax.random.key(chosen.seed), chosen.examples)
    rows = []
    for name, loss, probabilities in (
        ("sparsemax", sparsemax_loss, sparsemax),
        ("softmax", optax.softmax_cross_entropy, jax.nn.softmax),
    ):
        print(f"{name}, {loss.__name__}")

        def say(step: int, value: float) -> None:
            print(f"  step {step:4d}  loss {value:.4f}", flush=True)

        parameters = train(loss, training, chosen.steps, say)
        # The prediction: labels above 0, or above the level that is best for what it has seen.
        seen, p = (probabilities(scores(parameters, data)) for data in (training, test))
        best = max(LEVELS, key=lambda level: micro_f1(seen > level, training.labels))
        rows += [(name, "p > 0", p > 0), (name, f"p > {best:.2f}", p > best)]

    each = float(test.labels.sum(axis=1).mean())
    print(f"\non {chosen.examples} examples that were not trained on, of {each:.2f} labels each")
    print(f"{'':11}{'predicts':>10}{'labels each':>13}{'micro-F1':>10}")
    for name, rule, predicted in rows:
        mean = float(predicted.sum(axis=1).mean())
        print(f"{name:11}{rule:>10}{mean:13.2f}{micro_f1(predicted, test.labels):10.3f}")


if __name__ == "__main__":
    main()
