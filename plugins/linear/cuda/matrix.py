"""y = act(x W^T + bias) + residual, and act(x Wg^T + bg) * (x Wu^T + bu), in Triton.

K is cut into SPLITS parts of whole tiles, by the weight's sizes alone. A part is summed by itself, in ascending order;
parts are added in ascending order. `walk` does so in one program; where rows are few, `split` gives each part a program
and `combine` adds them. An output's sums have the same order in all of them, whatever rows there are beside it.
"""

# pyright: reportAssignmentType=false, reportGeneralTypeIssues=false
import triton
import triton.language as tl

from .epilogue import finish
from .tile import add_product, load_of_group, load_packed, quantized_product, unpack


@triton.jit
def part_sums(
    x,
    x_scales,
    values,
    scales,
    zeros,
    first,
    first_row,
    rows,
    part,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    QUANTIZED: tl.constexpr,
    FP8_DOT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """The sums [BLOCK_OUTPUTS, BLOCK_ROWS] of one part of K, for outputs and rows from `first` and `first_row` on.

    QUANTIZED: x is int8 or FP8 as the weight is, with x_scales [rows, groups of INPUT_GROUP] (None: one for all, which
    the epilogue has). The sum of a step is then scaled and added in float32, so that long sums in FP8 do not rest on
    how many bits matrix instructions keep.
    """
    PLANES: tl.constexpr = 2 if FORMAT == "int4" else 1
    TILES: tl.constexpr = (K + STEP * PLANES - 1) // (STEP * PLANES)
    PART: tl.constexpr = (TILES + SPLITS - 1) // SPLITS
    sums = tl.zeros((BLOCK_OUTPUTS, BLOCK_ROWS), tl.float32)
    column = tl.arange(0, STEP)[None, :]
    within = tl.arange(0, BLOCK_OUTPUTS)[:, None]
    output = first + within
    row = tl.arange(0, BLOCK_ROWS)[:, None]
    rows -= first_row
    x += first_row.to(tl.int64) * X_ROW
    for tile in range(part * PART, tl.minimum((part + 1) * PART, TILES)):
        packed = load_packed(values, first, within, tile, N, K, FORMAT, STEP)
        for plane in tl.static_range(PLANES):
            k = (tile * PLANES + plane) * STEP
            mask = row < rows
            if K % (STEP * PLANES):
                mask &= k + column < K
            inputs = tl.load(x + (row * X_ROW + k + column), mask=mask, other=0)
            if QUANTIZED:
                product = quantized_product(packed, inputs, FORMAT, FP8_DOT)
                if GROUP:
                    product *= load_of_group(scales, output, k, K, GROUP)
                if x_scales is not None:
                    INPUT_GROUPS: tl.constexpr = (K + INPUT_GROUP - 1) // INPUT_GROUP
                    at = x_scales + (first_row + row) * INPUT_GROUPS + k // INPUT_GROUP
                    product *= tl.trans(tl.load(at, mask=row < rows, other=0.0))
                sums += product
            else:
                factors = unpack(packed, scales, zeros, output, k, plane, K, FORMAT, GROUP)
                sums = add_product(sums, factors, inputs)
    return sums


@triton.jit
def whole_sums(
    x,
    x_scales,
    values,
    scales,
    zeros,
    first,
    first_row,
    rows,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    QUANTIZED: tl.constexpr,
    FP8_DOT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """The sums of all parts of K."""
    sums = tl.zeros((BLOCK_OUTPUTS, BLOCK_ROWS), tl.float32)
    for part in tl.range(SPLITS):
        sums += part_sums(
            x, x_scales, values, scales, zeros, first, first_row, rows, part, N, K, X_ROW, FORMAT, QUANTIZED, FP8_DOT,
            GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK_OUTPUTS, BLOCK_ROWS,
        )  # fmt: skip
    return sums


@triton.jit
def added(partial, PART: tl.constexpr, mask, SPLITS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr):
    """The sum [BLOCK_OUTPUTS, 1] of what lies at `partial`, and PART elements after that, for all parts of K."""
    sums = tl.zeros((BLOCK_OUTPUTS, 1), tl.float32)
    for part in tl.range(SPLITS):
        sums += tl.load(partial + part * PART, mask=mask, other=0.0)
    return sums


@triton.jit
def walk_kernel(
    x,
    x_scales,
    values,
    scales,
    zeros,
    channel_scales,
    up_values,
    up_scales,
    up_zeros,
    up_channel_scales,
    bias,
    up_bias,
    residual,
    y,
    units,
    TIMES: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    Y_ROW: tl.constexpr,
    RESIDUAL_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    QUANTIZED: tl.constexpr,
    FP8_DOT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    INPUT_SCALE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """One tile of the rows = units * TIMES of y a program: grid (tiles of rows, tiles of outputs).

    The arguments `up_*` are of a gated MLP, or None.
    """
    rows = units * TIMES
    first, first_row = tl.program_id(1) * BLOCK_OUTPUTS, tl.program_id(0) * BLOCK_ROWS
    output = first + tl.arange(0, BLOCK_OUTPUTS)[:, None]
    row = first_row + tl.arange(0, BLOCK_ROWS)[None, :]
    sums = whole_sums(
        x, x_scales, values, scales, zeros, first, first_row, rows, N, K, X_ROW, FORMAT, QUANTIZED, FP8_DOT,
        GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK_OUTPUTS, BLOCK_ROWS,
    )  # fmt: skip
    up_sums = None
    if up_values is not None:
        up_sums = whole_sums(
            x, x_scales, up_values, up_scales, up_zeros, first, first_row, rows, N, K, X_ROW, FORMAT, QUANTIZED,
            FP8_DOT, GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK_OUTPUTS, BLOCK_ROWS,
        )  # fmt: skip
    finish(
        sums, up_sums, channel_scales, up_channel_scales, bias, up_bias, residual, y, output, row, rows, N,
        Y_ROW, RESIDUAL_ROW, INPUT_SCALE, ACTIVATION,
    )  # fmt: skip


@triton.jit
def split_kernel(
    x,
    x_scales,
    values,
    scales,
    zeros,
    up_values,
    up_scales,
    up_zeros,
    partial,
    units,
    TIMES: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    QUANTIZED: tl.constexpr,
    FP8_DOT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    MOST_ROWS: tl.constexpr,
):
    """partial [SPLITS, matrices, MOST_ROWS, N] = sums of every part of K: grid (row tiles, output tiles, SPLITS)."""
    first, first_row = tl.program_id(1) * BLOCK_OUTPUTS, tl.program_id(0) * BLOCK_ROWS
    output = first + tl.arange(0, BLOCK_OUTPUTS)[:, None]
    row = first_row + tl.arange(0, BLOCK_ROWS)[None, :]
    part, rows = tl.program_id(2), units * TIMES
    MATRICES: tl.constexpr = 1 if up_values is None else 2
    to = partial + part * (MATRICES * MOST_ROWS * N) + row * N + output
    mask = (output < N) & (row < rows)
    sums = part_sums(
        x, x_scales, values, scales, zeros, first, first_row, rows, part, N, K, X_ROW, FORMAT, QUANTIZED, FP8_DOT,
        GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK_OUTPUTS, BLOCK_ROWS,
    )  # fmt: skip
    tl.store(to, sums, mask=mask)
    if up_values is not None:
        sums = part_sums(
            x, x_scales, up_values, up_scales, up_zeros, first, first_row, rows, part, N, K, X_ROW, FORMAT, QUANTIZED,
            FP8_DOT, GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK_OUTPUTS, BLOCK_ROWS,
        )  # fmt: skip
        tl.store(to + MOST_ROWS * N, sums, mask=mask)


@triton.jit
def combine_kernel(
    partial,
    channel_scales,
    up_channel_scales,
    bias,
    up_bias,
    residual,
    y,
    units,
    TIMES: tl.constexpr,
    N: tl.constexpr,
    GATED: tl.constexpr,
    Y_ROW: tl.constexpr,
    RESIDUAL_ROW: tl.constexpr,
    INPUT_SCALE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    MOST_ROWS: tl.constexpr,
):
    """Adds up what split_kernel wrote, and finishes it: grid (rows, output tiles)."""
    row = tl.program_id(0) + tl.zeros((1, 1), tl.int32)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)[:, None]
    MATRICES: tl.constexpr = 2 if GATED else 1
    rows = units * TIMES
    at = partial + row * N + output
    PART: tl.constexpr = MATRICES * MOST_ROWS * N
    sums = added(at, PART, output < N, SPLITS, BLOCK_OUTPUTS)
    up_sums = None
    if GATED:
        up_sums = added(at + MOST_ROWS * N, PART, output < N, SPLITS, BLOCK_OUTPUTS)
    finish(
        sums, up_sums, channel_scales, up_channel_scales, bias, up_bias, residual, y, output, row, rows, N, Y_ROW,
        RESIDUAL_ROW, INPUT_SCALE, ACTIVATION,
    )  # fmt: skip
