"""Fitted estimators in files: arrays and JSON in an uncompressed zip, which `numpy.load` can read as well.

Nothing of a file is executed. Its last 64 bytes, the comment of the zip, are the SHA-256 of all before: what
was cut short or changed is found. That is no protection against forgery, so all that is read is checked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

Array = NDArray[Any]

FORMAT = "zerotail.sklearn 1"
DIGEST = 64
ARRAYS = ("coef_", "intercept_", "classes_", "feature_names_in_")
NUMBERS = ("n_iter_", "n_features_in_", "multilabel_", "_sparse_output")


class Stored:
    """`save` and `load`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            A file that is there is replaced.
        """
        check_is_fitted(self)
        _write(Path(path), _pack(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that `save` wrote; what it predicts is the same to the bit.

        Parameters
        ----------
        path : str or path
            It may come from anywhere: nothing in it is executed.

        Returns
        -------
        estimator
        """
        data = Path(path).read_bytes()
        try:
            return _unpack(cls, data)
        except (ArithmeticError, EOFError, LookupError, MemoryError, RecursionError, SyntaxError) as error:
            raise ValueError(
                f"path must be a file that save wrote; got {os.fspath(path)!r}: {error!r}"
            ) from error
        except (RuntimeError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"path must be a file that save wrote; got {os.fspath(path)!r}: {error}"
            ) from error


def _pack(estimator: Any) -> bytes:
    parameters = {
        name: _pairs(value) if isinstance(value, dict) else _plain(value, name)
        for name, value in estimator.get_params().items()
    }
    numbers = {name: _plain(vars(estimator)[name], name) for name in NUMBERS if name in vars(estimator)}
    arrays = {name: vars(estimator)[name] for name in ARRAYS if name in vars(estimator)}
    info = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "numbers": numbers,
        "objects": [name for name, array in arrays.items() if array.dtype.kind == "O"],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = bytes(DIGEST)
        archive.writestr("info.json", json.dumps(info, allow_nan=False))
        for name, array in arrays.items():
            entry = io.BytesIO()
            npy.write_array(entry, _storable(array, name), allow_pickle=False)
            archive.writestr(f"{name}.npy", entry.getvalue())
    body = buffer.getvalue()[:-DIGEST]
    return body + hashlib.sha256(body).hexdigest().encode()


def _unpack(cls: Any, data: bytes) -> Any:
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("it is cut short, altered, or of another kind")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("it is compressed")
        info = json.loads(archive.read("info.json"))
        if info["format"] != FORMAT:
            raise ValueError(f"its format is {info['format']!r}")
        if info["estimator"] != cls.__name__:
            raise ValueError(f"it holds a {info['estimator']}, not a {cls.__name__}")
        names = {entry.filename.removesuffix(".npy") for entry in archive.infolist()}
        arrays = {name: _array(archive.read(f"{name}.npy")) for name in ARRAYS if name in names}
    parameters = dict(info["parameters"])
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    estimator = cls(**parameters)
    estimator._validate_params()
    for name in info["objects"]:
        arrays[name] = arrays[name].astype(object)
    numbers = info["numbers"]
    _check(arrays, numbers, cls)
    vars(estimator).update(arrays, **{name: numbers[name] for name in NUMBERS if name in numbers})
    return estimator


def _check(arrays: dict[str, Array], numbers: dict[str, Any], cls: Any) -> None:
    """The shapes and types that `fit` gives."""
    coef, intercept = arrays["coef_"], arrays["intercept_"]
    rows, features = coef.shape
    right = coef.dtype in (np.float32, np.float64) and intercept.dtype == coef.dtype
    right &= intercept.shape == (rows,) and bool(np.isfinite(coef).all() and np.isfinite(intercept).all())
    right &= type(numbers["n_iter_"]) is int and numbers["n_features_in_"] == features
    if "feature_names_in_" in arrays:
        right &= arrays["feature_names_in_"].shape == (features,)
    if hasattr(cls, "predict_proba"):
        classes = arrays["classes_"]
        sets = numbers["multilabel_"]
        right &= type(sets) is bool and type(numbers["_sparse_output"]) is bool
        right &= classes.shape == ((2,) if rows == 1 and not sets else (rows,))
    if not right:
        raise ValueError("its arrays do not fit together")


def _array(data: bytes) -> Array:
    """An array of numbers or strings; what is read is what the header says, and no more."""
    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"its arrays are of version {version}")
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    if dtype.kind not in "bfiuU" or fortran:
        raise ValueError(f"it holds an array of {dtype}")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape).copy()


def _storable(array: Array, name: str) -> Array:
    if array.dtype.kind == "O":
        if not all(isinstance(value, str) for value in array):
            raise TypeError(f"{name} must be numbers or strings to be saved; got {array.dtype}")
        return np.ascontiguousarray(array.astype(str))
    if array.dtype.kind not in "bfiuU":
        raise TypeError(f"{name} must be numbers or strings to be saved; got {array.dtype}")
    return np.ascontiguousarray(array)


def _plain(value: Any, name: str) -> Any:
    """As JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"{name} must be a number, a string or None to be saved; got {value!r}")
    return value


def _pairs(weights: dict[Any, Any]) -> list[list[Any]]:
    """A dict whose keys need not be strings."""
    return [[_plain(key, "class_weight"), _plain(value, "class_weight")] for key, value in weights.items()]


def _write(path: Path, data: bytes) -> None:
    """Under another name first, so that a file is never half-written."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
