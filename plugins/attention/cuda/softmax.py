"""Attention of a tile of query rows to one split of a context: the arithmetic, which prompts and decodes share.

The rows of a tile are the query heads that share a key-value head, for one or more consecutive tokens. A row's
arithmetic is fixed by its own position: the context is cut at multiples of SPLIT; each split is attended by itself
with an online softmax (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022) over tiles of KEYS keys, in
ascending order; splits are merged in ascending order. Keys that a row must not see add an exact zero to it. All kernels
have tiles of one shape, so that every row of them is multiplied and added up alike.

Scores are in base 2: those of the model times log2(e).
"""

# pyright: reportPossiblyUnboundVariable=false
import triton
import triton.language as tl

from ...cuda.elementary import tanh
from .kv_cache import load_rows

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def weight_of(score, top):
    """2^(score - top) for score <= top; what is still empty (-infinity) weighs nothing."""
    return tl.where(score == -float("inf"), 0.0, tl.exp2(score - top))


@triton.jit
def first_visible(position, WINDOW: tl.constexpr, CHUNK: tl.constexpr):
    """The first key that the query at `position` sees: of a window, and of the chunk it is in."""
    first = position * 0
    if WINDOW:
        first = tl.maximum(position - WINDOW + 1, first)
    if CHUNK:
        first = tl.maximum(position // CHUNK * CHUNK, first)
    return first


@triton.jit
def attend_split(
    q,
    position,
    slopes,
    pool,
    token_scales,
    key_scales,
    value_scales,
    table,
    head,
    split,
    first,
    last,
    D: tl.constexpr,
    DV: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    POOL_BLOCK: tl.constexpr,
    SCALES_BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    SPLIT: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """The softmax of split number `split` in progress: top [rows, 1], total [rows, 1] and output [rows, BLOCK_DV].

    q [rows, BLOCK_D] at `position` [rows, 1], of a tile that sees keys first .. last; total and output are relative
    to 2^top. `slopes` [rows, 1] or None: what scores lose for each token of distance (ALiBi; Press et al., 2022).
    `table`: the sequence's blocks; `head`: of keys and values.
    """
    ROWS: tl.constexpr = q.shape[0]
    top = tl.full((ROWS, 1), -float("inf"), tl.float32)
    total = tl.zeros((ROWS, 1), tl.float32)
    output = tl.zeros((ROWS, BLOCK_DV), tl.float32)
    start = tl.maximum(split * SPLIT, first // KEYS * KEYS)
    for base in range(start, tl.minimum((split + 1) * SPLIT, last + 1), KEYS):
        key = base + tl.arange(0, KEYS)[:, None]
        exists = (key >= first) & (key <= last)
        block = tl.load(table + key // BLOCK_SIZE, mask=exists, other=0).to(tl.int64)
        slot = key % BLOCK_SIZE
        elements = pool + block * POOL_BLOCK + head * (BLOCK_SIZE * (D + DV))
        keys = load_rows(elements, slot, exists, D, KIND, BLOCK_D, q.dtype)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
        if token_scales is not None:
            scale_at = token_scales + block * SCALES_BLOCK + head * (2 * BLOCK_SIZE) + slot
            scores *= tl.trans(tl.load(scale_at, mask=exists, other=0.0))
        elif key_scales is not None:
            scores *= tl.load(key_scales + head)
        if SOFTCAP > 0:
            scores = tanh(scores * (SCALE / SOFTCAP)) * (SOFTCAP * LOG2_E)
        else:
            scores *= SCALE * LOG2_E
        if slopes is not None:
            scores -= slopes * LOG2_E * (position - tl.trans(key)).to(tl.float32)
        seen = (tl.trans(key) <= position) & (tl.trans(key) >= first_visible(position, WINDOW, CHUNK))
        scores = tl.where(seen, scores, -float("inf"))
        highest = tl.maximum(top, tl.max(scores, axis=1, keep_dims=True))
        decay = weight_of(top, highest)
        weights = weight_of(scores, highest)
        top = highest
        total = total * decay + tl.sum(weights, axis=1, keep_dims=True)
        if token_scales is not None:
            weights *= tl.trans(tl.load(scale_at + BLOCK_SIZE, mask=exists, other=0.0))
        elif value_scales is not None:
            weights *= tl.load(value_scales + head)
        values = load_rows(elements + BLOCK_SIZE * D, slot, exists, DV, KIND, BLOCK_DV, q.dtype)
        output = tl.dot(weights.to(q.dtype), values, output * decay, input_precision="ieee")
    return top, total, output


@triton.jit
def merge(top, total, output, next_top, next_total, next_output):
    """What was attended so far, with the next split folded in."""
    highest = tl.maximum(top, next_top)
    mine, theirs = weight_of(top, highest), weight_of(next_top, highest)
    return highest, total * mine + next_total * theirs, output * mine + next_output * theirs


@triton.jit
def finish(top, total, output, sink):
    """The softmax's output. `sink` [rows, 1], if not None: logits that only join the denominator (Xiao et al., 2023).

    A row that saw nothing, of a sequence that is padding, becomes zeros.
    """
    if sink is not None:
        highest = tl.maximum(top, sink * LOG2_E)
        mine = weight_of(top, highest)
        total = total * mine + tl.exp2(sink * LOG2_E - highest)
        output *= mine
    return tl.where(total > 0.0, output / total, 0.0)
