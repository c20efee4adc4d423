"""`python -m zerotail`: what is installed, and what it runs on."""

import argparse
import importlib
import importlib.util

import zerotail
from zerotail import _core

# The modules that each extra brings and that zerotail imports.
EXTRAS = {
    "torch": ["torch"],
    "jax": ["jax"],
    "onnx": ["onnx", "onnxscript"],
    "sklearn": ["sklearn", "scipy", "tqdm"],
    "transformers": ["transformers"],
    "datasets": ["sklearn", "scipy", "arff", "tqdm"],
    "paper": ["matplotlib", "joblib", "threadpoolctl"],
}


def describe(module: str) -> str:
    """Name and version; or what is wrong with it, which must not stop the report."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"{module}: not installed" if error.name == module else f"{module}: broken ({error})"
    except (Exception, SystemExit) as error:
        return f"{module}: broken ({type(error).__name__}: {error})"
    return f"{module} {getattr(found, '__version__', '(unknown version)')}"


def kernels() -> str:
    """Whether zerotail.jax has kernels for the CPU: a build without JAX leaves them out."""
    instead = "zerotail.jax runs on XLA's own operations"
    if not importlib.util.find_spec("zerotail._ffi"):
        return f"JAX's kernels: not built, as there was no JAX; {instead}"
    try:
        usable = importlib.import_module("zerotail.jax")._ops.has_kernels()
    except Exception:  # without a JAX that works, which the line of the extra says
        return "JAX's kernels: built"
    return "JAX's kernels: built" if usable else f"JAX's kernels: built for a newer jaxlib; {instead}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m zerotail",
        description="Print version, CPU target, threads, and which extras can be imported.",
    )
    parser.parse_args(arguments)
    print(f"zerotail {zerotail.__version__}")
    print(f"CPU target: {_core.target()} (available: {', '.join(_core.targets())})")
    print(f"threads: {zerotail.get_num_threads()}")
    print(kernels())
    print(describe("numpy"))
    print("extras:")
    for extra, modules in EXTRAS.items():
        print(f"  {extra:<12} {', '.join(describe(module) for module in modules)}", flush=True)


if __name__ == "__main__":
    main()
