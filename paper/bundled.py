"""A table of our own: three losses on the data that scikit-learn brings.

Command: ``python -m paper bundled``, or with others ``python -m paper demo``. It takes seconds, and downloads
nothing.

What to expect: the three losses have about the same accuracy, as in the paper's table 2; sparsemax leaves
most classes without any probability.

The data have one label an example. A fifth of them, drawn at random, is the test part; features are
standardised; alpha is chosen by 5-fold cross-validation on the rest.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from paper._report import Page, Table
from paper._run import Cell
from zerotail.sklearn import SparsemaxClassifierCV

TITLE = "Three losses on the data that scikit-learn brings"
LOSSES = ("logistic", "softmax", "sparsemax")
LOADERS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


@dataclass(frozen=True)
class Settings:
    alphas: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)
    repeats: int = 3
    seed: int = 0


SMOKE = Settings(alphas=(1e-2,), repeats=1)


def measure(dataset: str, loss: str, alphas: list[float], seed: list[int]) -> dict[str, float]:
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = LOADERS[dataset](return_X_y=True)
    state = int(np.random.default_rng(seed).integers(2**31))
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=state)
    scaler = StandardScaler().fit(X)
    model = SparsemaxClassifierCV(loss, alphas=alphas).fit(scaler.transform(X), y)
    p = model.predict_proba(scaler.transform(X_test))
    return {
        "accuracy": 100 * model.score(scaler.transform(X_test), y_test),
        "alive": float((p > 0).sum(axis=1).mean()),
        "classes": p.shape[1],
        "alpha": model.alpha_,
    }


def cells(settings: Settings) -> list[Cell]:
    return [
        Cell(
            f"{dataset}, {loss}, {i}",
            measure,
            {"dataset": dataset, "loss": loss, "alphas": list(settings.alphas), "seed": [settings.seed, i]},
        )
        for dataset in LOADERS
        for loss in LOSSES
        for i in range(settings.repeats)
    ]


def render(settings: Settings, results: dict[str, Any], page: Page) -> None:
    rows: list[list[Any]] = []
    for dataset in LOADERS:
        found = {
            loss: [results[f"{dataset}, {loss}, {i}"] for i in range(settings.repeats)] for loss in LOSSES
        }
        means = {
            loss: {key: float(np.mean([one[key] for one in runs])) for key in runs[0]}
            for loss, runs in found.items()
        }
        rows.append(
            [dataset, round(means["sparsemax"]["classes"])]
            + [means[loss]["accuracy"] for loss in LOSSES]
            + [means[loss]["alive"] for loss in LOSSES]
        )
    page.table(
        "bundled",
        Table(
            ["Data", "Classes", *(f"{loss} %" for loss in LOSSES), *(f"{loss} alive" for loss in LOSSES)],
            rows,
            f"Accuracy in %, and how many classes have a probability; means of {settings.repeats} splits.",
        ),
    )
