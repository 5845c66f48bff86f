"""Compute values of an exported program that depend on nothing but positions and buffers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ...errors import UnsupportedModelError

_POSITIONS = torch.tensor([0, 1, 2, 7, 19, 101])


def position_values(program: torch.export.ExportedProgram, nodes: Sequence[Node]) -> dict[Node, torch.Tensor]:
    """The value of each node for a few positions. Raises UnsupportedModelError if one depends on anything else."""
    wanted = set(nodes)
    for node in reversed(program.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    leaves = _leaves(program)
    values: dict[Node, torch.Tensor] = {}
    with torch.no_grad():
        for node in program.graph.nodes:
            if node not in wanted:
                continue
            if node.op == "placeholder":
                if node.name not in leaves:
                    raise UnsupportedModelError("rotary angles that depend on more than positions are not supported")
                values[node] = leaves[node.name]
            else:
                call, args, kwargs = _plain(node, values)
                values[node] = call(*args, **kwargs)
    return {node: values[node] for node in nodes}


def _leaves(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Placeholder name -> value, for the positions (the second input) and everything whose data is known."""
    signature = program.graph_signature
    known: dict[str, Any] = program.constants
    _, positions, _ = signature.user_inputs
    leaves = {str(positions): _POSITIONS}
    for source in (signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants):
        leaves.update({name: known[target] for name, target in source.items() if target in known})
    return leaves


def _plain(node: Node, values: dict[Node, torch.Tensor]) -> Any:
    """What a node calls, and with which values."""
    look_up: Any = values.__getitem__
    return node.target, map_arg(node.args, look_up), map_arg(node.kwargs, look_up)
