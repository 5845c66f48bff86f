"""The operation LinearAttention: attention without softmax, over a state of fixed size that the runtime keeps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import linear_attention


@dataclass(frozen=True)
class LinearAttentionAttributes:
    """`scale` multiplies queries. `norm_epsilon` > 0: q and k are divided by the root of the sum of their squares +
    norm_epsilon first.
    """

    scale: float
    norm_epsilon: float = 0.0


def _infer(shapes: Sequence[Sizes | None], attributes: LinearAttentionAttributes) -> tuple[Sizes, ...]:
    q, k, v, decay, beta = [*shapes, None, None][:5]
    if q is None or v is None or q != k or not len(q) == len(v) == 4:
        raise ValueError(f"LinearAttention needs q, k and v of four dimensions, the first two alike, not {q}, {k}, {v}")
    tokens, heads, width = v[:2], v[2], q[3]
    if q[:2] != tokens or not isinstance(heads, int) or not isinstance(q[2], int) or heads % q[2]:
        raise ValueError(f"LinearAttention: {heads} heads of {v} over {q[2]} of {q}")
    if decay not in (None, (heads,), (*tokens, heads), (*tokens, heads, width)):
        raise ValueError(f"LinearAttention: a decay of shape {decay} for {heads} heads with keys of {width} elements")
    if beta not in (None, (*tokens, heads)):
        raise ValueError(f"LinearAttention: beta of shape {beta} for {heads} heads")
    return (v,)


def _state(shapes: Sequence[Sizes | None], attributes: LinearAttentionAttributes) -> tuple[int, ...]:
    """A matrix for each head."""
    k, v = shapes[1:3]
    assert k is not None
    assert v is not None
    return int(v[2]), int(k[3]), int(v[3])


def _reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    attributes: LinearAttentionAttributes,
) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    q, k, v = (x[0] for x in (q, k, v))
    decay, beta = (x if x is None or x.ndim == 1 else x[0] for x in (decay, beta))
    epsilon = attributes.norm_epsilon or None
    return linear_attention(q, k, v, decay, beta, scale=attributes.scale, norm_epsilon=epsilon)[None]


OPERATIONS = (
    Operation(
        name="LinearAttention",
        doc="adds each token's k v^T to its sequence's state, which decays, and reads it by q; with beta, by the delta "
        "rule; decay is a logarithm",
        inputs=(
            Input("q", "[1, T, Hk, D]"),
            Input("k", "[1, T, Hk, D]"),
            Input("v", "[1, T, H, Dv]"),
            Input("decay", "[1, T, H], [1, T, H, D] or [H]", optional=True),
            Input("beta", "[1, T, H]", optional=True),
        ),
        outputs=(Output("y", "[1, T, H, Dv]"),),
        attributes=LinearAttentionAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True, is_matmul=True),
        is_traced=True,
        state=_state,
    ),
)
