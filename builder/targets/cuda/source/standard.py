"""Operations in standard ONNX, as TensorRT takes them: strongly typed, so that what is written is what is computed.

Values are float32, but for matrix products: their inputs are bf16 where the engine's --dtype is, and so are then their
results, which TensorRT rounds. Weights are constants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ....lowering.dims import Dim
from ....lowering.facts import Facts
from ....lowering.program import LinearWeight, Rows
from ....lowering.program_weights import ProgramWeights
from ....lowering.weights_file import matrices_of
from ....passes import derived


@dataclass(frozen=True)
class Setting:
    """What decides whether an operation can be written, and how. `weights`: those of all segments."""

    weights: ProgramWeights
    sm: int

    @property
    def facts(self) -> Facts:
        return self.weights.facts

    @property
    def rounds(self) -> bool:
        """Whether matrix products are in bf16."""
        return self.weights.config.dtype == "bf16"


@dataclass
class StandardGraph:
    """Nodes that are being written. `read(parameter)` gives a weight."""

    setting: Setting
    read: derived.Read
    nodes: list[ir.Node] = field(default_factory=list)
    initializers: list[ir.Value] = field(default_factory=list)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)  # of the network -> here
    _rounded: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: int | float | str | list[int]) -> ir.Value:
        """The result of a standard operation."""
        node = ir.node(op_type, inputs, attributes)
        self.nodes.append(node)
        return node.outputs[0]

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        return self.op("Cast", value, to=int(dtype))

    def constant(self, data: np.ndarray) -> ir.Value:
        tensor = ir.tensor(np.asarray(data, order="C"), name=f"constant_{len(self.initializers)}")
        value = ir.Value(
            name=tensor.name, shape=ir.Shape(data.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.initializers.append(value)
        return value

    def static(self, value: ir.Value) -> np.ndarray:
        """The data of a value that depends on parameters and constants alone."""
        data = self.setting.facts.constant(value)
        return derived.compute(value, self.read) if data is None else data

    def of(self, value: ir.Value) -> ir.Value:
        """A value of the network, here."""
        if value not in self.values:
            self.values[value] = self.constant(self.static(value))
        return self.values[value]

    def narrow(self, data: np.ndarray) -> np.ndarray:
        """float32 in the element type of matrix products."""
        return data.astype(ml_dtypes.bfloat16) if self.setting.rounds else data

    def rounded(self, value: ir.Value) -> ir.Value:
        """A float32 value in the element type of matrix products."""
        if not self.setting.rounds:
            return value
        if value not in self._rounded:
            self._rounded[value] = self.cast(value, ir.DataType.BFLOAT16)
        return self._rounded[value]

    def wide(self, value: ir.Value) -> ir.Value:
        """The result of a matrix product in float32."""
        return self.cast(value, ir.DataType.FLOAT) if self.setting.rounds else value

    def matrices(self, weight: LinearWeight) -> list[Rows]:
        """What the rows of a weight's matrices are read with."""
        return list(matrices_of(weight, 0, self.read))


@dataclass(frozen=True)
class Form:
    """How an operation of one domain is written.

    `write(graph, node)`: its results. `refuses(setting, node)`: why TensorRT cannot compute the node, "" where
    it can. `weight(setting, node)`: the weight that its matrix products are with; such a node is what segments are for.
    """

    write: Callable[[StandardGraph, ir.Node], list[ir.Value]]
    refuses: Callable[[Setting, ir.Node], str] = lambda setting, node: ""
    weight: Callable[[Setting, ir.Node], LinearWeight] | None = None


Forms = Mapping[str, Form]


def rows_first(shape: tuple[Dim, ...]) -> list[int]:
    """The order of a tensor's axes in memory: the one that varies, then the others."""
    varying = [axis for axis, dim in enumerate(shape) if not dim.is_static]
    return [*varying, *(axis for axis in range(len(shape)) if axis not in varying)]
