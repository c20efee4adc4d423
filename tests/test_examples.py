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
