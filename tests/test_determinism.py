"""Promise 3: a row is a row. Not one bit depends on the batch, the threads or the place in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cases
from tests.frontends import DTYPES

COLS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 130, 257, 1_009, 4_099)


@pytest.fixture(params=DTYPES, ids=lambda d: d.name)
def dtype(request):
    return request.param


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def everything(zt, z: np.ndarray, v: np.ndarray, q: np.ndarray, axis: int = -1) -> list[np.ndarray]:
    """All results that keep the rows apart, each with the rows first."""
    p = zt.sparsemax(z, axis=axis)
    loss, gradient = zt.sparsemax_loss_and_grad(z, q, axis=axis)
    tau, product = zt.threshold(z, axis=axis), zt.sparsemax_jvp(p, v, axis=axis)
    if axis == 0:
        p, gradient, product = (np.ascontiguousarray(x.T) for x in (p, gradient, product))
    return [p, tau, product, loss, gradient]


def batch(cols: int, dtype: np.dtype, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    z = cases.mixture(seed, cols, dtype)
    v = np.random.default_rng(seed).normal(0.5, 1, z.shape).astype(dtype)
    return z, v, cases.distributions(seed, len(z), cols, dtype)


@pytest.mark.parametrize("cols", COLS)
def test_a_row_alone_is_the_row_in_a_batch(zt, target, dtype, cols):
    """Alone, with one neighbour, with a few: in lanes that are padded and in lanes that are full."""
    arrays = batch(cols, dtype)
    together = everything(zt, *arrays)
    for size in (1, 2, 3, 5, 16, 17):
        for first in range(0, len(arrays[0]), size):
            part = slice(first, first + size)
            for a, b in zip(everything(zt, *(x[part] for x in arrays)), together, strict=True):
                assert same(a, b[part])
        if cols > 300:
            break


@pytest.mark.parametrize("cols", COLS)
def test_a_row_is_the_same_at_any_position(zt, target, dtype, cols):
    """The batch shuffled, and every row surrounded by others."""
    arrays = batch(cols, dtype, 1)
    together = everything(zt, *arrays)
    rng = np.random.default_rng(cols)
    for _ in range(3):
        order = rng.permutation(len(arrays[0]))
        for a, b in zip(everything(zt, *(x[order] for x in arrays)), together, strict=True):
            assert same(a, np.ascontiguousarray(b[order]))


@pytest.mark.parametrize("cols", COLS)
def test_a_column_is_the_same_at_any_position(zt, target, dtype, cols):
    """Along another axis: at any place among any number of columns."""
    arrays = batch(cols, dtype, 2)
    upright = [np.ascontiguousarray(x.T) for x in arrays]
    together = everything(zt, *upright, axis=0)
    rng = np.random.default_rng(cols)
    for size in (2, 3, 8, 17, len(arrays[0])):
        chosen = rng.permutation(len(arrays[0]))[:size]
        part = everything(zt, *(np.ascontiguousarray(x[:, chosen]) for x in upright), axis=0)
        for a, b in zip(part, together, strict=True):
            assert same(a, np.ascontiguousarray(b[chosen]))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_number_of_threads_changes_no_bit(zt, target, dtype, axis):
    """One, two, three and more than there are cores, on arrays that are large enough to be shared out."""
    rng = np.random.default_rng(3)
    z = rng.normal(0, 1, (67, 131, 37)).astype(dtype)
    v = rng.normal(0.5, 1, z.shape).astype(dtype)
    k = rng.integers(0, z.shape[axis], np.delete(z.shape, axis))
    before, results = zt.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            zt.set_num_threads(threads)
            assert zt.get_num_threads() == threads
            p = zt.sparsemax(z, axis=axis)
            results.append([p, zt.threshold(z, axis=axis), zt.sparsemax_jvp(p, v, axis=axis)])
            results[-1] += zt.sparsemax_loss_and_grad(z, k, axis=axis)
    finally:
        zt.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert same(a, b)


def test_one_long_row_is_the_same_by_any_number_of_threads(zt, target, dtype, threads):
    """The order of summation belongs to the row."""
    z = np.random.default_rng(4).normal(0, 0.1, (2, 100_003)).astype(dtype)
    p = zt.sparsemax(z)
    assert same(zt.sparsemax(z[:1]), p[:1])
    assert same(zt.sparsemax(z[1]), p[1])


@pytest.mark.parametrize("cols", [1, 3, 16, 37, 64, 257, 1_009])
def test_the_place_in_memory_changes_no_bit(zt, target, dtype, cols):
    """Every alignment within a cache line, of the scores and of the result, and none at all."""
    z = cases.mixture(5, cols, dtype)
    expected = zt.sparsemax(z)
    step = dtype.itemsize
    memory, place = np.zeros(z.nbytes + 192, np.uint8), np.zeros(z.nbytes + 192, np.uint8)
    start = -memory.ctypes.data % 64
    first = -place.ctypes.data % 64
    for shift in [*range(0, 64 + step, step), 1, 33]:
        scores = memory[start + shift :][: z.nbytes].view(dtype).reshape(z.shape)
        scores[...] = z
        out = (
            place[first + (64 - shift if shift % step == 0 else shift) :][: z.nbytes]
            .view(dtype)
            .reshape(z.shape)
        )
        assert same(zt.sparsemax(scores, out=out), expected)
        assert same(zt.sparsemax(scores), expected)


def test_calling_again_changes_no_bit(zt, target, dtype):
    """No state between calls: not after a failure, not after other shapes."""
    z, v, q = batch(67, dtype, 6)
    first = everything(zt, z, v, q)
    zt.sparsemax(np.zeros((3, 1_000), dtype))
    with pytest.raises(IndexError):
        zt.sparsemax_loss(z, np.full(len(z), 67))
    for a, b in zip(everything(zt, z, v, q), first, strict=True):
        assert same(a, b)


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_thread_that_flushes_the_smallest_numbers_changes_no_bit(frontend, rows):
    """Some frameworks and libraries make a whole thread take them for zero."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    tiny = np.finfo(frontend.dtype).smallest_subnormal if not frontend.half else 2.0**-24
    z, v = (frontend.array(tiny * rng.integers(-1000, 1000, (rows, 300)).astype(float)) for _ in range(2))
    expected = frontend.sparsemax(z), frontend.vjp(z, v)
    if not torch.set_flush_denormal(True):
        pytest.skip("torch cannot make this CPU flush subnormal numbers")
    try:
        found = frontend.sparsemax(z), frontend.vjp(z, v)
    finally:
        torch.set_flush_denormal(False)
    assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]
