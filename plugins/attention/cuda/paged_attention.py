"""Causal attention of a step's queries to the paged cache, in Triton; softmax.py has the arithmetic.

`walk_kernel` takes tiles of a sequence's tokens through their whole context, one split after another. In a step where
every sequence has one token, `split_kernel` gives each split of a context programs of its own, and `combine_kernel`
merges them (as Flash-Decoding does, but always in one order). Both give the same bits.
"""

# pyright: reportOperatorIssue=false
import triton
import triton.language as tl

from .softmax import attend_split, finish, first_visible, merge


@triton.jit
def load_queries(
    q,
    token,
    query_head,
    is_row,
    D: tl.constexpr,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    BLOCK_D: tl.constexpr,
    FP32: tl.constexpr,
):
    """Rows [rows, BLOCK_D] of q [T, H, D], in the type of products: bf16 or FP32."""
    column = tl.arange(0, BLOCK_D)[None, :]
    at = q + token.to(tl.int64) * Q_TOKEN + query_head * Q_HEAD + column
    return tl.load(at, mask=is_row & (column < D), other=0.0).to(tl.float32 if FP32 else tl.bfloat16)


@triton.jit
def walk_kernel(
    q,
    out,
    sinks,
    slopes,
    pool,
    token_scales,
    key_scales,
    value_scales,
    query_start,
    context_length,
    block_table,
    sequences,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    OUT_TOKEN: tl.constexpr,
    OUT_HEAD: tl.constexpr,
    POOL_BLOCK: tl.constexpr,
    SCALES_BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_COLUMNS: tl.constexpr,
    KIND: tl.constexpr,
    FP32: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """out [T, H, DV] = attention of q [T, H, D]: grid (tiles of TOKENS tokens + sequences, key-value heads).

    GROUP query heads share a key-value head; a tile is ROWS // GROUP tokens. Tile t belongs to the last sequence s
    with query_start[s] // TOKENS + s <= t, so that each sequence has as many as it needs, and at most one more.
    """
    TOKENS: tl.constexpr = ROWS // GROUP
    tile, head = tl.program_id(0), tl.program_id(1)
    sequence = -1
    for start in range(0, sequences, 128):
        s = start + tl.arange(0, 128)
        begins = tl.load(query_start + s, mask=s < sequences, other=0) // TOKENS + s
        sequence += tl.sum(((s < sequences) & (begins <= tile)).to(tl.int32), axis=0)
    begin = tl.load(query_start + sequence)
    end = tl.load(query_start + sequence + 1)
    token_0 = begin + (tile - begin // TOKENS - sequence) * TOKENS
    if token_0 < end:
        context = tl.load(context_length + sequence)
        row = tl.arange(0, ROWS)[:, None]
        token = token_0 + row // GROUP
        query_head = head * GROUP + row % GROUP
        is_row = (row < TOKENS * GROUP) & (token < end)
        position = context - end + token
        queries = load_queries(q, token, query_head, is_row, D, Q_TOKEN, Q_HEAD, BLOCK_D, FP32)
        first = first_visible(context - end + token_0, WINDOW, CHUNK)
        last = context - end + tl.minimum(token_0 + TOKENS, end) - 1
        top = tl.full((ROWS, 1), -float("inf"), tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        output = tl.zeros((ROWS, BLOCK_DV), tl.float32)
        slope = None
        if slopes is not None:
            slope = tl.load(slopes + query_head).to(tl.float32)
        for split in range(first // SPLIT, (last + SPLIT) // SPLIT):
            next_top, next_total, next_output = attend_split(
                queries, position, slope, pool, token_scales, key_scales, value_scales,
                block_table + sequence * TABLE_COLUMNS, head, split, first, last, D, DV, SCALE, SOFTCAP, WINDOW, CHUNK,
                POOL_BLOCK, SCALES_BLOCK, BLOCK_SIZE, KIND, SPLIT, KEYS, BLOCK_D, BLOCK_DV,
            )  # fmt: skip
            top, total, output = merge(top, total, output, next_top, next_total, next_output)
        sink = None
        if sinks is not None:
            sink = tl.load(sinks + query_head).to(tl.float32)
        column = tl.arange(0, BLOCK_DV)[None, :]
        to = out + token.to(tl.int64) * OUT_TOKEN + query_head * OUT_HEAD + column
        tl.store(to, finish(top, total, output, sink), mask=is_row & (column < DV))


@triton.jit
def split_kernel(
    q,
    slopes,
    tops,
    totals,
    outputs,
    pool,
    token_scales,
    key_scales,
    value_scales,
    query_start,
    context_length,
    block_table,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    POOL_BLOCK: tl.constexpr,
    SCALES_BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TABLE_COLUMNS: tl.constexpr,
    KIND: tl.constexpr,
    FP32: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Attends to one split for each sequence's one token: grid (sequences, key-value heads, SPLITS).

    tops and totals [S, HEADS, SPLITS] and outputs [S, HEADS, SPLITS, DV]: a split's softmax in progress.
    """
    sequence, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(context_length + sequence) - 1
    first = first_visible(position, WINDOW, CHUNK)
    if (split >= first // SPLIT) & (split * SPLIT <= position):
        row = tl.arange(0, ROWS)[:, None]
        query_head = head * GROUP + row
        token = tl.load(query_start + sequence)
        queries = load_queries(q, token, query_head, row < GROUP, D, Q_TOKEN, Q_HEAD, BLOCK_D, FP32)
        slope = None
        if slopes is not None:
            slope = tl.load(slopes + query_head, mask=row < GROUP, other=0.0).to(tl.float32)
        positions = position + tl.zeros((ROWS, 1), tl.int32)
        top, total, output = attend_split(
            queries, positions, slope, pool, token_scales, key_scales, value_scales,
            block_table + sequence * TABLE_COLUMNS, head, split, first, position, D, DV, SCALE, SOFTCAP, WINDOW, CHUNK,
            POOL_BLOCK, SCALES_BLOCK, BLOCK_SIZE, KIND, SPLIT, KEYS, BLOCK_D, BLOCK_DV,
        )  # fmt: skip
        at = (sequence.to(tl.int64) * HEADS + query_head) * SPLITS + split
        tl.store(tops + at, top, mask=row < GROUP)
        tl.store(totals + at, total, mask=row < GROUP)
        column = tl.arange(0, BLOCK_DV)[None, :]
        tl.store(outputs + at * DV + column, output, mask=(row < GROUP) & (column < DV))


@triton.jit
def combine_kernel(
    out,
    sinks,
    tops,
    totals,
    outputs,
    query_start,
    context_length,
    HEADS: tl.constexpr,
    DV: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    OUT_TOKEN: tl.constexpr,
    OUT_HEAD: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """out of each sequence's one token, from what split_kernel wrote: grid (sequences, HEADS)."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(context_length + sequence) - 1
    first = first_visible(position, WINDOW, CHUNK)
    column = tl.arange(0, BLOCK_DV)[None, :]
    top = tl.full((1, 1), -float("inf"), tl.float32)
    total = tl.zeros((1, 1), tl.float32)
    output = tl.zeros((1, BLOCK_DV), tl.float32)
    none = tl.zeros((1, 1), tl.int32)
    for split in range(first // SPLIT, (position + SPLIT) // SPLIT):
        at = (sequence.to(tl.int64) * HEADS + head) * SPLITS + split + none
        next_output = tl.load(outputs + at * DV + column, mask=column < DV, other=0.0)
        top, total, output = merge(top, total, output, tl.load(tops + at), tl.load(totals + at), next_output)
    sink = None
    if sinks is not None:
        sink = tl.load(sinks + head + none).to(tl.float32)
    to = out + tl.load(query_start + sequence).to(tl.int64) * OUT_TOKEN + head * OUT_HEAD + column
    tl.store(to, finish(top, total, output, sink), mask=column < DV)
