"""The package as a whole: what importing loads, what is public, what its pages say, what it prints."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

# The public names of each module; those of a front end are looked at where its framework is installed.
MODULES = {
    "zerotail": {
        "binary_sparsemax",
        "binary_sparsemax_loss",
        "get_num_threads",
        "set_num_threads",
        "sparsemax",
        "sparsemax_csr",
        "sparsemax_jacobian",
        "sparsemax_jvp",
        "sparsemax_loss",
        "sparsemax_loss_and_grad",
        "threshold",
    },
    "zerotail.datasets": {"fetch_mulan", "fetch_rcv1", "fetch_snli", "load_glove", "make_documents"},
    "zerotail.jax": {"sparsemax", "sparsemax_loss", "threshold"},
    "zerotail.sklearn": {
        "ProportionRegressor",
        "ProportionRegressorCV",
        "SparsemaxClassifier",
        "SparsemaxClassifierCV",
        "metrics",
    },
    "zerotail.sklearn.metrics": {
        "get_scorer",
        "jensen_shannon",
        "macro_f1",
        "macro_f1_of_averages",
        "micro_f1",
        "scorer_names",
        "sparsemax_loss",
        "squared_error",
    },
    "zerotail.torch": {
        "AdditiveAttention",
        "BinarySparsemaxLoss",
        "MultiheadAttention",
        "Sparsemax",
        "SparsemaxLoss",
        "binary_sparsemax",
        "binary_sparsemax_loss",
        "linear_sparsemax_loss",
        "onnx_translations",
        "register_attention",
        "sparsemax",
        "sparsemax_attention",
        "sparsemax_loss",
        "threshold",
        "weighted_sum",
    },
    "zerotail.viz": {"Attention", "attention"},
}
NAMES = [
    (module, name)
    for module, names in MODULES.items()
    for name in sorted(names)
    if f"{module}.{name}" not in MODULES
]
# What the examples of a front end may use without importing it.
FRAMEWORKS = {
    "zerotail": "numpy",
    "zerotail.datasets": "sklearn",
    "zerotail.jax": "jax",
    "zerotail.sklearn": "sklearn",
    "zerotail.sklearn.metrics": "sklearn",
    "zerotail.torch": "torch",
    "zerotail.viz": "numpy",
}
SIGNATURES = {
    "zerotail.sparsemax": "(scores, /, *, axis=-1, where=None, out=None)",
    "zerotail.threshold": "(scores, /, *, axis=-1, where=None, keepdims=False)",
    "zerotail.sparsemax_csr": "(scores, /)",
    "zerotail.sparsemax_jvp": "(p, v, /, *, axis=-1)",
    "zerotail.sparsemax_jacobian": "(p, /)",
    "zerotail.sparsemax_loss": "(scores, target, /, *, axis=-1)",
    "zerotail.sparsemax_loss_and_grad": "(scores, target, /, *, axis=-1)",
    "zerotail.binary_sparsemax": "(scores, /)",
    "zerotail.binary_sparsemax_loss": "(scores, target, /)",
    "zerotail.datasets.fetch_mulan": "(name, *, nominal='number', data_home=None, download_if_missing=True)",
    "zerotail.datasets.fetch_rcv1": "(subset='all', *, data_home=None, download_if_missing=True)",
    "zerotail.datasets.fetch_snli": "(part, *, data_home=None, download_if_missing=True)",
    "zerotail.datasets.load_glove": "(path, vocabulary, *, data_home=None, download_if_missing=True)",
    "zerotail.datasets.make_documents": "(n_train=1200, n_test=1000, *, n_labels=10, length=1000, "
    "mixture='uniform', variant='text', n_words=None, mean_labels=1.0, random_state=None)",
    "zerotail.torch.sparsemax": "(input, dim=-1, *, mask=None, dtype=None)",
    "zerotail.torch.threshold": "(input, dim=-1)",
    "zerotail.jax.sparsemax": "(x, /, axis=-1, *, where=None)",
    "zerotail.jax.threshold": "(x, /, axis=-1, *, where=None)",
    "zerotail.jax.sparsemax_loss": "(scores, target, axis=-1, *, where=None)",
    "zerotail.torch.sparsemax_loss": "(input, target, weight=None, *, ignore_index=-100, reduction='mean', "
    "label_smoothing=0.0)",
    "zerotail.torch.binary_sparsemax": "(input)",
    "zerotail.torch.sparsemax_attention": "(query, key, value, attn_mask=None, dropout_p=0.0, "
    "is_causal=False, scale=None, enable_gqa=False)",
    "zerotail.torch.onnx_translations": "()",
    "zerotail.torch.linear_sparsemax_loss": "(input, weight, target, bias=None, *, ignore_index=-100, "
    "reduction='mean', sparse_weight_grad=False, chunk_rows=128)",
    "zerotail.torch.weighted_sum": "(scores, values, mask=None)",
    "zerotail.viz.attention": "(tokens, weights, queries=None)",
    "zerotail.torch.register_attention": "()",
    "zerotail.torch.binary_sparsemax_loss": "(input, target, *, reduction='mean')",
}


def load(module: str) -> ModuleType:
    pytest.importorskip(FRAMEWORKS[module])
    return importlib.import_module(module)


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_numpy_and_nothing_else_from_outside():
    """No framework, no SciPy: only NumPy's modules, ours and the standard library's are there afterwards."""
    script = """
import sys
import numpy
before = set(sys.modules)
import zerotail
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"numpy"}))
"""
    assert run("-c", script).split() == ["zerotail"]


def test_the_import_takes_less_than_30_milliseconds_more_than_numpys():
    """Of the process' own time, the best of five: what else the machine does is not the library's."""
    script = """
