"""Promise 4: inputs are never changed; any stride, read-only, broadcast."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases, judge, oracle


def calls(frontend, z: np.ndarray, v: np.ndarray, k: np.ndarray, q: np.ndarray) -> list[tuple]:
    """Every function with its arrays."""
    made = [
        (frontend.sparsemax, z),
        (frontend.jvp, z, v),
        (frontend.vjp, z, v),
        (frontend.jacobian, z),
        (frontend.loss, z, k),
        (frontend.gradient, z, k),
    ]
    if "tau" in frontend.can:
        made.append((frontend.threshold, z))
    if "target" in frontend.can:
        made += [(frontend.loss, z, q), (frontend.gradient, z, q)]
    if "binary" in frontend.can:
        made += [(frontend.binary, z), (frontend.binary_loss, z, np.abs(q))]
    return made


@pytest.mark.parametrize("cols", [1, 2, 13, 67])
@pytest.mark.parametrize("readonly", [False, True])
def test_no_argument_is_changed(frontend, cols, readonly):
    """To the bit, writable or not; NaN and -inf rows included."""
    z = cases.mixture(0, cols, frontend.dtype)
    arrays = (
        z,
        z[::-1].copy(),
        cases.labels(1, len(z), cols),
        cases.distributions(2, len(z), cols, frontend.dtype),
    )
    before = [a.tobytes() for a in arrays]
    for a in arrays:
        a.flags.writeable = not readonly
    for call, *args in calls(frontend, *arrays):
        with np.errstate(invalid="ignore"):
            call(*args)
        assert [a.tobytes() for a in arrays] == before, call.__name__


@pytest.mark.parametrize("cols", [1, 3, 13, 67])
def test_a_mask_is_not_changed(frontend, cols):
    """Nor the scores under it."""
    if "where" not in frontend.can:
        pytest.skip("no masks")
    z = cases.mixture(3, cols, frontend.dtype)
    where = np.random.default_rng(4).uniform(size=z.shape) < 0.5
    before = z.tobytes(), where.tobytes()
    frontend.sparsemax(z, where=where)
    assert (z.tobytes(), where.tobytes()) == before


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in other places."""
    rows, cols = x.shape
    wide = np.full((2 * rows + 1, 3 * cols + 2), np.nan, x.dtype)
    wide[1::2, 2::3] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    return {
        "Fortran order": np.asfortranarray(x),
        "strided": wide[1::2, 2::3],
        "reversed": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "transposed": np.ascontiguousarray(x.T).T,
        "unaligned": unaligned,
    }


@pytest.mark.parametrize("cols", [1, 2, 13, 67])
@pytest.mark.parametrize("layout", ["Fortran order", "strided", "reversed", "transposed", "unaligned"])
def test_any_layout_gives_the_same_value(frontend, layout, cols):
    """Strides, order and alignment are no part of the question."""
    z = cases.mixture(5, cols, frontend.dtype)
    exact = oracle.project(z)
    laid = layouts(z)[layout]
    np.testing.assert_array_equal(laid.astype(np.float64), z.astype(np.float64))
    assert judge.projection(np.ascontiguousarray(frontend.sparsemax(laid)), exact).right
    v = frontend.array(np.random.default_rng(6).normal(0.5, 1, z.shape))
    p = np.ascontiguousarray(frontend.sparsemax(z))
    assert judge.tangents(np.ascontiguousarray(frontend.jvp(laid, layouts(v)[layout])), p, v) <= 1
    k = cases.labels(7, len(z), cols)
    assert judge.losses(frontend.loss(laid, k), *oracle.loss(z, k, exact)) <= 1
    if "target" in frontend.can:
        q = cases.distributions(8, len(z), cols, frontend.dtype)
        assert judge.losses(frontend.loss(laid, layouts(q)[layout]), *oracle.loss(z, q, exact)) <= 1
        gradient = frontend.gradient(laid, layouts(q)[layout])
        assert judge.gradients(np.ascontiguousarray(gradient), exact, q) <= 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_broadcast_scores_are_read_where_they_lie(frontend, axis):
    """Strides of zero, along the axis and across it."""
    row = frontend.array(np.random.default_rng(9).normal(0, 1, 7))
    for small in (row, row[:, None], row[:1]):
        z = np.broadcast_to(small, (3, 7, 7))
        p = frontend.sparsemax(z, axis=axis)
        flat = np.ascontiguousarray(np.moveaxis(z, axis, -1)).reshape(-1, z.shape[axis])
        value = np.ascontiguousarray(np.moveaxis(p, axis, -1)).reshape(flat.shape)
        assert judge.projection(value, oracle.project(flat)).right


def test_labels_may_have_any_stride(frontend):
    """Strided, reversed and read-only labels."""
    z = cases.find("deviation 1")(1, 10, 7, frontend.dtype)
    k = cases.labels(9, 10, 7)
    wide = np.full(30, 99)
    wide[::3] = k
    backwards = k[::-1].copy()[::-1]
    backwards.flags.writeable = False
    for labels in (wide[::3], backwards):
        assert frontend.loss(z, labels).tobytes() == frontend.loss(z, k).tobytes()
