"""Sparsemax: softmax with a true zero tail.

`import zerotail` needs NumPy and the compiled core, nothing else. The other front ends, `zerotail.torch`,
`zerotail.jax` and `zerotail.sklearn`, are imported by name, where their framework is installed.
"""

from typing import TYPE_CHECKING

from ._numpy import (
    binary_sparsemax,
    binary_sparsemax_loss,
    get_num_threads,
    set_num_threads,
    sparsemax,
    sparsemax_csr,
    sparsemax_jacobian,
    sparsemax_jvp,
    sparsemax_loss,
    sparsemax_loss_and_grad,
    threshold,
)

__all__ = [
    "binary_sparsemax",
    "binary_sparsemax_loss",
    "get_num_threads",
    "set_num_threads",
    "sparsemax",
    "sparsemax_csr",
    "sparsemax_jacobian",
    "sparsemax_jvp",
    "sparsemax_loss",
    "sparsemax_loss_and_grad",
    "threshold",
]

__version__: str

if not TYPE_CHECKING:  # a type checker would take any misspelt name for a str

    def __getattr__(name: str) -> str:
        if name == "__version__":  # on demand: importlib.metadata costs half an import of NumPy
            from importlib.metadata import version

            return version("zerotail")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