import time, numpy
start = time.process_time()
import zerotail
print(time.process_time() - start)
"""
    assert min(float(run("-c", script)) for _ in range(5)) < 0.030


@pytest.mark.parametrize("name", ["torch", "jax", "scipy", "sklearn", "ml_dtypes", "matplotlib", "pandas"])
def test_use_without_options_loads_no_framework(name):
    """Not at the import, nor by what all functions do but the one for sparse results."""
    script = f"""
import sys
import numpy as np, zerotail as zt
z = np.array([[1.0, 0.5, -1.0]], np.float16)
p = zt.sparsemax(z, where=z > -2)
zt.threshold(z), zt.sparsemax_jvp(p, z), zt.sparsemax_jacobian(p), zt.sparsemax_loss_and_grad(z, [0])
zt.binary_sparsemax_loss(z, 1), zt.get_num_threads()
print({name!r} in sys.modules)
"""
    assert run("-c", script).strip() == "False"


def test_bfloat16_needs_its_package_only_where_it_is_used():
    """The type belongs to ml_dtypes, which the caller has imported."""
    pytest.importorskip("ml_dtypes")
    script = """
import zerotail as zt, numpy as np, ml_dtypes
p = zt.sparsemax(np.array([1, .5, -1], ml_dtypes.bfloat16))
print(p.dtype, p.tolist())
"""
    assert run("-c", script).strip() == "bfloat16 [0.75, 0.25, 0.0]"


@pytest.mark.parametrize("module", MODULES)
def test_the_public_names_are_those_of_the_contract(module):
    """`__all__` holds them, sorted; nothing else is public; `import *` gives them."""
    package, names = load(module), MODULES[module]
    assert set(package.__all__) == names
    assert list(package.__all__) == sorted(package.__all__)
    visible = {
        name
        for name, value in vars(package).items()
        if name in names
        or not (name.startswith("_") or isinstance(value, ModuleType) or name == "annotations")
    }
    assert visible - {"TYPE_CHECKING"} == names
    said = run("-c", f"from {module} import *; print(*[n for n in dir() if n[0] != '_'])")
    assert set(said.split()) == names


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signatures_are_those_of_the_contract(name):
    """Arrays by position, options by name, and no option that is swallowed."""
    module, _, function = name.rpartition(".")
    signature = inspect.signature(getattr(load(module), function))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_is_documented_with_an_example_that_runs(module, name):
    """A first line that ends in a full stop, and a doctest whose output is what is printed."""
    package = load(module)
    documented = getattr(package, name)
    assert documented.__doc__.splitlines()[0].endswith(".")
    framework = importlib.import_module(FRAMEWORKS[module])
    known = {**vars(package), "zt": package, "np": np, framework.__name__: framework}
    (example,) = doctest.DocTestFinder(recurse=False).find(documented, name, globs=known)
    assert example.examples, "no example"
    said: list[str] = []
    for needed in {
        "sparsemax_csr": ["scipy"],
        "onnx_translations": ["onnxscript"],
        "register_attention": ["transformers"],
    }.get(name, []):
        pytest.importorskip(needed)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_argument_is_documented(module, name):
    """The page of a name mentions each argument."""
    documented = getattr(load(module), name)
    for argument in inspect.signature(documented).parameters:
        assert argument in documented.__doc__, argument


def test_the_version_is_that_of_the_package(zt):
    """One version, in one place."""
    assert zt.__version__ == importlib.metadata.version("zerotail")


def test_a_name_that_does_not_exist_is_an_attribute_error(zt):
    """Whatever answers for `__version__` answers for nothing else."""
    with pytest.raises(AttributeError, match="softmax"):
        _ = zt.softmax


def test_types_are_shipped():
    """The marker of PEP 561 and the stubs of the core lie beside the package."""
    package = os.path.dirname(importlib.import_module("zerotail").__file__)
    assert {"py.typed", "_core.pyi"} <= set(os.listdir(package))


def test_the_stubs_of_the_core_name_what_it_has():
    """Every function of the extension, and no other."""
    core = importlib.import_module("zerotail._core")
    package = os.path.dirname(importlib.import_module("zerotail").__file__)
    with open(os.path.join(package, "_core.pyi")) as stubs:
        declared = {line.split("(")[0].removeprefix("def ") for line in stubs if line.startswith("def ")}
    assert declared == {name for name in dir(core) if not name.startswith("_")}


def test_the_module_says_what_it_runs_on(zt):
    """`python -m zerotail`: version, CPU target, threads, extras."""
    from zerotail import _core

    said = run("-m", "zerotail", ZEROTAIL_NUM_THREADS="2", ZEROTAIL_TARGET=_core.targets()[-1])
    assert zt.__version__ in said
    assert _core.targets()[-1] in said
    assert np.__version__ in said
    threads = next(line for line in said.splitlines() if "threads" in line)
    assert "2" in threads
    for extra in ("torch", "jax", "onnx", "sklearn", "datasets", "paper"):
        assert extra in said


def test_the_module_says_so_where_an_extra_is_missing(tmp_path):
    """A framework that is not installed, or is broken, is a line and not a traceback."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('a broken build')\n")
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')\n")
    said = run("-m", "zerotail", PYTHONPATH=str(tmp_path))
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "broken build" in lines["torch"]
    assert "not installed" in lines["jax"]


def test_a_missing_extra_names_itself(tmp_path):
    """The one function that needs SciPy says how to get it."""
    (tmp_path / "scipy.py").write_text("raise ImportError('no scipy')\n")
    script = """
import zerotail as zt
try:
    zt.sparsemax_csr([[1.0]])
except ImportError as error:
    print(error)
"""
    assert 'pip install "zerotail[sklearn]"' in run("-c", script, PYTHONPATH=str(tmp_path))
