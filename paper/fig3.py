"""Figure 3: estimates of label proportions, by the softmax and the sparsemax loss (section 4.1).

Command: ``python -m paper fig3``. The README of this folder has the minutes. Nothing is downloaded.

What to expect: for documents of 200 words the two losses are close; from 400 on sparsemax has the smaller
mean squared error and Jensen-Shannon divergence, because it finds which labels a document has: the precision
of its support grows, where softmax gives every label something. A second figure is made as the authors' code
made theirs: cross-validation at the best alpha, mean and deviation over the folds, the errors divided by K.

Deviations: the text does not give the mean number of labels, the priors of labels and words or the limit of
iterations; they are the code's: Poisson(1), uniform numbers that are normalised, 100. alpha is chosen for
each measure by itself, as in the code. Every (K, mixture, length, draw) has a new draw of everything.
"""

import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from paper._report import COLORS, Page, Table
from paper._run import Cell
from zerotail.datasets import make_documents
from zerotail.sklearn import ProportionRegressor, ProportionRegressorCV, metrics

TITLE = "Figure 3: label proportions, estimated"
LOSSES = ("softmax", "sparsemax")
MIXTURES = ("uniform", "random")
MEASURES = {"mse": metrics.squared_error, "js": metrics.jensen_shannon}
NAMES = {"mse": "Mean squared error", "js": "Jensen-Shannon divergence"}
SCORING = {"mse": "neg_squared_error", "js": "neg_jensen_shannon"}


@dataclass(frozen=True)
class Settings:
    labels: tuple[int, ...] = (10, 50)
    lengths: tuple[int, ...] = tuple(range(200, 2001, 200))
    train: int = 1200
    test: int = 1000
    draws: int = 3
    alphas: tuple[float, ...] = tuple(10.0**j for j in range(-9, 1))
    folds: int = 5
    max_iter: int = 100
    tol: float = 1e-8
    seed: int = 0
    dpi: int = 150


SMOKE = Settings(labels=(5,), lengths=(200, 1000), train=60, test=40, draws=1, alphas=(1e-3, 1e-1), dpi=40)
DEMO = Settings(
    labels=(10,), lengths=(200, 400, 800, 1600), train=600, test=500, draws=1, alphas=(1e-4, 1e-3, 1e-2)
)


def estimate(
    labels: int, mixture: str, variant: str, length: int, draw: int, settings: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Both losses on one draw of documents: cross-validation and test, for each measure at its best alpha."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the limit of iterations is the protocol's
    seed = [settings["seed"], labels, MIXTURES.index(mixture), length, draw, variant == "code"]
    documents = make_documents(
        settings["train"],
        settings["test"],
        n_labels=labels,
        length=length,
        mixture=mixture,
        variant=variant,
        random_state=np.random.default_rng(seed),
    )
    scaler = StandardScaler().fit(documents.X[documents.train])
    X, X_test = (scaler.transform(documents.X[part]) for part in (documents.train, documents.test))
    Y, Y_test = documents.Y[documents.train], documents.Y[documents.test]
    shared = {"max_iter": settings["max_iter"], "tol": settings["tol"]}
    found = {}
    for loss in LOSSES:
        search = ProportionRegressorCV(
            loss,
            alphas=settings["alphas"],
            scoring=SCORING,
            refit="mse",
            cv=settings["folds"],
            warm_start=False,
            **shared,
        ).fit(X, Y)
        table = search.cv_results_
        found[loss] = {}
        for measure, compute in MEASURES.items():
            best = int(np.argmax(table[f"mean_test_{measure}"]))
            alpha = table["params"][best]["alpha"]
            model = search.best_estimator_
            if alpha != model.alpha:
                model = ProportionRegressor(loss, alpha, **shared).fit(X, Y)
            p = model.predict(X_test)
            hits = ((p > 0) & (Y_test > 0)).sum()
            found[loss][measure] = {
                "alpha": alpha,
                "test": compute(Y_test, p),
                "cv": -table[f"mean_test_{measure}"][best],
                "cv_std": table[f"std_test_{measure}"][best],
                "precision": float(hits / (p > 0).sum()),
                "recall": float(hits / (Y_test > 0).sum()),
            }
    return found


def label(labels: int, mixture: str, variant: str, length: int, draw: int) -> str:
    return f"K={labels}, {mixture}, {variant}, {length}, {draw}"


def plan(settings: Settings) -> Iterable[tuple[int, str, str, int, int]]:
    for labels in sorted(settings.labels, reverse=True):  # the longest first
        for length in settings.lengths:
            for mixture in MIXTURES:
                for draw in range(settings.draws):
                    yield labels, mixture, "text", length, draw
            yield labels, "random", "code", length, 0  # uniform mixtures are the same in both


def cells(settings: Settings) -> list[Cell]:
    kept = {
        name: asdict(settings)[name]
        for name in ("train", "test", "alphas", "folds", "max_iter", "tol", "seed")
    }
    names = ("labels", "mixture", "variant", "length", "draw")
    return [
        Cell(label(*what), estimate, {**dict(zip(names, what, strict=True)), "settings": kept})
        for what in plan(settings)
    ]


Results = dict[str, dict[str, Any]]


def tested(
    results: Results, settings: Settings, labels: int, mixture: str, loss: str, measure: str, key: str
) -> np.ndarray:
    """Shape (lengths, draws)."""
    return np.array(
        [
            [results[label(labels, mixture, "text", n, d)][loss][measure][key] for d in range(settings.draws)]
            for n in settings.lengths
        ]
    )


def panels(settings: Settings, columns: list[str], title: str) -> tuple[Figure, np.ndarray]:
    fig, axes = plt.subplots(
        2, len(columns), figsize=(4.9 * len(columns), 6.6), sharex=True, layout="constrained", squeeze=False
    )
    fig.suptitle(title)
    for row, mixture in zip(axes, MIXTURES, strict=True):
        for ax, column in zip(row, columns, strict=True):
            ax.set_title(f"{column}, {mixture} mixtures", fontsize=10)
            ax.grid(color="0.88", linewidth=0.8)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("Mean number of words")
    return fig, axes


def style(loss: str, labels: int, settings: Settings) -> dict[str, Any]:
    first = labels == min(settings.labels)
    return {
        "color": COLORS[loss],
        "linestyle": "--" if first else "-",
        "marker": "o" if first else "s",
        "markersize": 4,
        "label": f"{loss}, K = {labels}",
    }


def figure_test(results: Results, settings: Settings) -> Figure:
    fig, axes = panels(settings, list(NAMES.values()), "Test documents: mean over the draws, and their range")
    for row, mixture in zip(axes, MIXTURES, strict=True):
        for ax, measure in zip(row, MEASURES, strict=True):
            for labels in settings.labels:
                for loss in LOSSES:
                    found = tested(results, settings, labels, mixture, loss, measure, "test")
                    look = style(loss, labels, settings)
                    ax.plot(settings.lengths, found.mean(axis=1), **look)
                    ax.fill_between(
                        settings.lengths,
                        found.min(axis=1),
                        found.max(axis=1),
                        color=look["color"],
                        alpha=0.15,
                        lw=0,
                    )
            ax.set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False, fontsize=9)
    return fig


