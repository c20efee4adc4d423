"""A training's progress: a bar where somebody looks, and a line for each epoch everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from paper._train import State


@contextmanager
def bar(title: str) -> Iterator[Callable[[State, int], None]]:
    """What `train` calls as `progress`."""
    with tqdm(desc=title, unit="batch", leave=False, disable=None, mininterval=0.5) as shown:

        def progress(state: State, batches: int) -> None:
            if state.step == 0:
                epoch = state.history[-1]
                tqdm.write(
                    f"{title}: epoch {state.epoch}, loss {epoch['loss']:.4f}, dev {epoch['dev']:.2f} %, "
                    f"{epoch['seconds']:.0f} s",
                    file=sys.stderr,
                )
            if shown.total != batches:
                shown.total = batches
            shown.set_description(f"{title}, epoch {state.epoch + 1}", refresh=False)
            shown.update(state.step - shown.n)

        yield progress
