"""Reading a node: its inputs, its attributes, and what a user knows it by."""

from typing import Any, cast

import onnx_ir as ir

from ...plugins.discovery import operation
from .facts import Unsupported


def path_of(node: ir.Node) -> str:
    """The module path a user knows the node by: that of its weight, else what the exporter called its result."""
    for value in node.inputs[1:]:
        if value is not None and value.name and value.name.endswith((".weight", ".bias")):
            return value.name.rpartition(".")[0]
    return node.outputs[0].name or node.op_type


def required(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise Unsupported("an input is absent")
    return value


def parsed(node: ir.Node) -> tuple[list[Any], Any]:
    """The inputs of a plugin's operation, None for those that are absent, and its attributes as its own dataclass.

    Raises UnsupportedModelError for attributes that the operation does not have, and Unsupported for inputs that it
    needs.
    """
    schema = operation(node.op_type, node.domain)
    inputs = [*node.inputs, *[None] * (len(schema.inputs) - len(node.inputs))]
    if len(inputs) > len(schema.inputs):
        raise Unsupported(f"{len(inputs)} inputs, of which it takes {len(schema.inputs)}")
    for declared, value in zip(schema.inputs, inputs, strict=True):
        if value is None and not declared.optional:
            raise Unsupported(f"its input {declared.name} is absent")
    return inputs, schema.parse({name: attribute.value for name, attribute in node.attributes.items()})


def attribute(node: ir.Node, name: str, default: object) -> object:
    found = node.attributes.get(name)
    return default if found is None else found.value


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    return int(cast(int, attribute(node, name, default)))


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    return float(cast(float, attribute(node, name, default)))


def str_attribute(node: ir.Node, name: str, default: str) -> str:
    value = attribute(node, name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
