"""A mixture of experts in Triton: a program computes some outputs of one expert for one token that chose it.

An expert's weights lie in memory as those of a linear layer (plugins/linear/cuda/tile.py), one expert after another.
A token's results do not depend on the tokens beside it: its experts are added in the order in which it chose them.
"""

import triton
import triton.language as tl

from ...linear.cuda.epilogue import activate, scaled
from ...linear.cuda.matrix import whole_sums

QUANTIZED = tl.constexpr(False)
"""Inputs are not."""
UNSCALED = tl.constexpr(1.0)
"""The scale of inputs that have none."""


@triton.jit
def shifted(pointer, expert, STRIDE: tl.constexpr):
    """A pointer to what `expert` has, or None."""
    if pointer is not None:
        pointer += expert.to(tl.int64) * STRIDE
    return pointer


@triton.jit
def projected(
    x,
    values,
    scales,
    zeros,
    channel_scales,
    bias,
    expert,
    row,
    output,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    VALUES: tl.constexpr,
    SCALES: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """W x + bias [BLOCK, ROWS] of an expert for one row of x, in the first column, and for `output` [BLOCK, 1].

    VALUES, SCALES, CHANNELS: from an expert's to the next's; CHANNELS of scales of whole outputs.
    """
    sums = whole_sums(
        x, None, shifted(values, expert, VALUES), shifted(scales, expert, SCALES), shifted(zeros, expert, SCALES),
        tl.program_id(1) * BLOCK, row, row + 1, N, K, X_ROW, FORMAT, QUANTIZED, QUANTIZED, GROUP, INPUT_GROUP, STEP,
        SPLITS, BLOCK, ROWS,
    )  # fmt: skip
    return scaled(sums, shifted(channel_scales, expert, CHANNELS), shifted(bias, expert, N), output, N, UNSCALED)


@triton.jit
def store_first_column(to, pair, output, found, N: tl.constexpr, ROWS: tl.constexpr):
    """Row `pair` of `to` [pairs, N] is the first column of found [BLOCK, ROWS]."""
    first = tl.arange(0, ROWS)[None, :] == 0
    tl.store(to + pair.to(tl.int64) * N + output + first * 0, found, mask=(output < N) & first)


@triton.jit
def up_kernel(
    x,
    indices,
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
    inner,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INDEX_ROW: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    VALUES: tl.constexpr,
    SCALES: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    LIMIT: tl.constexpr,
    UP_OFFSET: tl.constexpr,
):
    """inner [pairs, N] = what goes into the second projection of each token's choices: grid (pairs, output tiles).

    Without `up_values` experts have no gate.
    """
    pair = tl.program_id(0)
    token = pair // ACTIVE
    expert = tl.load(indices + token * INDEX_ROW + pair % ACTIVE)
    output = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    if (expert >= 0) & (expert < EXPERTS):
        gate = projected(
            x, values, scales, zeros, channel_scales, bias, expert, token, output, N, K, X_ROW, FORMAT, GROUP,
            INPUT_GROUP, STEP, SPLITS, BLOCK, VALUES, SCALES, CHANNELS, ROWS,
        )  # fmt: skip
        if up_values is not None:
            up = projected(
                x, up_values, up_scales, up_zeros, up_channel_scales, up_bias, expert, token, output, N, K, X_ROW,
                FORMAT, GROUP, INPUT_GROUP, STEP, SPLITS, BLOCK, VALUES, SCALES, CHANNELS, ROWS,
            )  # fmt: skip
            if LIMIT > 0:
                gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
                up = tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
            found = activate(gate, ACTIVATION) * (up + UP_OFFSET)
        else:
            found = activate(gate, ACTIVATION)
        store_first_column(inner, pair, output, found, N, ROWS)


@triton.jit
def down_kernel(
    inner,
    indices,
    values,
    scales,
    zeros,
    channel_scales,
    bias,
    outer,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INDEX_ROW: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    X_ROW: tl.constexpr,
    FORMAT: tl.constexpr,
    GROUP: tl.constexpr,
    INPUT_GROUP: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    VALUES: tl.constexpr,
    SCALES: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """outer [pairs, N] = the second projection of each token's choices: grid (pairs, output tiles)."""
    pair = tl.program_id(0)
    expert = tl.load(indices + pair // ACTIVE * INDEX_ROW + pair % ACTIVE)
    output = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    if (expert >= 0) & (expert < EXPERTS):
        found = projected(
            inner, values, scales, zeros, channel_scales, bias, expert, pair, output, N, K, X_ROW, FORMAT, GROUP,
            INPUT_GROUP, STEP, SPLITS, BLOCK, VALUES, SCALES, CHANNELS, ROWS,
        )  # fmt: skip
        store_first_column(outer, pair, output, found, N, ROWS)


@triton.jit
def add_kernel(
    outer,
    indices,
    weights,
    y,
    EXPERTS: tl.constexpr,
    ACTIVE: tl.constexpr,
    INDEX_ROW: tl.constexpr,
    WEIGHT_ROW: tl.constexpr,
    Y_ROW: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y [tokens, N] = the weighted sum of a token's choices, without those that no expert has: grid (tokens, tiles)."""
    token = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for choice in range(ACTIVE):
        expert = tl.load(indices + token * INDEX_ROW + choice)
        weight = tl.load(weights + token * WEIGHT_ROW + choice).to(tl.float32)
        exists = (expert >= 0) & (expert < EXPERTS)
        found = tl.load(outer + (token * ACTIVE + choice) * N + output, mask=(output < N) & exists, other=0.0)
        sums = tl.where(exists, tl.fma(tl.zeros((BLOCK,), tl.float32) + weight, found, sums), sums)
    tl.store(y + token * Y_ROW + output, sums, mask=output < N)
