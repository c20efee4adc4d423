# The compiled core. Arrays are C-contiguous, aligned and native; bfloat16 comes as its bits, in uint16. A
# function that returns bool has done nothing where it returns False: an argument was not of that kind, or did
# not fit the others.

from typing import Any

from numpy.typing import NDArray

def sparsemax(scores: NDArray[Any], out: NDArray[Any], axis: int, /) -> bool: ...
def threshold(
    scores: NDArray[Any],
    hi: NDArray[Any] | None,
    lo: NDArray[Any] | None,
    size: NDArray[Any] | None,
    axis: int,
) -> bool: ...
def compact(
    scores: NDArray[Any],
    hi: NDArray[Any],
    lo: NDArray[Any],
    offsets: NDArray[Any],
    values: NDArray[Any],
    indices: NDArray[Any],
    /,
) -> bool: ...
def jvp(p: NDArray[Any], v: NDArray[Any], out: NDArray[Any], axis: int, /) -> bool: ...
def loss(
    scores: NDArray[Any], target: NDArray[Any], loss: NDArray[Any], grad: NDArray[Any] | None, axis: int
) -> bool: ...
def targets() -> list[str]: ...
def target() -> str: ...
def use_target(name: str, /) -> bool: ...
def set_num_threads(n: int, /) -> None: ...
def get_num_threads() -> int: ...
