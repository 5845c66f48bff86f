"""Tiles of weights, and their products with inputs: the arithmetic of matrix kernels, for every weight scheme.

Products are made as W x^T, with the weight's outputs as the matrix instruction's rows: there are always enough of them
for the widest instruction, whatever the number of tokens. So all tactics of a layer use one kind of instruction.

What packing.py writes: elements that are not scaled lie row-major, [N, K]. Others lie [panel][tile][PANEL][STEP] in
bytes, a panel being PANEL outputs and a tile STEP inputs, or 2 STEP of int4, whose low nibbles (plus 8) come first.
Scales and zeros lie [panel][group][PANEL]. FORMAT is float, int4, int8 or fp8; GROUP 0 means one scale an output.
"""

# pyright: reportAssignmentType=false
import triton
import triton.language as tl

from ...cuda.quantized import e4m3_to_float
from . import packing

PANEL = tl.constexpr(packing.PANEL)


@triton.jit
def load_packed(
    values, first, within, tile, N: tl.constexpr, K: tl.constexpr, FORMAT: tl.constexpr, STEP: tl.constexpr
):
    """The stored elements of a tile for outputs first + within [outputs, 1], a multiple of PANEL being first.

    [outputs, STEP]. Only from the weight's start to the first output can be far.
    """
    column = tl.arange(0, STEP)[None, :]
    if FORMAT == "float":
        k = tile * STEP + column
        values += first.to(tl.int64) * K
        packed = tl.load(values + (within * K + k), mask=(first + within < N) & (k < K), other=0.0)
    else:
        PLANES: tl.constexpr = 2 if FORMAT == "int4" else 1
        TILES: tl.constexpr = (K + STEP * PLANES - 1) // (STEP * PLANES)
        values += first.to(tl.int64) * (TILES * STEP) + tile * (PANEL * STEP)
        packed = tl.load(values + ((within // PANEL * (TILES * PANEL) + within % PANEL) * STEP + column))
    return packed


@triton.jit
def load_of_group(vector, output, k, K: tl.constexpr, GROUP: tl.constexpr):
    """The scales or zeros of the group of input k, for `output` [outputs, 1]: float32. Beyond K: of the last group."""
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    group = tl.minimum(k // GROUP, GROUPS - 1)
    return tl.load(vector + (output // PANEL * GROUPS + group) * PANEL + output % PANEL).to(tl.float32)


@triton.jit
def unpack(
    packed,
    scales,
    zeros,
    output,
    k,
    PLANE: tl.constexpr,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Stored elements as factors for inputs that are not quantized: [outputs, STEP], float32 as it is, else bfloat16.

    The elements of inputs k .. k + STEP - 1, which share a scale if there are groups: they are multiplied by it in
    float32 and rounded once. PLANE 1 takes the high nibbles of int4.
    """
    if FORMAT == "float":
        return packed
    if FORMAT == "int4":
        # The nibble, q + 8, becomes the top of the significand of a float32 in [128, 256).
        SHIFT: tl.constexpr = 12 if PLANE else 16
        bits = ((packed.to(tl.int32) << SHIFT) & 0xF0000) | 0x43000000
        wide = bits.to(tl.float32, bitcast=True)
        if zeros is not None:
            wide -= 136.0 + load_of_group(zeros, output, k, K, GROUP)
        else:
            wide -= 136.0
    elif FORMAT == "fp8":
        wide = e4m3_to_float(packed)
    else:
        wide = packed.to(tl.float32)
    if GROUP:
        wide *= load_of_group(scales, output, k, K, GROUP)
    return wide.to(tl.bfloat16)


@triton.jit
def add_product(sums, factors, inputs):
    """sums [outputs, rows] + factors [outputs, STEP] inputs [rows, STEP]^T."""
    return tl.dot(factors, tl.trans(inputs.to(factors.dtype)), sums, input_precision="ieee")


@triton.jit
def quantized_product(packed, inputs, FORMAT: tl.constexpr, FP8_DOT: tl.constexpr):
    """packed [outputs, STEP] inputs [rows, STEP]^T in float32, of weights and inputs that both are int8 or FP8.

    FP8_DOT: whether there are instructions for FP8; elsewhere products are of bfloat16, which holds every E4M3 number.
    """
    if FORMAT == "int8":
        return tl.dot(packed, tl.trans(inputs), out_dtype=tl.int32).to(tl.float32)
    if FP8_DOT:
        return tl.dot(packed.to(tl.float8e4nv, bitcast=True), tl.trans(inputs.to(tl.float8e4nv, bitcast=True)))
    return tl.dot(e4m3_to_float(packed).to(tl.bfloat16), tl.trans(e4m3_to_float(inputs).to(tl.bfloat16)))
