"""Saved models: the same predictions elsewhere, and nothing but an error from a bad file."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from zerotail.sklearn import (
    ProportionRegressor,
    ProportionRegressorCV,
    SparsemaxClassifier,
    SparsemaxClassifierCV,
    _store,
)

X, y = load_digits(return_X_y=True)
X = X / 16
WEIGHTS = {f"digit {i}": 1.0 + i for i in range(10)}


@pytest.fixture(scope="module")
def digits():
    return SparsemaxClassifier(alpha=0.1, scale=2.5, class_weight=WEIGHTS).fit(X, [f"digit {i}" for i in y])


def test_a_fresh_process_predicts_the_same(digits, tmp_path):
    """To the bit: labels, probabilities, scores."""
    path = tmp_path / "digits.npz"
    digits.save(path)
    script = """
import sys
import numpy as np
from zerotail.sklearn import SparsemaxClassifier
model = SparsemaxClassifier.load(sys.argv[1])
X = np.load(sys.argv[2])
np.savez(sys.argv[3], labels=model.predict(X), p=model.predict_proba(X), z=model.decision_function(X))
"""
    np.save(tmp_path / "X.npy", X)
    command = [sys.executable, "-c", script, path, tmp_path / "X.npy", tmp_path / "out.npz"]
    subprocess.run(command, check=True, timeout=300)
    with np.load(tmp_path / "out.npz") as out:
        assert (out["labels"] == digits.predict(X)).all()
        assert (out["p"] == digits.predict_proba(X)).all()
        assert (out["z"] == digits.decision_function(X)).all()


@pytest.mark.parametrize("kind", ["two", "objects", "sets", "sparse sets", "proportions", "search"])
def test_what_is_loaded_is_what_was_saved(kind, tmp_path):
    """Every kind of estimator, its parameters and attributes; a search saves its best estimator."""
    sets = np.eye(10, dtype=int)[y] | np.eye(10, dtype=int)[y[::-1]]
    models = {
        "two": lambda: SparsemaxClassifier(alpha=0.1, max_iter=np.int64(90)).fit(X.astype(np.float32), y > 4),
        "objects": lambda: SparsemaxClassifier(alpha=0.1).fit(X, y.astype(str).astype(object)),
        "sets": lambda: SparsemaxClassifier("softmax", 0.1, threshold=0.2).fit(X, sets),
        "sparse sets": lambda: SparsemaxClassifier("logistic", 0.1).fit(X, sparse.csr_array(sets)),
        "proportions": lambda: ProportionRegressor(alpha=0.1).fit(X, sets / sets.sum(axis=1, keepdims=True)),
        "search": lambda: ProportionRegressorCV(alphas=[0.1, 1]).fit(X, np.eye(10)[y]),
    }
    model = models[kind]()
    model.save(tmp_path / "model")
    model = getattr(model, "best_estimator_", model)
    loaded = type(model).load(str(tmp_path / "model"))
    assert loaded.get_params() == model.get_params()
    assert vars(loaded).keys() == vars(model).keys()
    for name, value in vars(model).items():
        if isinstance(value, np.ndarray):
            assert getattr(loaded, name).dtype == value.dtype
            assert (getattr(loaded, name) == value).all()
    got, want = loaded.predict(X), model.predict(X)
    assert type(got) is type(want)
    assert abs(got - want).sum() == 0 if sparse.issparse(got) else (got == want).all()


def test_any_byte_that_is_missing_or_changed_is_found(digits, tmp_path):
    """Cut anywhere, or altered anywhere: one clear error."""
    path = tmp_path / "digits.npz"
    digits.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [
        0,
        1,
        63,
        64,
        len(whole) - 65,
        len(whole) - 64,
        len(whole) - 1,
        *rng.integers(0, len(whole), 60),
    ]
    for place in places:
        altered = bytearray(whole)
        altered[place] ^= 1 << int(rng.integers(8))
        for data in (bytes(altered), whole[:place], whole + b"x"):
            path.write_bytes(data)
            with pytest.raises(ValueError, match=r"path must be a file that save wrote; got .*digits\.npz"):
                SparsemaxClassifier.load(path)
    path.write_bytes(whole)
    SparsemaxClassifier.load(path)
    with pytest.raises(FileNotFoundError):
        SparsemaxClassifier.load(tmp_path / "none")


def forged(whole, change, compress=zipfile.ZIP_STORED):
    """A file with another content and a right digest."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    info = json.loads(entries["info.json"])
    change(entries, info)
    if "info.json" in entries:
        entries["info.json"] = json.dumps(info).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        archive.comment = bytes(64)
        for name, data in entries.items():
            archive.writestr(name, data)
    body = buffer.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


