"""What a benchmark is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

Call = Callable[[], Any]
Cell = Mapping[str, Any]  # the parameters of one line of a table, such as {"K": 64, "sd": 1.0}

OURS = "zerotail"
BASE = "base"


@dataclass(frozen=True)
class Options:
    """What the command line decides for every cell."""

    elements: int = 2**20  # scores in one call, about: rows are whole
    seconds: float = 0.2  # of timing, for each provider of a cell
    rounds: int = 7  # at least, whatever the seconds


@dataclass
class Case:
    """One cell, ready to run: every provider reads the same input.

    `ours` makes the call to time from a zerotail package: the installed one, or a base revision's. `check`
    raises GateError on a wrong result of that call. `peers` are everyone else's calls.
    """

    ours: Callable[[ModuleType], Call]
    check: Callable[[Any], None]
    peers: Mapping[str, Call] = field(default_factory=dict)
    self_timed: bool = False  # the call returns its own seconds


def everywhere(cell: Cell) -> bool:
    return True


@dataclass(frozen=True)
class Target:
    """A bound on our time over that of the peer `against`, or on our seconds where that is None."""

    how: str  # "geomean" or "worst", over the cells
    limit: float
    against: str | None
    where: Callable[[Cell], bool] = everywhere
    note: str = ""  # says in words what `where` selects


@dataclass(frozen=True)
class Benchmark:
    name: str
    about: str
    cells: Sequence[Cell]
    prepare: Callable[[Cell, Options], Case]
    targets: Sequence[Target] = ()
    threaded: bool = True  # False: one thread is all that it uses, so it runs once


def label(cell: Cell) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items())


def size(options: Options, K: int) -> tuple[int, int]:
    return max(1, options.elements // K), K
