"""What every pass needs to read and rewrite an ONNX graph: constants, shapes, sole consumers, replacement."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ...plugins.plugin import DOMAIN as DOMAIN

Dims = tuple[int | str, ...]


def is_op(node: ir.Node | None, *op_types: str, domain: str = "") -> bool:
    """Whether `node` exists and is one of these operations of the domain."""
    return node is not None and node.domain == domain and node.op_type in op_types


def is_parameter(value: ir.Value) -> bool:
    """Whether `value` is a weight of the checkpoint: an initializer without data."""
    return value.is_initializer() and value.const_value is None


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The data of a constant (an initializer with data), else None; parameters have no data."""
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    return value.const_value.numpy()


def scalar(value: ir.Value | None) -> float | None:
    """The number held by a constant of one element, else None."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    array = constant(value)
    return None if array is None else float(array.reshape(()))


def dims(value: ir.Value) -> Dims | None:
    """The shape as integers and names of symbolic dimensions; None if any part of it is unknown."""
    if value.shape is None:
        return None
    known = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape.dims)
    return None if any(dim is None for dim in known) else known  # type: ignore[return-value]


def static_dims(value: ir.Value) -> tuple[int, ...] | None:
    """The shape if every dimension is an integer, else None."""
    shape = dims(value)
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return shape  # type: ignore[return-value]


def same_shape(a: ir.Value, b: ir.Value) -> bool:
    """Whether both shapes are known and equal, symbolic dimensions by name."""
    shape = dims(a)
    return shape is not None and shape == dims(b)


def same_type(a: ir.Value, b: ir.Value) -> bool:
    """Whether both values have the same known shape and element type."""
    return same_shape(a, b) and a.dtype == b.dtype


def is_last_axis(axis: int, value: ir.Value) -> bool:
    """Whether `axis` counts the last dimension of `value`, from either end."""
    return axis == -1 or (value.shape is not None and axis == len(value.shape) - 1)


def sole_consumer(value: ir.Value) -> ir.Node | None:
    """The one node that reads `value`, once, when nothing else does and it is not an output of the graph."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    return uses[0].node  # type: ignore[index]


def other_input(node: ir.Node, value: ir.Value) -> ir.Value:
    """The operand of a binary node that is not `value` (or `value` itself, when it is both)."""
    first, second = node.inputs
    other = second if first is value else first
    assert other is not None
    return other


def optional_input(node: ir.Node, index: int) -> ir.Value | None:
    """An input that may be absent or left out at the end."""
    return node.inputs[index] if index < len(node.inputs) else None


def insert_before(
    anchor: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    shapes: Sequence[Dims],
    attributes: Mapping[str, int | float | str | Sequence[int]] | None = None,
    *,
    domain: str = "",
    name: str | None = None,
    dtype: ir.DataType = ir.DataType.FLOAT,
) -> ir.Node:
    """Make a node with one output for each of `shapes`, and put it before `anchor`."""
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    graph = anchor.graph
    assert graph is not None
    node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=len(shapes), name=name)
    node.metadata_props.update(anchor.metadata_props)
    for output, shape in zip(node.outputs, shapes, strict=True):
        output.shape = ir.Shape(shape)
        output.dtype = dtype
    graph.insert_before(anchor, node)
    return node


def add_constant(graph: ir.Graph, array: np.ndarray, name: str) -> ir.Value:
    """A constant with data: one of that name if it holds the same, else a new one, numbered if the name is taken."""
    unique, count = name, 1
    while unique in graph.initializers:
        present = constant(graph.initializers[unique])
        if present is not None and present.dtype == array.dtype and np.array_equal(present, array):
            return graph.initializers[unique]
        unique, count = f"{name}_{count}", count + 1
    tensor = ir.tensor(array, name=unique)
    value = ir.Value(name=unique, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def reshape_target(shape: Dims) -> list[int] | None:
    """The `shape` input of a Reshape, with -1 for the symbolic dimension; None if there are several symbolic ones."""
    target = [dim if isinstance(dim, int) else -1 for dim in shape]
    return None if target.count(-1) > 1 or 0 in target else target


def reshape_before(anchor: ir.Node, value: ir.Value, shape: Dims) -> ir.Value:
    """A Reshape of `value` to `shape`, which has at most one symbolic dimension, put before `anchor`."""
    target = reshape_target(shape)
    assert target is not None
    assert anchor.graph is not None
    name = "shape_" + "x".join("n" if size == -1 else str(size) for size in target)
    sizes = add_constant(anchor.graph, np.array(target, np.int64), name)
    dtype = value.dtype or ir.DataType.FLOAT
    return insert_before(anchor, "Reshape", [value, sizes], [shape], name=anchor.name, dtype=dtype).outputs[0]


def replace(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of `old` read `new`, then remove what computed `old` as far as nothing else needs it.

    A freshly made `new` takes over the name of `old`, so that the names of the traced model stay readable.
    """
    producer = old.producer()
    maker = new.producer()
    takes_name = old.is_graph_output() or (maker is not None and new.name is not None and new.name.startswith("val_"))
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if takes_name and not new.is_initializer() and not new.is_graph_input():
        old.name = f"{name}.replaced"
        new.name = name
    erase(producer)


def erase(node: ir.Node | None) -> None:
    """Remove `node`, and then its producers, as long as nothing reads their outputs."""
    pending = [node]
    while pending:
        node = pending.pop()
        if node is None or node.graph is None or any(out.uses() or out.is_graph_output() for out in node.outputs):
            continue
        pending.extend(value.producer() for value in node.inputs if value is not None)
        node.graph.remove(node, safe=True)


def module_name(values: Iterable[ir.Value | None], fallback: str | None) -> str | None:
    """The module path that a fused node is named after, from its weights' names.

    `a.q_proj.weight`, `a.k_proj.weight` give `a.q_proj+k_proj`; without weights the fallback stays.
    """
    modules = [value.name.rpartition(".")[0] for value in values if value is not None and value.name]
    modules = list(dict.fromkeys(module for module in modules if module))
    if not modules:
        return fallback
    prefix = modules[0].rpartition(".")[0]
    if all(module.rpartition(".")[0] == prefix for module in modules):
        return f"{prefix}." * bool(prefix) + "+".join(module.rpartition(".")[2] for module in modules)
    return "+".join(modules)
