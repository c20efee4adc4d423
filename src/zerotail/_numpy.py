"""The NumPy front end.

What the core reads as it is goes straight to it; it refuses the rest without doing anything, and only then
are arguments checked and prepared. Every function accepts float16, float32, float64 and ml_dtypes' bfloat16
and returns the same; booleans and integers become float64. Arguments are never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import empty_like, ndarray

from . import _check, _core, _rules

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_project = _core.sparsemax


def sparsemax(
    scores: ArrayLike, /, *, axis: int = -1, where: ArrayLike | None = None, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Project scores onto the probability simplex (Eq. 2).

    The nearest distribution to `scores`; many of its entries are exactly zero.

    Parameters
    ----------
    scores : array_like of float
        Any shape but (). -inf entries get probability 0.
    axis : int, default -1
        The axis that sums to one.
    where : array_like of bool, optional
        True = takes part. Broadcasts to `scores`. What is excluded gets 0 and is never read; a row with
        nothing left is zeros.
    out : ndarray, optional
        Where to put the result: an array of its shape and dtype, `scores` itself included.

    Returns
    -------
    ndarray
        Shape and dtype of `scores` (`out` itself, if given). NaN along `axis` where the scores that take part
        hold NaN or +inf, or are all -inf, as softmax.

    See Also
    --------
    sparsemax_csr : the same without its zeros.
    threshold : the score below which an entry is zero.

    Examples
    --------
    >>> sparsemax([1.0, 0.5, -1.0])
    array([0.75, 0.25, 0.  ])
    >>> sparsemax([[1.0, 0.5], [3.0, 0.5]], axis=0)
    array([[0. , 0.5],
           [1. , 0.5]])
    >>> sparsemax([1.0, 0.5, np.nan], where=[True, True, False])
    array([0.75, 0.25, 0.  ])
    """
    # The common call. The core would take uint16 for bfloat16, so the dtype is looked at here.
    if (
        where is None
        and type(scores) is ndarray
        and scores.dtype.char in "efd"
        and type(axis) is int
        and -65 < axis < 65
    ):
        if out is None:
            p = empty_like(scores)
            if _project(scores, p, axis):
                return p
        elif type(out) is ndarray and _project(scores, out, axis):
            return out

    array = _check.floating(scores, "scores")
    axis = _check.axis(axis, array.ndim, "scores")
    dtype = _native(array.dtype)
    if out is not None:
        _check.out(out, array.shape, dtype)
    if where is None:
        z = _dense(array)
        if out is not None and _project(z, _bits(out), axis):
            return out
    else:
        mask = _check.where(where, array.shape)
        z = _masked(array, mask)

    p = np.empty(array.shape, dtype)
    _done(_project(z, _bits(p), axis))
    if where is not None:
        np.copyto(_bits(p), 0, where=~mask)
    if out is None:
        return p
    np.copyto(out, p)
    return out


def threshold(
    scores: ArrayLike, /, *, axis: int = -1, where: ArrayLike | None = None, keepdims: bool = False
) -> Any:
    """Find the tau for which sparsemax is max(scores - tau, 0) (Eq. 4).

    Parameters
    ----------
    scores : array_like of float
        Any shape but ().
    axis : int, default -1
        The axis along which sparsemax sums to one.
    where : array_like of bool, optional
        True = takes part, as in `sparsemax`.
    keepdims : bool, default False
        Keep `axis`, with length 1, so that the result broadcasts against `scores`.

    Returns
    -------
    ndarray or scalar
        One number a row, of the dtype of `scores`. NaN where a row is empty, is excluded as a whole, or has
        the value NaN in `sparsemax`.

    Notes
    -----
    tau is rounded to the dtype of `scores`: with a large offset `max(scores - tau, 0)` has fewer digits than
    `sparsemax`.

    Examples
    --------
    >>> threshold([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]])
    array([0.25, 2.  ])
    """
    array = _check.floating(scores, "scores")
    axis = _check.axis(axis, array.ndim, "scores")
    z = _dense(array) if where is None else _masked(array, _check.where(where, array.shape))
    tau = np.empty(_rows(array.shape, axis), _compute(array.dtype))
    _done(_core.threshold(z, tau, None, None, axis))
    tau = _rounded(tau, array.dtype)
    return np.expand_dims(tau, axis) if keepdims else tau[()]


