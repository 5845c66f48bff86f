"""Rows of an embedding table by id in Triton, and of the packed int8 weight of a head that is tied to it."""

import triton
import triton.language as tl

from ...linear.cuda.tile import PANEL


@triton.jit
def embedding_kernel(
    table, ids, y, ENTRIES: tl.constexpr, WIDTH: tl.constexpr, Y_ROW: tl.constexpr, BLOCK: tl.constexpr
):
    """y[t] = table[ids[t]]: table [ENTRIES, WIDTH], program (t, b) takes BLOCK columns.

    An id outside [0, ENTRIES) gives a row of NaN and reads nothing.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.load(ids + row).to(tl.int64)
    known = (entry >= 0) & (entry < ENTRIES)
    values = tl.load(table + entry * WIDTH + column, mask=known & (column < WIDTH), other=float("nan"))
    tl.store(y + row * Y_ROW + column, values, mask=column < WIDTH)


@triton.jit
def packed_embedding_kernel(
    values,
    scales,
    ids,
    y,
    ENTRIES: tl.constexpr,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    GROUP: tl.constexpr,
    Y_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same of a head's int8 elements, as linear/cuda/tile.py describes them: y = scale * q, in float32."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entry = tl.load(ids + row).to(tl.int64)
    mask = (entry >= 0) & (entry < ENTRIES) & (column < WIDTH)
    TILES: tl.constexpr = (WIDTH + STEP - 1) // STEP
    panel, output = entry // PANEL, entry % PANEL
    tile = panel * TILES + column // STEP
    q = tl.load(values + (tile * PANEL + output) * STEP + column % STEP, mask=mask, other=0)
    group = panel * ((WIDTH + GROUP - 1) // GROUP) + column // GROUP
    scale = tl.load(scales + group * PANEL + output, mask=mask, other=float("nan"))
    tl.store(y + row * Y_ROW + column, q.to(tl.float32) * scale.to(tl.float32), mask=column < WIDTH)
