"""Results as tables, verdicts and JSON."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.model import OURS, Benchmark, Cell, Target, label
from benchmarks.timing import Times

RESTLESS = 0.25  # a spread that says more about the machine than about the code


@dataclass
class Line:
    """One cell's outcome: times, or the reason why there are none."""

    cell: Cell
    times: dict[str, Times] = field(default_factory=dict)
    failure: str = ""  # the gate's
    notes: list[str] = field(default_factory=list)

    def ratio(self, peer: str) -> float | None:
        if OURS not in self.times or peer not in self.times:
            return None
        return self.times[OURS].median / self.times[peer].median


@dataclass
class Outcome:
    """One benchmark at one number of threads."""

    benchmark: Benchmark
    threads: int
    lines: list[Line]
    others: float | None = None  # cores that other programs kept busy meanwhile

    @property
    def crowded(self) -> bool:
        """Others took a core that this needed: threads that wait for each other measure the scheduler."""
        return self.others is not None and self.others > (os.cpu_count() or 1) - self.threads + 0.2

    def providers(self) -> list[str]:
        return list(dict.fromkeys(name for line in self.lines for name in line.times))

    def peers(self) -> list[str]:
        return [name for name in self.providers() if name != OURS]

    def ratios(self, peer: str) -> list[tuple[float, Line]]:
        found = ((line.ratio(peer), line) for line in self.lines)
        return [(ratio, line) for ratio, line in found if ratio is not None]


@dataclass(frozen=True)
class Verdict:
    text: str
    value: float | None  # None: nothing was measured
    met: bool | None
    at: str = ""  # the worst cell


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def duration(seconds: float) -> str:
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
    seconds = float(f"{seconds:.3g}")
    unit, scale = next((pair for pair in units if seconds * pair[1] >= 1), units[-1])
    value = seconds * scale
    return f"{value:.{max(0, 2 - int(math.log10(max(value, 1))))}f} {unit}"


def number(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def judge(target: Target, outcome: Outcome) -> Verdict:
    note = f" ({target.note})" if target.note else ""
    lines = [line for line in outcome.lines if target.where(line.cell)]
    if target.against is None:
        found = [(line.times[OURS].median, line) for line in lines if OURS in line.times]
        text = f"{OURS} <= {duration(target.limit)}{note}"
    else:
        ratios = ((line.ratio(target.against), line) for line in lines)
        found = [(ratio, line) for ratio, line in ratios if ratio is not None]
        how = "geometric mean of" if target.how == "geomean" else "worst"
        text = f"{how} {OURS}/{target.against} <= {number(target.limit)}{note}"
    if not found:
        return Verdict(text, None, None)
    if target.how == "geomean":
        value, at = geomean([value for value, _ in found]), ""
    else:
        value, line = max(found, key=lambda pair: pair[0])
        at = label(line.cell)
    return Verdict(text, value, value <= target.limit, at)


def verdicts(outcome: Outcome) -> list[Verdict]:
    return [judge(target, outcome) for target in outcome.benchmark.targets]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def aligned_left(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def table(outcome: Outcome) -> str:
    providers, peers = outcome.providers(), outcome.peers()
    rows = [["", *providers, *(f"/ {peer}" for peer in peers)]]
    for line in outcome.lines:
        row = [label(line.cell)]
        for name in providers:
            times = line.times.get(name)
            row.append(f"{duration(times.median)} ±{times.spread:4.0%}" if times else "-")
        for peer in peers:
            ratio = line.ratio(peer)
            row.append("-" if ratio is None else number(ratio))
        rows.append(row)
    blank = [""] * len(providers)
    if len(outcome.lines) > 1 and peers:
        ratios = [[ratio for ratio, _ in outcome.ratios(peer)] for peer in peers]
        rows.append(["geometric mean", *blank, *(number(geomean(r)) if r else "-" for r in ratios)])
        rows.append(["worst", *blank, *(number(max(r)) if r else "-" for r in ratios)])
    lines = [f"{outcome.benchmark.name}: {outcome.benchmark.about}"]
    if outcome.benchmark.threaded:
        lines[0] += f" [{outcome.threads} thread{'s' if outcome.threads > 1 else ''}]"
    lines += [f"  {text}" for text in aligned(rows)]
    for verdict in verdicts(outcome):
        if verdict.value is None:
            lines.append(f"  ----  {verdict.text}: not measured")
            continue
        absolute = verdict.text.startswith(f"{OURS} <=")
        value = duration(verdict.value) if absolute else number(verdict.value)
        if not absolute and verdict.value < 0.1:
            value += f" ({1 / verdict.value:.0f} times faster)"
        at = f" at {verdict.at}" if verdict.at else ""
        word = ("PASS" if verdict.met else "MISS") + ("?" if outcome.crowded else " ")
        lines.append(f"  {word} {verdict.text}: {value}{at}")
    for line in outcome.lines:
        if line.failure:
            lines.append(f"  GATE  {label(line.cell)}: {line.failure}")
    lines += [
        f"  note  {note}" for note in dict.fromkeys(note for line in outcome.lines for note in line.notes)
    ]
    restless = [line for line in outcome.lines if any(t.spread > RESTLESS for t in line.times.values())]
    if restless:
        lines.append(f"  note  cells with a spread above {RESTLESS:.0%}: {len(restless)}")
    if outcome.others is not None and (outcome.crowded or restless):
        lines.append(f"  note  cores that other programs kept busy meanwhile: {outcome.others:.1f}")
    return "\n".join(lines)


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "benchmark": outcome.benchmark.name,
        "about": outcome.benchmark.about,
        "threads": outcome.threads if outcome.benchmark.threaded else 1,
        "cores_of_others": outcome.others,
        "crowded": outcome.crowded,
        "cells": [
            {
                "name": label(line.cell),
                "parameters": dict(line.cell),
                "gate": line.failure or "passed",
                "notes": line.notes,
                "seconds": {name: asdict(times) for name, times in line.times.items()},
                "ratio": {peer: line.ratio(peer) for peer in line.times if peer != OURS},
            }
            for line in outcome.lines
        ],
        "geometric_mean": {
            peer: geomean([ratio for ratio, _ in outcome.ratios(peer)])
            for peer in outcome.peers()
            if outcome.ratios(peer)
        },
        "targets": [asdict(verdict) for verdict in verdicts(outcome)],
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("zerotail", "numpy", "torch", "entmax", "jax", "optax", "scipy", "ml_dtypes"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def cpu_target() -> str:
    """The line of `python -m zerotail` that names the instruction set."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "zerotail"], capture_output=True, text=True, check=False
    )
    return next((line for line in done.stdout.splitlines() if "target" in line), "CPU target: unknown")


def machine() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
