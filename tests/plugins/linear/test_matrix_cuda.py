"""The matrix kernels in Triton against NumPy, for every weight scheme, and that all tactics give the same bits."""

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import torch
from triton_interpreter import interpret

from enginesmith.errors import BuildError
from enginesmith.plugins.linear.activation_function import ActivationFunction
from enginesmith.plugins.linear.cuda import tactics
from enginesmith.plugins.linear.cuda.matrix import combine_kernel, split_kernel, walk_kernel
from enginesmith.plugins.linear.cuda.packing import LinearLayout
from enginesmith.plugins.linear.cuda.quantize import quantize_kernel
from enginesmith.plugins.linear.reference import fp8_activations, quantize_activations, quantize_activations_static
from enginesmith.quantization.quantized import QuantizedWeight
from enginesmith.quantization.scheme import ActivationScheme, WeightScheme, WeightType

NONE, DYNAMIC, STATIC = ActivationScheme
FP32, BF16, FP8, INT8, INT4 = WeightType
FLOATS = [(WeightScheme(kind), NONE) for kind in (FP32, BF16)]
WEIGHT_ONLY = [
    (scheme, NONE)
    for scheme in [
        *(WeightScheme(INT4, group) for group in (0, 32, 64, 96, 128)),
        *(WeightScheme(INT4, group, symmetric=False) for group in (32, 64, 128)),
        *(WeightScheme(INT8, group) for group in (0, 32, 64, 128)),
        *(WeightScheme(FP8, group) for group in (0, 32, 128)),
    ]
]
QUANTIZED = [
    (WeightScheme(kind, group), activation)
    for kind, groups in ((INT8, (0, 64, 128)), (FP8, (0, 128)))
    for group in groups
    for activation in (DYNAMIC, STATIC)
]
SCHEMES = [*FLOATS, *WEIGHT_ONLY, *QUANTIZED]
INPUT_SCALE = 0.03


def name(case) -> str:
    return "-".join(str(part) for part in case if str(part) != "none")


@dataclass
class Layer:
    """A random weight [n, k] and where it lies, packed."""

    layout: LinearLayout
    weights: list[np.ndarray | QuantizedWeight]
    packed: torch.Tensor

    def dense(self, matrix: int = 0) -> np.ndarray:
        """The weight in float64, rounded as the kernels' factors are."""
        weight, group = self.weights[matrix], self.layout.scheme.group_size
        if not isinstance(weight, QuantizedWeight):
            return weight.astype(np.float32 if self.layout.scheme.type is FP32 else ml_dtypes.bfloat16).astype(float)
        values = weight.dequantize(group)
        rounds = group and not self.layout.is_quantized_product
        return (values.astype(ml_dtypes.bfloat16) if rounds else values).astype(float)

    def pointers(self, matrix: int = 0) -> dict[str, torch.Tensor | None]:
        """The kernels' arguments: elements, and scales and zeros of groups or scales of channels."""
        layout, scheme = self.layout, self.layout.scheme
        dtypes = {"*fp32": torch.float32, "*bf16": torch.bfloat16, "*fp16": torch.float16, "*i8": torch.int8}
        scale_dtype = dtypes[layout.scale_element]

        def at(offset: int, dtype: torch.dtype) -> torch.Tensor:
            return self.packed[offset:].view(dtype)

        scales = at(layout.scales_offset(matrix), scale_dtype) if scheme.type.is_scaled else None
        return {
            "values": at(layout.values_offset(matrix), dtypes.get(layout.element, torch.uint8)),
            "scales": scales if scheme.group_size else None,
            "zeros": None if scheme.symmetric else at(layout.zeros_offset(matrix), scale_dtype),
            "channel_scales": None if scheme.group_size else scales,
        }


@cache
def layer(n: int, k: int, scheme: WeightScheme, activation: ActivationScheme, gated: bool = False) -> Layer:
    layout = LinearLayout(n, k, scheme, activation, gated)
    weights = [random_weight(np.random.default_rng(seed), n, k, scheme) for seed in range(layout.matrices)]
    packed = np.full(layout.nbytes, 0xFF, np.uint8)
    sources = [w.rows if isinstance(w, QuantizedWeight) else lambda a, b, w=w: w[a:b] for w in weights]
    layout.pack(sources[0], packed, *sources[1:])
    return Layer(layout, weights, torch.from_numpy(packed))


