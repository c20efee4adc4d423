"""Sparsemax for PyTorch: `torch.softmax` and `F.cross_entropy` with exact zeros.

Needs PyTorch 2.10 or later: `pip install "zerotail[torch]"`.
"""


def _require() -> None:
    from .._check import extra

    torch = extra("torch", "torch", "zerotail.torch")
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < (2, 10):
        raise ImportError(f"zerotail.torch needs PyTorch 2.10 or later; got {torch.__version__}")


_require()

from . import _sharding  # noqa: E402 - after its requirements are met
from ._transformers import register_attention  # noqa: E402
from .attention import AdditiveAttention, MultiheadAttention, sparsemax_attention  # noqa: E402
from .functional import (  # noqa: E402
    binary_sparsemax,
    binary_sparsemax_loss,
    onnx_translations,
    sparsemax,
    sparsemax_loss,
    threshold,
)
from .nn import BinarySparsemaxLoss, Sparsemax, SparsemaxLoss  # noqa: E402
from .sublinear import linear_sparsemax_loss, weighted_sum  # noqa: E402

_sharding.register_when_imported()

__all__ = [
    "AdditiveAttention",
    "BinarySparsemaxLoss",
    "MultiheadAttention",
    "Sparsemax",
    "SparsemaxLoss",
    "binary_sparsemax",
    "binary_sparsemax_loss",
    "linear_sparsemax_loss",
    "onnx_translations",
    "register_attention",
    "sparsemax",
    "sparsemax_attention",
    "sparsemax_loss",
    "threshold",
    "weighted_sum",
]
