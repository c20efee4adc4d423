"""Sparsemax for scikit-learn: classifiers of labels and of label sets, and label proportions.

Needs scikit-learn 1.6 or later: `pip install "zerotail[sklearn]"`.
"""

from .._check import extra as _extra

for _module in ("sklearn", "scipy"):
    _extra(_module, "sklearn", "zerotail.sklearn")

from . import metrics  # noqa: E402 - after its requirements are met
from .linear import SparsemaxClassifier, SparsemaxClassifierCV  # noqa: E402
from .proportions import ProportionRegressor, ProportionRegressorCV  # noqa: E402

__all__ = [
    "ProportionRegressor",
    "ProportionRegressorCV",
    "SparsemaxClassifier",
    "SparsemaxClassifierCV",
    "metrics",
]
