"""A builder of small networks, and an interpreter of them that checks shapes and types."""

from collections.abc import Sequence

import evaluate_network
import numpy as np
import onnx_ir as ir
from known import known
from onnx.reference import ReferenceEvaluator

from enginesmith.builder.passes import numpy_ops
from enginesmith.builder.passes.graph import dims

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
TOKENS, ROWS = 5, 2


class NetworkBuilder:
    """Builds a graph by hand, as tracing would: parameters without data, every value with shape and type."""

    def __init__(self) -> None:
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": 23, "enginesmith": 1}, name="test")

    def input(self, name: str, shape: Sequence[int | str], dtype: ir.DataType = F32) -> ir.Value:
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType(dtype)))
        self.graph.inputs.append(value)
        return value

    def parameter(self, name: str, shape: Sequence[int]) -> ir.Value:
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(F32))
        self.graph.initializers.add(value)
        return value

    def constant(self, numbers: object, dtype: type = np.float32) -> ir.Value:
        array = np.array(numbers, dtype)
        tensor = ir.tensor(array, name=f"constant_{len(self.graph.initializers)}")
        value = ir.Value(
            name=tensor.name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def integers(self, *numbers: int) -> ir.Value:
        return self.constant(numbers, np.int64)

    def op(
        self, op: str, inputs: Sequence[ir.Value | None], shape: Sequence[int | str], dtype: ir.DataType = F32, **attrs
    ) -> ir.Value:
        return self.multi(op, inputs, [shape], dtype, **attrs)[0]

    def multi(
        self, op: str, inputs: Sequence[ir.Value | None], shapes: Sequence, dtype: ir.DataType = F32, **attrs
    ) -> Sequence[ir.Value]:
        domain, _, op_type = op.rpartition("::")
        node = ir.node(op_type, inputs, attrs, domain=domain, num_outputs=len(shapes))
        self.graph.append(node)
        for output, shape in zip(node.outputs, shapes, strict=True):
            output.shape, output.dtype = ir.Shape(shape), ir.DataType(dtype)
        return node.outputs

    def linear(self, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None, **attrs) -> ir.Value:
        """A Linear node, as the linear pass makes it."""
        n = known(dims(weight))[1 if attrs.get("transposed") else 0]
        inputs = [x, weight] + ([bias] if bias is not None else [])
        return self.op("enginesmith::Linear", inputs, (*known(dims(x))[:-1], n), **attrs)

    def output(self, *values: ir.Value) -> None:
        self.graph.outputs.extend(values)

    def count(self, op_type: str) -> int:
        return sum(node.op_type == op_type for node in self.graph)

    def only(self, op_type: str) -> ir.Node:
        (node,) = [node for node in self.graph if node.op_type == op_type]
        return node


def name_of(value: ir.Value) -> str:
    return known(value.name)


_DEFAULTS = {"offset": 0.0, "softcap": 0.0, "window": 0, "chunk": 0, "causal": 1}


def _run_node(node: ir.Node, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    if node.domain == "enginesmith":
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        outputs = evaluate_network.OPERATIONS[node.op_type](node, {**_DEFAULTS, **attributes}, [TOKENS], *inputs)
        return list(outputs) if isinstance(outputs, tuple) else [outputs]
    if node.op_type in ("Erf", "Gelu"):  # the reference evaluator is slow, or has none
        return numpy_ops.apply(node, inputs)
    feeds = {name_of(value): array for value, array in zip(node.inputs, inputs, strict=True) if value is not None}
    return [np.asarray(output) for output in ReferenceEvaluator(ir.to_proto(node)).run(None, feeds)]


def run_network(graph: ir.Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value of the graph by name; feeds hold the inputs and the parameters.

    Standard operations are ONNX's own reference implementations.
    """
    values: dict[str, np.ndarray] = dict(feeds)
    for name, value in graph.initializers.items():
        if value.const_value is not None:
            values[name] = value.const_value.numpy()
    for node in graph:
        inputs = [None if value is None else values[name_of(value)] for value in node.inputs]
        for output, array in zip(node.outputs, _run_node(node, inputs), strict=True):
            assert name_of(output) not in values, f"two values are called {output.name}"
            values[name_of(output)] = np.asarray(array)
            _check_type(output, values[name_of(output)])
    return values


def _check_type(value: ir.Value, array: np.ndarray) -> None:
    """The value computed is of the shape and type that the graph declares."""
    assert value.dtype is not None, f"{value.name} has no type"
    assert value.shape is not None, f"{value.name} has no shape"
    assert value.dtype.numpy() == array.dtype, f"{value.name}: declared {value.dtype}, is {array.dtype}"
    assert _sizes(value.shape) == array.shape, f"{value.name}: declared {value.shape}, is {array.shape}"


def _sizes(shape: ir.Shape | None) -> tuple[int, ...]:
    sizes = {"T": TOKENS, "R": ROWS}
    dims = [d if isinstance(d, int) else d.evaluate(sizes) for d in known(shape).dims]
    assert all(isinstance(d, int) for d in dims), f"{shape} has dimensions other than T and R"
    return tuple(d for d in dims if isinstance(d, int))


def random_feeds(graph: ir.Graph, seed: int = 0, scale: float = 0.5) -> dict[str, np.ndarray]:
    """Random inputs and parameters; integer inputs are token ids, positions or rows."""
    rng = np.random.default_rng(seed)
    feeds = {}
    parameters = [value for value in graph.initializers.values() if value.const_value is None]
    for value in [*graph.inputs, *parameters]:
        shape = _sizes(value.shape)
        if value.dtype == I64:
            feeds[name_of(value)] = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        else:
            feeds[name_of(value)] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return feeds
