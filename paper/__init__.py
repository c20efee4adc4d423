"""The figures and tables of the paper, one runnable file each: `python -m paper`."""
