"""Fair time: interleaved rounds, warm memory, no thread left spinning from the call before."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.model import Call

SAMPLE = 1e-4  # seconds; shorter calls are repeated within a sample


@dataclass(frozen=True)
class Times:
    """Seconds of one call, over all rounds."""

    median: float
    q1: float
    q3: float
    rounds: int
    calls: int  # in one round

    @property
    def spread(self) -> float:
        """Half of the interquartile range, relative to the median."""
        return (self.q3 - self.q1) / (2 * self.median)


def reuse_memory() -> bool:
    """Make glibc keep what is freed: no page faults at every call of a function without `out=`.

    It holds for every provider alike, as NumPy and torch both allocate from it. True where it was possible.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    trim_threshold, mmap_max = -1, -4  # malloc.h
    return bool(mallopt(mmap_max, 0)) and bool(mallopt(trim_threshold, 2**31 - 1))


class Others:
    """The cores that other programs keep busy, on average, since this was made; None but on Linux."""

    def __init__(self) -> None:
        self.start = self.now()

    @staticmethod
    def now() -> tuple[float, float] | None:
        """Seconds on the clock, and of work that is not of this process and its children."""
        try:
            ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:
            return None
        user, nice, system, _idle, _wait, irq, softirq, steal = ticks[:8]
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy - sum(os.times()[:4])

    def cores(self) -> float | None:
        end = self.now()
        if self.start is None or end is None:
            return None
        return max(0.0, (end[1] - self.start[1]) / (end[0] - self.start[0]))


def settle(longest: float = 0.05) -> None:
    """Wait until no thread of this process runs.

    OpenMP's workers spin for some milliseconds after a parallel call, on cores that the next provider needs.
    Their time may be counted in ticks of 4 ms: hence the length of the look.
    """
    look = 0.005
    end = time.perf_counter() + longest
    while time.perf_counter() < end:
        wall, cpu = time.perf_counter(), time.process_time()
        time.sleep(look)
        if time.process_time() - cpu < 0.3 * (time.perf_counter() - wall):
            return


def warm(call: Call, best: float, most: int = 20) -> None:
    """Call until a call is about as fast as it was before.

    A thread that slept may be woken on the core of the thread that waits for it, and stay there for some
    calls: the time of the scheduler, not of the library.
    """
    for _ in range(most):
        start = time.perf_counter()
        call()
        if time.perf_counter() - start <= 2 * best:
            return


def measure(
    providers: Mapping[str, Call], seconds: float, rounds: int, *, rest: bool, self_timed: bool = False
) -> dict[str, Times]:
    """Time all providers in rounds, each round in another order, until the time is used.

    Samples follow an untimed call of the same provider, which warms its code, threads and caches. `rest` is
    for providers with threads: they wait for those of the others to rest, and then take several samples.
    """
    clock = time.perf_counter
    calls, best = {}, {}
    for name, call in providers.items():
        calls[name], best[name] = 1, math.inf
        if not self_timed:
            for _ in range(10 if rest else 3):
                start = clock()
                call()
                best[name] = min(best[name], clock() - start)
            calls[name] = max(1, round(SAMPLE / best[name]))
    samples: dict[str, list[float]] = {name: [] for name in providers}
    order = list(providers)
    shuffle = random.Random(0).shuffle
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = clock() + seconds * len(order)
        done = 0
        while done < rounds or clock() < end:
            shuffle(order)
            for name in order:
                call, repeats = providers[name], range(calls[name])
                if self_timed:
                    samples[name].append(float(call()))
                    continue
                if rest:
                    settle()
                    warm(call, best[name])
                for _ in range(4 if rest else 1):
                    call()
                    start = clock()
                    for _ in repeats:
                        call()
                    samples[name].append((clock() - start) / len(repeats))
            done += 1
    finally:
        if collecting:
            gc.enable()
    times = {}
    for name, values in samples.items():
        q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        times[name] = Times(median, q1, q3, len(values), calls[name])
    return times
