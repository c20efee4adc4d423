"""scikit-learn's own checks of estimators."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn")

from sklearn.base import is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerotail.sklearn import (
    ProportionRegressor,
    ProportionRegressorCV,
    SparsemaxClassifier,
    SparsemaxClassifierCV,
)

# Weights of rows must equal repeated rows to seven digits: solver="newton" solves to rounding.
ESTIMATORS = [
    SparsemaxClassifier(solver="newton"),
    SparsemaxClassifier("softmax", solver="newton"),
    SparsemaxClassifier("logistic", solver="newton"),
    SparsemaxClassifierCV(alphas=[1e-2, 1e-1], cv=2, solver="newton"),
    ProportionRegressor(on_invalid="project", solver="newton"),
    ProportionRegressorCV(alphas=[1e-2, 1e-1], cv=2, on_invalid="project", solver="newton"),
]


def expected(estimator):
    """The only check that may fail, and must, as failures are strict."""
    if getattr(estimator, "loss", None) == "sparsemax" and is_classifier(estimator):
        name = "check_classifiers_multilabel_output_format_predict_proba"
        return {
            name: "it demands probabilities strictly between 0 and 1; sparsemax's are exactly 0 in the tail"
        }
    return {}


@pytest.mark.filterwarnings("ignore:rows of y without labels are left out")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_the_checks_of_scikit_learn_pass(estimator, check):
    """The conventions that pipelines, searches and users rely on."""
    check(estimator)
