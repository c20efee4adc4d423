"""Sparsemax for JAX: `jax.nn.softmax` and optax's cross-entropies with exact zeros.

Needs JAX 0.7 or later: `pip install "zerotail[jax]"`.
"""


def _require() -> None:
    from .._check import extra

    jax = extra("jax", "jax", "zerotail.jax")
    if jax.__version_info__ < (0, 7):
        raise ImportError(f"zerotail.jax needs JAX 0.7 or later; got {jax.__version__}")


_require()

from .functional import sparsemax, sparsemax_loss, threshold  # noqa: E402 - after its requirements are met

__all__ = ["sparsemax", "sparsemax_loss", "threshold"]
