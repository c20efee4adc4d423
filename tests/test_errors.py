"""Bad input: the type of exception that NumPy raises, words that name the argument, and nothing changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

AxisError = np.exceptions.AxisError
Z = np.array([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]])
Q = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
READONLY = np.zeros((2, 3))
READONLY.flags.writeable = False

SCORES = ["sparsemax", "threshold", "sparsemax_loss", "sparsemax_loss_and_grad"]


def call(zt: Any, name: str, scores: Any, **options: Any) -> Any:
    """A function of scores, with a target where it needs one."""
    return getattr(zt, name)(scores, *([[0, 1]] if "loss" in name else []), **options)


@pytest.mark.parametrize("name", [*SCORES, "sparsemax_csr", "binary_sparsemax"])
@pytest.mark.parametrize(
    ("scores", "word"),
    [
        (Z.astype(complex), "complex128"),
        (Z.astype(object), "object"),
        (Z.astype(str), "<U"),
        (np.array([["a", "b", "c"]]), "<U1"),
        (np.zeros((2, 3), "datetime64[s]"), "datetime64"),
        (np.zeros((2, 3), "timedelta64[s]"), "timedelta64"),
        (np.zeros((2, 3), [("a", "f8")]), "a"),
        (object(), "object"),
        (None, "object"),
        ("scores", "<U6"),
        ([[None, 1.0, 2.0]], "object"),
    ],
)
def test_scores_that_are_not_real_numbers_are_refused(zt, name, scores, word):
    """A TypeError that names the argument and the dtype."""
    with pytest.raises(TypeError, match="scores must be") as error:
        call(zt, name, scores)
    assert word in str(error.value)


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="longdouble is float64 here")
@pytest.mark.parametrize("name", SCORES)
def test_long_doubles_are_refused(zt, name):
    """They would be rounded: not exact."""
    with pytest.raises(TypeError, match=r"scores must be.*(longdouble|float128|float96)"):
        call(zt, name, Z.astype(np.longdouble))


def test_long_doubles_are_refused_everywhere_else(zt):
    """Targets, tangents, values."""
    wide = Z.astype(np.longdouble)
    if wide.dtype == Z.dtype:
        pytest.skip("longdouble is float64 here")
    for attempt, word in (
        (lambda: zt.sparsemax_loss(Z, Q.astype(np.longdouble)), "target"),
        (lambda: zt.sparsemax_jvp(wide, Z), "p"),
        (lambda: zt.sparsemax_jvp(Z, wide), "v"),
        (lambda: zt.sparsemax_jacobian(wide), "p"),
        (lambda: zt.binary_sparsemax_loss(Z, wide), "target"),
    ):
        with pytest.raises(TypeError, match=f"^{word} must be"):
            attempt()


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("axis", [2, -3, 100, -(2**40), 2**70])
def test_an_axis_out_of_range_is_refused(zt, name, axis):
    """NumPy's own AxisError, which is a ValueError and an IndexError."""
    with pytest.raises(AxisError, match="axis"):
        call(zt, name, Z, axis=axis)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("axis", [1.0, "0", None, (0,), (0, 1), [1]])
def test_an_axis_that_is_not_an_integer_is_refused(zt, name, axis):
    """A TypeError: one axis, counted."""
    with pytest.raises(TypeError, match="axis must be"):
        call(zt, name, Z, axis=axis)


@pytest.mark.parametrize("axis", [np.int64(1), np.int8(-1), np.uint8(1)])
def test_an_axis_may_be_an_integer_of_numpy(zt, axis):
    """Whatever counts."""
    np.testing.assert_array_equal(zt.sparsemax(Z, axis=axis), zt.sparsemax(Z, axis=1))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("scores", [1.0, np.float32(1), np.array(2.0)])
def test_scores_without_a_dimension_are_refused(zt, name, scores):
    """There is no axis to sum along: an AxisError, as from `np.sort`."""
    with pytest.raises(AxisError):
        call(zt, name, scores)
    with pytest.raises(AxisError):
        zt.sparsemax_jvp(scores, scores)
    with pytest.raises(AxisError):
        zt.sparsemax_jacobian(scores)