def sparsemax_csr(scores: ArrayLike, /) -> Any:
    """Project the rows of a matrix onto the simplex (Eq. 2), and return the support alone.

    Needs SciPy, which `pip install "zerotail[sklearn]"` brings.

    Parameters
    ----------
    scores : array_like of float
        Shape (rows, K) with K < 2**31.

    Returns
    -------
    scipy.sparse.csr_array
        Shape of `scores`, int32 indices (int64 from 2**31 entries on), in order of columns. SciPy has no half
        types: float16 and bfloat16 scores give float32, not rounded to half. Rows that are NaN in `sparsemax`
        are stored in full.

    Examples
    --------
    >>> p = sparsemax_csr([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]])
    >>> p.data, p.indices, p.indptr
    (array([0.75, 0.25, 1.  ]), array([0, 1, 0], dtype=int32), array([0, 2, 3], dtype=int32))
    """
    array = _check.floating(scores, "scores")
    _check.matrix(array.shape)
    sparse = _check.extra("scipy.sparse", "sklearn", "sparsemax_csr")
    z = _dense(array.astype(_compute(array.dtype), copy=False))
    rows, cols = z.shape

    hi, lo = np.empty((2, rows), z.dtype)
    size = np.empty(rows, np.int64)
    _done(_core.threshold(z, hi, lo, size, 1))
    lost = np.flatnonzero(np.isnan(hi))
    size[lost] = cols
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(size, out=offsets[1:])

    values = np.empty(offsets[-1], z.dtype)
    indices = np.empty(offsets[-1], np.intc)
    _done(_core.compact(z, hi, lo, offsets, values, indices))
    for row in lost:
        values[offsets[row] : offsets[row + 1]] = np.nan
        indices[offsets[row] : offsets[row + 1]] = np.arange(cols)
    if offsets[-1] < 2**31:
        offsets = offsets.astype(np.intc)
    return sparse.csr_array((values, indices, offsets), shape=z.shape)


def sparsemax_jvp(p: ArrayLike, v: ArrayLike, /, *, axis: int = -1) -> NDArray[Any]:
    """Multiply a vector by the Jacobian of sparsemax (Eq. 14).

    The Jacobian is symmetric: this is the product from the right, for tangents, and from the left, for
    gradients.

    Parameters
    ----------
    p : array_like of float
        `sparsemax(scores)`. Only which entries are positive counts.
    v : array_like of float
        Broadcasts to `p`. Off the support it does not touch the result, not even if infinite or NaN.
    axis : int, default -1
        The axis along which `p` sums to one.

    Returns
    -------
    ndarray
        Shape of `p`; the dtype that `p` and `v` have or promote to. NaN where `p` is, 0 in rows of zeros.

    Examples
    --------
    >>> sparsemax_jvp([0.75, 0.25, 0.0], [1.0, 2.0, 5.0])
    array([-0.5,  0.5,  0. ])
    """
    array = _check.floating(p, "p")
    axis = _check.axis(axis, array.ndim, "p")
    tangent = _check.tangent(v, array.shape)
    dtype = _native(array.dtype)
    if dtype != _native(tangent.dtype):
        dtype = np.promote_types(_compute(array.dtype), _compute(tangent.dtype))
    result = np.empty(array.shape, dtype)
    _done(
        _core.jvp(
            _dense(array.astype(dtype, copy=False)),
            _dense(tangent.astype(dtype, copy=False)),
            _bits(result),
            axis,
        )
    )
    return result


