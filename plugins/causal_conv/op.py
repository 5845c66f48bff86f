"""The operation CausalConv1D: each channel's weighted sum of a token and the tokens before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import causal_conv1d


class Activation(StrEnum):
    """What is applied to the sum."""

    NONE = ""
    SILU = "silu"


@dataclass(frozen=True)
class CausalConv1DAttributes:
    activation: Activation = Activation.NONE


def _infer(shapes: Sequence[Sizes | None], attributes: CausalConv1DAttributes) -> tuple[Sizes, ...]:
    x, weight, bias = [*shapes, None][:3]
    if x is None or weight is None or len(x) != 3 or len(weight) != 2 or weight[1] != x[2]:
        raise ValueError(f"CausalConv1D needs x [1, T, C] and a weight [K, C], not {x} and {weight}")
    if bias not in (None, (x[2],)):
        raise ValueError(f"CausalConv1D: a bias of shape {bias} for {x[2]} channels")
    return (x,)


def _state(shapes: Sequence[Sizes | None], attributes: CausalConv1DAttributes) -> tuple[int, ...]:
    """The last K - 1 tokens, oldest first."""
    weight = shapes[1]
    assert weight is not None
    width, channels = (int(size) for size in weight)
    return (width - 1, channels)


def _reference(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, attributes: CausalConv1DAttributes
) -> np.ndarray:
    """All tokens as one sequence that begins here."""
    return causal_conv1d(x[0], weight, bias, silu=attributes.activation is Activation.SILU)[None]


OPERATIONS = (
    Operation(
        name="CausalConv1D",
        doc="y[t] = activation(bias + the sum over k of weight[k] x[t - K + 1 + k]), channel by channel, along each "
        "sequence",
        inputs=(Input("x", "[1, T, C]"), Input("weight", "[K, C]"), Input("bias", "[C]", optional=True)),
        outputs=(Output("y", "[1, T, C]"),),
        attributes=CausalConv1DAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(is_stateful=True, is_matmul=True),
        is_traced=True,
        state=_state,
    ),
)
