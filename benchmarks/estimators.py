"""The sparsemax classifier against scikit-learn's LogisticRegression: evaluations, optimum, memory.

    python -m benchmarks.estimators                  # digits, and RCV1, which ZEROTAIL_DATA must have
    python -m benchmarks.estimators digits --rounds 9

Both use SciPy's L-BFGS, with the same penalty and the same limit of iterations, in one process, in turns.
Each call of each objective is timed from outside, and so is the first one that is within 1e-6 of the
optimum: absolutely, and relative to its value.
"""

from __future__ import annotations

import argparse
import bz2
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import scipy.optimize
from sklearn.datasets import load_digits, load_svmlight_file
from sklearn.linear_model import LogisticRegression

from zerotail.sklearn import SparsemaxClassifier

NEAR = 1e-6
# The targets of the figures that have one: ours over LogisticRegression's.
TARGETS = {"digits": 1.0, "rcv1": 0.6}


def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def rcv1() -> tuple[Any, Any]:
    """The first label of each document."""
    path = Path(os.environ.get("ZEROTAIL_DATA", "data"), "rcv1", "rcv1_topics_subset_train.svm.bz2")
    with bz2.open(path) as file:
        X, labels = load_svmlight_file(file, n_features=47236, multilabel=True, zero_based=False)
    first = np.array([label[0] if label else -1 for label in labels])
    return X[first >= 0], first[first >= 0]


class Recorder:
    """SciPy's minimize, that notes the end, the value and the seconds of each evaluation."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, float]] = []
        self.start = time.perf_counter()
        self.minimize = scipy.optimize.minimize

    def __call__(self, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def timed(*inner: Any) -> Any:
            begin = time.perf_counter()
            result = fun(*inner)
            end = time.perf_counter()
            self.calls.append((end - self.start, float(result[0]), end - begin))
            return result

        return self.minimize(timed, *args, **options)


def fit(model: Any, X: Any, y: Any) -> list[tuple[float, float, float]]:
    recorder = Recorder()
    with mock.patch("scipy.optimize.minimize", recorder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return recorder.calls


def models(alpha: float, n: int, max_iter: int) -> dict[str, Any]:
    return {
        "ours": SparsemaxClassifier(alpha=alpha, max_iter=max_iter, tol=1e-13),
        "theirs": LogisticRegression(C=1 / (alpha * n), max_iter=max_iter, tol=1e-13),
    }


def peak(model: Any, X: Any, y: Any) -> int:
    tracemalloc.start()
    fit(model, X, y)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def run(name: str, alpha: float, limit: int, rounds: int) -> None:
    X, y = {"digits": digits, "rcv1": rcv1}[name]()
    optimum, iterations = {}, {}
    for who, model in models(alpha, X.shape[0], limit).items():
        calls = fit(model, X, y)
        optimum[who] = min(value for _, value, _ in calls)
        iterations[who] = int(np.max(model.n_iter_))
        right = f"{model.score(X, y):.4f} right"
        print(f"{name}: {who} {optimum[who]:.8f} after {iterations[who]} iterations, {right}", flush=True)
    evaluation: dict[str, list[float]] = {"ours": [], "theirs": []}
    reached: dict[str, dict[str, list[float]]] = {
        kind: {"ours": [], "theirs": []} for kind in ("absolute", "relative")
    }
    for turn in range(rounds):
        order = sorted(optimum) if turn % 2 else sorted(optimum, reverse=True)
        for who in order:
            calls = fit(models(alpha, X.shape[0], limit)[who], X, y)
            evaluation[who].append(median(seconds for _, _, seconds in calls))
            for kind, unit in (("absolute", 1.0), ("relative", abs(optimum[who]))):
                near = [end for end, value, _ in calls if value <= optimum[who] + NEAR * unit]
                reached[kind][who].append(near[0])
    memory = {who: peak(model, X, y) for who, model in models(alpha, X.shape[0], 12).items()}

    def line(what: str, ours: float, theirs: float, unit: str) -> None:
        verdict = "" if what == "memory" else f"  target {TARGETS[name]}"
        print(f"{name}: {what:28} {ours:10.4g} {unit} / {theirs:10.4g} {unit} = {ours / theirs:.2f}{verdict}")

    line("an evaluation", median(evaluation["ours"]), median(evaluation["theirs"]), "s")
    for kind, times in reached.items():
        line(f"to {NEAR:g} of the optimum, {kind}", median(times["ours"]), median(times["theirs"]), "s")
    line("memory", memory["ours"] / 2**20, memory["theirs"] / 2**20, "MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", metavar="NAME", help="digits, rcv1 (default: both)")
    parser.add_argument("--alpha", type=float, default=1e-4)
    parser.add_argument("--limit", type=int, help="iterations; default: 2000 for digits, 300 for rcv1")
    parser.add_argument("--rounds", type=int, help="default: 7 for digits, 1 for rcv1")
    options = parser.parse_args()
    names = options.data or ["digits", "rcv1"]
    for name in names:
        if name not in {"digits", "rcv1"}:
            parser.error(f"NAME must be digits or rcv1; got {name}")
    for name in names:
        small = name == "digits"
        run(
            name,
            options.alpha,
            options.limit or (2000 if small else 300),
            options.rounds or (7 if small else 1),
        )


if __name__ == "__main__":
    main()
