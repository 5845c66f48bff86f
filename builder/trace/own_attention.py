"""Attention that a model spells out, softmax(q k^T ...) v, recognised by what it computes.

Each softmax across tokens is followed back to the one product of activations that makes its scores, and on to the
product with the values. What lies between may depend on positions alone. attention_probe.py runs it on numbers and
says which arguments of the attention operation give the same.
"""

from collections.abc import Iterator

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ...errors import UnsupportedModelError
from .attention_probe import Probed, SpelledOut, probe
from .position_values import PositionValues

_MATMULS = {torch.ops.aten.matmul.default, torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default}
_SOFTMAXES = {torch.ops.aten.softmax.int, torch.ops.aten._softmax.default}


def replace_own_attention(program: torch.export.ExportedProgram, max_seq_len: int) -> torch.export.ExportedProgram:
    """Put the attention operation where the program spells attention out. Raises UnsupportedModelError if it computes
    anything that the operation cannot, in sequences of up to `max_seq_len` tokens."""
    if not any(map(_is_softmax_across_tokens, program.graph.nodes)):
        return program
    program = program.run_decompositions({})  # nothing but operations in place
    values = PositionValues(program, torch.arange(1))
    probed: dict[object, Probed] = {}
    for found in [_find(node, values) for node in program.graph.nodes if _is_softmax_across_tokens(node)]:
        key = _description(found, values)
        if key not in probed:
            probed[key] = probe(program, found, max_seq_len)
        _replace(program.graph, found, probed[key])
    program.graph.eliminate_dead_code()
    return program


def _description(found: SpelledOut, values: PositionValues) -> object:
    """The same for layers that compute the same."""
    numbers: dict[Node, object] = dict(zip(found.operands, ("q", "k", "v"), strict=True))
    lines = []
    for node in values.between([found.scores, found.output], found.operands):
        arguments = str(map_arg((node.args, dict(node.kwargs)), lambda i: numbers.get(i, "shape")))  # type: ignore[arg-type]
        lines.append((str(node.target) if node.op == "call_function" else values.digest(node), arguments))
        numbers[node] = len(numbers)
    sizes = tuple(str(node.meta["val"].shape) for node in found.operands)
    return (*lines, sizes)


def _is_softmax_across_tokens(node: Node) -> bool:
    if node.op != "call_function" or node.target not in _SOFTMAXES:
        return False
    shape, dim = node.meta["val"].shape, node.args[1]
    return dim in (-1, len(shape) - 1) and len(shape) > 1 and not isinstance(shape[-1], int) and shape[-2] == shape[-1]


def _find(softmax: Node, values: PositionValues) -> SpelledOut:
    scores: Node = softmax.args[0]  # type: ignore[assignment]
    products = list(dict.fromkeys(_products(scores, values)))
    if len(products) != 1:
        raise UnsupportedModelError(
            f"attention whose scores are made of {len(products)} products of activations is not supported"
        )
    output = softmax
    while output.target not in _MATMULS:
        users = [user for user in output.users if user.op != "output"]
        if len(users) != 1:
            raise UnsupportedModelError("attention weights that a model uses for more than its values")
        output = users[0]
    return SpelledOut(products[0], scores, output)


def _products(node: Node, values: PositionValues) -> Iterator[Node]:
    """The products of activations that `node` depends on, nearest first."""
    if not values.varies(node):
        return
    if node.target in _MATMULS:
        yield node
        return
    varying = [i for i in node.all_input_nodes if values.varies(i)]
    if not varying or node.op == "placeholder":
        raise UnsupportedModelError("attention scores that depend on more than queries, keys and positions")
    for before in varying:
        yield from _products(before, values)


def _replace(graph: torch.fx.Graph, found: SpelledOut, probed: Probed) -> None:
    q, k, v = found.operands
    mask = probed.mask
    aten, ours = torch.ops.aten, torch.ops.enginesmith
    with graph.inserting_before(found.output):

        def call(target: torch._ops.OpOverload, *args: object) -> Node:
            node = graph.call_function(target, args)  # type: ignore[arg-type]
            plain = map_arg(args, lambda other: other.meta["val"])  # type: ignore[arg-type]
            node.meta = {**found.output.meta, "val": target(*plain)}
            return node

        k = call(aten.transpose.int, k, -1, -2)
        heads = [call(aten.reshape.default, x, [1, -1, *x.meta["val"].shape[-2:]]) for x in (q, k, v)]
        attended = call(
            ours.paged_attention.default, *heads, None, list(probed.slopes), probed.scale, mask.window, probed.softcap,
            int(mask.causal), mask.chunk,
        )  # fmt: skip
        result = call(
            aten.reshape.default, call(aten.transpose.int, attended, 1, 2), list(found.output.meta["val"].shape)
        )
    found.output.replace_all_uses_with(result)
