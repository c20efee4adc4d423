"""Exact derivatives of rows, as dense arrays, from the oracle and the paper's closed forms.

Every derivative that a transform can ask for, of any order and in any mode, is a product of these with
vectors. `at` says which entries of a flat array are the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests import oracle


class Exact(NamedTuple):
    """Of m results in n inputs, all flat and in order."""

    value: np.ndarray
    jacobian: np.ndarray
    hessian: np.ndarray


def is_smooth(z: np.ndarray, at: np.ndarray) -> bool:
    """Whether no score is near a kink; rows of -inf have none."""
    rows = z.reshape(-1)[at]
    rows = rows[np.isfinite(rows).any(axis=1)]
    return bool(np.abs(rows - oracle.project(rows).tau()[0][:, None]).min(initial=1) > 0.02)


def jacobian(p: np.ndarray) -> np.ndarray:
    """Eq. 12 of one row, through Eq. 14 on each unit vector."""
    return oracle.jvp(np.tile(p, (len(p), 1)), np.eye(len(p)))[0]


def projection(z: np.ndarray, at: np.ndarray) -> Exact:
    """Eq. 2; zeros for rows of -inf, which a mask has emptied."""
    value, J = np.zeros(z.size), np.zeros((z.size, z.size))
    for row in at:
        scores = z.reshape(-1)[row]
        if np.isfinite(scores).any():
            value[row] = oracle.project(scores[None]).hi[0]
            J[np.ix_(row, row)] = jacobian(value[row])
    return Exact(value, J, np.zeros((z.size,) * 3))


def tau(z: np.ndarray, at: np.ndarray) -> Exact:
    """Eq. 4, with Eq. 10."""
    exact = oracle.project(z.reshape(-1)[at])
    J = np.zeros((len(at), z.size))
    for row, where, on in zip(J, at, exact.support, strict=True):
        row[where] = on / on.sum()
    return Exact(exact.tau()[0], J, np.zeros((len(at), z.size, z.size)))


def plain_row(z: np.ndarray, q: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """L(z; q) with its derivatives in (z, q): p - q (Eq. 27), q - z + tau, Eq. 12."""
    K = len(z)
    solved = oracle.project(z[None])
    p, J, on = solved.hi[0], jacobian(solved.hi[0]), solved.support[0]
    value = oracle.loss(z[None], q[None], solved)[0][0]
    with np.errstate(invalid="ignore"):
        in_q = q - z + solved.tau()[0][0]
    mixed = np.repeat((on / on.sum())[:, None], K, axis=1) - np.eye(K)
    return value, np.concatenate([p - q, in_q]), np.block([[J, mixed], [mixed.T, np.eye(K)]])


def simplex(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Targets: proportions, half of the rows with zeros among them."""
    q = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    q[..., 0] = np.where(rng.random(shape[:-1]) < 0.5, 0, q[..., 0])
    return q / q.sum(axis=-1, keepdims=True)
