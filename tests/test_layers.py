"""The arrows of the design point down only: a walk over what every file imports and includes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "zerotail"
FRAMEWORKS = {
    "torch",
    "jax",
    "jaxlib",
    "sklearn",
    "scipy",
    "matplotlib",
    "transformers",
    "onnx",
    "onnxscript",
    "pooch",
}

# Part of the package -> what it may import of the package, and which frameworks.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "__init__": ({"_numpy"}, set()),
    "_numpy": ({"_check", "_core", "_rules"}, set()),
    "_check": (set(), set()),
    "_rules": ({"_rules"}, set()),
    "__main__": ({"", "_core"}, set()),
    "torch": ({"torch", "_check", "_core", "_rules"}, {"torch", "transformers", "onnx", "onnxscript"}),
    "jax": ({"jax", "_check", "_core", "_rules", "_ffi"}, {"jax", "jaxlib"}),
    # The objective works in place, on targets that were checked once: the core itself does that.
    "sklearn": ({"sklearn", "", "_check", "_core"}, {"sklearn", "scipy"}),
    "datasets": ({"datasets", "_check", ""}, {"scipy", "sklearn", "pooch"}),
    "viz": ({"", "_check"}, {"matplotlib"}),
}


def imports(path: Path, package: str) -> set[str]:
    """Every module that a file imports, at any depth, relative ones resolved; not for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.unparse(node.test)
        and "not" not in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module) if p)
            # `from . import a` imports a module, `from .a import b` a name or a module of a.
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def parts() -> list[tuple[str, Path]]:
    """Every Python file of the package with the part it belongs to."""
    return [
        (path.relative_to(SOURCE).parts[0].removesuffix(".py"), path) for path in sorted(SOURCE.rglob("*.py"))
    ]


def inside(module: str) -> str | None:
    """The part of the package that a module belongs to; "" for the public names; None outside of it."""
    head, _, rest = module.partition(".")
    if head != "zerotail":
        return None
    part = rest.split(".")[0]
    is_part = (
        (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").exists() or (SOURCE / f"{part}.pyi").exists()
    )
    return part if (part and is_part) or (part.startswith("_") and part != "__version__") else ""


def test_the_walk_sees_every_kind_of_import(tmp_path):
    """Absolute and relative, at the top and within functions; not what type checkers alone read."""
    file = tmp_path / "x.py"
    file.write_text(
        "import torch.nn, numpy as np\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import scipy\n"
        "from . import _core\n"
        "from ._rules.loss import loss\n"
        "def f():\n    from .. import sparsemax\n    from zerotail import _numpy\n"
    )
    found = imports(file, "zerotail.torch")
    assert found == {
        "torch.nn",
        "numpy",
        "typing.TYPE_CHECKING",
        "zerotail.torch._core",
        "zerotail.torch._rules.loss.loss",
        "zerotail.sparsemax",
        "zerotail._numpy",
    }
    assert [
        inside(m)
        for m in ("numpy", "zerotail", "zerotail.sparsemax", "zerotail._numpy", "zerotail._core.jvp")
    ] == [
        None,
        "",
        "",
        "_numpy",
        "_core",
    ]
    assert {"_numpy", "_check", "_rules", "__init__"} <= {part for part, _ in parts()}


@pytest.mark.parametrize(("part", "path"), parts(), ids=lambda x: x.stem if isinstance(x, Path) else x)
def test_a_part_of_the_package_imports_only_what_lies_below_it(part, path):
    """Front ends use rules, checks and core, never each other; estimators use the NumPy front end."""
    assert part in ALLOWED, f"{part} has no place in the layers yet"
    below, frameworks = ALLOWED[part]
    package = ".".join(("zerotail", *path.relative_to(SOURCE).parent.parts))
    for module in imports(path, package):
        target = inside(module)
        if target is None:
            head = module.split(".")[0]
            assert head not in FRAMEWORKS or head in frameworks, f"{path.name} imports {module}"
        else:
            assert target in below, f"{path.name} imports {module}"


def test_the_rules_know_no_framework():
    """The paper's formulas take the array module as an argument: not even NumPy is imported."""
    for part, path in parts():
        if part == "_rules":
            outside = {m.split(".")[0] for m in imports(path, "zerotail._rules")} - {"zerotail"}
            assert not outside & (FRAMEWORKS | {"numpy"}), path


@pytest.mark.parametrize("folder", ["paper", "benchmarks", "docs"])
def test_what_stands_on_the_package_uses_its_public_names(folder):
    """Nothing of the package whose name begins with an underscore."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module in imports(path, folder):
            if module.split(".")[0] == "zerotail":
                assert not any(p.startswith("_") and not p.startswith("__") for p in module.split(".")), (
                    f"{path.relative_to(ROOT)} imports {module}"
                )


def test_the_core_includes_the_standard_library_and_itself():
    """Only the files that bind it know Python or a framework; OpenMP is in none."""
    core = ROOT / "core"
    files = [p for p in sorted(core.rglob("*")) if p.suffix in (".cpp", ".hpp", ".h", ".inl")]
    if not files:
        pytest.skip("the sources of the core are not here")
    own = {p.name for p in files}
    machine = {"immintrin.h", "arm_neon.h", "cpuid.h", "intrin.h", "arm_sve.h"}
    system = {
        "pthread.h",
        "sched.h",
        "unistd.h",
        "windows.h",
        "sys/sysctl.h",
        "sys/syscall.h",
        "linux/futex.h",
    }
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "#pragma omp" not in text
        assert "omp.h" not in text
        for quote, name in re.findall(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", text, re.MULTILINE):
            if path.name.startswith("bind_"):
                continue
            if quote == '"':
                assert Path(name).name in own, f"{path.name} includes {name}"
            else:
                known = re.fullmatch(r"[a-z_]+", name) or name in machine or name in system
                assert known, f"{path.name} includes {name}"
