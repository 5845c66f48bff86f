"""The operation PagedAttention: causal attention over keys and values that the runtime keeps in a paged cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import attention


@dataclass(frozen=True)
class PagedAttentionAttributes:
    """How scores are made and which keys a query sees.

    `cache_layer` counts the network's attention nodes, in order. `window` w > 0: the query at position i sees the keys
    i - w + 1 .. i. `softcap` c > 0: scores become c tanh(score / c). `chunk` c > 0: it sees those from the
    last multiple of c on. The input `slopes` holds what a score loses for every token of distance, the capped one where
    there is a cap (ALiBi).
    """

    cache_layer: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    causal: int = 1
    chunk: int = 0


def _infer(shapes: Sequence[Sizes | None], attributes: PagedAttentionAttributes) -> tuple[Sizes, ...]:
    q, k, v, sinks, slopes = [*shapes, None, None][:5]
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        raise ValueError(f"PagedAttention needs q, k and v of four dimensions, not {q}, {k} and {v}")
    heads, tokens = q[1], q[2]
    if k[:3] != v[:3] or k[2] != tokens or k[3] != q[3]:
        raise ValueError(f"PagedAttention: q {q}, k {k} and v {v} do not belong together")
    if not isinstance(heads, int) or not isinstance(k[1], int) or heads % k[1]:
        raise ValueError(f"PagedAttention: {heads} query heads over {k[1]} key-value heads")
    for name, shape in (("sinks", sinks), ("slopes", slopes)):
        if shape is not None and shape != (heads,):
            raise ValueError(f"PagedAttention: {name} of shape {shape} for {heads} heads")
    return ((1, tokens, heads, v[3]),)


def _reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    sinks: np.ndarray | None = None,
    slopes: np.ndarray | None = None,
    *,
    attributes: PagedAttentionAttributes,
) -> np.ndarray:
    """All tokens as one sequence that begins here, its cache empty."""
    if not attributes.causal:
        raise ValueError("the reference is causal")
    q, k, v = (x[0].swapaxes(0, 1) for x in (q, k, v))
    options = {name: getattr(attributes, name) for name in ("scale", "window", "softcap", "chunk")}
    return attention(q, k, v, sinks, slopes, **options)[None]


OPERATIONS = (
    Operation(
        name="PagedAttention",
        doc="writes k and v to the cache, then attends to each token's own sequence",
        inputs=(
            Input("q", "[1, H, T, D]"),
            Input("k", "[1, Hk, T, D]"),
            Input("v", "[1, Hk, T, Dv]"),
            Input("sinks", "[H]", optional=True),
            Input("slopes", "[H]", optional=True),
        ),
        outputs=(Output("y", "[1, T, H, Dv]"),),
        attributes=PagedAttentionAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True, is_matmul=True, linear_input=2),
        is_traced=True,
    ),
)
