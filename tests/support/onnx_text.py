"""Small networks written as ONNX text."""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from enginesmith.builder.network import Network, Parameter

_INPUTS = ("input_ids", "position_ids", "logits_rows")


@dataclass
class SmallNetwork:
    """A network whose text is `body` between the standard inputs and `logits`, with parameters of the given values.

    `declared`: types of values whose shape ONNX does not infer.
    """

    body: str
    width: int
    parameters: dict[str, np.ndarray]
    declared: str = ""

    def network(self) -> Network:
        sizes = {name: ",".join(map(str, value.shape)) for name, value in self.parameters.items()}
        parameters = "".join(f", float[{size}] {name}" for name, size in sizes.items())
        text = (
            '<ir_version: 10, opset_import: ["" : 23, "enginesmith" : 1]>\n'
            f"g (int64[T] input_ids, int64[T] position_ids, int64[R] logits_rows{parameters})"
            f" => (float[R, {self.width}] logits) {f'<{self.declared}>' * bool(self.declared)} {{\n{self.body}\n}}"
        )
        proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True)
        model = ir.from_proto(proto)
        for value in list(model.graph.inputs):
            if value.name not in _INPUTS:
                model.graph.inputs.remove(value)
                model.graph.initializers[str(value.name)] = value
        for node in list(model.graph):
            if node.op_type == "Constant":
                value = node.outputs[0]
                value.const_value = ir.convenience.get_const_tensor(value)
                node_value = ir.Value(
                    name=value.name, shape=value.shape, type=value.type, const_value=value.const_value
                )
                value.replace_all_uses_with(node_value)
                model.graph.remove(node, safe=True)
                model.graph.initializers[str(value.name)] = node_value
        known = {name: Parameter(name, value.shape) for name, value in self.parameters.items()}
        return Network(model, known, {}, [], {}, "TestForCausalLM", "", self.width, 0)
