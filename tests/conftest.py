"""Fixtures: every front end, every CPU target of this machine, one thread and two."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests import frontends

# Tables of torch's own types and functions; other files skip where what they need is missing.
TORCH = ["test_attention*.py", "test_torch_[gmu]*.py", "test_tra*.py"]
collect_ignore_glob = [] if find_spec("torch") else TORCH

settings.register_profile(
    "zerotail",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("zerotail")

FRONTENDS = frontends.load()
TARGETS = ["none"] if frontends.REPLACED else list(importlib.import_module("zerotail._core").targets())


@pytest.fixture(scope="session", params=FRONTENDS, ids=str)
def frontend(request: pytest.FixtureRequest) -> frontends.Frontend:
    return request.param


@pytest.fixture(scope="session", params=[f for f in FRONTENDS if f.dtype.itemsize == 8], ids=str)
def frontend64(request: pytest.FixtureRequest) -> frontends.Frontend:
    """In float64 alone, for finite differences."""
    return request.param


@pytest.fixture(scope="session")
def zt() -> ModuleType:
    """The NumPy front end, for what is its own: `out=`, exceptions, sparse results."""
    return importlib.import_module("zerotail")


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """One CPU target at a time."""
    if request.param == "none":
        yield request.param
        return
    core = importlib.import_module("zerotail._core")
    cores = [core]
    with suppress(ImportError):  # built where JAX is
        cores.append(importlib.import_module("zerotail._ffi"))
    before = core.target()
    for each in cores:
        assert each.use_target(request.param)
    yield request.param
    for each in cores:
        each.use_target(before)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    libraries = [importlib.import_module("zerotail")]
    if "torch" in sys.modules:
        libraries.append(sys.modules["torch"])
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(request.param)
    yield request.param
    for library, count in zip(libraries, before, strict=True):
        library.set_num_threads(count)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    """What JAX has compiled for a file of tests goes with it: thousands of programs are gigabytes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
