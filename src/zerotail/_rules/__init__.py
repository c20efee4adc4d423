"""The paper's formulas, once, for every framework.

`xp` is an array namespace: `numpy`, `jax.numpy` or `torch`. Rows run along the last axis. A rule computes in
the dtype of its arguments: widen half types first, and round once, at the end.
"""

from . import loss, sparsemax

__all__ = ["loss", "sparsemax"]
