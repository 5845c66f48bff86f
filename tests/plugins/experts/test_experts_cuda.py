"""Experts in Triton against their reference, in Triton's interpreter: a network whose logits they make."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_program import CudaProgram
from onnx_text import SmallNetwork

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.schemes import scheme_of_linear
from enginesmith.plugins.experts.gate import Gate
from enginesmith.plugins.experts.reference import experts
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.reference import dequantize
from enginesmith.quantization import rtn

VOCABULARY, HIDDEN, INNER, EXPERTS, ACTIVE = 11, 48, 72, 5, 2
RANDOM = np.random.default_rng(5)
TABLE = RANDOM.normal(0, 1, (VOCABULARY, HIDDEN)).astype(np.float32)
PARAMETERS = {
    "table": TABLE,
    "gate": RANDOM.normal(0, 0.3, (EXPERTS, INNER, HIDDEN)).astype(np.float32),
    "up": RANDOM.normal(0, 0.3, (EXPERTS, INNER, HIDDEN)).astype(np.float32),
    "down": RANDOM.normal(0, 0.3, (EXPERTS, HIDDEN, INNER)).astype(np.float32),
    "gate_bias": RANDOM.normal(0, 1, (EXPERTS, INNER)).astype(np.float32),
    "up_bias": RANDOM.normal(0, 1, (EXPERTS, INNER)).astype(np.float32),
    "down_bias": RANDOM.normal(0, 1, (EXPERTS, HIDDEN)).astype(np.float32),
}
IDS = [3, 0, 7, 7, 10]


def rounded(weight: np.ndarray, config: BuildConfig) -> np.ndarray:
    """A weight [E, N, K] as the build rounds it, in float64."""
    scheme = scheme_of_linear(config, "", weight.shape[2])
    if not scheme.type.is_integer:
        return weight.astype(np.float64)
    found = rtn.quantize(weight.reshape(-1, weight.shape[2]), scheme)
    return dequantize(found.q, found.scale, scheme.group_size, found.zero).reshape(weight.shape)


def network(gated: bool, attributes: str) -> SmallNetwork:
    """A token's router takes the two largest of its first five numbers; its experts' sum makes the logits."""
    names = "gate, up, down, gate_bias, up_bias, down_bias" if gated else ", up, down, , up_bias, down_bias"
    used = {name: value for name, value in PARAMETERS.items() if gated or not name.startswith("gate")}
    body = f"""
        zero = Constant<value_ints=[0]>()  five = Constant<value_ints=[5]>()  one = Constant<value_ints=[1]>()
        two = Constant<value_ints=[2]>()
        x = Gather<axis=0>(table, input_ids)  scores = Slice(x, zero, five, one)
        weights, indices = TopK<axis=-1>(scores, two)
        y = enginesmith.Experts<{attributes}>(x, indices, weights, {names})
        logits = Gather<axis=0>(y, logits_rows)
    """
    return SmallNetwork(body, HIDDEN, used, f"float[T, {HIDDEN}] y")


@pytest.mark.parametrize(
    ("gated", "options"),
    [
        (True, {"dtype": "fp32"}),
        (True, {"dtype": "bf16"}),
        (True, {"weights": "int4", "group_size": 16}),
        (False, {"weights": "int8"}),
    ],
    ids=["fp32", "bf16", "int4", "plain-int8"],
)
def test_experts_are_those_of_the_reference(gated: bool, options: dict[str, Any], tmp_path: Path):
    """Of the rounded weights; inputs are rounded to bf16, but for float32 weights. A row alone has the same bits."""
    config = BuildConfig(**options, max_num_tokens=16, max_batch_size=8, kv_block_size=16, check=False)
    small = network(gated, 'activation="silu", limit=3.0, up_offset=1.0' if gated else 'activation="relu2"')
    program = CudaProgram(small.network(), small.parameters, config, tmp_path)
    x = TABLE[IDS]
    indices = np.argsort(-x[:, :5], axis=1, kind="stable")[:, :ACTIVE]
    weights = np.take_along_axis(x, indices, axis=1)
    function = Gate(ActivationFunction("silu"), 3.0, 1.0) if gated else Gate(ActivationFunction("relu2"), gated=False)
    gate, up, down = (rounded(PARAMETERS[name], config) for name in ("gate", "up", "down"))
    biases = (PARAMETERS["gate_bias"] if gated else None, PARAMETERS["up_bias"], PARAMETERS["down_bias"])
    expected = experts(
        x.astype(np.float64), indices, weights, gate if gated else None, up, down, *biases, function=function
    )
    found = program.run([IDS])
    bar = 1e-5 if config.dtype == "fp32" else 0.03
    assert np.abs(found - expected).max() <= bar * expected.std()
    assert (program.run([IDS[2:3]])[0] == found[2]).all()
