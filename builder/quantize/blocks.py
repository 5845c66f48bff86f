"""Which decoder layer a parameter belongs to, told by its name."""

from collections.abc import Iterable


def block_of(name: str) -> str | None:
    """The decoder layer that a module or parameter is inside of: "model.layers.3" of "model.layers.3.mlp.up_proj".

    It is the path up to the first number, for decoder layers are the outermost list of a decoder; None without one.
    """
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts) if part.isdigit()), None)
    return None if at is None else ".".join(parts[: at + 1])


def blocks_of(names: Iterable[str]) -> list[str]:
    """The decoder layers that hold any of `names`, in the order of their numbers."""
    blocks = {block for name in names if (block := block_of(name)) is not None}
    return sorted(blocks, key=lambda block: (block.rpartition(".")[0], int(block.rpartition(".")[2])))
