"""Bad input of the JAX front end: the exception types of JAX and optax, at trace time, our words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
zt = pytest.importorskip("zerotail.jax")
jnp = jax.numpy

X = jnp.asarray(np.random.default_rng(0).normal(0, 1, (3, 5)), jnp.float32)
Y = jnp.array([0, 1, 4])
Q = jax.nn.softmax(X)

# What is called with sparsemax or softmax, and what our message must say.
SOFTMAX: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an axis that is not there": (lambda f: f(X, 2), r"axis must be in \[-2, 2\).*got 2"),
    "a negative one": (lambda f: f(X, -3), r"axis must be in \[-2, 2\).*got -3"),
    "one of two axes": (lambda f: f(X, (0, 7)), r"axis must be in \[-2, 2\).*got 7"),
    "an axis of a scalar": (lambda f: f(jnp.float32(1)), r"axis must be in \[0, 0\).*0 dimensions; got -1"),
    "an axis twice": (lambda f: f(X, (0, -2)), r"axis must name each axis once; got \(0, -2\)"),
    "half an axis": (lambda f: f(X, 0.5), "axis must be an integer.*got 0.5"),
    "half an axis of two": (lambda f: f(X, (0, 0.5)), "axis must be an integer.*got 0.5"),
    "a traced axis": (lambda f: jax.jit(lambda axis: f(X, axis))(0), "raced"),
    "booleans": (lambda f: f(X > 0), "x must be float32.*got bool"),
    "a list": (lambda f: f([1.0, 2.0]), "x must be an array or a scalar; got list"),
    "nothing": (lambda f: f(None), "x must be an array or a scalar; got NoneType"),
    "words": (lambda f: f("scores"), "x must be an array or a scalar; got str"),
    "objects": (lambda f: f(np.array([None])), "x must be numeric; got object"),
    "dates": (lambda f: f(np.zeros(2, "datetime64[s]")), r"x must be numeric; got datetime64"),
    "a mask of floats": (lambda f: f(X, where=jnp.ones((3, 5))), "where must be boolean; got float32"),
    "a mask of integers": (lambda f: f(X, where=jnp.ones(5, int)), "where must be boolean; got int32"),
    "a mask in a list": (lambda f: f(X, where=[True] * 5), "where must be an array or a scalar; got list"),
    "a mask of another shape": (
        lambda f: f(X, where=jnp.ones(3, bool)),
        r"where must broadcast to x of shape \(3, 5\); got shape \(3,\)",
    ),
}

# What is called with sparsemax_loss, with which of optax's losses, and what our message must say.
LABELS, PROPORTIONS = "softmax_cross_entropy_with_integer_labels", "softmax_cross_entropy"
LOSS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "too many labels": (
        lambda f: f(X, jnp.zeros(4, int)),
        LABELS,
        r"target must be.*\(3,\).*got int32.*\(4,\)",
    ),
    "labels along another axis": (lambda f: f(X, Y, 0), LABELS, r"target must be.*shape \(5,\).*\(3,\)"),
    "labels of the shape of scores": (lambda f: f(X, Q.astype(int)), LABELS, r"target must be.*\(3, 5\)"),
    "one label for many rows": (lambda f: f(X, jnp.array(1)), LABELS, r"target must be.*shape \(\)"),
    "floats of the shape of labels": (lambda f: f(X, Y.astype(float)), LABELS, "target must be.*float32"),
    "booleans as labels": (lambda f: f(X, Y > 0), LABELS, "target must be.*got bool"),
    "a list of labels": (lambda f: f(X, [0, 1, 4]), LABELS, "target must be an array or a scalar; got list"),
    "an axis that is not there": (lambda f: f(X, Y, 2), LABELS, r"axis must be in \[-2, 2\).*got 2"),
    "turned distributions": (lambda f: f(X, Q.T), PROPORTIONS, r"target must be.*got float32.*\(5, 3\)"),
    "distributions over fewer": (lambda f: f(X, Q[:, :4]), PROPORTIONS, r"target must be.*\(3, 4\)"),
    "an axis that is not there, distributions": (
        lambda f: f(X, Q, 2),
        PROPORTIONS,
        r"axis must be in \[-2, 2\) for scores.*got 2",
    ),
}


def raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def same(ours: Exception, theirs: Exception, words: str) -> None:
    __tracebackhide__ = True
    assert type(ours) is type(theirs), (ours, theirs)
    assert re.search(words, str(ours)), ours


@pytest.mark.parametrize(("call", "words"), SOFTMAX.values(), ids=SOFTMAX.keys())
def test_a_mistake_raises_what_softmax_raises(call, words):
    """The type of the exception is JAX's, the words say what was expected and what came."""
    theirs = raised(lambda: call(jax.nn.softmax))
    same(raised(lambda: call(zt.sparsemax)), theirs, words)
    same(raised(lambda: call(zt.threshold)), theirs, words)


@pytest.mark.parametrize(("call", "peer", "words"), LOSS.values(), ids=LOSS.keys())
def test_a_mistake_raises_what_optax_raises(call, peer, words):
    """Wrong targets: ValueError for the shape of labels, TypeError for dtypes and for distributions."""
    optax = pytest.importorskip("optax")
    same(raised(lambda: call(zt.sparsemax_loss)), raised(lambda: call(getattr(optax, peer))), words)


@pytest.mark.parametrize("name", ["an axis that is not there", "a mask of another shape", "booleans"])
def test_mistakes_are_found_when_a_function_is_traced(name):
    """Under jit and under vmap, before anything runs."""
    call, words = SOFTMAX[name]
    with pytest.raises((TypeError, ValueError), match=words):
        jax.eval_shape(lambda: call(zt.sparsemax))
    with pytest.raises((TypeError, ValueError), match=r"axis must be in \[-1, 1\)"):
        jax.vmap(lambda x: zt.sparsemax(x, 1))(X)


def test_types_that_jax_computes_a_softmax_of_but_has_no_order_or_no_digits_for_are_refused():
    """Complex numbers and eighths: a TypeError that names the type."""
    for x in (X.astype(jnp.complex64), X.astype(jnp.float8_e4m3fn)):
        with pytest.raises(TypeError, match=f"x must be float32.*got {x.dtype}"):
            zt.sparsemax(x)
    with pytest.raises(TypeError, match=r"scores must be float32.*got complex64"):
        zt.sparsemax_loss(X.astype(jnp.complex64), Y)
    with pytest.raises(TypeError, match=r"target must be.*got complex64"):
        zt.sparsemax_loss(X, Q.astype(jnp.complex64))


def test_a_mask_larger_than_the_scores_is_refused():
    """It would make them larger."""
    with pytest.raises(ValueError, match=r"where must broadcast to x of shape \(5,\); got shape \(3, 5\)"):
        zt.sparsemax(X[0], where=X > 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zt.sparsemax(x=X),
        lambda: zt.sparsemax(X, -1, X > 0),
        lambda: zt.sparsemax_loss(X, Y, -1, X > 0),
        lambda: zt.sparsemax(X, dim=-1),
    ],
)
def test_an_option_cannot_be_positional_nor_an_array_named(call):
    """The signature of the contract."""
    with pytest.raises(TypeError):
        call()
