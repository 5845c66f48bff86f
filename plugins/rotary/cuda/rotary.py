"""Rotary position embeddings (Su et al., RoFormer, 2021) of queries or keys in Triton."""

# pyright: reportAssignmentType=false
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    x,
    cos,
    sin,
    y,
    IN_PAIRS: tl.constexpr,
    OUT_PAIRS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    COPIES: tl.constexpr,
    X_TOKEN: tl.constexpr,
    X_HEAD: tl.constexpr,
    COS_TOKEN: tl.constexpr,
    SIN_TOKEN: tl.constexpr,
    ANGLE: tl.constexpr,
    Y_TOKEN: tl.constexpr,
    Y_HEAD: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
    """y [T, H, D] = x with the first ROTARY_DIM elements of each head turned by the angles cos, sin [T, C].

    A program takes one token. Pair i is elements 2 i and 2 i + 1 where IN_PAIRS (of x) or OUT_PAIRS (of y), otherwise
    i and i + ROTARY_DIM / 2; its angle is at i * ANGLE. COPIES: the other elements are copied. y may be x where both
    have their pairs alike.
    """
    token = tl.program_id(0).to(tl.int64)
    HALF: tl.constexpr = ROTARY_DIM // 2
    head = tl.arange(0, BLOCK_HEADS)[:, None]
    pair = tl.arange(0, BLOCK_PAIRS)[None, :]
    x += token * X_TOKEN + head * X_HEAD
    y += token * Y_TOKEN + head * Y_HEAD
    mask = (head < HEADS) & (pair < HALF)
    c = tl.load(cos + token * COS_TOKEN + pair * ANGLE, mask=pair < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin + token * SIN_TOKEN + pair * ANGLE, mask=pair < HALF, other=0.0).to(tl.float32)
    from_step: tl.constexpr = 2 if IN_PAIRS else 1
    from_other: tl.constexpr = 1 if IN_PAIRS else HALF
    to_step: tl.constexpr = 2 if OUT_PAIRS else 1
    to_other: tl.constexpr = 1 if OUT_PAIRS else HALF
    a = tl.load(x + pair * from_step, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x + pair * from_step + from_other, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + pair * to_step, a * c - b * s, mask=mask)
    tl.store(y + pair * to_step + to_other, b * c + a * s, mask=mask)
    if COPIES:
        rest = ROTARY_DIM + tl.arange(0, BLOCK_REST)[None, :]
        others = (head < HEADS) & (rest < WIDTH)
        tl.store(y + rest, tl.load(x + rest, mask=others, other=0.0), mask=others)
