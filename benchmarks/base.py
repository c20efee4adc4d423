"""Another revision of zerotail, built beside the installed one and loaded into the same process."""

from __future__ import annotations

import importlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path
from types import ModuleType


class BaseError(Exception):
    """The revision cannot be had; the message says why."""


def run(*command: str, folder: Path) -> bytes:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        text = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise BaseError(f"{' '.join(command[:4])} failed:\n{text[-4000:]}")
    return done.stdout


def build(ref: str, root: Path, store: Path) -> tuple[str, Path]:
    """The commit that `ref` names, and a folder that holds its package. A commit is built once."""
    commit = run("git", "rev-parse", "--verify", f"{ref}^{{commit}}", folder=root).decode().strip()
    folder = store / f"base-{commit[:12]}-{sys.implementation.cache_tag}"
    if folder.exists():
        return commit, folder
    with tempfile.TemporaryDirectory() as temporary:
        source, installed = Path(temporary, "source"), Path(temporary, "installed")
        with tarfile.open(fileobj=io.BytesIO(run("git", "archive", commit, folder=root))) as archive:
            archive.extractall(source, filter="data")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
        # Two builds in one process: what is visible in both would be taken from the first.
        hidden = "--config-settings=cmake.define.CMAKE_CXX_VISIBILITY_PRESET=hidden"
        run(*pip, hidden, "--target", str(installed), str(source), folder=source)
        store.mkdir(parents=True, exist_ok=True)
        shutil.copytree(installed, folder)
    return commit, folder


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Import zerotail from `folder` only, whatever is loaded already or installed as editable."""
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "zerotail"}
    path, finders = list(sys.path), list(sys.meta_path)
    for name in ours:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        for name in [name for name in sys.modules if name.partition(".")[0] == "zerotail"]:
            del sys.modules[name]
        sys.modules.update(ours)


def load(folder: Path) -> ModuleType:
    with alone(folder):
        module = importlib.import_module("zerotail")
        for name, loaded in sys.modules.items():
            file = getattr(loaded, "__file__", None)
            if name.partition(".")[0] == "zerotail" and file and folder not in Path(file).parents:
                raise BaseError(f"{name} of the base revision was loaded from {file}")
    return module
