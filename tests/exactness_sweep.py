"""The promise of exactness on many rows: `python -m tests.exactness_sweep --rows 200000`.

Every row is solved in exact arithmetic once and judged on every CPU target, along the last axis and along the
first, alone and in a batch of rows of all families, by one thread and by two. The exit code is 1 if any row
is beyond a bound.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests import cases, judge, oracle
from tests.frontends import DTYPES, NumPy, Upright

LONG = (1_009, 4_099, 512, 2_048, 10_007, 701)
PAIR = tuple[str, str]  # dtype, CPU target


@dataclass
class Tally:
    """One dtype on one target."""

    judged: int = 0
    verdict: judge.Verdict = field(default_factory=judge.Verdict)
    other_bits: int = 0


@dataclass
class Report:
    rows: int = 0
    tallies: dict[PAIR, Tally] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    """The first batches in which a row is beyond a bound."""

    @property
    def right(self) -> bool:
        return all(t.judged and t.verdict.right and not t.other_bits for t in self.tallies.values())

    def __str__(self) -> str:
        head = "type      target      judged  entry      row sum    loss       gradient   supports  bits"
        lines = [
            f"{self.rows:,} rows, solved exactly; errors in eps of the compute type (half types: ulp of the"
        ]
        lines += ["entry; row sums, losses and gradients of half types: 1 is 4 eps and one rounding)", head]
        for (dtype, target), t in sorted(self.tallies.items()):
            half = dtype in ("float16", "bfloat16")
            unit, v = (1.0 if half else judge.BOUND), t.verdict
            errors = "".join(f"{x * unit:<11.4g}" for x in (v.entry, v.total, v.loss, v.gradient))
            lines.append(
                f"{dtype:<10}{target:<10}{t.judged:>8,}  {errors}{v.wrong_supports:<10}{t.other_bits}"
            )
        lines.append(f"bounds: {judge.BOUND:g} (half types: 1), no wrong support, no other bit")
        return "\n".join(lines + self.examples)


def batches(rows: int, seed: int) -> Iterator[tuple[np.dtype, np.ndarray]]:
    """Batches of all families, shuffled; the dtypes in turn, K from 1 to 257 and, at times, longer rows."""
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(np.arange(1, 258))
    made = turn = 0
    while made < rows or turn < len(DTYPES):
        dtype = DTYPES[turn % len(DTYPES)]
        step = turn // len(DTYPES)
        if step % 8 == 7:
            cols, each = LONG[(step // 8) % len(LONG)], 1
        else:
            cols, each = int(sizes[step % len(sizes)]), 8
        z = cases.mixture(seed + turn, cols, dtype, each)
        yield dtype, z
        made += len(z)
        turn += 1


def _bits(x: np.ndarray) -> np.ndarray:
    """Rows as bytes, so that NaN equals NaN and -0 differs from 0."""
    return np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1)


def _other_bits(
    zt, z: np.ndarray, p: np.ndarray, q: np.ndarray, value: np.ndarray, gradient: np.ndarray
) -> int:
    """Rows that differ from themselves: alone, elsewhere in the batch, or by another number of threads."""
    alone = np.empty_like(z)
    for row, out in zip(z, alone, strict=True):
        zt.sparsemax(row, out=out)
    moved = np.roll(z, 5, axis=0)
    wrong = (_bits(alone) != _bits(p)).any(axis=1)
    wrong |= (_bits(np.roll(zt.sparsemax(moved), -5, axis=0)) != _bits(p)).any(axis=1)
    value_moved, gradient_moved = zt.sparsemax_loss_and_grad(moved, np.roll(q, 5, axis=0))
    wrong |= (_bits(np.roll(gradient_moved, -5, axis=0)) != _bits(gradient)).any(axis=1)
    wrong |= (_bits(np.roll(value_moved, -5, axis=0)) != _bits(value)).any(axis=1)
    before = zt.get_num_threads()
    try:
        for threads in (1, 2):
            zt.set_num_threads(threads)
            wrong |= (_bits(zt.sparsemax(z)) != _bits(p)).any(axis=1)
    finally:
        zt.set_num_threads(before)
    return int(wrong.sum())


def _example(frontend: NumPy, name: str, z: np.ndarray, exact: oracle.Exact, verdict: judge.Verdict) -> str:
    """Where to look: the rows whose values are wrong, by what stands in them."""
    p, found = frontend.sparsemax(z), []
    for i, row in enumerate(exact.rows):
        one = oracle.Exact([row], exact.hi[i : i + 1], exact.lo[i : i + 1])
        if not judge.projection(p[i : i + 1], one).right:
            found.append(f"max {z[i].astype(float).max():g} with a support of {one.sizes[0]}")
    return f"beyond: {frontend} {name} K={z.shape[1]}: {'; '.join(found[:3]) or verdict}"


def sweep(rows: int, seed: int = 0, progress=None) -> Report:
    """Judge at least `rows` rows; `progress` is called with the number of rows done."""
    import zerotail as zt
    from zerotail import _core

    report = Report()
    before = _core.target()
    try:
        for dtype, z in batches(rows, seed):
            exact = oracle.project(z)
            cols = z.shape[1]
            q = cases.distributions(seed, len(z), cols, dtype)
            y = cases.labels(seed, len(z), cols)
            loss_q, loss_y = oracle.loss(z, q, exact), oracle.loss(z, y, exact)
            for name in _core.targets():
                assert _core.use_target(name)
                tally = report.tallies.setdefault((dtype.name, name), Tally())
                for frontend in (NumPy(dtype), Upright(dtype)):
                    p = frontend.sparsemax(z)
                    verdict = judge.projection(p, exact)
                    value, gradient = frontend.loss(z, q), frontend.gradient(z, q)
                    verdict.loss = judge.losses(value, *loss_q)
                    verdict.loss = max(verdict.loss, judge.losses(frontend.loss(z, y), *loss_y))
                    verdict.gradient = judge.gradients(gradient, exact, q)
                    tally.verdict = tally.verdict.merge(verdict)
                    if not verdict.right and len(report.examples) < 8:
                        report.examples.append(_example(frontend, name, z, exact, verdict))
                    if type(frontend) is NumPy:
                        tally.other_bits += _other_bits(zt, z, p, q, value, gradient)
                tally.judged += len(z)
            report.rows += len(z)
            if progress:
                progress(len(z))
    finally:
        _core.use_target(before)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    progress = bar = None
    try:
        from tqdm import tqdm
    except ImportError:
        pass
    else:
        bar = tqdm(total=options.rows, unit="row", disable=not sys.stderr.isatty())
        progress = bar.update
    start = time.perf_counter()
    report = sweep(options.rows, options.seed, progress)
    if bar is not None:
        bar.close()
    print(report)
    print(f"{time.perf_counter() - start:.0f} s: {'right' if report.right else 'WRONG'}")
    return 0 if report.right else 1


if __name__ == "__main__":
    sys.exit(main())
