"""Every function of the PyTorch front end, with its exact value and derivatives, for the table of uses.

A case gives the Jacobian and the Hessian as dense arrays, from the oracle and the paper's closed forms: every
derivative that a use can ask for, of any order and in any mode, is a product of these with the vectors given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import zerotail.torch as zt
from tests import oracle

Arrays = list[np.ndarray]


class Exact(NamedTuple):
    """Of m results in n inputs, all flat and in order."""

    value: np.ndarray
    jacobian: np.ndarray
    hessian: np.ndarray


@dataclass(frozen=True)
class Case:
    name: str
    call: Callable[..., Tensor]
    """Of the inputs that may have a gradient, and of nothing else."""
    make: Callable[[np.random.Generator], Arrays]
    exact: Callable[..., Exact]
    dim: int | None
    """Along which scores are solved together."""
    curved: bool = False
    """Whether the Hessian is not 0."""

    def __str__(self) -> str:
        return self.name


def smooth(rng: np.random.Generator, shape: tuple[int, ...], dim: int = -1) -> np.ndarray:
    """Scores away from kinks, of supports of every size."""
    while True:
        z = rng.normal(0, 0.6, shape)
        rows = np.moveaxis(z, dim, -1).reshape(-1, shape[dim])
        tau = oracle.project(rows).tau()[0]
        if np.abs(rows - tau[:, None]).min() > 0.02:
            return z


def places(shape: tuple[int, ...], dim: int) -> np.ndarray:
    """Which flat entries are the rows."""
    return np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), dim, -1).reshape(-1, shape[dim])


def jacobian(p: np.ndarray) -> np.ndarray:
    """Eq. 12 of one row, through Eq. 14 on each unit vector."""
    return oracle.jvp(np.tile(p, (len(p), 1)), np.eye(len(p)))[0]


def _projection(z: np.ndarray, dim: int, mask: np.ndarray | None = None) -> Exact:
    seen = z if mask is None else np.where(mask, z, -np.inf)
    value, J = np.zeros(z.size), np.zeros((z.size, z.size))
    for at in places(z.shape, dim):
        p = oracle.project(seen.reshape(-1)[at][None]).hi[0]
        if np.isneginf(seen.reshape(-1)[at]).all():
            p = np.zeros(len(at))  # a row emptied by its mask
        value[at], J[np.ix_(at, at)] = p, jacobian(p)
    return Exact(value, J, np.zeros((z.size,) * 3))


def _tau(z: np.ndarray, dim: int) -> Exact:
    at = places(z.shape, dim)
    exact = oracle.project(z.reshape(-1)[at])
    J = np.zeros((len(at), z.size))
    for row, where, on in zip(J, at, exact.support, strict=True):
        row[where] = on / on.sum()  # Eq. 10
    return Exact(exact.tau()[0], J, np.zeros((len(at), z.size, z.size)))


def _weighted_row(z: np.ndarray, a: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """s L(z; a / s) with s = sum a, and its derivatives in (z, a): s (|p|^2 / 2 + tau) + |a|^2 / 2 s - a z.

    By Eqs. 19 and 27 the derivative of |p|^2 / 2 + tau in z is p, and that of p is Eq. 12.
    """
    K, s = len(z), a.sum()
    if s == 0:
        return 0.0, np.zeros(2 * K), np.zeros((2 * K, 2 * K))
    solved = oracle.project(z[None])
    p, J = solved.hi[0], jacobian(solved.hi[0])
    value = s * oracle.loss(z[None], (a / s)[None], solved)[0][0]
    in_a = p @ p / 2 + solved.tau()[0][0] + a / s - a @ a / (2 * s**2) - z
    mixed = p[:, None] - np.eye(K)
    in_aa = np.eye(K) / s - (a[:, None] + a) / s**2 + a @ a / s**3
    return value, np.concatenate([s * p - a, in_a]), np.block([[s * J, mixed], [mixed.T, in_aa]])


def _plain_row(z: np.ndarray, q: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """L(z; q) with its derivatives in (z, q): p - q (Eq. 27), q - z + tau, Eq. 12."""
    K = len(z)
    solved = oracle.project(z[None])
    p, J, on = solved.hi[0], jacobian(solved.hi[0]), solved.support[0]
    value = oracle.loss(z[None], q[None], solved)[0][0]
    with np.errstate(invalid="ignore"):
        in_q = q - z + solved.tau()[0][0]
    mixed = np.repeat((on / on.sum())[:, None], K, axis=1) - np.eye(K)
    return value, np.concatenate([p - q, in_q]), np.block([[J, mixed], [mixed.T, np.eye(K)]])


def loss_case(
    name: str,
    shape: tuple[int, ...] = (3, 5),
    *,
    weight: bool = False,
    smoothing: float = 0.0,
    reduction: str = "mean",
    ignored: bool = False,
    probabilities: bool = False,
    in_target: bool = False,
    module: bool = False,
) -> Case:
    """`sparsemax_loss` in one of its forms; with `in_target` of (scores, target), else of scores alone."""
    dim, rng = (1 if len(shape) > 1 else 0), np.random.default_rng(sum(map(ord, name)))
    K = shape[dim]
    at = places(shape, dim)
    rows = len(at)
    w = rng.uniform(0.5, 2, K) if weight else np.ones(K)
    labels = rng.integers(0, K, rows)
    counts = np.ones(rows, dtype=bool)
    if ignored:
        counts[rows // 2] = False
    fixed = np.moveaxis(_simplex(rng, np.moveaxis(np.empty(shape), dim, -1).shape), -1, dim)
    row_shape = tuple(n for i, n in enumerate(shape) if i != dim)

    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    if ignored:
        options["ignore_index"] = -3
    by_class = torch.from_numpy(w) if weight else None
    target = torch.from_numpy(fixed if probabilities else np.where(counts, labels, -3).reshape(row_shape))
    layer = zt.SparsemaxLoss(by_class, **options)

    def call(z: Tensor, q: Tensor | None = None) -> Tensor:
        q = target.to(z.device) if q is None else q
        if module and z.is_cpu:
            return layer(z, q)
        return zt.sparsemax_loss(z, q, None if by_class is None else by_class.to(z.device), **options)

    def make(rng: np.random.Generator) -> Arrays:
        z = smooth(rng, shape, dim)
        if not in_target:
            return [z]
        return [z, np.moveaxis(_simplex(rng, np.moveaxis(z, dim, -1).shape), -1, dim)]

    def exact(z: np.ndarray, q: np.ndarray | None = None) -> Exact:
        n = z.size
        if q is None:
            q = fixed
            if not probabilities:
                q = np.zeros(n)
                q[at[np.arange(rows), labels]] = 1
        number = (rows if probabilities else w[labels[counts]].sum()) if reduction == "mean" else 1.0
        value, J, H = np.zeros(rows), np.zeros((rows, 2 * n)), np.zeros((rows, 2 * n, 2 * n))
        for r in np.flatnonzero(counts):
            both = np.concatenate([at[r], n + at[r]])
            mixed = (1 - smoothing) * q.reshape(-1)[at[r]] + smoothing / K
            row = _weighted_row(z.reshape(-1)[at[r]], w * mixed) if weight else None
            value[r], g, h = row or _plain_row(z.reshape(-1)[at[r]], mixed)
            chain = np.concatenate([np.ones(K), (1 - smoothing) * w])
            J[r, both], H[np.ix_([r], both, both)] = chain * g, chain[:, None] * h * chain
        if reduction != "none":
            value, J, H = (x.sum(axis=0, keepdims=True) / number for x in (value, J, H))
        return Exact(value, J, H) if in_target else Exact(value, J[:, :n], H[:, :n, :n])

    return Case(name, call, make, exact, dim, curved=True)


def _partial(function: Callable[..., Tensor], options: dict[str, Any]) -> Callable[..., Tensor]:
    return lambda z, q: function(z, q, **options)


def _simplex(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Targets: proportions, half of the rows with zeros among them."""
    q = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    q[..., 0] = np.where(rng.random(shape[:-1]) < 0.5, 0, q[..., 0])
    return q / q.sum(axis=-1, keepdims=True)


