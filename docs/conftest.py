"""Pages whose examples need more than NumPy are left out where it is missing."""

from importlib.util import find_spec

NEEDS = {
    "torch.md": ("torch", "onnxscript", "onnxruntime"),
    "attention.md": ("torch", "transformers"),
    "jax.md": ("jax", "optax"),
    "datasets.md": ("sklearn",),
    "sklearn.md": ("sklearn", "scipy"),
    "sublinear.md": ("torch",),
}
collect_ignore = [page for page, modules in NEEDS.items() if not all(map(find_spec, modules))]
