"""Properties on examples that hypothesis looks for; the same ones on every run."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp

from tests import judge, oracle

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=23)
FEW_SHAPES = st.sampled_from([(1,), (2,), (7,), (23,), (3, 5), (2, 17), (3, 1, 2), (2, 3, 11)])
WIDTH = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


@st.composite
def any_rows(draw, frontend, special: bool) -> np.ndarray:
    """Scores of the dtype: any float at all, or a few sizes in many places."""
    dtype, shapes = frontend.dtype, FEW_SHAPES if frontend.compiles else SHAPES
    source = np.dtype(f"f{dtype.itemsize}")
    width = WIDTH[dtype.name]
    elements = st.one_of(
        st.floats(width=width, allow_nan=special, allow_infinity=special),
        st.floats(-2, 2, width=width),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 2.0**-24]),
    )
    z = draw(hnp.arrays(source, shapes, elements=elements, fill=st.nothing() if special else None))
    with np.errstate(over="ignore", invalid="ignore"):
        return z.astype(dtype)


def as_rows(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1, x.shape[-1])


@given(data=st.data())
def test_any_scores_at_all_give_the_exact_projection(frontend, data):
    """Eq. 2 and the table of edges, on whatever floats there are."""
    z = data.draw(any_rows(frontend, special=True))
    p = frontend.sparsemax(z)
    assert p.shape == z.shape
    assert judge.projection(as_rows(p), oracle.project(as_rows(z))).right


@given(data=st.data())
def test_any_finite_scores_and_label_give_the_exact_loss(frontend, data):
    """Eq. 20: never NaN, never negative, within its bound."""
    z = data.draw(any_rows(frontend, special=False))
    k = data.draw(hnp.arrays(np.int64, z.shape[:-1], elements=st.integers(0, z.shape[-1] - 1)))
    value = frontend.loss(z, k)
    assert (value >= 0).all()
    assert judge.losses(value.reshape(-1), *oracle.loss(as_rows(z), k.reshape(-1))) <= 1


@given(data=st.data())
def test_any_tangent_gives_the_exact_product(frontend, data):
    """Eq. 14, whatever the tangent holds off the support."""
    z = data.draw(any_rows(frontend, special=False))
    v = data.draw(hnp.arrays(np.float32, z.shape, elements=st.floats(-8, 8, width=32)))
    v = frontend.array(v)
    p = frontend.sparsemax(z)
    off = data.draw(st.sampled_from([0.0, np.nan, np.inf]))
    spoiled = np.where(p > 0, v, frontend.array(off))
    assert judge.tangents(as_rows(frontend.jvp(z, spoiled)), as_rows(p), as_rows(v)) <= 1


@given(data=st.data())
def test_any_mask_gives_the_projection_of_what_it_leaves(frontend, data):
    """Equal to the exact projection of the kept scores; zeros for a row without any."""
    if "where" not in frontend.can:
        return
    z = data.draw(any_rows(frontend, special=True))
    where = data.draw(hnp.arrays(bool, z.shape))
    p = as_rows(frontend.sparsemax(z, where=where))
    for row, value, kept in zip(as_rows(z), p, as_rows(where), strict=True):
        if kept.any():
            assert judge.projection(value[kept][None], oracle.project(row[kept][None])).right
        assert np.isnan(value[kept]).all() or (value[~kept] == 0).all()
        assert kept.any() or (value == 0).all()


@given(data=st.data())
def test_any_axis_is_the_last_axis_of_the_moved_array(frontend, data):
    """Within the bounds of the same exact rows."""
    z = data.draw(any_rows(frontend, special=True))
    axis = data.draw(st.integers(-z.ndim, z.ndim - 1))
    p = np.moveaxis(frontend.sparsemax(z, axis=axis), axis, -1)
    assert judge.projection(as_rows(p), oracle.project(as_rows(np.moveaxis(z, axis, -1)))).right
