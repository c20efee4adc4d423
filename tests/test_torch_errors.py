"""Bad input of the PyTorch front end: torch's own exception types, our words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
zt = pytest.importorskip("zerotail.torch")

X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 4])
Q = torch.softmax(X, 1)
META = X.to("meta")

# What is called with sparsemax or softmax, and what our message must say.
SOFTMAX: dict[str, tuple[Callable[[Any], Any], str]] = {
    "integers": (lambda f: f(X.long(), -1), "input must be float.*int64"),
    "booleans": (lambda f: f(X > 0, -1), "input must be float.*bool"),
    "complex numbers": (lambda f: f(X.to(torch.complex64), -1), "input must be float.*complex64"),
    "eighths": (lambda f: f(X.to(torch.float8_e5m2), -1), "input must be float.*float8"),
    "a dtype of integers": (lambda f: f(X, -1, dtype=torch.int64), "dtype must be float.*int64"),
    "a list": (lambda f: f([1.0, 2.0], 0), "input must be a Tensor; got list"),
    "a dimension that is not there": (lambda f: f(X, 2), r"dim must be in \[-2, 2\).*got 2"),
    "a negative one": (lambda f: f(X, -3), r"dim must be in \[-2, 2\).*got -3"),
    "a dimension of one score": (lambda f: f(torch.tensor(1.0), 1), r"dim must be in \[-1, 1\).*got 1"),
    "a dimension in words": (lambda f: f(X, "rows"), "dim must be an integer; got 'rows'"),
    "half a dimension": (lambda f: f(X, 0.5), "dim must be an integer; got 0.5"),
    "a boolean dimension": (lambda f: f(X, True), "dim must be an integer; got True"),
}


def raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize(("call", "words"), SOFTMAX.values(), ids=SOFTMAX.keys())
def test_a_mistake_raises_what_softmax_raises(call, words):
    """The type of the exception is torch's, the words say what was expected and what came."""
    ours, theirs = raised(lambda: call(zt.sparsemax)), raised(lambda: call(torch.softmax))
    assert type(ours) is type(theirs), (ours, theirs)
    assert re.search(words, str(ours))


@pytest.mark.parametrize("name", ["integers", "a dimension that is not there", "a list", "half a dimension"])
def test_the_threshold_raises_the_same(name):
    """One set of checks."""
    call, words = SOFTMAX[name]
    ours, theirs = raised(lambda: call(zt.threshold)), raised(lambda: call(torch.softmax))
    assert type(ours) is type(theirs), (ours, theirs)
    assert re.search(words, str(ours))


# What is called with either loss.
LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a label too large": (
        lambda f: f(X, torch.tensor([0, 1, 5])),
        r"target must be labels in \[0, 5\).*got 5",
    ),
    "a label below zero": (lambda f: f(X, torch.tensor([0, -1, 2])), "target must be labels.*got -1"),
    "a label too large, smoothed": (
        lambda f: f(X, torch.tensor([0, 7, 2]), label_smoothing=0.5),
        "target must be labels.*got 7",
    ),
    "a label for no class": (lambda f: f(torch.zeros(3, 0), Y), r"target must be labels in \[0, 0\)"),
    "labels of int32": (lambda f: f(X, Y.int()), "target must be labels of type int64.*int32"),
    "labels of booleans": (lambda f: f(X, Y > 0), "target must be labels of type int64.*bool"),
    "floats of the shape of labels": (
        lambda f: f(X, Y.float()),
        "target must be labels of type int64.*float32",
    ),
    "labels for other rows": (lambda f: f(X, Y[:2]), r"target must be labels of shape \(3,\).*\(2,\)"),
    "labels in a column": (lambda f: f(X, Y[:, None]), r"target must be labels of shape \(3,\).*\(3, 1\)"),
    "probabilities of other classes": (lambda f: f(X, Q[:, :4]), r"target must be.*\(3, 5\).*\(3, 4\)"),
    "integers of the shape of scores": (lambda f: f(X, Q.long()), "target must be probabilities.*int64"),
    "scores of integers": (lambda f: f(X.long(), Y), "input must be float.*int64"),
    "a list of labels": (lambda f: f(X, [0, 1, 2]), "target must be a Tensor; got list"),
    "a weight too few": (lambda f: f(X, Y, torch.ones(4)), r"weight must have one number.*5 classes.*\(4,\)"),
    "a weight in a column": (lambda f: f(X, Y, torch.ones(5, 1)), r"weight must.*\(5, 1\)"),
    "a weight of another type": (
        lambda f: f(X, Y, torch.ones(5).double()),
        "weight must have the type.*float64",
    ),
    "a weight that wants a gradient": (
        lambda f: f(X, Y, torch.ones(5, requires_grad=True)),
        "weight must not require a gradient",
    ),
    "a list of weights": (lambda f: f(X, Y, [1.0] * 5), "weight must be a Tensor; got list"),
    "a weight too few, for probabilities": (lambda f: f(X, Q, torch.ones(4)), r"weight must.*\(4,\)"),
    "ignored probabilities": (lambda f: f(X, Q, ignore_index=2), "ignore_index must be negative.*2"),
    "half an index": (lambda f: f(X, Y, ignore_index=0.5), "ignore_index must be an integer; got 0.5"),
    "another reduction": (lambda f: f(X, Y, reduction="median"), "reduction must be.*'median'"),
    "more than all smoothed": (lambda f: f(X, Y, label_smoothing=1.5), r"label_smoothing must be.*1.5"),
    "labels elsewhere": (
        lambda f: f(X, Y.to("meta")),
        "target must be on the device of input, cpu; got meta",
    ),
    "scores elsewhere": (lambda f: f(META, Y), "target must be on the device of input, meta; got cpu"),
    "weights elsewhere": (
        lambda f: f(X, Y, torch.ones(5, device="meta")),
        "weight must be on the device of input, cpu; got meta",
    ),
}


