"""Positions that a model counts itself, as torch.arange(tokens) or a running sum of ones, become the position input."""

import torch
from torch import Tensor
from torch.fx import Node

from .position_values import PositionValues

_COUNTING = {"arange", "cumsum"}
_LENGTHS = (2, 7, 19)


def replace_own_positions(program: torch.export.ExportedProgram) -> None:
    """Put positions plus a number where the program counts its tokens.

    Only where a sequence that begins at position 0 gives just that: tokens are packed, and counted wrongly otherwise.
    """
    graph = program.graph
    counting = [node for node in graph.nodes if _counts_tokens(node)]
    if not counting:
        return
    probes = [PositionValues(program, torch.arange(length)) for length in _LENGTHS]
    _, name, _ = program.graph_signature.user_inputs
    positions = next(node for node in graph.nodes if node.name == name)
    for node in counting:
        first = _first_position(node, probes)
        if first is not None:
            _replace(graph, node, positions, first)
    graph.eliminate_dead_code()


def _counts_tokens(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._opname not in _COUNTING:
        return False
    value: Tensor = node.meta["val"]
    varying = [size for size in value.shape if not isinstance(size, int)]
    return len(varying) == 1 and value.numel() == varying[0]


def _first_position(node: Node, probes: list[PositionValues]) -> int | None:
    """c, where the node's values are c, c + 1, c + 2, ... for any number of tokens."""
    firsts = set[int | None]()
    for probe, length in zip(probes, _LENGTHS, strict=True):
        if probe.varies(node):
            return None
        values: Tensor = probe.compute([node], {})[node].flatten().double()
        whole = torch.equal(values, values[0] + torch.arange(length)) and values[0] == values[0].round()
        firsts.add(int(values[0]) if whole else None)
    return firsts.pop() if len(firsts) == 1 else None


def _replace(graph: torch.fx.Graph, node: Node, positions: Node, first: int) -> None:
    aten = torch.ops.aten
    with graph.inserting_before(node):

        def call(target: torch._ops.OpOverload, x: Node, *args: object, **kwargs: object) -> Node:
            made = graph.call_function(target, (x, *args), kwargs)  # type: ignore[arg-type]
            made.meta = {**node.meta, "val": target(x.meta["val"], *args, **kwargs)}
            return made

        like: Tensor = node.meta["val"]
        x = call(aten.add.Tensor, positions, first) if first else positions
        for dim, size in enumerate(like.shape):
            if isinstance(size, int):
                x = call(aten.unsqueeze.default, x, dim)
        if like.dtype != x.meta["val"].dtype:
            x = call(aten._to_copy.default, x, dtype=like.dtype)
    node.replace_all_uses_with(x)
