"""What `python -m zerotail.datasets` knows of a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A module of this package has a tuple `ENTRIES` of these.

    Both functions take `data_home=` and `download_if_missing=`.
    """

    name: str
    summary: str  # one line
    size: str  # of the download
    files: Callable[..., Any]  # finds or downloads the files, and does not read them
    load: Callable[..., Any]  # gives a Bunch with DESCR
