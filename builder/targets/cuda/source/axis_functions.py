"""Functions along an axis of `n` elements in Triton: x, y and y2 point to a row's first elements, `*_step` apart."""

from ....lowering.views import DType

MOST_AT_ONCE = 4096
"""Elements of a row that one turn of arg_max looks at: a vocabulary is long."""

_LOAD = """
k = tl.arange(0, BLOCK)
live = k < {length}
v = tl.load(x + k * {x_step}, mask=live, other={other}).to({type})
"""
_SOFTMAX = """
top = tl.max(v, 0)
e = tl.where(live, tl.exp(v - top), 0.0)
"""
_TOTAL = """
top = tl.max(v, 0)
total = top + tl.log(tl.sum(tl.where(live, tl.exp(v - top), 0.0), 0))
"""
_STORE_EACH = "tl.store(y + k * {y_step}, {value}, mask=live)"
_FUNCTIONS = {
    "sum": _LOAD + "tl.store(y, tl.sum(v, 0))",
    "mean": _LOAD + "tl.store(y, tl.sum(v, 0) / {length})",
    "max": _LOAD + "tl.store(y, tl.max(v, 0))",
    "min": _LOAD + "tl.store(y, tl.min(v, 0))",
    "log_sum_exp": _LOAD + _TOTAL + "tl.store(y, total)",
    "softmax": _LOAD + _SOFTMAX + _STORE_EACH.replace("{value}", "e / tl.sum(e, 0)"),
    "log_softmax": _LOAD + _TOTAL + _STORE_EACH.replace("{value}", "v - total"),
    "cum_sum": _LOAD + _STORE_EACH.replace("{value}", "tl.cumsum(v, 0)"),
    "top_k": _LOAD
    + """
left = live
for j in range({kept}):
    best = tl.max(tl.where(left, v, {least}), 0)
    at = tl.min(tl.where(left & (v == best), k, {length} - 1), 0)
    tl.store(y + j * {y_step}, best)
    tl.store(y2 + j * {y2_step}, at)
    left = left & (k != at)
""",
    "arg_max": """
best = tl.full((), {least}, {type})
at = tl.full((), 0, tl.int32)
for start in range(0, {length}, BLOCK):
    k = start + tl.arange(0, BLOCK)
    live = k < {length}
    v = tl.load(x + k * {x_step}, mask=live, other={least}).to({type})
    top = tl.max(v, 0)
    first = tl.min(tl.where(live & (v == top), k, {length} - 1), 0)
    at = tl.where(top > best, first, at)
    best = tl.maximum(best, top)
tl.store(y, at)
""",
}
_NEUTRAL = {"max": "least", "log_sum_exp": "least", "softmax": "least", "log_softmax": "least", "min": "most"}
_LIMITS = {
    DType.F32: {"type": "tl.float32", "least": 'float("-inf")', "most": 'float("inf")', "zero": "0.0"},
    DType.I32: {"type": "tl.int32", "least": str(-(2**31)), "most": str(2**31 - 1), "zero": "0"},
}
_LIMITS[DType.BF16] = _LIMITS[DType.F32]


def axis_function(kind: str, dtype: DType, **sizes: int) -> list[str]:
    """The lines of a kernel. `sizes`: length, kept (of top_k), x_step, y_step, y2_step; the kernel's BLOCK covers n."""
    limits = _LIMITS[dtype]
    other = limits[_NEUTRAL.get(kind, "zero")]
    text = _FUNCTIONS[kind].format(other=other, **limits, **sizes)
    return [line for line in text.splitlines() if line]
