"""The suite itself: it must fail for every wrong front end, and pass for one right by construction."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests import frontends, reference, wrong

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    f"tests/test_{name}.py"
    for name in (
        [
            "exactness",
            "propositions",
            "two_classes",
            "derivatives",
            "loss",
            "edges",
            "masks",
            "axes",
            "inputs",
            "peers",
        ]
    )
]
# The wrong front end, and a test that is there to catch it: not merely any test.
CAUGHT_BY = {
    "softmax-float32": "exactness::every_entry_row_sum_and_support_is_exact",
    "unshifted-float32": "peers::a_large_offset_does_not_spoil_the_sum",
    "float32-tau-float32": "exactness::a_row_whose_threshold_needs_more_than_float32_sums_to_one",
    "nearly-one-float32": "edges::a_score_that_leads_all_others_by_one_takes_everything",
    "zero-gradient-float32": "derivatives::the_product_with_the_jacobian_is_exact",
    "zero-reverse-float32": "peers::the_product_scales_with_what_comes_in",
    "mean-over-all-float32": "derivatives::the_product_with_the_jacobian_is_exact",
    "multiplied-float32": "derivatives::what_a_tangent_holds_off_the_support_does_not_matter",
    "last-axis-float32": "axes::the_value_sums_to_one_along_the_axis",
    "flat-float32": "axes::a_batch_of_matrices_is_not_projected_as_one",
    "loss-on-the-support-float32": "exactness::the_loss_and_its_gradient_are_exact",
    "unshifted-loss-float32": "loss::proposition_3_3_adding_a_constant_changes_nothing",
    "half-loss-float32": "loss::the_loss_is_eq_20",
    "ties-dropped-float32": "propositions::proposition_2_1_equal_scores_give_the_uniform_distribution",
    "in-place-float32": "inputs::no_argument_is_changed",
    "nan-is-zero-float32": "edges::a_nan_or_plus_infinity_makes_its_own_row_nan_and_no_other",
    "mask-as-score-float32": "masks::what_is_excluded_is_never_read",
    "rounded-twice-float16": "peers::half_precision_rows_sum_to_one_to_the_rounding_of_their_entries",
}

pytestmark = pytest.mark.skipif(frontends.REPLACED, reason="this is the run that is judged")

Tally = dict[str, dict[str, int]]
"""Per front end: the failures of each test, and how many tests passed (under "")."""


def judge(module: str, choice: list[str], report: Path, verdict: int) -> Tally:
    """The outcomes of a part of the suite for the front ends of a module."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            f"--junitxml={report}",
            *choice,
        ],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if "XDIST" not in k} | {"ZEROTAIL_TEST_FRONTENDS": module},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == verdict, done.stdout[-3000:] + done.stderr[-3000:]
    found: Tally = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test, _, parameters = case.attrib["name"].partition("[")
        if not parameters or case.find("skipped") is not None:
            continue
        assert case.find("error") is None, f"{case.attrib['name']}: a fixture failed"
        # The identifier of a front end ends in its dtype.
        name = re.match(r".*?-b?float(16|32|64)", parameters)
        assert name, case.attrib["name"]
        tally = found.setdefault(name[0], {"": 0})
        key = test if case.find("failure") is not None else ""
        tally[key] = tally.get(key, 0) + 1
    return found


def test_every_wrong_front_end_is_refused(tmp_path):
    """By the test that names what it does wrong; it passes others, for it is wrong in one way."""
    catchers = sorted({"tests/test_{}.py::test_{}".format(*test.split("::")) for test in CAUGHT_BY.values()})
    found = judge("tests.wrong", catchers, tmp_path / "report.xml", verdict=1)
    assert {str(frontend) for frontend in wrong.FRONTENDS} == set(CAUGHT_BY) == set(found)
    for name, test in CAUGHT_BY.items():
        assert found[name].get(f"test_{test.split('::')[1]}", 0) > 0, f"{name} passes {test}"
        assert found[name][""] > 0, f"{name} passes nothing"


def test_the_right_front_end_is_accepted(tmp_path):
    """The oracle, rounded once, passes every test that front ends are asked, in every dtype."""
    found = judge("tests.reference", FILES, tmp_path / "report.xml", verdict=0)
    assert set(found) == {str(frontend) for frontend in reference.FRONTENDS}
    for tally in found.values():
        assert set(tally) == {""}
        assert tally[""] > 500


def test_the_registry_has_every_front_end_and_type(frontend):
    """A suite that ran on nothing would pass: there are front ends, and this test saw one."""
    assert frontend in frontends.load() or str(frontend) in map(str, frontends.load())
    names = {str(f) for f in frontends.load()}
    assert {f"numpy-{t}" for t in ("float32", "float64", "float16")} <= names
    assert {f"numpy-axis0-{t}" for t in ("float32", "float64", "float16")} <= names