def sparsemax_jacobian(p: ArrayLike, /) -> NDArray[Any]:
    """Write out the Jacobian of sparsemax (Eq. 12), K x K numbers a row.

    Parameters
    ----------
    p : array_like of float
        `sparsemax(scores)` along the last axis, shape (..., K). Only which entries are positive counts.

    Returns
    -------
    ndarray
        Shape (..., K, K), dtype of `p`. Symmetric. At a tie, where sparsemax has a kink, an element of
        Clarke's Jacobian.

    See Also
    --------
    sparsemax_jvp : its product with a vector, without the K x K numbers.

    Examples
    --------
    >>> sparsemax_jacobian([0.75, 0.25, 0.0])
    array([[ 0.5, -0.5,  0. ],
           [-0.5,  0.5,  0. ],
           [ 0. ,  0. ,  0. ]])
    """
    array = _check.floating(p, "p")
    _check.axis(-1, array.ndim, "p")
    jacobian: NDArray[Any] = _rules.sparsemax.jacobian(array.astype(_compute(array.dtype), copy=False), np)
    return _rounded(jacobian, array.dtype)


def sparsemax_loss(scores: ArrayLike, target: ArrayLike, /, *, axis: int = -1) -> Any:
    """Measure how far scores are from a target (Eqs. 20 and 26).

    What cross-entropy is to softmax: convex, never negative, and 0 exactly where sparsemax(scores) is the
    target; for a label, where its score leads all others by at least 1.

    Parameters
    ----------
    scores : array_like of float
        Any shape but ().
    target : array_like of int, or of float
        Labels: integers in [0, K), of the shape of `scores` without `axis`. Or distributions: floats of the
        shape of `scores`, nonnegative, with sums of one along `axis` to within the square root of their
        machine epsilon.
    axis : int, default -1
        The axis of the classes.

    Returns
    -------
    ndarray or scalar
        One value a row, of the dtype of `scores`. NaN where `sparsemax(scores)` is, +inf where a score of
        -inf has a positive target, or where the dtype holds no loss so large (float16: from 65520 on).

    Raises
    ------
    IndexError
        A label is out of range, as if it were used for indexing.
    ValueError
        `target` has another shape, or a row of it is not a distribution.

    Examples
    --------
    >>> sparsemax_loss([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0]], [1, 0])
    array([0.5625, 0.    ])
    >>> sparsemax_loss([[1.0, 0.5, -1.0]], [[0.5, 0.5, 0.0]])
    array([0.0625])
    """
    return _loss(scores, target, axis, with_grad=False)[0]


def sparsemax_loss_and_grad(
    scores: ArrayLike, target: ArrayLike, /, *, axis: int = -1
) -> tuple[Any, NDArray[Any]]:
    """Compute `sparsemax_loss` and its gradient, sparsemax(scores) - target (Eqs. 19 and 27), in one pass.

    Parameters
    ----------
    scores, target, axis
        As in `sparsemax_loss`.

    Returns
    -------
    loss : ndarray or scalar
        One value a row.
    grad : ndarray
        Shape and dtype of `scores`. Each row is the gradient of its own loss. NaN where `sparsemax(scores)`
        is.

    Examples
    --------
    >>> loss, grad = sparsemax_loss_and_grad([[1.0, 0.5, -1.0]], [1])
    >>> loss
    array([0.5625])
    >>> grad
    array([[ 0.75, -0.75,  0.  ]])
    """
    loss, grad = _loss(scores, target, axis, with_grad=True)
    assert grad is not None
    return loss, grad


def binary_sparsemax(scores: ArrayLike, /) -> Any:
    """Give each score t its probability against a score of 0 (Eq. 6): (t + 1) / 2, between 0 and 1.

    What the sigmoid is to softmax.

    Parameters
    ----------
    scores : array_like of float
        Any shape.

    Returns
    -------
    ndarray or scalar
        Shape and dtype of `scores`. +inf gives 1 and -inf gives 0, as in the sigmoid (in `sparsemax` a +inf
        is NaN); NaN stays NaN.

    Examples
    --------
    >>> binary_sparsemax([-3.0, 0.0, 0.5, 1.0])
    array([0.  , 0.5 , 0.75, 1.  ])
    """
    array = _check.floating(scores, "scores")
    p = _two_classes(array.astype(_compute(array.dtype), copy=False))
    return _rounded(p, array.dtype)[()]


