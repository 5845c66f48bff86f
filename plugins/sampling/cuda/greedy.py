"""Greedy sampling in Triton."""

# pyright: reportOperatorIssue=false
import triton
import triton.language as tl


@triton.jit
def greedy_kernel(logits, tokens, VOCABULARY: tl.constexpr, LOGITS_ROW: tl.constexpr, BLOCK: tl.constexpr):
    """tokens [R] = the id of the largest logit of each row of logits [R, V], the lowest id among equals.

    A row has no token where it holds NaN (-1), +infinity (-2) or -infinity alone (-3). A program takes one row, BLOCK
    logits at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    best, token, nans = -float("inf"), -3, 0
    for start in range(0, VOCABULARY, BLOCK):
        ids = start + column
        part = tl.load(logits + row * LOGITS_ROW + ids, mask=ids < VOCABULARY, other=-float("inf")).to(tl.float32)
        is_nan = part != part
        nans += tl.sum(is_nan.to(tl.int32), axis=0)
        part = tl.where(is_nan, -float("inf"), part)
        top = tl.max(part, axis=0)
        first = start + tl.argmax(part, axis=0, tie_break_left=True)
        token = tl.where(top > best, first, token)
        best = tl.maximum(best, top)
    token = tl.where(best == float("inf"), -2, token)
    tl.store(tokens + row, tl.where(nans > 0, -1, token))