def _ramp(t: np.ndarray) -> Exact:
    """Eq. 6."""
    inside = np.abs(t.reshape(-1)) < 1
    return Exact(
        np.clip((t.reshape(-1) + 1) / 2, 0, 1), np.diag(np.where(inside, 0.5, 0)), np.zeros((t.size,) * 3)
    )


def _huber(t: np.ndarray, y: np.ndarray, reduction: str) -> Exact:
    """Eq. 23 and its derivatives in (t, y), from the two-class problem with the scores (t, 0)."""
    n = t.size
    value, J, H = np.zeros(n), np.zeros((n, 2 * n)), np.zeros((n, 2 * n, 2 * n))
    for i, (s, q) in enumerate(zip(t.reshape(-1), y.reshape(-1), strict=True)):
        value[i], g, h = _plain_row(np.array([s, 0.0]), np.array([q, 1 - q]))
        to = np.array([[1, 0, 0, 0], [0, 0, 1, -1.0]])  # t moves (z_1), y moves (q_1, -q_2)
        J[i, [i, n + i]], H[np.ix_([i], [i, n + i], [i, n + i])] = to @ g, to @ h @ to.T
    if reduction != "none":
        value, J, H = (x.sum(axis=0, keepdims=True) for x in (value, J, H))
        if reduction == "mean":
            value, J, H = value / n, J / n, H / n
    return Exact(value, J, H)


