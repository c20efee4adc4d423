"""Cells of an artefact: computed once, kept by their settings, several at a time."""

import hashlib
import inspect
import json
import os
import shutil
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import zerotail as zt


@dataclass(frozen=True)
class Cell:
    """One computation: a function of a module, whose arguments and result JSON can hold.

    If the function has a parameter `scratch`, it is given a folder that lasts until the cell is done: what a
    killed run left there is there again.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        what = [self.function.__module__, self.function.__qualname__, self.arguments, version("zerotail")]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]


def published(artefact: str) -> dict[str, Any]:
    """The paper's numbers for it."""
    text = (Path(__file__).parent / "published.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text).get(artefact, {})
    return found


def write(path: Path, text: str) -> None:
    """The whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(cell: Cell, cache: Path) -> dict[str, Any] | None:
    """What is kept of the cell: its value, and the seconds that it took."""
    try:
        return json.loads((cache / f"{cell.key()}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def compute(cell: Cell, cache: Path) -> tuple[str, dict[str, Any]]:
    scratch = cache / f"{cell.key()}.scratch"
    arguments = dict(cell.arguments)
    if "scratch" in inspect.signature(cell.function).parameters:
        scratch.mkdir(parents=True, exist_ok=True)
        arguments["scratch"] = scratch
    start, used = time.perf_counter(), time.process_time()
    value = cell.function(**arguments)
    result = {
        "cell": cell.name,
        "arguments": cell.arguments,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - used,  # what it takes, whatever else the machine does
        "value": value,
    }
    text = json.dumps(result)
    write(cache / f"{cell.key()}.json", text)
    shutil.rmtree(scratch, ignore_errors=True)
    return cell.name, json.loads(text)


def _compute_in_worker(cell: Cell, cache: Path) -> tuple[str, dict[str, Any]]:
    zt.set_num_threads(1)
    return compute(cell, cache)


def run(
    name: str, cells: Sequence[Cell], cache: Path, jobs: int, parallel: bool, fresh: bool
) -> dict[str, dict[str, Any]]:
    """Every cell's result, in their order; with `parallel`, from `jobs` processes of one thread."""
    names = [cell.name for cell in cells]
    if len(set(names)) != len(names):
        raise ValueError(f"cells must have different names; got {names}")
    kept = {cell.name: None if fresh else load(cell, cache) for cell in cells}
    todo = [cell for cell in cells if kept[cell.name] is None]
    done = {name: result for name, result in kept.items() if result is not None}
    if not todo:
        return {name: done[name] for name in names}
    bar = tqdm(desc=name, total=len(cells), initial=len(done), unit="cell", disable=None)
    with bar:
        if parallel and jobs > 1 and len(todo) > 1:
            with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
                results = Parallel(return_as="generator_unordered", batch_size=1)(
                    delayed(_compute_in_worker)(cell, cache) for cell in todo
                )
                for cell_name, result in results:
                    done[cell_name] = result
                    bar.update()
        else:
            threads = zt.get_num_threads()
            with threadpool_limits(1) if parallel else nullcontext():
                if parallel:
                    zt.set_num_threads(1)
                try:
                    for cell in todo:
                        done[cell.name] = compute(cell, cache)[1]
                        bar.update()
                finally:
                    zt.set_num_threads(threads)
    return {name: done[name] for name in names}