FORGERIES = {
    "nothing": (lambda e, i: e.clear(), "info.json"),
    "no weights": (lambda e, i: e.pop("coef_.npy"), "coef_"),
    "pickle": (lambda e, i: e.update({"coef_.npy": npy(np.array([[{}]]), allow_pickle=True)}), "object"),
    "shape": (lambda e, i: e.update({"coef_.npy": npy(np.zeros((10, 3)))}), "do not fit together"),
    "NaN": (lambda e, i: e.update({"coef_.npy": npy(np.full((10, 64), np.nan))}), "do not fit together"),
    "short": (lambda e, i: e.update({"coef_.npy": npy(np.zeros((10, 64)))[:-8]}), "path must be a file"),
    "huge": (
        lambda e, i: e.update(
            {"coef_.npy": npy(np.zeros((10, 64))).replace(b"(10, 64)", b"(9" + b"0" * 5 + b",)")}
        ),
        "path must be a file",
    ),
    "parameter": (lambda e, i: i["parameters"].update(alpha=-1), "alpha"),
    "unknown": (lambda e, i: i["parameters"].update(code="print()"), "code"),
    "class": (lambda e, i: i.update(estimator="ProportionRegressor"), "it holds a ProportionRegressor"),
    "format": (lambda e, i: i.update(format="2"), "its format is '2'"),
    "type": (lambda e, i: i.update(parameters=3), "path must be a file"),
    "iterations": (lambda e, i: i["numbers"].update(n_iter_="many"), "do not fit together"),
    "nesting": (lambda e, i: i.update(objects=[["coef_"]]), "path must be a file"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_can_at_worst_raise(name, digits, tmp_path):
    """No object of the file is built, no array that does not fit is kept."""
    change, message = FORGERIES[name]
    digits.save(tmp_path / "digits")
    (tmp_path / "digits").write_bytes(forged((tmp_path / "digits").read_bytes(), change))
    with pytest.raises(ValueError, match=message):
        SparsemaxClassifier.load(tmp_path / "digits")


def test_a_compressed_file_is_refused(digits, tmp_path):
    """A small file must not become a large one in memory."""
    digits.save(tmp_path / "digits")
    data = forged((tmp_path / "digits").read_bytes(), lambda e, i: None, zipfile.ZIP_DEFLATED)
    (tmp_path / "digits").write_bytes(data)
    with pytest.raises(ValueError, match="compressed"):
        SparsemaxClassifier.load(tmp_path / "digits")


def test_an_encrypted_file_is_refused(digits, tmp_path):
    """As any other file that save did not write."""
    digits.save(tmp_path / "digits")
    body = bytearray((tmp_path / "digits").read_bytes()[:-64])
    for signature, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        body[body.index(signature) + flags] |= 1
    (tmp_path / "digits").write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    with pytest.raises(ValueError, match=r"path must be a file that save wrote; .*encrypted"):
        SparsemaxClassifier.load(tmp_path / "digits")


def test_a_save_that_fails_leaves_the_old_file(digits, tmp_path, monkeypatch):
    """It is written under another name, which is gone afterwards."""
    path = tmp_path / "digits"
    digits.save(path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(_store.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        SparsemaxClassifier(alpha=1.0).fit(X, y).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["digits"]


def test_what_cannot_be_saved_is_refused(tmp_path):
    """A model that was not fitted; parameters and labels that are no numbers or strings."""
    with pytest.raises(NotFittedError):
        SparsemaxClassifier().save(tmp_path / "x")
    with pytest.raises(NotFittedError):
        SparsemaxClassifierCV().save(tmp_path / "x")
    model = SparsemaxClassifier(alpha=0.1).fit(X, y)
    model.classes_ = np.array([(1, 2)] * 10, dtype=object)[:, 0].astype(object)
    with pytest.raises(TypeError, match="classes_ must be numbers or strings"):
        model.save(tmp_path / "x")
    assert not list(tmp_path.iterdir())
