"""weights.bin holds each weight as its layout packs it, rounded to its scheme."""

from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from enginesmith.builder.lowering.program import LinearWeight, Program
from enginesmith.builder.lowering.weights_file import plan_weights, write_weights
from enginesmith.plugins.cpu.isa import Isa
from enginesmith.plugins.linear.cpu.packing import layout_of_weight
from enginesmith.quantization.rtn import quantize
from enginesmith.quantization.scheme import LinearScheme, WeightScheme, WeightType

N, K = 40, 64


def parameter(name: str, *shape: int) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    ir.Graph([], [], nodes=[], initializers=[value])
    return value


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "scheme",
    [
        WeightScheme(WeightType.FP32),
        WeightScheme(WeightType.INT8),
        WeightScheme(WeightType.INT4, 32),
        WeightScheme(WeightType.INT4, 32, symmetric=False),
    ],
    ids=str,
)
def test_linear_weights_are_rounded_and_packed(tmp_path: Path, scheme: WeightScheme, transposed: bool) -> None:
    matrix = np.random.default_rng(5).standard_normal((N, K)).astype(np.float32)
    source = parameter("w", *((K, N) if transposed else (N, K)))
    linear = LinearScheme(scheme)
    weights = [LinearWeight((source,), N, K, linear, transposed), LinearWeight((source,) * 2, N, K, linear, transposed)]
    program = Program(linear_weights=weights)
    layout_of = partial(layout_of_weight, isa=Isa.AVX2)
    plan_weights(program, layout_of)
    write_weights(tmp_path / "w", program, layout_of, lambda _: matrix.T if transposed else matrix)
    written = np.fromfile(tmp_path / "w", np.uint8)
    rows = quantize(matrix, scheme).rows if scheme.type.is_integer else lambda first, last: matrix[first:last]
    for weight, more in zip(weights, ((), (rows,)), strict=True):
        expected = np.empty(weight.nbytes, np.uint8)
        layout_of(weight).pack(rows, expected, *more)
        np.testing.assert_array_equal(written[weight.offset : weight.offset + weight.nbytes], expected)