@pytest.mark.parametrize(("call", "words"), LOSSES.values(), ids=LOSSES.keys())
def test_a_mistake_raises_what_cross_entropy_raises(call, words):
    """The type of the exception is torch's, the words say what was expected and what came."""
    ours, theirs = raised(lambda: call(zt.sparsemax_loss)), raised(lambda: call(F.cross_entropy))
    assert type(ours) is type(theirs), (ours, theirs)
    assert re.search(words, str(ours))


MASKS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "of floats": (lambda: zt.sparsemax(X, mask=X), TypeError, "mask must be boolean; got torch.float32"),
    "of integers": (lambda: zt.sparsemax(X, mask=X.long()), TypeError, "mask must be boolean"),
    "of another shape": (
        lambda: zt.sparsemax(X, mask=X[:2] > 0),
        RuntimeError,
        r"mask must broadcast.*\(3, 5\).*\(2, 5\)",
    ),
    "larger than the scores": (lambda: zt.sparsemax(X[0], mask=X > 0), RuntimeError, r"mask must.*\(3, 5\)"),
    "a list": (lambda: zt.sparsemax(X, mask=[True] * 5), TypeError, "mask must be a Tensor; got list"),
    "elsewhere": (lambda: zt.sparsemax(X, mask=META > 0), RuntimeError, "mask must be on the device.*cpu"),
}


@pytest.mark.parametrize(("call", "kind", "words"), MASKS.values(), ids=MASKS.keys())
def test_a_mask_that_cannot_be_used_is_named(call, kind, words):
    """Types for types, torch's RuntimeError for shapes and devices."""
    with pytest.raises(kind, match=words) as caught:
        call()
    assert type(caught.value) is kind


def test_the_other_checks():
    """A dtype that is none, a binary target of another shape, modules that are made wrong."""
    for call, kind, words in (
        (lambda: zt.sparsemax(X, dtype="float32"), TypeError, "dtype must be a torch.dtype; got str"),
        (lambda: zt.binary_sparsemax(Y), NotImplementedError, "input must be float.*int64"),
        (lambda: zt.binary_sparsemax_loss(X, Q[:2]), ValueError, r"target must have the shape.*\(2, 5\)"),
        (lambda: zt.binary_sparsemax_loss(X, Q, reduction="no"), ValueError, "reduction must be"),
        (lambda: zt.SparsemaxLoss(reduction="no"), ValueError, "reduction must be"),
        (lambda: zt.SparsemaxLoss(label_smoothing=-1), RuntimeError, "label_smoothing must be"),
        (lambda: zt.BinarySparsemaxLoss(reduction="no"), ValueError, "reduction must be"),
    ):
        with pytest.raises(kind, match=words):
            call()


def test_integers_are_taken_with_a_dtype():
    """As softmax takes them."""
    p = zt.sparsemax(torch.tensor([2, 1, 0]), dtype=torch.float64)
    assert p.dtype == torch.float64
    assert p.tolist() == [1, 0, 0]


def test_one_score_without_a_dimension_is_one():
    """As softmax: (), and NaN where it has no value."""
    for dim in (0, -1):
        p = zt.sparsemax(torch.tensor(-3.0, requires_grad=True), dim)
        assert p.shape == ()
        assert p.item() == 1
    assert zt.sparsemax(torch.tensor(torch.inf)).isnan()
    assert zt.threshold(torch.tensor(3.0)).item() == 2


def run(script: str, folder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": folder},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORT = """
try:
    import zerotail.torch
except ImportError as error:
    print(error)
"""


def test_without_torch_the_extra_is_named(tmp_path):
    """`import zerotail.torch` says how to get it."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    assert 'pip install "zerotail[torch]"' in run(IMPORT, str(tmp_path))


@pytest.mark.parametrize("version", ["2.9.1", "1.13.1+cu117"])
def test_an_older_torch_is_refused_in_words(tmp_path, version):
    """What is needed, and what is there."""
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    said = run(IMPORT, str(tmp_path))
    assert "2.10" in said
    assert version in said
