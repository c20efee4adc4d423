"""Time against K: one panel for each scale of the scores and number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.model import BASE, OURS, Options, size
from benchmarks.report import Outcome
from benchmarks.timing import Times

# Okabe and Ito's colours, which stay apart for colour-blind readers.
COLOURS = {
    OURS: "#D55E00",
    BASE: "#E69F00",
    "softmax": "#0072B2",
    "entmax": "#009E73",
    "copy_": "#767676",
}
NAMES = {"softmax": "torch.softmax", "copy_": "copy", "entmax": "entmax.sparsemax"}


def curves(outcomes: Sequence[Outcome], threads: int) -> dict[tuple[str, float], dict[int, Times]]:
    """Times of the float32 forward benchmarks, by provider and scale, then by K."""
    found: dict[tuple[str, float], dict[int, Times]] = {}
    for outcome in outcomes:
        if outcome.threads != threads or outcome.benchmark.name not in ("forward", "entmax"):
            continue
        for line in outcome.lines:
            for name, times in line.times.items():
                if name in (OURS, BASE) and outcome.benchmark.name != "forward":
                    continue  # timed again there, beside a provider that leaves the caches cold
                found.setdefault((name, line.cell["sd"]), {})[line.cell["K"]] = times
    return found


def spread_apart(values: list[float], least: float) -> list[float]:
    """Positions of labels (logarithms), each at least `least` above the one before."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    placed = list(values)
    for low, high in pairwise(order):
        placed[high] = max(placed[high], placed[low] + least)
    return placed


def label_ends(axes: Any, ends: dict[str, tuple[int, float]], bottom: float, top: float) -> None:
    """Names at the ends of the lines, instead of a legend."""
    names = list(ends)
    places = spread_apart([log(ends[name][1]) for name in names], log(top / bottom) / 16)
    for name, place in zip(names, places, strict=True):
        axes.annotate(
            NAMES.get(name, name),
            xy=ends[name],
            xytext=(1.04, log(exp(place) / bottom) / log(top / bottom)),
            textcoords="axes fraction",
            color=COLOURS[name],
            fontsize=9,
            fontweight="bold" if name == OURS else "normal",
            va="center",
            annotation_clip=False,
        )


def draw(outcomes: Sequence[Outcome], options: Options, path: Path) -> bool:
    """Write the figure; False where there is nothing to draw, or nothing to draw with."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rows = {t: curves(outcomes, t) for t in dict.fromkeys(o.threads for o in outcomes)}
    rows = {t: found for t, found in rows.items() if any(name == OURS for name, _ in found)}
    scales = sorted({scale for found in rows.values() for _, scale in found})
    if not rows:
        return False
    figure = Figure(figsize=(4 * len(scales) + 1.6, 3.6 * len(rows) + 0.6), layout="constrained")
    grid = figure.subplots(len(rows), len(scales), sharex=True, sharey=True, squeeze=False)
    nanoseconds = [
        1e9 * times.median / (size(options, K)[0] * K)
        for found in rows.values()
        for curve in found.values()
        for K, times in curve.items()
    ]
    bottom, top = min(nanoseconds) / 1.6, max(nanoseconds) * 1.6
    for axes_row, (threads, found) in zip(grid, rows.items(), strict=True):
        for axes, scale in zip(axes_row, scales, strict=True):
            ends = {}
            for name, colour in COLOURS.items():
                curve = found.get((name, scale))
                if not curve:
                    continue
                sizes = sorted(curve)
                per_score = [1e9 / (size(options, K)[0] * K) for K in sizes]
                middle = [curve[K].median * f for K, f in zip(sizes, per_score, strict=True)]
                low = [curve[K].q1 * f for K, f in zip(sizes, per_score, strict=True)]
                high = [curve[K].q3 * f for K, f in zip(sizes, per_score, strict=True)]
                ours = name == OURS
                axes.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
                axes.plot(
                    sizes,
                    middle,
                    color=colour,
                    linewidth=2.4 if ours else 1.5,
                    linestyle=(0, (4, 2)) if name == "copy_" else "-",
                    marker="o",
                    markersize=4.5 if ours else 3,
                    zorder=3 if ours else 2,
                )
                ends[name] = (sizes[-1], middle[-1])
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom, top)
            axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            plural = "s" if threads > 1 else ""
            axes.set_title(f"standard deviation {scale:g}, {threads} thread{plural}", fontsize=10)
            if axes is axes_row[-1]:
                label_ends(axes, ends, bottom, top)
    for axes in grid[-1]:
        ticks = sorted({K for found in rows.values() for curve in found.values() for K in curve})
        axes.set_xticks(ticks, [f"{K:,}" for K in ticks], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.set_xlabel("K, scores in a row")
    for axes in grid[:, 0]:
        axes.set_ylabel("nanoseconds a score")
    rows_text = f"about {options.elements:,} float32 scores in a call; median and quartiles"
    figure.suptitle(f"Time against K: {rows_text}", fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    return True