def _logits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores on all three pieces, away from the kinks at -1 and 1."""
    return rng.choice([-2.3, 0.0, 2.1], shape) + rng.uniform(-0.9, 0.9, shape)


def sparsemax_case(name: str, shape: tuple[int, ...], dim: int, *, mask: Any = None, **how: Any) -> Case:
    """`how`: function, the function called; fixed, what is added to the scores."""
    allowed = None if mask is None else np.broadcast_to(mask, shape)
    kept = None if mask is None else torch.tensor(mask)
    function = how.get("function") or (
        lambda z: zt.sparsemax(z, dim, mask=None if kept is None else kept.to(z.device))
    )

    def make(rng: np.random.Generator) -> Arrays:
        while True:
            z = smooth(rng, shape, dim)
            rows = (z if allowed is None else np.where(allowed, z, -np.inf)).reshape(-1)[places(shape, dim)]
            rows = rows[np.isfinite(rows).any(axis=-1)]
            if np.abs(rows - oracle.project(rows).tau()[0][:, None]).min(initial=1) > 0.02:
                return [z + how.get("fixed", 0.0)]

    return Case(name, function, make, lambda z: _projection(z, dim, allowed), dim % len(shape))


def _cases() -> list[Case]:
    drop = np.where(np.arange(5) == 2, -np.inf, 0.0)
    some = np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=bool)
    cases = [
        sparsemax_case("sparsemax", (2, 5), -1),
        sparsemax_case("sparsemax, dim 0", (5, 3), 0),
        sparsemax_case("sparsemax, dim 1 of 3", (2, 5, 3), 1),
        sparsemax_case("sparsemax, one row", (7,), 0),
        sparsemax_case("sparsemax, size 1", (3, 1), 1),
        sparsemax_case("sparsemax, mask", (2, 5), -1, mask=some),
        sparsemax_case("sparsemax, broadcast mask", (2, 5), -1, mask=[True, False, True, True, True]),
        sparsemax_case("sparsemax, -inf scores", (2, 5), -1, fixed=drop),
        sparsemax_case("Sparsemax", (5, 3), 0, function=zt.Sparsemax(0)),
        Case(
            "threshold",
            lambda z: zt.threshold(z),
            lambda rng: [smooth(rng, (3, 5))],
            lambda z: _tau(z, -1),
            1,
        ),
        Case(
            "threshold, dim 0",
            lambda z: zt.threshold(z, 0),
            lambda rng: [smooth(rng, (5, 2), 0)],
            lambda z: _tau(z, 0),
            0,
        ),
        loss_case("loss, labels"),
        loss_case("loss, labels, sum", reduction="sum"),
        loss_case("loss, labels, none", reduction="none"),
        loss_case("loss, one label", (5,)),
        loss_case("loss, labels in images", (2, 5, 3), reduction="none"),
        loss_case("loss, labels, weight", weight=True),
        loss_case("loss, labels, smoothing", smoothing=0.1),
        loss_case("loss, labels, weight, smoothing", weight=True, smoothing=0.1, ignored=True),
        loss_case("loss, labels, ignore_index", ignored=True),
        loss_case("loss, probabilities", probabilities=True),
        loss_case("loss, in the target", probabilities=True, in_target=True),
        loss_case("loss, in the target, none", probabilities=True, in_target=True, reduction="none"),
        loss_case("loss, in the target, images", (2, 5, 3), probabilities=True, in_target=True),
        loss_case("loss, in the target, weight", probabilities=True, in_target=True, weight=True),
        loss_case(
            "loss, in the target, weight, smoothing, sum",
            probabilities=True,
            in_target=True,
            weight=True,
            smoothing=0.2,
            reduction="sum",
        ),
        loss_case("SparsemaxLoss", weight=True, smoothing=0.1, module=True),
        Case(
            "binary_sparsemax",
            zt.binary_sparsemax,
            lambda rng: [_logits(rng, (3, 4))],
            lambda t: _ramp(t),
            None,
        ),
    ]
    for reduction in ("none", "mean", "sum"):
        function = _partial(zt.binary_sparsemax_loss, {"reduction": reduction})
        cases.append(_binary_case(f"binary loss, {reduction}", function, reduction))
    cases.append(_binary_case("BinarySparsemaxLoss", zt.BinarySparsemaxLoss(), "mean"))
    return cases


def _binary_case(name: str, function: Callable[..., Tensor], reduction: str) -> Case:
    return Case(
        name,
        function,
        lambda rng: [_logits(rng, (3, 2)), rng.uniform(0.05, 0.95, (3, 2))],
        lambda t, y: _huber(t, y, reduction),
        None,
        curved=True,
    )


CASES = _cases()
