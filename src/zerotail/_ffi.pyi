"""What zerotail.jax registers with XLA. Built where JAX is installed."""

api_version: tuple[int, int]

def handlers() -> dict[str, object]:
    """The address of each handler of XLA's foreign function interface, by its name."""

def use_target(name: str) -> bool:
    """Switch the instruction set, for tests; False where this machine has no such target."""
