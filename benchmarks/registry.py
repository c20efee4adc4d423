"""Every benchmark: its cells, how one is prepared, and the targets that it is held to."""

from __future__ import annotations

from functools import partial
from itertools import product

from benchmarks import cases, inference, sublinear
from benchmarks.model import Benchmark, Cell, Target

SIZES = (16, 64, 128, 256, 1024, 4096, 32000, 131072)
SCALES = (0.1, 1, 5)
GRID = [{"K": K, "sd": sd} for K, sd in product(SIZES, SCALES)]


def memory_bound(cell: Cell) -> bool:
    return bool(cell["K"] >= 32000 and cell["sd"] >= 1)


def of_dtype(name: str) -> Benchmark:
    return Benchmark(
        f"forward-{name}",
        f"{name} sparsemax against torch.softmax, out= given to both",
        GRID,
        partial(cases.forward, dtype=name),
        [Target("geomean", 0.6, "softmax")],
    )


BENCHMARKS = (
    Benchmark(
        "forward",
        "float32 sparsemax against torch.softmax, out= given to both",
        GRID,
        cases.forward,
        [
            Target("geomean", 0.45, "softmax"),
            Target("worst", 1.0, "softmax"),
            Target("worst", 1.5, "copy_", memory_bound, "K >= 32000, sd >= 1"),
        ],
    ),
    Benchmark(
        "forward-hard",
        "float32 rows that are hard on a sparsemax, against torch.softmax, out= given to both",
        [{"kind": kind, "K": K} for kind, K in product(cases.KINDS, SIZES)],
        cases.forward,
        [Target("worst", 1.5, "softmax")],
    ),
    of_dtype("float64"),
    of_dtype("float16"),
    of_dtype("bfloat16"),
    Benchmark(
        "entmax",
        "float32 sparsemax (out=) against entmax.sparsemax, which has no out=",
        GRID,
        cases.against_entmax,
        [Target("geomean", 1 / 40, "entmax")],
    ),
    Benchmark(
        "optax",
        "float32 sparsemax (out=) against optax's projection_simplex under vmap and jit (XLA's own threads)",
        GRID,
        cases.against_optax,
    ),
    Benchmark(
        "jvp",
        "Jacobian-vector product (new result) against torch's softmax backward, with out= and without",
        GRID,
        cases.jvp,
        [Target("geomean", 0.8, "softmax_out"), Target("worst", 1.2, "softmax_out")],
    ),
    Benchmark(
        "torch",
        "float32 sparsemax forward and backward through autograd, against torch.softmax",
        GRID,
        cases.autograd,
        [Target("geomean", 0.6, "softmax"), Target("worst", 1.1, "softmax")],
    ),
    Benchmark(
        "torch-compile",
        "the same, compiled by torch.compile, against a compiled torch.softmax",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000), SCALES)],
        partial(cases.autograd, compiled=True),
        [Target("geomean", 0.8, "softmax")],
    ),
    Benchmark(
        "torch-loss",
        "sparsemax_loss forward and backward through autograd, against F.cross_entropy",
        [{"rows": 256, "K": K, "sd": sd} for K, sd in product((64, 1024, 32000), SCALES)],
        cases.torch_loss,
        [Target("worst", 0.5, "cross_entropy", lambda cell: bool(cell["K"] == 32000), "K = 32000")],
    ),
    Benchmark(
        "torch-call",
        "one call at (1, 16) under no_grad, and forward and backward, against torch.softmax",
        [{"grad": False}, {"grad": True}],
        cases.torch_call,
        [
            Target("worst", 2.0, "softmax", lambda cell: not cell["grad"], "no_grad"),
            Target("worst", 1.8, "softmax", lambda cell: bool(cell["grad"]), "forward and backward"),
        ],
        threaded=False,
    ),
    Benchmark(
        "torch-entmax",
        "float32 sparsemax forward and backward through autograd, against entmax.sparsemax",
        GRID,
        partial(cases.autograd, against="entmax"),
        [Target("geomean", 1 / 20, "entmax")],
    ),
    Benchmark(
        "torch-entmax-loss",
        "sparsemax_loss forward and backward through autograd, against entmax.SparsemaxLoss",
        GRID,
        partial(cases.torch_loss, against="entmax_loss"),
        [Target("geomean", 1 / 20, "entmax_loss")],
    ),
    Benchmark(
        "jax",
        "zerotail.jax under jit against jax.nn.softmax (both on XLA's own threads)",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000), SCALES)],
        cases.jax_step,
        [Target("geomean", 0.8, "softmax")],
        threaded=False,
    ),
    Benchmark(
        "jax-vjp",
        "zerotail.jax forward and vjp under jit, against the same of jax.nn.softmax",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000), SCALES)],
        partial(cases.jax_step, backward=True),
        [Target("geomean", 0.8, "softmax")],
        threaded=False,
    ),
    Benchmark(
        "jax-optax",
        "zerotail.jax under jit against optax's projection_simplex under vmap and jit",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000), SCALES)],
        cases.jax_against_optax,
        [Target("worst", 1 / 20, "optax")],
        threaded=False,
    ),
    Benchmark(
        "torch-inference",
        "training steps of the paper's sparse inference network (section 4.3) against its soft one",
        [{"D": 100, "batch": 25}],
        inference.steps,
        [Target("worst", 1.05, "soft")],
        threaded=False,
    ),
    Benchmark(
        "attention",
        "sparsemax_attention, 4 heads of 64 features, against F.scaled_dot_product_attention and products",
        [
            {"N": N, "data": data, "pass": which}
            for N, data, which in product(
                (512, 2048, 4096), ("normal", "normal, sd 3", "trained"), ("forward", "both")
            )
        ],
        sublinear.attention,
        [
            Target("worst", 0.75, "sdpa", lambda cell: bool(cell["pass"] == "forward"), "forward"),
            Target("worst", 0.25, "sdpa", lambda cell: bool(cell["pass"] == "both"), "forward and backward"),
        ],
    ),
    Benchmark(
        "attention-large",
        "the same where supports are large: never far behind the dense products",
        [
            {"N": N, "data": f"near uniform, {part}", "pass": "both"}
            for N, part in product((512, 2048), ("N/4", "N"))
        ],
        sublinear.attention,
        [Target("worst", 1.3, "dense")],
    ),
    Benchmark(
        "linear-loss",
        "linear_sparsemax_loss and its gradients at (256, 512), against F.linear and F.cross_entropy",
        [
            {"classes": classes, "sd": 1, "weight": weight}
            for classes, weight in product((32000, 131072), ("dense", "row-sparse"))
        ],
        sublinear.linear_loss,
        [
            Target("worst", 0.45, "cross_entropy", lambda cell: bool(cell["weight"] == "dense"), "dense"),
            Target(
                "worst", 0.38, "cross_entropy", lambda cell: bool(cell["weight"] != "dense"), "row-sparse"
            ),
        ],
    ),
    Benchmark(
        "linear-loss-large",
        "the same where supports are large, against F.linear and sparsemax_loss",
        [{"classes": 32000, "sd": sd, "weight": "dense"} for sd in (2.0**-11, 2.0**-20)],
        sublinear.linear_loss,
        [Target("worst", 1.3, "dense")],
    ),
    Benchmark(
        "transformer",
        "a training step of 2 layers, 128 features, 32,000 tokens, against the same model with softmax",
        [{"N": 512}],
        sublinear.transformer,
        [Target("worst", 0.5, "softmax")],
    ),
    Benchmark(
        "axis",
        "float32 sparsemax along another axis against the same rows along the last axis",
        [
            {"shape": shape, "axis": axis, "sd": sd}
            for (shape, axis), sd in product((((512, 1000), 0), ((8, 64, 32, 32), 1)), SCALES)
        ],
        cases.other_axis,
        [Target("worst", 2.0, "last_axis")],
    ),
    Benchmark(
        "loss",
        "loss and gradient (new arrays) against F.cross_entropy, forward and backward (new tensors)",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000, 131072), SCALES)],
        cases.loss,
        [Target("worst", 0.5, "cross_entropy", lambda cell: bool(cell["K"] == 32000), "K = 32000")],
    ),
    Benchmark(
        "csr",
        "sparsemax_csr against the dense result, and against scipy's sparse matrix made from it",
        [{"K": K, "sd": sd} for K, sd in product((64, 1024, 32000, 131072), SCALES)],
        cases.csr,
    ),
    Benchmark(
        "call",
        "one call at (1, 16), with and without out=, against scipy's softmax and torch's (out=)",
        [{"out": True}, {"out": False}],
        cases.call,
        [
            Target("worst", 1.5e-6, None, lambda cell: bool(cell["out"]), "with out="),
            Target("worst", 2.5e-6, None, lambda cell: not cell["out"], "without"),
        ],
        threaded=False,
    ),
    Benchmark(
        "import",
        "seconds that `import zerotail` adds to `import numpy`, each in a new process",
        [{"after": "numpy"}],
        cases.import_time,
        [Target("worst", 0.03, None)],
        threaded=False,
    ),
)