def figure_cv(results: Results, settings: Settings) -> Figure:
    fig, axes = panels(
        settings,
        list(NAMES.values()),
        "As the authors' code: cross-validation, divided by K, deviation over the folds",
    )
    for row, mixture in zip(axes, MIXTURES, strict=True):
        variant = "code" if mixture == "random" else "text"
        for ax, measure in zip(row, MEASURES, strict=True):
            for labels in settings.labels:
                for loss in LOSSES:
                    found = [
                        results[label(labels, mixture, variant, n, 0)][loss][measure]
                        for n in settings.lengths
                    ]
                    ax.errorbar(
                        settings.lengths,
                        [entry["cv"] / labels for entry in found],
                        [entry["cv_std"] / labels for entry in found],
                        capsize=2,
                        **style(loss, labels, settings),
                    )
            ax.set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False, fontsize=9)
    return fig


def figure_support(results: Results, settings: Settings) -> Figure:
    fig, axes = panels(settings, ["Precision", "Recall"], "The support {p > 0} against the true labels")
    for row, mixture in zip(axes, MIXTURES, strict=True):
        for ax, key in zip(row, ("precision", "recall"), strict=True):
            for labels in settings.labels:
                for loss in LOSSES:
                    found = tested(results, settings, labels, mixture, loss, "mse", key)
                    ax.plot(settings.lengths, found.mean(axis=1), **style(loss, labels, settings))
            ax.set_ylim(0, 1.04)
    axes[1, 0].legend(frameon=False, fontsize=9)
    return fig


def render(settings: Settings, results: Results, page: Page) -> None:
    page.figure(
        "fig3",
        figure_test(results, settings),
        "Errors on the test documents, alpha chosen by cross-validation.",
        settings.dpi,
    )
    page.figure(
        "fig3-support", figure_support(results, settings), "How well the support is recovered.", settings.dpi
    )
    page.figure(
        "fig3-cv", figure_cv(results, settings), "The figure as the authors' code drew it.", settings.dpi
    )
    rows: list[list[Any]] = []
    wins: dict[bool, list[bool]] = {True: [], False: []}
    ratios: list[float] = []
    for labels in settings.labels:
        for mixture in MIXTURES:
            values = {
                (loss, measure): tested(results, settings, labels, mixture, loss, measure, "test").mean(
                    axis=1
                )
                for loss in LOSSES
                for measure in MEASURES
            }
            support = [
                tested(results, settings, labels, mixture, "sparsemax", "mse", key).mean(axis=1)
                for key in ("precision", "recall")
            ]
            for i, length in enumerate(settings.lengths):
                ahead = {m: bool(values["sparsemax", m][i] < values["softmax", m][i]) for m in MEASURES}
                wins[length >= 400].append(all(ahead.values()))
                ratios += [
                    values["softmax", m][i] / values["sparsemax", m][i] for m in MEASURES if length >= 400
                ]
                rows.append(
                    [f"K={labels}, {mixture}", length]
                    + [float(values[loss, m][i]) for m in MEASURES for loss in LOSSES]
                    + [" and ".join(m.upper() for m, better in ahead.items() if better) or "neither"]
                    + [float(part[i]) for part in support]
                )
    for long, text in ((True, "400 words and more"), (False, "fewer words")):
        count = wins[long]
        if count:
            page.text(
                f"For {text}, sparsemax has the smaller MSE and the smaller JS in {sum(count)} of "
                f"{len(count)} cells (K, mixture, length), {sum(count) / len(count):.0%}."
            )
    if ratios:
        page.text(
            f"From 400 words on, softmax's error is {min(ratios):.2f} to {max(ratios):.2f} times sparsemax's."
        )
    columns = [
        "Cell",
        "Words",
        "MSE softmax",
        "MSE sparsemax",
        "JS softmax",
        "JS sparsemax",
        "Sparsemax ahead in",
    ]
    page.table(
        "fig3",
        Table(
            [*columns, "Precision", "Recall"], rows, f"Means of the test part over {settings.draws} draws."
        ),
    )
