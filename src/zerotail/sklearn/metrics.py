"""What the paper's section 4 measures: F1 over label sets, distances between proportions, the sparsemax loss.

`get_scorer(name)` gives them as scorers, for `SparsemaxClassifierCV(scoring=name)` and for scikit-learn's own
`cross_val_score` and `GridSearchCV`.
"""

from ._metrics import (
    get_scorer,
    jensen_shannon,
    macro_f1,
    macro_f1_of_averages,
    micro_f1,
    scorer_names,
    sparsemax_loss,
    squared_error,
)

__all__ = [
    "get_scorer",
    "jensen_shannon",
    "macro_f1",
    "macro_f1_of_averages",
    "micro_f1",
    "scorer_names",
    "sparsemax_loss",
    "squared_error",
]
