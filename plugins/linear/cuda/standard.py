"""Linear in standard ONNX, and the matrix product that GatedMLP shares."""

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ....builder.lowering.nodes import parsed, required
from ....builder.lowering.program import LinearWeight
from ....builder.passes.head import makes_logits
from ....builder.passes.router import is_router
from ....builder.targets.cuda.source.standard import Form, Setting, StandardGraph
from ....quantization.quantized import QuantizedWeight
from ....quantization.scheme import ActivationScheme, WeightScheme, WeightType
from ..activation_function import ActivationFunction
from ..lower import weight_of

_INT4_GROUPS = (16, 32, 64, 128)
_LEAST_SM_OF_FP8 = 89
_ELEMENTS = {WeightType.INT4: ml_dtypes.int4, WeightType.INT8: np.int8, WeightType.FP8: ml_dtypes.float8_e4m3fn}
_TYPES = {WeightType.INT8: ir.DataType.INT8, WeightType.FP8: ir.DataType.FLOAT8E4M3FN}


def refuses(weight: LinearWeight, setting: Setting) -> str:
    """Why TensorRT cannot multiply by a weight of that scheme."""
    scheme = weight.scheme.weight
    if scheme.group_size and weight.k % scheme.group_size:
        return f"{weight.k} inputs in groups of {scheme.group_size}, of which the last is shorter"
    if scheme.type is WeightType.INT4 and scheme.group_size not in _INT4_GROUPS:
        return f"int4 in groups of {scheme.group_size or weight.k}, not of {', '.join(map(str, _INT4_GROUPS))}"
    if scheme.type is WeightType.FP8 and setting.sm < _LEAST_SM_OF_FP8:
        return f"FP8 on compute capability {setting.sm / 10:.1f}, which has none before 8.9"
    if weight.scheme.activation is ActivationScheme.DYNAMIC:
        return "inputs with a scale for each token"
    return ""


def product(graph: StandardGraph, node: ir.Node, x: ir.Value, weight: LinearWeight, number: int = 0) -> ir.Value:
    """float32 [..., N] of the node's first input, which is x [..., K] here, and matrix `number` of a weight."""
    matrix = graph.matrices(weight)[number](0, weight.n)
    if isinstance(matrix, np.ndarray):
        return _matmul(graph, graph.rounded(x), graph.constant(graph.narrow(matrix)))
    rounded = graph.rounded(x)
    if weight.input_scale is not None:
        scale = graph.constant(graph.narrow(np.array(weight.input_scale, np.float32)))
        stored = graph.op("QuantizeLinear", rounded, scale, output_dtype=int(_TYPES[weight.scheme.weight.type]))
        rounded = graph.op("DequantizeLinear", stored, scale)
    y = _matmul(graph, rounded, _dequantized(graph, matrix, weight.scheme.weight))
    if matrix.zero is None:
        return y
    leading = len(graph.setting.facts.shape(required(node, 0))) - 1
    return graph.op("Sub", y, _zeros(graph, rounded, leading, matrix))


def _matmul(graph: StandardGraph, x: ir.Value, matrix: ir.Value) -> ir.Value:
    return graph.wide(graph.op("MatMul", x, graph.op("Transpose", matrix, perm=[1, 0])))


def _dequantized(graph: StandardGraph, matrix: QuantizedWeight, scheme: WeightScheme) -> ir.Value:
    """[N, K] without its zeros."""
    q = graph.constant(matrix.q.astype(_ELEMENTS[scheme.type], copy=False))
    scale = graph.narrow(matrix.scale)
    if scheme.group_size:
        return graph.op("DequantizeLinear", q, graph.constant(scale), axis=1, block_size=scheme.group_size)
    return graph.op("DequantizeLinear", q, graph.constant(scale[:, 0]), axis=0)


def _zeros(graph: StandardGraph, x: ir.Value, leading: int, matrix: QuantizedWeight) -> ir.Value:
    """float32 [..., N]: what zeros take off, for TensorRT has none: the sum over each group of x, times scale * zero.

    `leading`: dimensions of x before the last.
    """
    assert matrix.zero is not None
    sizes = graph.constant(np.array([*[0] * leading, matrix.scale.shape[1], -1], np.int64))
    axis = graph.constant(np.array([leading + 1], np.int64))
    sums = graph.op("ReduceSum", graph.op("Reshape", graph.wide(x), sizes), axis, keepdims=0)
    offsets = graph.constant(graph.narrow(matrix.scale * matrix.zero))
    return _matmul(graph, graph.rounded(sums), offsets)


def activated(graph: StandardGraph, x: ir.Value, function: ActivationFunction) -> ir.Value:
    """An activation function of float32."""
    match function:
        case ActivationFunction.NONE:
            return x
        case ActivationFunction.GELU | ActivationFunction.GELU_TANH:
            return graph.op("Gelu", x, approximate="none" if function is ActivationFunction.GELU else "tanh")
        case ActivationFunction.RELU2:
            positive = graph.op("Relu", x)
            return graph.op("Mul", positive, positive)
        case ActivationFunction.SILU:
            return graph.op("Mul", x, graph.op("Sigmoid", x))
        case ActivationFunction.QUICK_GELU:
            steep = graph.op("Mul", x, graph.constant(np.array(1.702, np.float32)))
            return graph.op("Mul", x, graph.op("Sigmoid", steep))
        case _:
            return graph.op(function.value.capitalize(), x)


def biased(graph: StandardGraph, y: ir.Value, bias: ir.Value | None) -> ir.Value:
    """y, and a bias of the network."""
    return y if bias is None else graph.op("Add", y, graph.of(bias))


def _weight(setting: Setting, node: ir.Node) -> LinearWeight:
    return weight_of(setting.weights, node)


def _refuses(setting: Setting, node: ir.Node) -> str:
    out = node.outputs[0]
    if makes_logits(out) or is_router(out):
        return f"makes {'logits' if makes_logits(out) else 'choices of experts'}, which TensorRT would round to bf16"
    return refuses(_weight(setting, node), setting)


def _write(graph: StandardGraph, node: ir.Node) -> list[ir.Value]:
    (x, _, bias, residual), attributes = parsed(node)
    y = biased(graph, product(graph, node, graph.of(x), _weight(graph.setting, node)), bias)
    y = activated(graph, y, attributes.activation)
    return [y if residual is None else graph.op("Add", y, graph.of(residual))]


FORMS = {"Linear": Form(_write, _refuses, _weight)}
