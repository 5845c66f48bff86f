"""Operators that write into a tensor which nothing else sees become those that make a new one.

PyTorch would take any program's apart, at the price of tracing it once more.
"""

import torch
from torch import Tensor
from torch.fx import Node


def replace_in_place(program: torch.export.ExportedProgram) -> None:
    """Put `div` where the program has `div_`, and so on, of tensors that have one name only. Others stay."""
    graph = program.graph
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        made = _functional_form(node)
        if made is None or not _has_one_name(node, places):
            continue
        written: Node = node.args[0]
        with graph.inserting_before(node):
            new = graph.call_function(made, node.args, dict(node.kwargs))
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        places[new] = places[node]
        for user in [user for user in written.users if places[user] > places[node]]:
            user.replace_input_with(written, new)
        graph.erase_node(node)


def _functional_form(node: Node) -> torch._ops.OpOverload | None:
    """The operator that computes the same, of a node that writes into its first argument alone."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return None
    arguments = target._schema.arguments
    writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    name = target._opname.removesuffix("_")
    packet = getattr(torch.ops.aten, name, None)
    if target.namespace != "aten" or writes != [True] + [False] * (len(writes) - 1) or name == target._opname:
        return None
    if packet is None or target._overloadname not in packet.overloads():
        return None
    found = getattr(packet, target._overloadname)
    same = [a.name for a in found._schema.arguments] == [a.name for a in arguments]
    return found if same and _keeps_dtype(node) else None


def _keeps_dtype(node: Node) -> bool:
    """Whether the new tensor has the dtype of the one written to, as written elements have: no wider one comes in."""
    values = [i.meta.get("val") if isinstance(i, Node) else None for i in (node.args[0], *node.all_input_nodes)]
    dtypes = [value.dtype for value in values if isinstance(value, Tensor)]
    if not dtypes or not dtypes[0].is_floating_point:
        return False
    return all(torch.promote_types(dtype, dtypes[0]) == dtypes[0] for dtype in dtypes)


def _has_one_name(node: Node, places: dict[Node, int]) -> bool:
    """Whether what a node writes into was made anew, and not looked at through a view before."""
    written: Node = node.args[0]  # type: ignore[assignment]
    if not isinstance(written, Node) or not isinstance(written.meta.get("val"), Tensor):
        return False
    maker: Node = written.args[0] if _is_getitem(written) else written  # type: ignore[assignment]
    if not isinstance(maker.target, torch._ops.OpOverload) or _may_alias(maker.target):
        return False
    before = [user for user in written.users if user.op == "call_function" and places[user] < places[node]]
    return not any(not isinstance(user.target, torch._ops.OpOverload) or _may_alias(user.target) for user in before)


def _is_getitem(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _may_alias(operator: torch._ops.OpOverload) -> bool:
    """Whether a result may be a view of an argument, as operators that are made of others do not always say."""
    aliases = any(returned.alias_info is not None for returned in operator._schema.returns)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    return aliases or composite
