"""Pages whose examples need more than NumPy are left out where it is missing."""

from importlib.util import find_spec

NEEDS = {"datasets.md": ("sklearn",), "torch.md": ("torch", "onnxscript", "onnxruntime")}
collect_ignore = [page for page, modules in NEEDS.items() if not all(map(find_spec, modules))]
