"""Cross-validation over a path of alphas, and over decision rules that need no fit of their own."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval

from . import _metrics, _targets

Array = NDArray[Any]
Rules = Sequence[dict[str, Any]]

CONSTRAINTS: dict[str, Any] = {
    "alphas": ["array-like", None],
    "scoring": [str, callable, list, tuple, dict, None],
    "refit": [str, None],
    "cv": ["cv_object", Interval(Integral, 2, None, closed="left")],
    "n_jobs": [Integral, None],
}
# The parameters that a search hands to the estimator that it chooses.
SHARED = ("fit_intercept", "solver", "max_iter", "tol", "block_rows")


def grid(name: str, values: Any, requirement: str, accepts: Callable[[Array], Array]) -> Sequence[Any]:
    """Candidates, checked."""
    if len(np.shape(values)) != 1 or not len(values):
        raise ValueError(f"{name} must be a list of at least one number; got {values!r}")
    if list(values) == [None]:
        return [None]
    array = np.asarray(values, dtype=float)
    wrong = ~(accepts(array) & np.isfinite(array))
    if wrong.any():
        raise ValueError(f"{name} must be {requirement}; got {array[wrong][0]}")
    return array.tolist()


def search(
    owner: Any,
    plain: Any,
    X: Any,
    y: Any,
    targets: _targets.Targets,
    weight: Array | None,
    score_weight: Array | None,
    rules: Rules,
    default: str,
) -> None:
    """Fit `owner`: its chosen parameters, its results, and the attributes of `plain` fitted with them.

    `weight` counts in fits, `score_weight` in scores.
    """
    alphas = owner.paper_alphas if owner.alphas is None else owner.alphas
    alphas = grid("alphas", alphas, "at least 0", lambda v: v >= 0)
    scorers, several = _scorers(owner.scoring, default)
    decides = _decides(owner.refit, scorers, several)
    splitter = check_cv(owner.cv, y, classifier=is_classifier(owner))
    folds = [_counted(fold, targets) for fold in splitter.split(X, y)]

    order = np.argsort(alphas, kind="stable")[::-1]
    paths = [order] if owner.warm_start else [order[i : i + 1] for i in range(len(order))]
    jobs = [(fold, path) for path in paths for fold in range(len(folds))]
    done = run(
        [
            joblib.delayed(fit_path)(
                plain,
                X,
                y,
                targets,
                weight,
                score_weight,
                folds[fold],
                [alphas[i] for i in path],
                rules,
                scorers,
            )
            for fold, path in jobs
        ],
        owner.n_jobs,
        owner.verbose,
        type(owner).__name__,
    )
    shape = (len(alphas), len(rules), len(folds))
    scores = {name: np.empty(shape) for name in scorers}
    times, iterations = np.empty((len(alphas), len(folds))), np.empty((len(alphas), len(folds)))
    for (fold, path), results in zip(jobs, done, strict=True):
        for i, (found, seconds, n_iter) in zip(path, results, strict=True):
            times[i, fold], iterations[i, fold] = seconds, n_iter
            for name in scorers:
                scores[name][i, :, fold] = found[name]

    candidates = [{"alpha": float(alpha), **rule} for alpha in alphas for rule in rules]
    owner.cv_results_ = _results(candidates, scores, several, times, iterations, len(rules))
    owner.n_splits_ = len(folds)
    owner.scorer_ = scorers if several else scorers[decides]
    means = scores[decides].mean(axis=2).ravel()
    if np.isnan(means).all():
        raise ValueError(f"scoring must give numbers; got NaN for every candidate from {decides!r}")
    owner.best_index_ = int(np.nanargmax(means))
    owner.best_score_ = float(means[owner.best_index_])
    owner.best_params_ = candidates[owner.best_index_]
    best = plain.set_params(**owner.best_params_)
    settings = best._settings(best.alpha)
    best._keep(best._solve(X, targets, weight, None, settings), X.dtype, settings)
    best.n_features_in_ = owner.n_features_in_
    if hasattr(owner, "feature_names_in_"):
        best.feature_names_in_ = owner.feature_names_in_
    owner.best_estimator_ = best
    owner.alpha_, owner.coef_, owner.intercept_ = best.alpha, best.coef_, best.intercept_
    owner.n_iter_ = best.n_iter_


def fit_path(
    plain: Any,
    X: Any,
    y: Any,
    targets: _targets.Targets,
    weight: Array | None,
    score_weight: Array | None,
    fold: tuple[Array, Array],
    alphas: Sequence[float],
    rules: Rules,
    scorers: dict[str, Any],
) -> list[tuple[dict[str, list[float]], float, int]]:
    """For each alpha: each rule's scores on the validation rows; the seconds of the fit; its iterations."""
    train, held_out = fold
    X_train, X_held, y_held = X[train], X[held_out], y[held_out]
    part = _targets.Targets(targets.values[train], targets.classes, targets.cols, targets.multilabel)
    weight = None if weight is None else weight[train]
    options = {} if score_weight is None else {"sample_weight": score_weight[held_out]}
    start, results = None, []
    for alpha in alphas:
        began = time.perf_counter()
        solution = plain._solve(X_train, part, weight, start, plain._settings(alpha))
        seconds = time.perf_counter() - began
        start = solution.weights, solution.bias
        fitted = clone(plain).set_params(alpha=alpha)
        fitted.__dict__.update({k: v for k, v in vars(plain).items() if k not in fitted.__dict__})
        fitted.coef_ = solution.weights.T.astype(X.dtype)
        fitted.intercept_, fitted.n_iter_ = solution.bias.astype(X.dtype), solution.n_iter
        fitted.n_features_in_ = X.shape[1]
        judged = _with_scores(fitted, fitted._scores(X_held))
        found: dict[str, list[float]] = {name: [] for name in scorers}
        for rule in rules:
            judged.set_params(**rule)
            for name, scorer in scorers.items():
                found[name].append(float(scorer(judged, X_held, y_held, **_taken(scorer, options))))
        results.append((found, seconds, solution.n_iter))
    return results


