"""Table 3: natural language inference on SNLI, without attention and with three kinds of it.

Command: ``python -m paper tab3``. It needs PyTorch, SNLI and GloVe. The same command resumes it: what has
been trained is kept, and what was killed goes on from its checkpoint, to the same bits.

What to expect: the two attentions that sum to one are above the system without, and within a point of each
other. All are below the paper's where the training pairs are a part of SNLI's.

Deviations: words are lower-cased runs of letters and digits, without punctuation; batches hold pairs of
similar lengths (pools of 400 batches are sorted); a training ends after 25 epochs, or 3 that bring nothing on
dev. Dropout is that of the projected words and of u. Where the text is silent, as in the authors' code:
batches of 25, Glorot's uniform weights (times 4 for gates), biases that start at zero and are not
regularised, one vector for all words that have none, and one as the first word of the hypothesis; these two
are learnt. `--set gru=torch` takes torch.nn.GRU, whose reset gate comes after the product; the default is
the text's unit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from paper._report import Beside, Page, Table
from paper._run import Cell, published

TITLE = "Table 3: natural language inference, four systems"
IN_ALL = False
NAMES = {
    "none": "NoAttention",
    "logistic": "LogisticAttention",
    "soft": "SoftAttention",
    "sparse": "SparseAttention",
}


@dataclass(frozen=True)
class Settings:
    systems: Sequence[str] = tuple(NAMES)
    seeds: int = 2
    gru: str = "text"  # Eqs. 28-31; "torch" for torch.nn.GRU, which applies the reset gate after the product
    dim: int = 100  # D
    batch: int = 25
    epochs: int = 25  # at most
    patience: int = 3  # epochs that bring nothing on dev, after which it ends
    l2: float = 1e-4  # what tuning finds
    tuned: Sequence[float] = (0.0, 1e-4, 3e-4, 1e-3)  # on the sparse system with the first seed
    tuning_epochs: int = 3
    pairs: int = 0  # of each part, the first ones; 0: all


SMOKE = Settings(seeds=1, dim=7, batch=20, epochs=2, tuned=(0.0, 1e-3), tuning_epochs=1, pairs=100)


def cells(settings: Settings) -> list[Cell]:
    """First the tuning, then the runs, one seed after the other."""
    return tuning(settings) + runs(settings)


def tuning(settings: Settings) -> list[Cell]:
    epochs = settings.tuning_epochs
    return [
        _cell(f"l2 {l2:g}", settings, system="sparse", l2=l2, epochs=epochs, patience=epochs)
        for l2 in settings.tuned
    ]


def runs(settings: Settings) -> list[Cell]:
    kept = {"l2": settings.l2, "epochs": settings.epochs, "patience": settings.patience}
    return [
        _cell(f"{system} {seed}", settings, system=system, seed=seed, **kept)
        for seed in range(settings.seeds)
        for system in settings.systems
    ]


def _cell(name: str, settings: Settings, **run: Any) -> Cell:
    import zerotail.torch  # noqa: F401 - says what to install where it is missing
    from paper import _snli
    from paper._train import Run

    common = {"gru": settings.gru, "dim": settings.dim, "batch": settings.batch}
    complete = asdict(Run(**common, **run, data=_snli.load(settings.pairs).digest))
    examples = [
        [premise.replace("*", ""), hypothesis] for premise, hypothesis, _ in published("tab4")["pairs"]
    ]
    return Cell(name, trained, {"run": complete, "pairs": settings.pairs, "examples": examples})


def trained(run: dict[str, Any], pairs: int, examples: list[list[str]], scratch: Path) -> dict[str, Any]:
    """Train one system; what it achieves at its best epoch, and its weights and labels for the examples."""
    from paper import _progress, _snli
    from paper._pairs import Pairs
    from paper._train import Run, evaluate, train

    settings = Run(**run)
    data = _snli.load(pairs)
    if data.digest != settings.data:
        raise ValueError(f"data must not change during a run; got {data.digest} for {settings.data}")
    with _progress.bar(f"{settings.system}, seed {settings.seed}, l2 {settings.l2:g}") as progress:
        outcome = train(
            settings,
            data.vectors,
            data.parts["train"],
            data.parts["dev"],
            checkpoint=scratch / "checkpoint.pt",
            progress=progress,
        )
    result: dict[str, Any] = {"best_epoch": outcome.best_epoch, "history": outcome.history}
    for part in ("dev", "test"):
        found = evaluate(outcome.network, data.parts[part])
        result[part] = {"accuracy": found.accuracy, "selected": found.selected, "confusion": found.confusion}
    shown = Pairs.of(*zip(*examples, strict=True), [0] * len(examples), data.known)
    found = evaluate(outcome.network, shown)
    result["examples"] = {"predicted": found.predicted, "weights": found.weights}
    return result


def render(settings: Settings, results: dict[str, Any], page: Page) -> None:
    rows = []
    for system in settings.systems:
        of_seeds = [results[f"{system} {seed}"] for seed in range(settings.seeds)]
        accuracies = [[run[part]["accuracy"] for run in of_seeds] for part in ("dev", "test")]
        theirs = page.published[system]
        epochs = [epoch["seconds"] / 60 for run in of_seeds for epoch in run["history"]]
        rows.append(
            [
                NAMES[system],
                *(Beside(mean(ours), paper) for ours, paper in zip(accuracies, theirs, strict=True)),
                *(" ".join(f"{value:.2f}" for value in ours) for ours in accuracies),
                " ".join(f"{run['best_epoch']}/{len(run['history'])}" for run in of_seeds),
                mean(epochs),
                None if system == "none" else mean(run["dev"]["selected"] for run in of_seeds),
            ]
        )
    columns = [
        "System",
        "Dev",
        "Test",
        "Dev, by seed",
        "Test, by seed",
        "Best epoch",
        "Minutes/epoch",
        "Selected, %",
    ]
    page.table(
        "tab3",
        Table(
            columns, rows, f"Accuracy in percent; seeds: {settings.seeds}, of which Dev and Test are the mean"
        ),
    )
    page.text(
        "Minutes are processor time of one core; Selected is the share of dev's premise words whose "
        "weight is not 0. Where the training pairs are a part of SNLI's, every system is below the paper's: "
        "order and distance are what can be compared."
    )
    if {"none", "soft", "sparse"} <= set(settings.systems):
        page.text(_order(settings, rows))
    best = max(settings.tuned, key=lambda l2: results[f"l2 {l2:g}"]["dev"]["accuracy"])
    page.table(
        "tab3_l2",
        Table(
            ["L2", "Dev", "Best epoch"],
            [
                [f"{l2:g}", (run := results[f"l2 {l2:g}"])["dev"]["accuracy"], run["best_epoch"]]
                for l2 in settings.tuned
            ],
            f"Tuning on SparseAttention, one seed, {settings.tuning_epochs} epochs",
        ),
    )
    chosen = "is" if best == settings.l2 else "is not"
    page.text(
        f"The best is {best:g}, which {chosen} what the systems above were trained with, {settings.l2:g}."
    )


def _order(settings: Settings, rows: list[list[Any]]) -> str:
    """What the paper finds, and what we do."""
    test = {system: row[2].ours for system, row in zip(settings.systems, rows, strict=True)}
    found = []
    for system in ("soft", "sparse"):
        lead = test[system] - test["none"]
        found.append(f"{NAMES[system]} is {abs(lead):.2f} points {'above' if lead > 0 else 'below'}")
    return (
        f"On test, against NoAttention, {' and '.join(found)}; SparseAttention less SoftAttention is "
        f"{test['sparse'] - test['soft']:+.2f}."
    )
