"""Experts that a model runs on all its tokens, each token scaled by scores that are zero for all experts but a few.

Only the chosen ones are computed: what is zero gives zero, and a token's experts are added up.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

_RESHAPES = {torch.ops.aten.reshape.default, torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
_FILLS = {torch.ops.aten.full_like.default, torch.ops.aten.zeros_like.default}


@dataclass(frozen=True)
class _Found:
    """`total` [T, H]: the sum over experts of what they make of x [T, H] times their scores. `scale`: the operators
    that make scores of `values` [T, k], which stand at `indices` [T, k] of a table that is zero elsewhere then."""

    total: Node
    x: Node
    indices: Node
    values: Node
    scale: list[Node]


def replace_grouped_experts(program: torch.export.ExportedProgram) -> None:
    """Put Experts where the program runs all experts on all tokens. Others stay."""
    target = torch.ops.enginesmith.grouped_experts.default
    for node in [node for node in program.graph.nodes if node.target is target]:
        found = _find(node)
        if found is not None:
            _replace(program.graph, node, found)
    program.graph.eliminate_dead_code()


def _find(node: Node) -> _Found | None:
    """The pattern around experts' outputs [E T, H], of rows that lie expert by expert."""
    rows: Any = node.args[0]
    experts, total = _shape(node.args[2])[0], _sum_over_experts(node, _shape(node.args[2])[0])
    if total is None or rows.target is not torch.ops.aten.mul.Tensor:
        return None
    repeated, column = rows.args if rows.args[0].target is torch.ops.aten.repeat.default else rows.args[::-1]
    if repeated.target is not torch.ops.aten.repeat.default or list(repeated.args[1]) != [experts, 1]:
        return None
    turned = column.args[0] if column.target in _RESHAPES else None
    if turned is None or turned.target is not torch.ops.aten.transpose.int or len(_shape(turned)) != 2:
        return None
    scores, scale = turned.args[0], []
    while scores.target is not torch.ops.aten.scatter.src and len(scores.all_input_nodes) == 1:
        scale.insert(0, scores)
        scores = scores.args[0]
    if scores.target is not torch.ops.aten.scatter.src or scores.args[1] not in (1, -1):
        return None
    table, _, indices, values = scores.args
    return _Found(total, repeated.args[0], indices, values, scale) if _is_zero_elsewhere(table, scale) else None


def _sum_over_experts(node: Node, experts: int) -> Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].target not in _RESHAPES or _shape(users[0])[:1] != (experts,):
        return None
    (apart,) = users
    sums = list(apart.users)
    is_sum = len(sums) == 1 and sums[0].target is torch.ops.aten.sum.dim_IntList and list(sums[0].args[1]) == [0]  # type: ignore[arg-type]
    return sums[0] if is_sum and len(_shape(apart)) == 3 else None


def _is_zero_elsewhere(table: Node, scale: list[Node]) -> bool:
    """Whether what the table is filled with becomes zero."""
    if table.target not in _FILLS:
        return False
    fill = table.args[1] if table.target is torch.ops.aten.full_like.default else 0.0
    value = torch.full((1,), float(fill), dtype=table.meta["val"].dtype)  # type: ignore[arg-type]
    for node in scale:
        value = node.target(value, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    return math.isclose(float(value), 0.0, abs_tol=0.0)


def _replace(graph: torch.fx.Graph, node: Node, found: _Found) -> None:
    aten, experts = torch.ops.aten, torch.ops.enginesmith.experts.default
    _, gate, up, down, activation = node.args
    with graph.inserting_before(found.total):

        def call(target: Any, *args: Any, **kwargs: Any) -> Node:
            made = graph.call_function(target, args, kwargs)
            plain = [argument.meta["val"] if isinstance(argument, Node) else argument for argument in args]
            made.meta = {**node.meta, "val": target(*plain, **kwargs)}
            return made

        scores = found.values
        for step in found.scale:
            scores = call(step.target, scores, *step.args[1:], **step.kwargs)
        parts = []
        for j in range(_shape(found.indices)[1]):
            score, index = (call(aten.narrow.default, each, 1, j, 1) for each in (scores, found.indices))
            x, one = call(aten.mul.Tensor, found.x, score), call(aten.ones_like.default, score)
            biases = (None, None, None)
            parts.append(call(experts, x, index, one, gate, up, down, *biases, activation, 0.0, 0.0))
        total = parts[0]
        for part in parts[1:]:
            total = call(aten.add.Tensor, total, part)
    found.total.replace_all_uses_with(total)


def _shape(node: Any) -> tuple[Any, ...]:
    value = node.meta["val"]
    return tuple(value.shape) if isinstance(value, Tensor) else ()
