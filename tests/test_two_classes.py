"""Eqs. 5, 6 and 23: two classes; scikit-learn's modified Huber loss as an oracle that nobody here wrote."""

from __future__ import annotations

import numpy as np
import pytest

from tests import judge, oracle

T = np.array([-1e4, -30.0, -1.5, -1.0, -0.75, -0.125, 0.0, 0.5, 0.875, 1.0, 1.25, 3.0, 1e4])


def hard_sigmoid(t: np.ndarray) -> np.ndarray:
    return np.clip((t + 1) / 2, 0, 1)


def huber(t: np.ndarray) -> np.ndarray:
    """Eq. 23, as printed."""
    return np.where(t >= 1, 0, np.where(t <= -1, -t, (t - 1) ** 2 / 4))


def bound(frontend, exact: np.ndarray) -> np.ndarray:
    rounding = oracle.ulp(exact, frontend.dtype) if frontend.half else 0.0
    return judge.BOUND * frontend.eps * np.maximum(1.0, exact) + rounding


def scores(frontend) -> np.ndarray:
    t = np.concatenate([T, np.random.default_rng(0).normal(0, 1, 200)])
    return frontend.array(t)


def pairs(t: np.ndarray) -> np.ndarray:
    return np.stack([t, np.zeros_like(t)], axis=-1)


@pytest.fixture
def _binary(frontend):
    if "binary" not in frontend.can:
        pytest.skip("no functions of one score")


def test_two_scores_give_the_hard_sigmoid(frontend):
    """Eq. 6: sparsemax_1((t, 0)) = clip((t + 1) / 2, 0, 1)."""
    t = scores(frontend)
    exact = hard_sigmoid(t.astype(np.float64))
    p = frontend.sparsemax(pairs(t)).astype(np.float64)
    assert (np.abs(p[:, 0] - exact) <= bound(frontend, exact)).all()
    assert (np.abs(p[:, 1] - (1 - exact)) <= bound(frontend, 1 - exact)).all()


def test_two_scores_have_the_threshold_of_three_pieces(frontend):
    """Eq. 5: tau = t - 1, (t - 1) / 2 or -1."""
    t = scores(frontend)
    wide = t.astype(np.float64)
    exact = np.where(wide > 1, wide - 1, np.where(wide < -1, -1, (wide - 1) / 2))
    tau = frontend.threshold(pairs(t)).astype(np.float64)
    assert (np.abs(tau - exact) <= oracle.ulp(exact, frontend.dtype) + judge.BOUND * frontend.eps).all()


@pytest.mark.usefixtures("_binary")
def test_the_binary_map_is_the_hard_sigmoid(frontend):
    """Eq. 6, without the second score."""
    t = scores(frontend)
    exact = hard_sigmoid(t.astype(np.float64))
    p = frontend.binary(t)
    assert p.dtype == frontend.dtype
    assert (np.abs(p.astype(np.float64) - exact) <= bound(frontend, exact)).all()


@pytest.mark.usefixtures("_binary")
def test_the_binary_map_keeps_any_shape(frontend):
    """Elementwise: every entry is a row of two classes of its own."""
    t = frontend.array(np.random.default_rng(1).normal(0, 1, (3, 5, 2)))
    assert frontend.binary(t).shape == t.shape
    assert frontend.binary(t)[1, 2, 1] == frontend.binary(t[1, 2, 1:])[0]


def test_two_classes_have_the_huber_loss(frontend):
    """Eq. 23, for the label of either class."""
    t = scores(frontend)
    for label, sign in ((0, 1.0), (1, -1.0)):
        exact = huber(sign * t.astype(np.float64))
        value = frontend.loss(pairs(t), np.full(len(t), label))
        assert (np.abs(value.astype(np.float64) - exact) <= bound(frontend, exact)).all()


@pytest.mark.usefixtures("_binary")
def test_the_binary_loss_is_the_huber_loss_at_both_labels(frontend):
    """Eq. 23 at target 1, and mirrored at target 0."""
    t = scores(frontend)
    for target, sign in ((1.0, 1.0), (0.0, -1.0)):
        exact = huber(sign * t.astype(np.float64))
        value = frontend.binary_loss(t, frontend.array(np.full(len(t), target)))
        assert value.dtype == frontend.dtype
        assert (np.abs(value.astype(np.float64) - exact) <= bound(frontend, exact)).all()


@pytest.mark.usefixtures("_binary")
def test_the_binary_loss_is_the_loss_of_a_target_of_two_proportions(frontend):
    """Eq. 26 for z = (t, 0) and q = (y, 1 - y), exactly."""
    t = scores(frontend)
    y = frontend.array(np.random.default_rng(2).integers(0, 17, len(t)) / 16)
    q = np.stack([y, frontend.array(1) - y], axis=-1)
    value = frontend.binary_loss(t, y)
    assert judge.losses(value, *oracle.loss(pairs(t), q)) <= 1


def test_scikit_learns_modified_huber_is_four_times_the_loss(frontend):
    """An independent oracle for Eq. 23 and its derivative."""
    sgd = pytest.importorskip("sklearn.linear_model._sgd_fast")
    loss = sgd.ModifiedHuber()
    t = scores(frontend)
    wide = t.astype(np.float64)
    exact = np.array([loss.py_loss(x, 1.0) for x in wide.tolist()]) / 4
    slope = np.array([loss.py_dloss(x, 1.0) for x in wide.tolist()]) / 4
    first = np.zeros(len(t), dtype=np.int64)
    value = frontend.loss(pairs(t), first).astype(np.float64)
    assert (np.abs(value - exact) <= bound(frontend, exact)).all()
    gradient = frontend.gradient(pairs(t), first).astype(np.float64)[:, 0]
    assert (np.abs(gradient - slope) <= bound(frontend, np.abs(slope))).all()


@pytest.mark.usefixtures("_binary")
def test_scikit_learns_probabilities_of_modified_huber_are_the_binary_map(frontend):
    """`SGDClassifier(loss="modified_huber").predict_proba` is Eq. 6: an independent oracle."""
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.SGDClassifier(loss="modified_huber")
    model.classes_, model.coef_, model.intercept_ = np.array([0, 1]), np.ones((1, 1)), np.zeros(1)
    t = scores(frontend)
    exact = model.predict_proba(t.astype(np.float64)[:, None])
    assert (np.abs(frontend.binary(t).astype(np.float64) - exact[:, 1]) <= bound(frontend, exact[:, 1])).all()
    p = frontend.sparsemax(pairs(t)).astype(np.float64)
    assert (np.abs(p - exact[:, ::-1]) <= bound(frontend, exact[:, ::-1])).all()