def random_weight(rng: np.random.Generator, n: int, k: int, scheme: WeightScheme) -> np.ndarray | QuantizedWeight:
    if not scheme.type.is_scaled:
        return rng.standard_normal((n, k)).astype(np.float32)
    scale = rng.uniform(0.001, 0.02, (n, scheme.groups(k))).astype(np.float16).astype(np.float32)
    if scheme.type is FP8:
        bits = rng.integers(0, 127, (n, k), dtype=np.uint8) | rng.choice([0, 128], (n, k)).astype(np.uint8)
        return QuantizedWeight(bits.view(ml_dtypes.float8_e4m3fn), scale)
    low, high = (-8, 7) if scheme.type is INT4 else (-128, 127)
    q = rng.integers(low, high, (n, k), dtype=np.int8, endpoint=True)
    q[0] = low
    zero = None if scheme.symmetric else rng.uniform(-9, 9, scale.shape).astype(np.float16).astype(np.float32)
    return QuantizedWeight(q, scale, zero)


def run(layer: Layer, x, tactic=None, bias=None, residual=None, activation=ActivationFunction.NONE, up_bias=None):
    """y of x [rows, k], whose rows may be strided, by one tactic: that for so many rows unless another is named."""
    layout, rows = layer.layout, len(x)
    chosen = tactic or next(t for t in tactics.tactics(layout) if t.most is None or rows <= t.most)
    inputs, scales = quantized(layout, x) if layout.is_quantized_product else (x, None)
    y = torch.full((rows, layout.n), float("nan"))
    shared = tactics.constants(layout) | {"FP8_DOT": False, "X_ROW": inputs.stride(0)}
    shared |= {"BLOCK_OUTPUTS": chosen.block_outputs, "BLOCK_ROWS": chosen.block_rows}
    own, up = layer.pointers(), layer.pointers(1) if layout.gated else dict.fromkeys(layer.pointers())
    pointers = own | {f"up_{key}": value for key, value in up.items()}
    finish = {
        "Y_ROW": y.stride(0),
        "RESIDUAL_ROW": 0 if residual is None else residual.stride(0),
        "INPUT_SCALE": INPUT_SCALE if layout.activation is STATIC else 1.0,
        "ACTIVATION": str(activation),
    }
    last = {"bias": bias, "up_bias": up_bias, "residual": residual, "y": y, "units": rows, "TIMES": 1}
    grid = (-(-rows // chosen.block_rows), -(-layout.n // chosen.block_outputs))
    if not chosen.is_split:
        interpret(walk_kernel, grid, x=inputs, x_scales=scales, **pointers, **last, **shared, **finish)
        return y
    most, parts = -(-rows // 16) * 16, tactics.splits(layout)
    partial = torch.full((parts, layout.matrices, most, layout.n), float("nan"))
    sums = {key: value for key, value in pointers.items() if "channel" not in key}
    shared["MOST_ROWS"] = most
    interpret(
        split_kernel,
        (*grid, parts),
        x=inputs,
        x_scales=scales,
        **sums,
        partial=partial,
        units=rows,
        TIMES=1,
        **shared,
    )
    ends = {key: value for key, value in pointers.items() if "channel" in key}
    constants = {key: shared[key] for key in ("N", "SPLITS", "MOST_ROWS")} | {"GATED": layout.gated}
    grid = (rows, -(-layout.n // 64))
    interpret(combine_kernel, grid, partial=partial, **ends, **last, **constants, **finish, BLOCK_OUTPUTS=64)
    return y


def quantized(layout: LinearLayout, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    rows, group = len(x), tactics.input_group(layout)
    groups = -(-layout.k // group)
    inputs = torch.zeros(rows, layout.k, dtype=torch.int8 if layout.scheme.type is INT8 else torch.uint8)
    scales = None if layout.activation is STATIC else torch.full((rows, groups), float("nan"))
    constants = {"K": layout.k, "X_ROW": x.stride(0), "FORMAT": str(layout.scheme.type), "INPUT_SCALE": INPUT_SCALE}
    blocks = {"BLOCK_GROUPS": 1 << (groups - 1).bit_length(), "BLOCK": 1 << (group - 1).bit_length()}
    interpret(quantize_kernel, (rows,), x, inputs, scales, GROUP=group, **blocks, **constants)
    return inputs, scales


def inputs_of(layout: LinearLayout, x: torch.Tensor) -> np.ndarray:
    """x as the kernels see it, in float64."""
    values = x.float().numpy()
    if layout.scheme.type is FP32:
        return values.astype(float)
    if layout.activation is NONE:
        return values.astype(ml_dtypes.bfloat16).astype(float)
    if layout.scheme.type is FP8:
        return fp8_activations(values, layout.activation, INPUT_SCALE)
    if layout.activation is STATIC:
        return quantize_activations_static(values, INPUT_SCALE) * float(np.float32(INPUT_SCALE))
    q, scale = quantize_activations(values, layout.scheme.group_size)
    return np.repeat(scale.astype(float), tactics.input_group(layout), axis=1)[:, : layout.k] * q


def random_inputs(rows: int, k: int, seed: int = 0) -> torch.Tensor:
    """[rows, k], whose rows are k + 3 elements apart."""
    return torch.randn(rows, k + 3, generator=torch.Generator().manual_seed(seed))[:, :k]


def assert_close(found: torch.Tensor, weight: np.ndarray, x: np.ndarray) -> None:
    bound = 3e-6 * (np.abs(x) @ np.abs(weight).T) + 1e-6
    assert (np.abs(found.numpy() - x @ weight.T) <= bound).all()


@pytest.mark.parametrize("case", SCHEMES, ids=name)
def test_matches_the_reference(case) -> None:
    rows, n, k = 3, 100, 300
    matrix, x = layer(n, k, *case), random_inputs(rows, k)
    assert_close(run(matrix, x), matrix.dense(), inputs_of(matrix.layout, x))


@pytest.mark.parametrize("case", [FLOATS[1], WEIGHT_ONLY[5], QUANTIZED[0], QUANTIZED[6]], ids=name)
def test_every_tactic_gives_the_same_bits_and_rows_stand_alone(case) -> None:
    matrix, x = layer(40, 1100, *case), random_inputs(7, 1100)
    assert tactics.splits(matrix.layout) == 4
    shapes = {
        (t.block_outputs, t.block_rows, t.is_split): t for t in tactics.tactics(matrix.layout)
    }  # what it computes
    found = [run(matrix, x, tactic) for tactic in shapes.values()]
    assert_close(found[0], matrix.dense(), inputs_of(matrix.layout, x))
    for other in found[1:]:
        assert torch.equal(other, found[0])
    assert torch.equal(run(matrix, x[4:5])[0], found[0][4])


@pytest.mark.parametrize("function", ActivationFunction)
def test_bias_activation_function_and_residual_come_last(function: ActivationFunction) -> None:
    matrix, x = layer(40, 512, *FLOATS[1]), random_inputs(5, 512) / 8
    bias, residual = torch.randn(40), torch.randn(5, 48)[:, :40].bfloat16()
    found = run(matrix, x, bias=bias, residual=residual, activation=function)
    sums = inputs_of(matrix.layout, x) @ matrix.dense().T + bias.double().numpy()
    np.testing.assert_allclose(found, function(sums) + residual.double().numpy(), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("case", [FLOATS[1], WEIGHT_ONLY[6], QUANTIZED[0]], ids=name)
@pytest.mark.parametrize("k", [96, 600])
def test_a_gated_mlp_multiplies_two_matrices(case, k: int) -> None:
    matrix, x = layer(70, k, *case, gated=True), random_inputs(4, k) / 4
    biases = [torch.randn(70) for _ in range(2)]
    found = [
        run(matrix, x, tactic, bias=biases[0], up_bias=biases[1], activation=ActivationFunction.SILU)
        for tactic in (tactics.tactics(matrix.layout)[0], tactics.tactics(matrix.layout)[-1])
    ]
    inputs = inputs_of(matrix.layout, x)
    gate, up = (inputs @ matrix.dense(i).T + biases[i].double().numpy() for i in range(2))
    np.testing.assert_allclose(found[0], ActivationFunction.SILU(gate) * up, atol=1e-4, rtol=1e-4)
    assert torch.equal(found[1], found[0])


def test_no_rows_are_no_work() -> None:
    assert run(layer(70, 96, *FLOATS[1]), random_inputs(0, 96)).shape == (0, 70)


def test_a_row_of_zeros_stays_zero_whatever_scale_it_has() -> None:
    for case in QUANTIZED[::4]:
        matrix = layer(100, 300, *case)
        assert not run(matrix, torch.zeros(2, 300)).any()


@pytest.mark.parametrize(
    ("scheme", "activation"), [(WeightScheme(INT4, 24), NONE), (WeightScheme(INT8, 16), DYNAMIC)], ids=str
)
def test_groups_that_no_tile_fits_are_refused(scheme: WeightScheme, activation: ActivationScheme) -> None:
    with pytest.raises(BuildError, match=f"not for groups of {scheme.group_size}; choose another group size"):
        LinearLayout(64, 96, scheme, activation)
