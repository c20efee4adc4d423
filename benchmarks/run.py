"""Run the benchmarks: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
if not __package__:  # started as a file: the folder of this file is no place to import from
    sys.path[0] = str(ROOT)

from benchmarks import base, plot, report, timing  # noqa: E402 - after the path is right
from benchmarks.gate import GateError  # noqa: E402
from benchmarks.model import BASE, OURS, Benchmark, Call, Case, Cell, Options, label  # noqa: E402
from benchmarks.registry import BENCHMARKS  # noqa: E402

STORE = ROOT / "build" / "benchmarks"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Time zerotail beside the frameworks' own functions, once its results are right.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run, or globs (default: all)")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument("--cell", metavar="GLOB", default="*", help='only cells of this name, as in "K=64 *"')
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], metavar="N", help="for zerotail and torch"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="of timing for each provider of a cell (0.2)"
    )
    parser.add_argument("--elements", type=int, metavar="N", help="scores in one call, about (1048576)")
    parser.add_argument("--quick", action="store_true", help="small and short: only to see that it runs")
    parser.add_argument("--base", metavar="REF", help="build this git revision, and time it as well")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help=f"results (default: below {STORE.relative_to(ROOT)}/)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a target is missed")
    chosen = parser.parse_args(argv)
    if min(chosen.threads) < 1:
        parser.error("--threads must be positive")
    unknown = [name for name in chosen.names if not any(fnmatchcase(b.name, name) for b in BENCHMARKS)]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; see --list")
    return chosen


class Progress:
    """One line on stderr that is written over, where somebody looks."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def say(self, text: str) -> None:
        if self.shown:
            print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def admitted(case: Case, zt: ModuleType) -> Call:
    """Our call, once its result has passed the gate; a crash is no result."""
    try:
        call = case.ours(zt)
        case.check(call())
    except GateError:
        raise
    except Exception as error:
        raise GateError(f"{type(error).__name__}: {error}") from error
    return call


def run_cell(
    benchmark: Benchmark, cell: Cell, options: Options, zt: ModuleType, other: ModuleType | None, rest: bool
) -> report.Line:
    line = report.Line(cell)
    try:
        case = benchmark.prepare(cell, options)
    except ImportError as error:
        line.notes.append(f"not run: {error}")
        return line
    providers: dict[str, Call] = {}
    try:
        providers[OURS] = admitted(case, zt)
    except GateError as error:
        line.failure = str(error)
        return line
    if other is not None:
        try:
            providers[BASE] = admitted(case, other)
        except GateError as error:
            line.notes.append(f"base is not timed where its column is empty: {error}")
    providers.update(case.peers)
    line.times = timing.measure(
        providers, options.seconds, options.rounds, rest=rest, self_timed=case.self_timed
    )
    return line


def set_threads(threads: int, *packages: ModuleType | None) -> None:
    for package in packages:
        if package is not None and hasattr(package, "set_num_threads"):
            package.set_num_threads(threads)
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(threads)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(argv)
    names = chosen.names or ["*"]
    selected = [b for b in BENCHMARKS if any(fnmatchcase(b.name, name) for name in names)]
    if chosen.list:
        print(
            "\n".join(report.aligned_left([(b.name, f"{len(b.cells):3d} cells", b.about) for b in selected]))
        )
        return 0
    options = Options(2**14, 0.005, 2) if chosen.quick else Options()
    options = Options(
        options.elements if chosen.elements is None else chosen.elements,
        options.seconds if chosen.seconds is None else chosen.seconds,
        options.rounds,
    )

    import zerotail as zt

    other, commit = None, None
    if chosen.base:
        try:
            commit, folder = base.build(chosen.base, ROOT, STORE)
            other = base.load(folder)
        except base.BaseError as error:
            print(error, file=sys.stderr)
            return 2

    warm = timing.reuse_memory()
    machine, versions, target = report.machine(), report.versions(), report.cpu_target()
    print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}")
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print(target)
    if chosen.quick:
        print("--quick: the figures mean nothing")
    if not warm:
        print("freed memory cannot be kept here: functions without out= may pay for page faults")

    progress = Progress()
    outcomes: list[report.Outcome] = []
    for benchmark in selected:
        for threads in chosen.threads if benchmark.threaded else chosen.threads[:1]:
            set_threads(threads, zt, other)
            cells = [
                cell
                for cell in benchmark.cells
                if fnmatchcase(label(cell), chosen.cell) and cell.get("K", 0) <= options.elements
            ]
            lines, others = [], timing.Others()
            for i, cell in enumerate(cells, 1):
                progress.say(f"{benchmark.name} [{threads}] {i}/{len(cells)} {label(cell)}")
                lines.append(run_cell(benchmark, cell, options, zt, other, rest=threads > 1))
            progress.say("")
            if lines:
                outcomes.append(report.Outcome(benchmark, threads, lines, others.cores()))
                print("\n" + report.table(outcomes[-1]), flush=True)

    if not outcomes:
        print(f"no cell of at most {options.elements} scores is called {chosen.cell}", file=sys.stderr)
        return 2
    path = chosen.json or STORE / time.strftime("%Y%m%d-%H%M%S.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": machine,
        "versions": versions,
        "target": target,
        "base": commit,
        "settings": {"elements": options.elements, "seconds": options.seconds, "memory_reused": warm},
        "results": [report.as_json(outcome) for outcome in outcomes],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    figure = path.with_suffix(".png")
    drawn = plot.draw(outcomes, options, figure)
    print(f"\nwritten: {path}" + (f", {figure}" if drawn else ""))

    failed = any(line.failure for outcome in outcomes for line in outcome.lines)
    missed = any(verdict.met is False for outcome in outcomes for verdict in report.verdicts(outcome))
    return int(failed or (chosen.strict and missed))


if __name__ == "__main__":
    sys.exit(main())
