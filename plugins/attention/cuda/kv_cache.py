"""The paged KV cache of one layer (PagedAttention: Kwon et al., 2023).

A layer's part of a block holds one key-value head after another, of each the keys [BLOCK_SIZE, D], then the values
[BLOCK_SIZE, Dv]; then, where each token has scales of its own, in float32 [heads, 2, BLOCK_SIZE], those of the keys
before those of the values. KIND is float (the pointer's own type), int8, or fp8 in bytes.
"""

import triton
import triton.language as tl

from ...cuda.quantized import e4m3_to_float, float_to_e4m3, float_to_int8


@triton.jit
def _write(
    x,
    elements,
    token_scales,
    head_scales,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    X_HEAD: tl.constexpr,
    HEAD_ELEMENTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """One token's keys or values x [HEADS, WIDTH] to the slot at `elements`, and their scales to `token_scales`."""
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    column = tl.arange(0, BLOCK_WIDTH)[None, :]
    mask = (head < HEADS) & (column < WIDTH)
    values = tl.load(x + head * X_HEAD + column, mask=mask, other=0.0).to(tl.float32)
    if KIND != "float":
        if head_scales is not None:
            scale = tl.load(head_scales + head, mask=head < HEADS, other=1.0)
        else:
            scale = tl.div_rn(tl.max(tl.abs(values), axis=1, keep_dims=True), 127.0 if KIND == "int8" else 448.0)
            tl.store(token_scales + head * (2 * BLOCK_SIZE), scale, mask=head < HEADS)
        values = tl.div_rn(values, tl.where(scale == 0.0, 1.0, scale))
    to = elements + head * HEAD_ELEMENTS + column
    if KIND == "int8":
        tl.store(to, float_to_int8(values), mask=mask)
    elif KIND == "fp8":
        tl.store(to, float_to_e4m3(values), mask=mask)
    else:
        tl.store(to, values, mask=mask)


@triton.jit
def write_kernel(
    k,
    v,
    pool,
    token_scales,
    key_scales,
    value_scales,
    token_seq,
    query_start,
    context_length,
    block_table,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    K_TOKEN: tl.constexpr,
    K_HEAD: tl.constexpr,
    V_TOKEN: tl.constexpr,
    V_HEAD: tl.constexpr,
    POOL_BLOCK: tl.constexpr,
    SCALES_BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_COLUMNS: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Writes a token's keys k [T, HEADS, D] and values v [T, HEADS, DV] to the cache; a program takes one token.

    pool, token_scales: the layer's part of block 0; POOL_BLOCK and SCALES_BLOCK: elements from a block to the next.
    key_scales, value_scales [HEADS] are known beforehand; without, tokens of int8 and fp8 have their own.
    """
    token = tl.program_id(0)
    sequence = tl.load(token_seq + token)
    if sequence >= 0:
        position = tl.load(context_length + sequence) - tl.load(query_start + sequence + 1) + token
        block = tl.load(block_table + sequence * TABLE_COLUMNS + position // BLOCK_SIZE).to(tl.int64)
        slot = position % BLOCK_SIZE
        HEAD_ELEMENTS: tl.constexpr = BLOCK_SIZE * (D + DV)
        elements = pool + block * POOL_BLOCK
        to_key_scales, to_value_scales = token_scales, token_scales
        if token_scales is not None:
            to_key_scales = token_scales + (block * SCALES_BLOCK + slot)
            to_value_scales = to_key_scales + BLOCK_SIZE
        _write(
            k + token.to(tl.int64) * K_TOKEN, elements + slot * D, to_key_scales, key_scales, HEADS, D, K_HEAD,
            HEAD_ELEMENTS, BLOCK_SIZE, KIND, BLOCK_HEADS, BLOCK_D,
        )  # fmt: skip
        _write(
            v + token.to(tl.int64) * V_TOKEN, elements + (BLOCK_SIZE * D + slot * DV), to_value_scales, value_scales,
            HEADS, DV, V_HEAD, HEAD_ELEMENTS, BLOCK_SIZE, KIND, BLOCK_HEADS, BLOCK_DV,
        )  # fmt: skip


@triton.jit
def load_rows(
    elements, slot, exists, WIDTH: tl.constexpr, KIND: tl.constexpr, BLOCK_WIDTH: tl.constexpr, DTYPE: tl.constexpr
):
    """Keys or values [slots, BLOCK_WIDTH] without their scales, in the type of products; zeros where none exist.

    elements [slots, 1]: where the head's part of each slot's block begins; slot [slots, 1] within it.
    """
    column = tl.arange(0, BLOCK_WIDTH)[None, :]
    rows = tl.load(elements + slot * WIDTH + column, mask=exists & (column < WIDTH), other=0)
    if KIND == "fp8":
        rows = e4m3_to_float(rows)
    elif KIND == "int8":
        rows = rows.to(tl.float32)
    return rows.to(DTYPE)
