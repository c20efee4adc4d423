"""A small transformer that trains with sparsemax, and the same with softmax: seconds a step and loss curves.

    python -m benchmarks.transformer                # 60 steps of each, side by side; a few minutes
    python -m benchmarks.transformer --steps 300

Two layers of 128 features and a vocabulary of 32,000, on text-like data: phrases that recur, drawn by Zipf's
law. The one has sparsemax attention and `linear_sparsemax_loss`, the other softmax attention and
cross-entropy; all else is the same, the seed too. The figure goes to build/benchmarks/transformer.png. The
losses are different functions, so it shows the share of tokens that are guessed right, as well.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FIGURE = Path(__file__).resolve().parent.parent / "build" / "benchmarks" / "transformer.png"


@dataclass(frozen=True)
class Settings:
    layers: int = 2
    features: int = 128
    heads: int = 4
    length: int = 512
    vocabulary: int = 32000
    batch: int = 2
    rate: float = 1e-3


class Layer(nn.Module):
    def __init__(self, settings: Settings, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.heads, self.attend = settings.heads, attend
        self.before = nn.LayerNorm(settings.features)
        self.project = nn.Linear(settings.features, 3 * settings.features)
        self.mix = nn.Linear(settings.features, settings.features)
        self.between = nn.LayerNorm(settings.features)
        wide = 4 * settings.features
        self.dense = nn.Sequential(
            nn.Linear(settings.features, wide), nn.GELU(), nn.Linear(wide, settings.features)
        )

    def heads_of(self, x: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value."""
        parts = self.project(self.before(x)).chunk(3, -1)
        return tuple(part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attend(*self.heads_of(x), is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        return x + self.dense(self.between(x))


class Model(nn.Module):
    """Of the next token. The loss is given, as it may be one with the last layer."""

    def __init__(
        self, settings: Settings, attend: Callable[..., Tensor], loss: Callable[..., Tensor]
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(settings.vocabulary, settings.features)
        angle = torch.arange(settings.length)[:, None] * 1e4 ** -torch.linspace(0, 1, settings.features // 2)
        self.register_buffer("places", torch.cat([angle.sin(), angle.cos()], -1) / 2)
        self.layers = nn.Sequential(*(Layer(settings, attend) for _ in range(settings.layers)))
        self.after = nn.LayerNorm(settings.features)
        self.output = nn.Linear(settings.features, settings.vocabulary, bias=False)
        self.loss = loss

    def embed(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.places[: tokens.shape[-1]]

    def features(self, tokens: Tensor) -> Tensor:
        return self.after(self.layers(self.embed(tokens)))

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        return self.loss(self.features(tokens).flatten(0, 1), self.output.weight, following.flatten())


def softmax_model(settings: Settings) -> Model:
    def loss(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(input, weight), target)

    return Model(settings, F.scaled_dot_product_attention, loss)


def sparsemax_model(settings: Settings) -> Model:
    from zerotail.torch import linear_sparsemax_loss, sparsemax_attention

    return Model(settings, sparsemax_attention, linear_sparsemax_loss)


def text(settings: Settings, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of tokens and of those that follow: phrases that recur, drawn by Zipf's law."""
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int, count: int) -> Tensor:
        odds = 1 / torch.arange(1, n + 1, dtype=torch.float64)
        return torch.multinomial(odds, count, replacement=True, generator=generator)

    phrases = draw(settings.vocabulary, 500 * 8).view(500, 8)
    while True:
        drawn = phrases[draw(500, settings.batch * (settings.length // 8 + 1))]
        rows = drawn.flatten().view(settings.batch, -1)
        yield rows[:, : settings.length], rows[:, 1 : settings.length + 1]


@dataclass
class Training:
    """One model, its optimizer and what was seen of them."""

    model: Model
    settings: Settings
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.settings.rate, fused=True)

    def step(self, tokens: Tensor, following: Tensor) -> float:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.model(tokens, following)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())
        return self.losses[-1]

    def guess(self, tokens: Tensor, following: Tensor) -> None:
        """The share of the first sequence's tokens that lead all others."""
        with torch.no_grad():
            guessed = self.model.output(self.model.features(tokens[:1])).argmax(-1)
        self.right.append((guessed == following[:1]).float().mean().item())


def trainings(settings: Settings) -> dict[str, Training]:
    """Both, from the same start."""
    made = {}
    for name, make in (("sparsemax", sparsemax_model), ("softmax", softmax_model)):
        torch.manual_seed(0)
        made[name] = Training(make(settings), settings)
    return made


def train(settings: Settings, steps: int) -> dict[str, Training]:
    """Side by side, on the same batches, the one that begins in turn."""
    both = trainings(settings)
    for i, batch in zip(range(steps), text(settings), strict=False):
        for name in sorted(both, reverse=bool(i % 2)):
            both[name].step(*batch)
            if i % 5 == 0:
                both[name].guess(*batch)
    return both


def draw(both: dict[str, Training], path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, 3)
        colours = {"sparsemax": "#D55E00", "softmax": "#0072B2"}
        titles = {"sparsemax": "sparsemax loss", "softmax": "cross-entropy"}
        for axes, (name, training) in zip(panels, both.items(), strict=False):
            axes.plot(training.losses, color=colours[name])
            axes.set(title=titles[name], xlabel="step")
        for name, training in both.items():
            steps = range(0, len(training.losses), 5)
            panels[2].plot(steps, training.right, color=colours[name], label=name)
        panels[2].set(title="next tokens guessed right", xlabel="step")
        panels[2].legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    chosen = parser.parse_args(argv)
    torch.set_num_threads(chosen.threads)
    both = train(Settings(), chosen.steps)
    medians = {name: statistics.median(training.seconds[1:]) for name, training in both.items()}
    for name, training in both.items():
        first, last = training.losses[0], statistics.mean(training.losses[-5:])
        print(
            f"{name:9} {medians[name] * 1e3:6.0f} ms a step, loss {first:.3f} to {last:.3f}, "
            f"{training.right[-1]:.0%} guessed right"
        )
    print(f"sparsemax / softmax: {medians['sparsemax'] / medians['softmax']:.3f} [{chosen.threads} threads]")
    draw(both, chosen.figure)
    print(f"written: {chosen.figure}")


if __name__ == "__main__":
    main()
