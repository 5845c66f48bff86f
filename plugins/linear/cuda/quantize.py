"""Activation quantization in Triton: rows of inputs to int8 or FP8, for layers whose weights are multiplied by such."""

# pyright: reportAssignmentType=false, reportOperatorIssue=false
import triton
import triton.language as tl

from ...cuda.quantized import float_to_e4m3, float_to_int8


@triton.jit
def quantize_kernel(
    x,
    quantized,
    scales,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    INPUT_SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """quantized [rows, K] and scales [rows, groups of GROUP]: a scale for each row and group, from its absmax.

    Scales are absmax / 127 (int8) or absmax / 448 (FP8), those of a group with nothing beyond 2^-100 are 0. With scales
    None, INPUT_SCALE is the scale of all. A program takes one row, as BLOCK_GROUPS x BLOCK elements.
    """
    row = tl.program_id(0).to(tl.int64)
    GROUPS: tl.constexpr = (K + GROUP - 1) // GROUP
    LARGEST: tl.constexpr = 127.0 if FORMAT == "int8" else 448.0
    group = tl.arange(0, BLOCK_GROUPS)[:, None]
    within = tl.arange(0, BLOCK)[None, :]
    k = group * GROUP + within
    mask = (within < GROUP) & (k < K)
    values = tl.load(x + row * X_ROW + k, mask=mask, other=0.0).to(tl.float32)
    if scales is None:
        multiples = tl.div_rn(values, INPUT_SCALE)
    else:
        absmax = tl.max(tl.abs(values), axis=1, keep_dims=True)
        is_tiny = absmax < 7.888609052210118e-31  # 2^-100
        scale = tl.div_rn(absmax, LARGEST)
        tl.store(scales + row * GROUPS + group, tl.where(is_tiny, 0.0, scale), mask=group < GROUPS)
        if FORMAT == "int8":
            multiples = tl.where(is_tiny, 0.0, values * tl.div_rn(LARGEST, absmax))
        else:
            multiples = tl.where(is_tiny, 0.0, tl.div_rn(values, scale))
    if FORMAT == "int8":
        tl.store(quantized + row * K + k, float_to_int8(multiples), mask=mask)
    else:
        tl.store(quantized + row * K + k, float_to_e4m3(multiples), mask=mask)