def test_ragged_lists_are_refused(zt):
    """A ValueError that names the argument."""
    with pytest.raises(ValueError, match="scores must be"):
        zt.sparsemax([[1.0, 2.0], [3.0]])


# A row: what is called, the exception, what the message must say.
Row = tuple[Callable[[Any], Any], type[Exception], str]
ROWS: dict[str, Row] = {
    "where of floats": (
        lambda zt: zt.sparsemax(Z, where=np.ones((2, 3))),
        TypeError,
        "where must be boolean; got float64",
    ),
    "where of integers": (
        lambda zt: zt.threshold(Z, where=[1, 0, 1]),
        TypeError,
        "where must be boolean; got int",
    ),
    "where of another shape": (
        lambda zt: zt.sparsemax(Z, where=[True, False]),
        ValueError,
        r"where must.*\(2,\)",
    ),
    "where larger than scores": (
        lambda zt: zt.sparsemax(Z[0], where=Z > 0),
        ValueError,
        r"where must.*\(2, 3\)",
    ),
    "out of another shape": (
        lambda zt: zt.sparsemax(Z, out=np.zeros((3, 2))),
        ValueError,
        r"out must.*\(2, 3\).*\(3, 2\)",
    ),
    "out of another dtype": (
        lambda zt: zt.sparsemax(Z, out=np.zeros((2, 3), "f4")),
        TypeError,
        "out must.*float64.*float32",
    ),
    "out of integers": (
        lambda zt: zt.sparsemax(Z, out=np.zeros((2, 3), int)),
        TypeError,
        "out must.*float64.*int",
    ),
    "out read-only": (lambda zt: zt.sparsemax(Z, out=READONLY), ValueError, "out must be writable"),
    "out a list": (lambda zt: zt.sparsemax(Z, out=[[0.0] * 3] * 2), TypeError, "out must be.*list"),
    "out a tuple": (lambda zt: zt.sparsemax(Z, out=(np.zeros((2, 3)),)), TypeError, "out must be.*tuple"),
    "out with where of another shape": (
        lambda zt: zt.sparsemax(Z, where=Z > 0, out=np.zeros((3, 2))),
        ValueError,
        r"out must.*\(3, 2\)",
    ),
    "out for bits of uint16": (
        lambda zt: zt.sparsemax(np.zeros((2, 3), np.uint16), out=np.zeros((2, 3), np.uint16)),
        TypeError,
        "out must.*float64",
    ),
    "csr of one dimension": (
        lambda zt: zt.sparsemax_csr(Z[0]),
        ValueError,
        r"scores must be two-dimensional; got shape \(3,\)",
    ),
    "csr of three dimensions": (
        lambda zt: zt.sparsemax_csr(Z[None]),
        ValueError,
        r"scores must.*\(1, 2, 3\)",
    ),
    "p of complex numbers": (lambda zt: zt.sparsemax_jvp(Z * 1j, Z), TypeError, "p must be.*complex128"),
    "v of complex numbers": (lambda zt: zt.sparsemax_jvp(Z, Z * 1j), TypeError, "v must be.*complex128"),
    "v of another shape": (lambda zt: zt.sparsemax_jvp(Z, np.zeros((3, 2))), ValueError, r"v must.*\(3, 2\)"),
    "v larger than p": (lambda zt: zt.sparsemax_jvp(Z[0], Z), ValueError, r"v must.*\(2, 3\)"),
    "axis of the product": (lambda zt: zt.sparsemax_jvp(Z, Z, axis=2), AxisError, "axis"),
    "jacobian of objects": (
        lambda zt: zt.sparsemax_jacobian(Z.astype(object)),
        TypeError,
        "p must be.*object",
    ),
    "labels of another shape": (
        lambda zt: zt.sparsemax_loss(Z, [0, 1, 2]),
        ValueError,
        r"target must.*\(3,\)",
    ),
    "labels along another axis": (
        lambda zt: zt.sparsemax_loss(Z, [0, 1], axis=0),
        ValueError,
        r"target must.*\(2,\)",
    ),
    "one label for many rows": (lambda zt: zt.sparsemax_loss(Z, 1), ValueError, r"target must.*\(\)"),
    "labels of the shape of scores": (
        lambda zt: zt.sparsemax_loss(Z, Q.astype(int)),
        ValueError,
        r"target must.*\(2, 3\)",
    ),
    "floats of the shape of labels": (
        lambda zt: zt.sparsemax_loss(Z, [0.0, 1.0]),
        ValueError,
        r"target must.*\(2,\)",
    ),
    "distributions of another shape": (
        lambda zt: zt.sparsemax_loss(Z, Q.T),
        ValueError,
        r"target must.*\(3, 2\)",
    ),
    "one distribution for many rows": (
        lambda zt: zt.sparsemax_loss(Z, Q[:1]),
        ValueError,
        r"target must.*\(1, 3\)",
    ),
    "booleans as target": (lambda zt: zt.sparsemax_loss(Z, Q > 0), TypeError, "target must.*bool"),
    "complex target": (lambda zt: zt.sparsemax_loss(Z, Q * 1j), TypeError, "target must.*complex128"),
    "objects as target": (
        lambda zt: zt.sparsemax_loss(Z, Q.astype(object)),
        TypeError,
        "target must.*object",
    ),
    "words as target": (lambda zt: zt.sparsemax_loss(Z, ["a", "b"]), TypeError, "target must.*<U1"),
    "a label too large": (lambda zt: zt.sparsemax_loss(Z, [0, 3]), IndexError, r"target must.*\[0, 3\).*3"),
    "a label below zero": (lambda zt: zt.sparsemax_loss(Z, [0, -1]), IndexError, r"target must.*-1"),
    "the label that torch ignores": (
        lambda zt: zt.sparsemax_loss_and_grad(Z, [-100, 0]),
        IndexError,
        "target must.*-100",
    ),
    "a label beyond int64": (
        lambda zt: zt.sparsemax_loss(Z, np.array([0, 2**63 + 5], np.uint64)),
        IndexError,
        "target must.*9223372036854775813",
    ),
    "a label for no class": (
        lambda zt: zt.sparsemax_loss(np.zeros((1, 0)), [0]),
        IndexError,
        "target must.*0",
    ),
    "a row that sums to two": (
        lambda zt: zt.sparsemax_loss(Z, [[0.5, 0.5, 0], [1.0, 0.5, 0.5]]),
        ValueError,
        "target must sum to one.*2 in row 1",
    ),
    "a row of zeros": (
        lambda zt: zt.sparsemax_loss(Z, [[0.0] * 3, [1.0, 0, 0]]),
        ValueError,
        "target must sum to one.*0 in row 0",
    ),
    "a column that does not sum to one": (
        lambda zt: zt.sparsemax_loss(Z, [[0.5, 0.5, 0.5], [0.5, 0.5, 0.25]], axis=0),
        ValueError,
        "target must sum.*0.75 in row 2",
    ),
    "a row of a batch that does not sum to one": (
        lambda zt: zt.sparsemax_loss(Z[None], [[[0.5, 0.5, 0], [0.25, 0.5, 0]]]),
        ValueError,
        r"target must sum.*0.75 in row \(0, 1\)",
    ),
    "a negative proportion": (
        lambda zt: zt.sparsemax_loss(Z, [[0.5, 0.5, 0], [1.5, -0.5, 0]]),
        ValueError,
        "target must be nonnegative; got -0.5 in row 1.*sums to 1",
    ),
    "a NaN in the target": (
        lambda zt: zt.sparsemax_loss(Z, [[0.5, 0.5, 0], [np.nan, 1, 0]]),
        ValueError,
        "target must.*nan.*row 1",
    ),
    "an infinity in the target": (
        lambda zt: zt.sparsemax_loss(Z, [[np.inf, 0, 0], [0, 1, 0]]),
        ValueError,
        "target must.*inf.*row 0",
    ),
    "a binary target above one": (
        lambda zt: zt.binary_sparsemax_loss(Z, Z + 0.5),
        ValueError,
        r"target must be in \[0, 1\]; got 1.5",
    ),
    "a binary target below zero": (
        lambda zt: zt.binary_sparsemax_loss(0.0, -1),
        ValueError,
        r"target must be in \[0, 1\]; got -1",
    ),
    "a binary target of NaN": (
        lambda zt: zt.binary_sparsemax_loss(0.0, np.nan),
        ValueError,
        r"target must be in \[0, 1\]; got nan",
    ),
    "a binary target of words": (
        lambda zt: zt.binary_sparsemax_loss(0.0, "yes"),
        TypeError,
        "target must be",
    ),
    "a binary target of another shape": (
        lambda zt: zt.binary_sparsemax_loss(Z, [0.0, 1.0]),
        ValueError,
        r"target must broadcast.*\(2, 3\).*\(2,\)",
    ),
    "no threads": (lambda zt: zt.set_num_threads(0), ValueError, "n must be at least 1.*0"),
    "fewer than no threads": (lambda zt: zt.set_num_threads(-1), ValueError, "n must be at least 1.*-1"),
    "more threads than the environment may ask for": (
        lambda zt: zt.set_num_threads(1025),
        ValueError,
        "n must be at least 1 and at most 1024; got 1025",
    ),
    "half a thread": (lambda zt: zt.set_num_threads(0.5), TypeError, "n must be an integer; got 0.5"),
    "threads in words": (lambda zt: zt.set_num_threads("2"), TypeError, "n must be an integer; got '2'"),
}


