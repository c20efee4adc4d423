"""What zerotail does: sparsemax beside softmax, how long both take, and what of the paper needs no download.

Command: ``make demo``, or ``python examples/demo.py [--out DIR]`` where ``zerotail[paper]`` is installed.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import numpy as np
from scipy.special import softmax

import zerotail as zt

ROOT = Path(__file__).resolve().parent.parent
ROWS = {
    "a clear winner": [2.5, 1.0, 0.5, -1.0, -2.0],
    "two that share": [1.6, 1.4, 0.2, 0.0, -0.5],
    "nearly flat": [0.2, 0.1, 0.0, -0.1, -0.2],
    "one is masked": [-np.inf, 0.6, 0.5, 0.1, -0.8],
}
SIZES = ((16384, 64), (1024, 1024), (32, 32768))
BARS = " ▁▂▃▄▅▆▇█"


def cell(p: float) -> str:
    """A probability with a bar; a dot where it is exactly zero."""
    return f"{BARS[max(1, round(8 * p))]}{p:4.2f}".replace("0.", ".") if p > 0 else "   ·"


def show_rows() -> None:
    print(f"{'':16}{'scores':25}   {'softmax':25}   sparsemax")
    for name, scores in ROWS.items():
        numbers = "".join(f"{z:5.1f}" for z in scores)
        left, right = ("".join(f"{cell(p):5}" for p in f(scores)) for f in (softmax, zt.sparsemax))
        print(f"{name:14}  {numbers}   {left}   {right}")


def sparsemax_by_sorting(scores: np.ndarray) -> np.ndarray:
    """Algorithm 1 of the paper, in float64: what the fast kernel must agree with before it is timed."""
    z = scores.astype(np.float64) - scores.max(axis=-1, keepdims=True)
    ordered = -np.sort(-z, axis=-1)
    excess = ordered.cumsum(axis=-1) - 1
    size = np.sum(ordered * np.arange(1, z.shape[-1] + 1) > excess, axis=-1, keepdims=True)
    tau = np.take_along_axis(excess, size - 1, axis=-1) / size
    return np.maximum(z - tau, 0.0)


def rivals(scores: np.ndarray) -> dict[str, Callable[[], object]]:
    """Calls to compare, each into an output that exists already where the library can."""
    out = np.empty_like(scores)
    calls: dict[str, Callable[[], object]] = {
        "zerotail": lambda: zt.sparsemax(scores, out=out),
        "SciPy softmax": lambda: softmax(scores, axis=-1),
    }
    if find_spec("torch"):
        import torch

        torch.set_num_threads(zt.get_num_threads())
        tensor = torch.from_numpy(scores)
        result = torch.empty_like(tensor)
        calls["torch softmax"] = lambda: torch.softmax(tensor, dim=-1, out=result)
        if find_spec("entmax"):
            import entmax

            calls["entmax sparsemax"] = lambda: entmax.sparsemax(tensor, dim=-1)
    return calls


def medians(calls: dict[str, Callable[[], object]], seconds: float = 2.0) -> dict[str, float]:
    """The median time of each call, all of them in turn, so that what slows the machine slows all."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = perf_counter() + seconds
    while perf_counter() < end or len(times["zerotail"]) < 5:
        for name, call in calls.items():
            sleep(0.01)  # until the threads of the call before have stopped to spin
            call()
            start = perf_counter()
            call()
            times[name].append(perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def show_times() -> None:
    rng = np.random.default_rng(0)
    for i, shape in enumerate(SIZES):
        scores = rng.standard_normal(shape).astype(np.float32)
        error = np.abs(zt.sparsemax(scores) - sparsemax_by_sorting(scores)).max() / np.finfo(np.float32).eps
        if error > 4:
            sys.exit(f"sparsemax is off by {error:.1f} eps at {shape}: not timed")
        times = medians(rivals(scores))
        if i == 0:
            print(f"{'rows x K':16}" + "".join(f"{name:>21}" for name in times))
        own = times["zerotail"]
        cells = [f"{own * 1e3:.2f}"] + [f"{t * 1e3:.2f} ({t / own:5.1f} x)" for t in list(times.values())[1:]]
        print(f"{'{} x {}'.format(*shape):16}" + "".join(f"{text:>21}" for text in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results", help="where figures go (default: results)"
    )
    out = parser.parse_args().out.resolve()
    sys.stdout.reconfigure(errors="replace")  # bars, on terminals that have none

    print("Softmax gives every entry something; sparsemax gives those that do not matter exactly zero (·).\n")
    show_rows()
    print("\nMedian milliseconds on float32, and in brackets how many times zerotail's.")
    print(f"Threads: {zt.get_num_threads()}; SciPy's softmax: 1.\n")
    show_times()
    print("\nThe paper, as far as it needs no download:", flush=True)
    subprocess.run([sys.executable, "-m", "paper", "demo", "--out", out], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
