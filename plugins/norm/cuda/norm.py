"""RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016) in Triton, alone and after a residual addition."""

import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x,
    skip,
    weight,
    bias,
    y,
    total,
    units,
    TIMES: tl.constexpr,
    EPSILON: tl.constexpr,
    CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    X_TOKEN: tl.constexpr,
    X_HEAD: tl.constexpr,
    SKIP_TOKEN: tl.constexpr,
    Y_TOKEN: tl.constexpr,
    Y_HEAD: tl.constexpr,
    TOTAL_TOKEN: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Norms x [T, H, D] over D into y, of all T H = units * TIMES rows; a program takes BLOCK_ROWS of them.

    CENTRED: LayerNorm. With `skip` [T, D], H is 1, and x + skip is normed and also stored in `total`. Strides are in
    elements. Sums are float32, in an order that BLOCK_ROWS and BLOCK >= WIDTH fix. weight and bias [D] may be None.
    """
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < units * TIMES) & (column < WIDTH)
    token = (row // HEADS).to(tl.int64)
    head = row % HEADS
    values = tl.load(x + token * X_TOKEN + head * X_HEAD + column, mask=mask, other=0.0).to(tl.float32)
    if skip is not None:
        values += tl.load(skip + token * SKIP_TOKEN + column, mask=mask, other=0.0).to(tl.float32)
        tl.store(total + token * TOTAL_TOKEN + column, values, mask=mask)
    if CENTRED:
        mean = tl.sum(values, axis=1, keep_dims=True) / WIDTH
        values = tl.where(mask, values - mean, 0.0)
    squares = tl.sum(values * values, axis=1, keep_dims=True)
    values = values * tl.rsqrt(squares / WIDTH + EPSILON)
    if weight is not None:
        values *= tl.load(weight + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    if bias is not None:
        values += tl.load(bias + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(y + token * Y_TOKEN + head * Y_HEAD + column, values, mask=mask)
