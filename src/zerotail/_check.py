"""Argument checks of the NumPy front end.

Every error message stands here, in one form: *argument* must *requirement*; got *value*.
"""

from __future__ import annotations

import importlib
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.exceptions import AxisError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def is_half(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2


def _array(value: Any, name: str) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):  # np.asarray would take what is masked for data
        raise TypeError(f"{name} must be an array without a mask; got MaskedArray")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array or evenly nested lists; got {type(value).__name__}: {error}"
        ) from error


def _is_floating(dtype: np.dtype[Any]) -> bool:
    return dtype.char in "efd" or dtype.name == "bfloat16"


def floating(value: Any, name: str) -> NDArray[Any]:
    """An array of float16, bfloat16, float32 or float64; booleans and integers become float64."""
    array = _array(value, name)
    if array.dtype.kind in "biu":
        return array.astype(np.float64)
    if not _is_floating(array.dtype):
        raise TypeError(
            f"{name} must be float16, bfloat16, float32, float64, integer or boolean; got {array.dtype}"
        )
    return array


def axis(value: Any, ndim: int, name: str) -> int:
    """An axis counted from the front."""
    try:
        index = operator.index(value)
    except TypeError:
        index = None
    if index is None or isinstance(value, bool | np.bool_):
        raise TypeError(f"axis must be an integer; got {value!r}")
    if not -ndim <= index < ndim:
        raise AxisError(
            f"axis must be in [{-ndim}, {ndim}) for {name} of {ndim} dimensions; got {index}"
            if ndim
            else f"{name} must have at least one dimension; got shape ()"
        )
    return index % ndim


def where(value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A boolean view of the shape of scores."""
    array = _array(value, "where")
    if array.dtype != np.bool_:
        raise TypeError(f"where must be boolean; got {array.dtype}")
    return _broadcast(array, shape, "where", "scores")


def _broadcast(array: NDArray[Any], shape: tuple[int, ...], name: str, other: str) -> NDArray[Any]:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name} must broadcast to {other} of shape {shape}; got shape {array.shape}"
        ) from None


def tangent(value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    return _broadcast(floating(value, "v"), shape, "v", "p")


def out(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"out must be an ndarray; got {type(value).__name__}")
    if value.dtype != dtype:
        raise TypeError(f"out must have the dtype of the result, {dtype}; got {value.dtype}")
    if value.shape != shape:
        raise ValueError(f"out must have the shape of scores, {shape}; got {value.shape}")
    if not value.flags.writeable:
        raise ValueError("out must be writable; got a read-only array")


def matrix(shape: tuple[int, ...]) -> None:
    """What a compact result can be made of: column indices are 32 bits wide."""
    if len(shape) != 2:
        raise ValueError(f"scores must be two-dimensional; got shape {shape}")
    if shape[1] >= 2**31:
        raise ValueError(f"scores must have fewer than 2**31 columns; got shape {shape}")


def target(value: Any, shape: tuple[int, ...], axis: int) -> NDArray[Any]:
    """Labels (int64), or a distribution (floating), for scores of this shape."""
    array = _array(value, "target")
    integer = array.dtype.kind in "iu"
    if not integer and not _is_floating(array.dtype):
        raise TypeError(f"target must be integer labels or floating-point distributions; got {array.dtype}")
    rows = shape[:axis] + shape[axis + 1 :]
    if array.shape != (rows if integer else shape):
        raise ValueError(
            f"target must be integer labels of shape {rows} or floating-point distributions of shape "
            f"{shape}; got {array.dtype} of shape {array.shape}"
        )
    if integer:
        _labels(array, shape[axis])
        return array.astype(np.int64, copy=False)
    distribution(array, axis)
    return array


def _labels(array: NDArray[Any], cols: int) -> None:
    if array.size:
        for label in (array.min(), array.max()):
            if not 0 <= label < cols:
                raise IndexError(f"target must be labels in [0, {cols}); got {label}")


def distribution(array: NDArray[Any], axis: int) -> None:
    """Every row nonnegative, and with a sum of one within sqrt(eps) of its dtype."""
    eps = _EPS[array.dtype.name]
    if is_half(array.dtype):
        array = array.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(axis=axis, dtype=np.float64)
    wrong = ~(np.abs(total - 1) <= eps**0.5)
    if array.size and not array.min() >= 0:  # a NaN is not either
        negative = np.argwhere(~(array >= 0))[0]
        row = tuple(np.delete(negative, axis))
        raise ValueError(
            f"target must be nonnegative; got {array[tuple(negative)]}{_in_row(row)}, "
            f"which sums to {total[row]:.10g}"
        )
    if wrong.any():
        row = tuple(np.argwhere(wrong)[0])
        raise ValueError(f"target must sum to one along axis {axis}; got {total[row]:.10g}{_in_row(row)}")


def _in_row(row: tuple[Any, ...]) -> str:
    if not row:
        return " in the row"
    return f" in row {row[0]}" if len(row) == 1 else f" in row ({', '.join(map(str, row))})"


def probability(value: Any) -> NDArray[Any]:
    """Probabilities of the positive class; labels 0 and 1 are two of them."""
    array = floating(value, "target")
    inside = (array >= 0) & (array <= 1)
    if not inside.all():
        raise ValueError(f"target must be in [0, 1]; got {array[~inside][0]}")
    return array


def pair(scores: tuple[int, ...], target: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(scores, target)
    except ValueError:
        raise ValueError(
            f"target must broadcast against scores of shape {scores}; got shape {target}"
        ) from None


def threads(value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"n must be an integer; got {value!r}") from None
    if not 1 <= count <= 1024:  # as core/pool.cpp caps what the environment asks for
        raise ValueError(f"n must be at least 1 and at most 1024; got {count}")
    return count


def extra(module: str, name: str, user: str) -> Any:
    """The module, which the extra `name` brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{user} needs {module}: pip install "zerotail[{name}]"') from error


def tokens(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a sequence of strings; got one string, {value[:40]!r}")
    try:
        iterator = iter(value)
    except TypeError:
        raise TypeError(f"{name} must be a sequence of strings; got {type(value).__name__}") from None
    words = tuple(iterator)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} must be a sequence of strings; got {word!r} in it")
    return words


def attention_weights(value: Any, cols: int) -> NDArray[Any]:
    """A vector or a matrix of float64, of lists, arrays or tensors."""
    if hasattr(value, "detach"):  # torch's: NumPy reads none that needs a gradient, or is of type bfloat16
        value = value.detach().cpu().double()
    array = _array(value, "weights")
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"weights must be numbers; got {array.dtype}")
    array = array.astype(np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != cols:
        raise ValueError(
            f"weights must have one number for each of {cols} tokens, or a row of them for each query; "
            f"got shape {array.shape}"
        )
    wrong = ~((array >= 0) & np.isfinite(array))
    if wrong.any():
        raise ValueError(f"weights must be nonnegative and finite; got {array[wrong][0]}")
    return array


def queries(value: Any, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ValueError(f"queries must be None where weights are one row; got {len(value)} queries")
    if len(value) != shape[0]:
        raise ValueError(f"queries must be as many as weights have rows, {shape[0]}; got {len(value)}")