def binary_sparsemax_loss(scores: ArrayLike, target: ArrayLike, /) -> Any:
    """Measure how far scores t are from probabilities y of the positive class: a Huber loss (Eq. 23).

    It is `sparsemax_loss` of the scores (t, 0) and the distribution (y, 1 - y), without the detour.

    Parameters
    ----------
    scores : array_like of float
        Any shape.
    target : array_like of float, int or bool
        In [0, 1]; labels are 0 and 1. Scores and target broadcast against each other.

    Returns
    -------
    ndarray or scalar
        One value for each pair, of the dtype of `scores`. NaN where the score is. An infinite score costs
        nothing if the target is the 0 or 1 on its side, else +inf.

    Examples
    --------
    >>> binary_sparsemax_loss([-3.0, 0.0, 0.5, 1.0], 1)
    array([3.    , 0.25  , 0.0625, 0.    ])
    """
    array = _check.floating(scores, "scores")
    wanted = _check.probability(target)
    _check.pair(array.shape, wanted.shape)
    t = array.astype(_compute(array.dtype), copy=False)
    y = wanted.astype(t.dtype, copy=False)
    # Nonnegative terms; the linear ones are 0 where t is in [-1, 1]. No 0 * inf where the target is certain.
    over = np.where(y < 1, np.maximum(t - 1, 0), 0)
    under = np.where(y > 0, np.maximum(-1 - t, 0), 0)
    loss = (_two_classes(t) - y) ** 2 + ((1 - y) * over + y * under)
    return _rounded(loss, array.dtype)[()]


def set_num_threads(n: int, /) -> None:
    """Set how many threads the NumPy functions may use, from 1 to 1024.

    The default is ZEROTAIL_NUM_THREADS, else OMP_NUM_THREADS, else the cores that the process may use.
    Results do not depend on it.

    Examples
    --------
    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    _core.set_num_threads(_check.threads(n))


def get_num_threads() -> int:
    """Return how many threads the NumPy functions may use.

    Examples
    --------
    >>> get_num_threads() >= 1
    True
    """
    return _core.get_num_threads()


def _loss(
    scores: ArrayLike, target: ArrayLike, axis: int, with_grad: bool
) -> tuple[Any, NDArray[Any] | None]:
    array = _check.floating(scores, "scores")
    axis = _check.axis(axis, array.ndim, "scores")
    wanted = _check.target(target, array.shape, axis)
    dtype = _native(array.dtype)
    work = dtype
    if wanted.dtype.kind != "i":
        if _native(wanted.dtype) != dtype:  # half scores and a wider target: compute wide, round once
            work = _compute(dtype)
        wanted = wanted.astype(work, copy=False)
    loss = np.empty(_rows(array.shape, axis), _compute(work))
    grad = np.empty(array.shape, work) if with_grad else None
    z = _dense(array.astype(work, copy=False))
    _done(_core.loss(z, _dense(wanted), loss, None if grad is None else _bits(grad), axis))
    return _rounded(loss, dtype)[()], None if grad is None else _rounded(grad, dtype)


def _two_classes(t: NDArray[Any]) -> NDArray[Any]:
    return np.clip(t * 0.5 + 0.5, 0, 1)  # halves first: t + 1 may overflow


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")


def _compute(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that the core computes in."""
    return np.dtype(np.float32) if _check.is_half(dtype) else _native(dtype)


def _rounded(result: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The result in the dtype of the scores. Like the core, it does not warn of what it makes infinite."""
    with np.errstate(over="ignore"):
        return result.astype(_native(dtype), copy=False)


def _rows(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 as its bits; anything else as it is."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array


def _dense(array: NDArray[Any]) -> NDArray[Any]:
    """The array as the core reads it: C order, aligned, native byte order; itself, if it is all that."""
    array = _bits(array)
    return np.require(array, _native(array.dtype), ["C", "A"])


def _masked(array: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """A dense copy with -inf where the mask is False."""
    array = _bits(array)
    minus_inf = 0xFF80 if array.dtype.kind == "u" else -np.inf
    z = np.full(array.shape, minus_inf, _native(array.dtype))
    np.copyto(z, array, where=mask)
    return z


def _done(done: bool) -> None:
    if not done:
        raise AssertionError("the core refused arguments that were prepared for it")