@pytest.mark.parametrize(("attempt", "kind", "words"), ROWS.values(), ids=ROWS.keys())
def test_a_bad_argument_is_named_with_what_it_was(zt, attempt, kind, words):
    """*argument* must *requirement*; got *value*, in the type of exception that NumPy users expect."""
    before = copy.deepcopy((Z, Q)), zt.get_num_threads()
    with pytest.raises(kind, match=words) as error:
        attempt(zt)
    # Not a subclass, which code that catches something else would catch as well.
    assert error.type is kind
    assert "\n" not in str(error.value)
    assert before[1] == zt.get_num_threads()
    for a, b in zip(before[0], (Z, Q), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_option_cannot_be_positional_nor_an_array_named(zt):
    """Arrays are positional, options are named: no call that reads as another."""
    for attempt in (
        lambda: zt.sparsemax(Z, 0),
        lambda: zt.sparsemax(scores=Z),
        lambda: zt.threshold(Z, 0),
        lambda: zt.sparsemax_loss(Z, [0, 1], 0),
        lambda: zt.sparsemax_loss(Z, target=[0, 1]),
        lambda: zt.sparsemax_jvp(Z, Z, 0),
        lambda: zt.sparsemax(Z, dim=0),
    ):
        with pytest.raises(TypeError):
            attempt()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_target_may_be_off_by_the_root_of_its_precision(zt, dtype):
    """The sum is within sqrt(eps) of the target's dtype of one, or it is refused."""
    slack = float(np.sqrt(np.finfo(dtype).eps))
    good = np.array([[0.5, 0.5 + 0.8 * slack, 0.0]], dtype)
    zt.sparsemax_loss(Z[:1], good)
    bad = np.array([[0.5, 0.5 + 1.3 * slack, 0.0]], dtype)
    with pytest.raises(ValueError, match="target must sum to one"):
        zt.sparsemax_loss(Z[:1], bad)


def test_a_label_check_reads_every_label(zt):
    """A single bad label among many is found and named."""
    z = np.zeros((1_000, 3), np.float32)
    for bad in (3, -1, 2**40):
        labels = np.zeros(1_000, np.int64)
        labels[613] = bad
        with pytest.raises(IndexError, match=str(bad)):
            zt.sparsemax_loss(z, labels)
