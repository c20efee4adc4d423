"""Table 4: the words of four premises that attention selects.

Command: ``python -m paper tab4``. It shows what ``python -m paper tab3`` keeps, or trains the same systems.

What to expect: some words of weight above zero for sparsemax, all of them for softmax and the sigmoid.

Deviations: those of table 3. The words that are selected depend on the seed.
"""

import html
from statistics import mean
from typing import Any

from paper import tab3
from paper._report import Page, Table
from paper._run import Cell
from paper.tab3 import NAMES, SMOKE, Settings
from zerotail import viz

__all__ = ["SMOKE", "Settings"]
TITLE = "Table 4: the words that attention selects"
IN_ALL = False
CACHE = "tab3"
LABELS = ("entailment", "neutral", "contradiction")


def cells(settings: Settings) -> list[Cell]:
    return tab3.runs(settings)


def _marks(marked: str) -> list[float]:
    """1 for each word that the paper marks."""
    return [float("*" in word) for word in marked.split()]


def tokens(marked: str) -> list[str]:
    """The words of a premise, as they are written."""
    from paper._pairs import written

    return written(marked)


def render(settings: Settings, results: dict[str, Any], page: Page) -> None:
    attentive = [system for system in settings.systems if system != "none"]
    rows = []
    for number, (marked, hypothesis, label) in enumerate(page.published["pairs"]):
        words = tokens(marked)
        theirs = [word for word, mark in zip(words, _marks(marked), strict=True) if mark]
        page.markup(f"<h3>{html.escape(hypothesis)} <small>[{label}]</small></h3>")
        page.markup(viz.attention(words, [_marks(marked)], ["The paper"]).html())
        for system in attentive:
            weights, names = [], []
            for seed in range(settings.seeds):
                run = results[f"{system} {seed}"]["examples"]
                weights.append(run["weights"][number])
                names.append(f"{NAMES[system]}, seed {seed}: {LABELS[run['predicted'][number]]}")
            page.markup(viz.attention(words, weights, names).html())
            if system == "sparse":
                for seed, row in enumerate(weights):
                    ours = [word for word, weight in zip(words, row, strict=True) if weight]
                    told = names[seed].rpartition(": ")[2]
                    rows.append([hypothesis, label, " ".join(theirs), seed, told, " ".join(ours)])
    columns = ["Hypothesis", "Label", "Paper selects", "Seed", "We say", "We select"]
    page.table("tab4", Table(columns, rows, "Words of the premise that SparseAttention selects"))
    missing = _without_vector(settings, [marked for marked, _, _ in page.published["pairs"]])
    if missing:
        page.text(
            f"Words of these premises without a vector, all the same to every system: {', '.join(missing)}."
        )
    seeds = range(settings.seeds)
    shares = []
    for system in attentive:
        runs = [results[f"{system} {seed}"] for seed in seeds]
        shares.append(
            [NAMES[system], *(mean(run[part]["selected"] for run in runs) for part in ("dev", "test"))]
        )
    caption = "Premise words whose weight is not 0, percent"
    page.table("tab4_selected", Table(["System", "Dev", "Test"], shares, caption))


def _without_vector(settings: Settings, premises: list[str]) -> list[str]:
    from paper import _snli

    known = _snli.load(settings.pairs).known
    words = dict.fromkeys(word for premise in premises for word in tokens(premise))
    return [word for word in words if word.lower() not in known]
