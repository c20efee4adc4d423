"""The cells of sublinear training: attention, a linear layer with its loss, and a transformer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import gate
from benchmarks.cases import generator, torch_front_end
from benchmarks.gate import Array, GateError, wide
from benchmarks.model import Call, Case, Cell, Options


def on_grid(x: Array) -> Array:
    """Small multiples of 3/64 or so: products are exact in float32, no score is at its threshold."""
    step = 3 * 2.0 ** max(-6, np.ceil(np.log2(np.abs(x).max() / 768)))
    return (np.round(x / step) * step).astype(np.float32)


@cache
def trained_heads(length: int) -> Array:
    """Query, key and value, (3, 4, length, 64), of the second layer of a transformer that was trained."""
    import torch

    from benchmarks.transformer import Settings, Training, softmax_model, text

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    settings = Settings(features=256, length=4096, vocabulary=1000, batch=1)
    training = Training(softmax_model(settings), settings)
    short = Settings(features=256, length=512, vocabulary=1000, batch=4)
    for _, batch in zip(range(60), text(short), strict=False):
        training.step(*batch)
    tokens, _ = next(text(settings, seed=1))
    with torch.no_grad():
        x = training.model.layers[0](training.model.embed(tokens[:, :length]))
        heads = torch.cat(training.model.layers[1].heads_of(x))
    torch.set_num_threads(threads)
    made: Array = heads.numpy()
    return made


def heads_of(cell: Cell) -> Array:
    """Query, key and value of 4 heads of 64 features."""
    if cell["data"] == "trained":
        return on_grid(trained_heads(cell["N"]))
    rng = generator(cell)
    heads = rng.standard_normal((3, 4, cell["N"], 64), np.float32)
    if cell["data"].startswith("near uniform"):
        # Scores whose deviation leaves a quarter of a row, or all of it, above the threshold.
        heads[0] = (
            on_grid(heads[0]) * {"near uniform, N/4": 2.0**-9, "near uniform, N": 2.0**-20}[cell["data"]]
        )
        heads[1] = on_grid(heads[1])
        return heads
    heads[0] *= {"normal": 1, "normal, sd 3": 3}[cell["data"]]
    return on_grid(heads)


def check_attention(q: Array, k: Array, v: Array, g: Array) -> Callable[[Any], None]:
    """The check of one head's output and gradients, in float64, from a sort of its scores."""
    scores = (q.astype(np.float64) @ k.T.astype(np.float64)) / 8
    p = np.concatenate([gate.reference(rows)[0].astype(np.float64) for rows in np.array_split(scores, 16)])
    slope = g.astype(np.float64) @ v.T.astype(np.float64)
    on = p > 0
    slope = np.where(on, slope - np.where(on, slope, 0).sum(-1, keepdims=True) / on.sum(-1, keepdims=True), 0)
    want = (p @ v, slope @ k / 8, slope.T @ q / 8, p.T @ g)

    def check(got: Any) -> None:
        got = got if isinstance(got, tuple) else (got,)
        for name, x, y in zip(("output", "dq", "dk", "dv"), got, want, strict=False):
            error = float(np.linalg.norm(wide(x.detach().numpy()[0, 1]) - y) / np.linalg.norm(y))
            if not error <= 1e-5:
                raise GateError(f"{name} is wrong by {error:.2g} of its norm")

    return check


def attention(cell: Cell, options: Options) -> Case:
    import torch
    import torch.nn.functional as F

    heads = heads_of(cell)
    v = generator(cell).standard_normal(heads[0].shape, np.float32)
    q, k, x = (torch.from_numpy(part.copy())[None].requires_grad_() for part in heads)
    along = torch.from_numpy(v)[None]

    def call(function: Callable[..., Any]) -> Call:
        def step() -> Any:
            output = function(q, k, x)
            return output, *torch.autograd.grad(output, (q, k, x), along)

        def forward() -> Any:
            with torch.no_grad():
                return function(q, k, x)

        return forward if cell["pass"] == "forward" else step

    def dense() -> Call:
        sparsemax = torch_front_end(__import__("zerotail")).sparsemax
        return call(lambda q, k, x: sparsemax(q @ k.mT / 8) @ x)

    return Case(
        ours=lambda zt: call(torch_front_end(zt).sparsemax_attention),
        check=check_attention(*(part[1] for part in heads), v[1]),
        peers={"sdpa": call(F.scaled_dot_product_attention), "dense": dense()},
    )


def linear_loss(cell: Cell, options: Options) -> Case:
    import torch
    import torch.nn.functional as F

    rng = generator(cell)
    rows, features, classes = 256, 512, cell["classes"]
    # Scores of deviation about `sd`, and their products exact, as above.
    weight = np.round(rng.standard_normal((classes, features), np.float32)) * np.float32(2.0**-5)
    input = np.round(4 * rng.standard_normal((rows, features), np.float32)) * np.float32(cell["sd"] / 4)
    labels = rng.integers(classes, size=rows)
    x, w = (torch.from_numpy(part).requires_grad_() for part in (input, weight))
    y = torch.from_numpy(labels)

    def call(loss: Callable[..., Any]) -> Call:
        def step() -> Any:
            value = loss(x, w, y)
            return value, *torch.autograd.grad(value, (x, w))

        return step

    def composed(function: Callable[..., Any]) -> Call:
        return call(lambda x, w, y: function(F.linear(x, w), y, reduction="sum"))

    def ours(zt: ModuleType) -> Call:
        function = torch_front_end(zt).linear_sparsemax_loss
        return call(partial(function, reduction="sum", sparse_weight_grad=cell["weight"] == "row-sparse"))

    def check(got: Any) -> None:
        value, in_x, in_w = (part.to_dense() if part.is_sparse else part for part in got)
        scores = input.astype(np.float64) @ weight.T.astype(np.float64)
        p, tau = gate.reference(scores)
        slope = p.astype(np.float64)
        slope[np.arange(rows), labels] -= 1
        above = scores[np.arange(rows), labels] - scores.max(-1) - tau[:, 0].astype(np.float64)
        want = ((slope**2).sum() / 2 + np.maximum(-above, 0).sum(), slope @ weight, slope.T @ input)
        for name, x, y in zip(("loss", "dinput", "dweight"), (value, in_x, in_w), want, strict=True):
            error = float(np.linalg.norm(x.detach().numpy() - y) / np.linalg.norm(y))
            if not error <= 1e-5:
                raise GateError(f"{name} is wrong by {error:.2g} of its norm")

    def dense() -> Call:
        return composed(torch_front_end(__import__("zerotail")).sparsemax_loss)

    return Case(ours=ours, check=check, peers={"cross_entropy": composed(F.cross_entropy), "dense": dense()})


def transformer(cell: Cell, options: Options) -> Case:
    """One training step, of models that have been trained for ten."""
    from benchmarks.transformer import Settings, text, trainings

    settings = Settings()
    batches = text(settings)
    both = trainings(settings)
    for _, batch in zip(range(10), batches, strict=False):
        for training in both.values():
            training.step(*batch)
    batch = next(batches)

    def check(loss: Any) -> None:
        if not (np.isfinite(loss) and loss < both["sparsemax"].losses[0]):
            raise GateError(f"ten steps have moved the loss from {both['sparsemax'].losses[0]} to {loss}")

    return Case(
        ours=lambda zt: torch_front_end(zt) and partial(both["sparsemax"].step, *batch),
        check=check,
        peers={"softmax": partial(both["softmax"].step, *batch)},
    )
