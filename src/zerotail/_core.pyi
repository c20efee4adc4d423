# The compiled core. Arrays are C-contiguous, aligned and native; bfloat16 comes as its bits, in uint16. A
# function that returns bool has done nothing where it returns False: an argument was not of that kind, or did
# not fit the others. The last three are for PyTorch: `register_torch` passes the addresses of libtorch's
# functions, the others return None where the operator must be called, and True where a gradient must be
# recorded.

from collections.abc import Callable
from types import ModuleType
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
def csr_scores(
    values: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    position: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any],
    scores: NDArray[Any],
    first: int,
    /,
) -> bool: ...
def csr_gradient(
    values: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    position: NDArray[Any],
    g: NDArray[Any],
    gradient: NDArray[Any],
    first: int,
    bounds: NDArray[Any],
    /,
) -> bool: ...
def targets() -> list[str]: ...
def target() -> str: ...
def use_target(name: str, /) -> bool: ...
def set_num_threads(n: int, /) -> None: ...
def get_num_threads() -> int: ...
def register_torch(torch: ModuleType, address: Callable[[str], int], /) -> None: ...
def torch_sparsemax(input: Any, dim: Any, /) -> Any: ...
def torch_jvp(p: Any, v: Any, dim: Any, /) -> Any: ...
