"""Convolutions along tokens that a model computes itself become the causal convolution: their past lies in the state.

They are PyTorch's depthwise convolution with zeros on both sides, of which no more tokens are read than came in, and
the shift by a token, as a padding of one token in front that cuts off the last one.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from .convert import FxNode

_aten = torch.ops.aten
_SHIFT = [0, 0, 1, -1]


def replace_own_convolutions(program: torch.export.ExportedProgram) -> None:
    graph = program.graph
    for node in list(graph.nodes):
        if node.target is _aten.conv1d.default:
            _replace_convolution(graph, node)
        elif node.target is _aten.pad.default and _is_shift(node):
            _replace_shift(graph, node)
    graph.eliminate_dead_code()


def _replace_convolution(graph: torch.fx.Graph, node: FxNode) -> None:
    named: dict[str, Any] = dict(
        zip(("x", "weight", "bias", "stride", "padding", "dilation", "groups"), node.args, strict=False)
    )
    x, weight = named["x"], named["weight"]
    channels, _, width = weight.meta["val"].shape
    arguments = [named.get(name, default) for name, default in (("stride", [1]), ("padding", [0]), ("dilation", [1]))]
    if arguments != [[1], [width - 1], [1]] or named.get("groups", 1) != channels or x.meta["val"].ndim != 3:
        return
    if not all(_reads_what_came_in(user, x) for user in node.users):
        return
    with graph.inserting_before(node):
        rows = _call(graph, node, _aten.transpose.int, x, 1, 2)
        taps = _call(graph, node, _aten.transpose.int, _call(graph, node, _aten.squeeze.dim, weight, 1), 0, 1)
        y = _call(graph, node, _aten.transpose.int, _causal(graph, node, rows, taps, named.get("bias")), 1, 2)
    for user in list(node.users):
        user.replace_all_uses_with(y)


def _reads_what_came_in(user: FxNode, x: FxNode) -> bool:
    named: dict[str, Any] = dict(zip(("self", "dim", "start", "end", "step"), user.args, strict=False))
    if user.target is not _aten.slice.Tensor or named["dim"] not in (2, -1):
        return False
    first, step = named.get("start", 0), named.get("step", 1)
    return first in (0, None) and step == 1 and bool(user.meta["val"].shape[2] == x.meta["val"].shape[2])


def _is_shift(node: FxNode) -> bool:
    x, amounts, *rest = node.args
    value = rest[1] if len(rest) > 1 else 0.0
    mode = rest[0] if rest else "constant"
    return amounts == _SHIFT and mode == "constant" and not value and x.meta["val"].ndim == 3


def _replace_shift(graph: torch.fx.Graph, node: FxNode) -> None:
    x = node.args[0]
    channels = x.meta["val"].shape[2]
    with graph.inserting_before(node), x.meta["val"].fake_mode:
        taps = [_call(graph, node, _aten.full.default, [1, channels], value) for value in (1.0, 0.0)]
        node.replace_all_uses_with(_causal(graph, node, x, _call(graph, node, _aten.cat.default, taps), None))


def _causal(graph: torch.fx.Graph, like: Node, x: Node, taps: Node, bias: Any) -> Node:
    """x [1, T, C] convolved with taps [K, C]."""
    tokens = _call(graph, like, _aten.sym_size.int, x, 1)
    shape = [1, tokens, x.meta["val"].shape[2]]
    recurrence = torch.ops.enginesmith.recurrence.default
    return _call(graph, like, recurrence, "CausalConv1D", [x, taps, bias], shape, json.dumps({}))


def _call(graph: torch.fx.Graph, like: Node, target: torch._ops.OpOverload, *args: Any) -> Node:
    """A new node of the module of `like`."""
    made = graph.call_function(target, args)
    made.meta = {**like.meta, "val": target(*_values(args))}
    return made


def _values(argument: Any) -> Any:
    if isinstance(argument, Node):
        return argument.meta["val"]
    is_several = isinstance(argument, Sequence) and not isinstance(argument, str)
    return [_values(each) for each in argument] if is_several else argument
