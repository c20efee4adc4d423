"""The examples run, and show what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_network_on_digits_learns_and_most_classes_get_no_probability():
    """After three epochs: four of five images right with either loss; softmax leaves no class out."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    said = run("torch_digits.py", "--epochs", "3", "--seed", "1")
    assert said.count("epoch   1 ") == said.count("epoch   3 ") == 2
    rows = {line.split()[0]: line.split() for line in said.splitlines() if "of 10" in line}
    accuracy = {name: float(row[1].rstrip("%")) for name, row in rows.items()}
    classes = {name: float(row[2]) for name, row in rows.items()}
    assert min(accuracy["sparsemax"], accuracy["softmax"]) > 80
    assert 1 <= classes["sparsemax"] < 3
    assert classes["softmax"] == 10
    assert "--seed" in run("torch_digits.py", "--help")


def test_the_multilabel_classifier_learns_and_needs_no_threshold():
    """With sparsemax the labels of positive probability are a prediction; with softmax those are all."""
    pytest.importorskip("jax")
    pytest.importorskip("optax")
    said = run("jax_multilabel.py", "--steps", "150", "--examples", "500", "--seed", "1")
    losses = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("  step")]
    assert losses[2] < losses[0] / 2
    rows = [line.split() for line in said.splitlines() if " p > " in line]
    assert [row[0] for row in rows] == ["sparsemax", "sparsemax", "softmax", "softmax"]
    labels, scores = [float(row[-2]) for row in rows], [float(row[-1]) for row in rows]
    assert labels[0] < 5
    assert labels[2] == 12
    assert min(scores[0], scores[1], scores[3]) > 0.7
    assert scores[0] > scores[2] + 0.2
    assert "--seed" in run("jax_multilabel.py", "--help")
