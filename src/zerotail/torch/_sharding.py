"""How the operators treat the shards of a DTensor: rows are whole, every other dimension stays as it is.

Importing DTensor costs more than importing torch, so the rules are given when somebody else imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import _ops

DTENSOR = "torch.distributed.tensor"

# What the tensors of an operator are, results first: scores have all dimensions, rows are without dim.
SCORES, ROWS, TARGET = "scores", "rows", "target"
TENSORS = {
    _ops.sparsemax: ((SCORES,), (SCORES,)),
    _ops.jvp: ((SCORES,), (SCORES, SCORES)),
    _ops.threshold: ((ROWS, ROWS), (SCORES,)),
    _ops.loss: ((ROWS, ROWS, ROWS), (SCORES, TARGET)),
    _ops.loss_gradient: ((SCORES,), (SCORES, TARGET, ROWS, ROWS, ROWS)),
}


def register() -> None:
    """Give DTensor the rules of all operators."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def rule(op: Any) -> Any:
        results, arguments = TENSORS[op]

        def shardings(*args: Any) -> list[Any]:
            input, dim = args[0], args[len(arguments)]
            dim %= input.ndim
            others = [None] * (len(args) - len(arguments))

            def placed(kind: str, shard: int) -> Any:
                is_rows = kind == ROWS or (kind == TARGET and args[1].ndim < input.ndim)
                return Shard(shard - (is_rows and shard > dim))

            whole = ([Replicate() for _ in results], [Replicate() for _ in arguments] + others)
            parts = [
                (
                    [placed(kind, shard) for kind in results],
                    [placed(kind, shard) for kind in arguments] + others,
                )
                for shard in range(input.ndim)
                if shard != dim
            ]
            return [whole, *parts]

        return shardings

    for op in TENSORS:
        register_sharding(op)(rule(op))


class _Watch(MetaPathFinder):
    """Waits for the import of DTensor, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != DTENSOR:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register_if_possible()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register_if_possible() -> None:
    # The way to give rules is torch's experiment: without it DTensor itself says that it has no rule.
    with suppress(ImportError, AttributeError):
        register()


def register_when_imported() -> None:
    if DTENSOR in sys.modules:
        _register_if_possible()
    else:
        sys.meta_path.insert(0, _Watch())
