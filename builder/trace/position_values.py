"""Compute values of an exported program that depend on nothing but positions, sizes and buffers."""

import hashlib
from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from ...errors import UnsupportedModelError
from .convert import known_placeholders

# Operators that read of a tensor nothing but its shape and dtype.
_READS_SHAPE = {
    "sym_size", "empty_like", "full_like", "new_empty", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"
}  # fmt: skip


class PositionValues:
    """Values of a program's nodes for one sequence with tokens at given positions."""

    def __init__(self, program: torch.export.ExportedProgram, positions: Tensor) -> None:
        self._graph = program.graph
        self._tokens = len(positions)
        ids, places, _ = program.graph_signature.user_inputs
        by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        self._symbol = by_name[str(ids)].meta["val"].shape[0].node.expr
        self._leaves: dict[Node, Tensor] = {by_name[str(places)]: positions}
        self._leaves.update({by_name[name]: value for name, value in known_placeholders(program).items()})
        self._varying = self._find_varying()

    def _find_varying(self) -> set[Node]:
        varying: set[Node] = set()
        for node in self._graph.nodes:
            leaf = node.op == "placeholder" and node not in self._leaves
            if leaf or (not reads_shape(node) and any(i in varying for i in node.all_input_nodes)):
                varying.add(node)
        return varying

    def varies(self, node: Node) -> bool:
        """Whether a value depends on token ids or on parameters."""
        return node in self._varying

    def compute(self, wanted: Iterable[Node], given: Mapping[Node, Tensor]) -> dict[Node, Any]:
        """The values of nodes, where `given` has those of all that vary between. Raises UnsupportedModelError if one
        depends on anything else."""
        wanted = list(wanted)
        needed, shapes = set(self.between(wanted, given)), set[Node]()
        for node in needed:
            if reads_shape(node):
                shapes.update(i for i in node.all_input_nodes if i not in given)
        values: dict[Node, Any] = dict(given)
        with torch.no_grad():
            for node in self._graph.nodes:
                if node in needed:
                    values[node] = self._value(node, values)
                elif node in shapes and isinstance(node.meta["val"], Tensor):
                    values[node] = torch.zeros(self.sizes(node), dtype=node.meta["val"].dtype)
        return {node: values[node] for node in wanted}

    def _value(self, node: Node, values: dict[Node, Any]) -> Any:
        if node in self._leaves:
            return self._leaves[node]
        if node.op != "call_function":
            raise UnsupportedModelError("a value that depends on more than positions is not supported")
        call: Any = node.target
        look_up: Any = values.__getitem__
        return call(*map_arg(node.args, look_up), **map_arg(dict(node.kwargs), look_up))

    def digest(self, node: Node) -> str:
        """A placeholder whose value is known, by its contents; others by name."""
        if node not in self._leaves:
            return node.name
        return hashlib.sha256(self._leaves[node].contiguous().numpy().tobytes()).hexdigest()

    def sizes(self, node: Node) -> list[int]:
        """The shape of a node's value."""
        symbols = {self._symbol: self._tokens}
        return [size if isinstance(size, int) else int(size.node.expr.subs(symbols)) for size in node.meta["val"].shape]

    def between(self, wanted: Iterable[Node], given: Container[Node]) -> list[Node]:
        """The nodes whose values `wanted` are computed from where values are `given`, themselves included."""
        needed = set(wanted)
        for node in reversed(self._graph.nodes):
            if node in needed and node not in given and not reads_shape(node):
                needed.update(node.all_input_nodes)
            elif node in needed and reads_shape(node):
                needed.update(i for i in node.all_input_nodes if not isinstance(i.meta["val"], Tensor))
        return [node for node in self._graph.nodes if node in needed and node not in given]


def reads_shape(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in _READS_SHAPE
