"""Arrays that lie on two devices, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("zerotail.jax")

ROOT = Path(__file__).resolve().parent.parent


def test_on_two_devices_every_use_is_right_and_no_batch_axis_is_gathered():
    """jit of sharded inputs and shard_map: values, placement, and no collective in what is compiled."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.jax_shards"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    for way, least in (("jit", 18), ("shard_map", 19), ("explicit", 18)):
        assert sum(line.startswith(f"{way}:") for line in said) >= least
    assert said[-1] == "values: True"