def _with_scores(fitted: Any, scores: Array) -> Any:
    """The estimator, with its scores on the held-out rows computed once for all rules and scorers."""
    plain = type(fitted)
    judged = fitted.__class__.__new__(_judged(plain))
    judged.__dict__.update(vars(fitted), _known=scores)
    return judged


def _judged(plain: type) -> type:
    return type(plain.__name__, (plain,), {"_scores": lambda self, X: self._known.copy()})


def _taken(scorer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options, if the scorer takes weights: scikit-learn's own do, a user's function may not."""
    if not options:
        return options
    parameters = inspect.signature(scorer).parameters.values()
    takes = any(p.kind is p.VAR_KEYWORD or p.name == "sample_weight" for p in parameters)
    return options if takes else {}


def run(jobs: list[Any], n_jobs: int | None, verbose: int, title: str) -> list[Any]:
    """The results of the jobs, in order."""
    if not verbose:
        return list(joblib.Parallel(n_jobs=n_jobs)(jobs))
    from tqdm.auto import tqdm

    with tqdm(total=len(jobs), desc=title, unit="fit") as bar:
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
        results = []
        for result in parallel(jobs):
            results.append(result)
            bar.update()
    return results


def _counted(fold: tuple[Any, Any], targets: _targets.Targets) -> tuple[Array, Array]:
    """A fold's rows of training and validation, without those that have no label."""
    train, held_out = (_indices(part, len(targets.values)) for part in fold)
    labelled = targets.labelled
    if labelled is not None:
        train, held_out = train[np.isin(train, labelled)], held_out[np.isin(held_out, labelled)]
    if not len(train) or not len(held_out):
        raise ValueError("cv must leave rows with labels to train and to validate on; got a part without")
    return train, held_out


def _indices(part: Any, rows: int) -> Array:
    """Rows by their numbers; masks are a choice of theirs."""
    part = np.asarray(part)
    if part.dtype != bool:
        return part
    if part.shape != (rows,):
        raise ValueError(f"cv must have masks of shape ({rows},), as y has {rows} rows; got {part.shape}")
    return np.flatnonzero(part)


def _scorers(scoring: Any, default: str) -> tuple[dict[str, Any], bool]:
    """Scorers by name, and whether several were asked for."""
    if scoring is None:
        scoring = default
    if isinstance(scoring, str) or callable(scoring):
        return {"score": _metrics.get_scorer(scoring)}, False
    named: Iterable[tuple[str, Any]] = (
        scoring.items() if isinstance(scoring, dict) else zip(scoring, scoring, strict=True)
    )
    found = {name: _metrics.get_scorer(scorer) for name, scorer in named}
    if not found or not all(isinstance(name, str) for name in found):
        raise ValueError(f"scoring must name at least one scorer; got {scoring!r}")
    return found, True


def _decides(refit: str | None, scorers: dict[str, Any], several: bool) -> str:
    if not several:
        if refit is not None:
            raise ValueError(f"refit must be None where there is one score; got {refit!r}")
        return "score"
    if refit not in scorers:
        raise ValueError(f"refit must be one of {sorted(scorers)}, the scores; got {refit!r}")
    return refit


def _results(
    candidates: list[dict[str, Any]],
    scores: dict[str, Array],
    several: bool,
    times: Array,
    iterations: Array,
    rules: int,
) -> dict[str, Any]:
    """GridSearchCV's table."""
    table: dict[str, Any] = {"params": candidates}
    for name in candidates[0]:
        table[f"param_{name}"] = np.array([c[name] for c in candidates])
    table["mean_fit_time"] = times.mean(axis=1).repeat(rules)
    table["mean_n_iter"] = iterations.mean(axis=1).repeat(rules)
    for name, values in scores.items():
        flat = values.reshape(len(candidates), -1)
        for fold in range(flat.shape[1]):
            table[f"split{fold}_test_{name}"] = flat[:, fold]
        mean = flat.mean(axis=1)
        table[f"mean_test_{name}"], table[f"std_test_{name}"] = mean, flat.std(axis=1)
        table[f"rank_test_{name}"] = rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(
            np.int32
        )
    return table
