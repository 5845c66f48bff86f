"""The operations RMSNorm, SkipRMSNorm and SkipLayerNorm. Plain LayerNormalization is standard ONNX."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..plugin import Input, Operation, Output, Sizes, Traits
from .reference import rms_norm, skip_layer_norm, skip_rms_norm


@dataclass(frozen=True)
class RMSNormAttributes:
    """`offset` is added to the weight (1 where a checkpoint stores weight - 1)."""

    epsilon: float
    offset: float = 0.0


@dataclass(frozen=True)
class LayerNormAttributes:
    epsilon: float


def _check_vectors(x: Sizes | None, vectors: Sequence[Sizes | None]) -> Sizes:
    if not x:
        raise ValueError(f"a norm needs an input [..., D], not {x}")
    for vector in vectors:
        if vector is not None and vector != x[-1:]:
            raise ValueError(f"a norm over {x[-1]} elements cannot take a weight or bias of shape {vector}")
    return x


def _infer(shapes: Sequence[Sizes | None], attributes: RMSNormAttributes) -> tuple[Sizes, ...]:
    return (_check_vectors(shapes[0], shapes[1:]),)


def _infer_skip(
    shapes: Sequence[Sizes | None], attributes: RMSNormAttributes | LayerNormAttributes
) -> tuple[Sizes, ...]:
    x, skip, *vectors = shapes
    if x != skip:
        raise ValueError(f"a residual of shape {skip} cannot be added to an input of shape {x}")
    x = _check_vectors(x, vectors)
    return x, x


def _reference(x: np.ndarray, weight: np.ndarray | None = None, *, attributes: RMSNormAttributes) -> np.ndarray:
    return rms_norm(x, weight, **asdict(attributes))


def _reference_skip(
    x: np.ndarray, skip: np.ndarray, weight: np.ndarray | None = None, *, attributes: RMSNormAttributes
) -> tuple[np.ndarray, np.ndarray]:
    return skip_rms_norm(x, skip, weight, **asdict(attributes))


def _reference_skip_layer(
    x: np.ndarray,
    skip: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    attributes: LayerNormAttributes,
) -> tuple[np.ndarray, np.ndarray]:
    return skip_layer_norm(x, skip, weight, bias, epsilon=attributes.epsilon)


_X, _SKIP = Input("x", "[..., D]"), Input("skip", "[..., D]")
_WEIGHT, _BIAS = Input("weight", "[D]", optional=True), Input("bias", "[D]", optional=True)
_Y, _SUM = Output("y", "[..., D]"), Output("sum", "[..., D]")

OPERATIONS = (
    Operation(
        name="RMSNorm",
        doc="x / sqrt(mean(x^2) + epsilon) * (weight + offset)",
        inputs=(_X, _WEIGHT),
        outputs=(_Y,),
        attributes=RMSNormAttributes,
        infer=_infer,
        reference=_reference,
        traits=Traits(row_inputs=(0,), scale_inputs=(1,)),
        is_traced=True,
    ),
    Operation(
        name="SkipRMSNorm",
        doc="sum = x + skip; y = RMSNorm(sum)",
        inputs=(_X, _SKIP, _WEIGHT),
        outputs=(_Y, _SUM),
        attributes=RMSNormAttributes,
        infer=_infer_skip,
        reference=_reference_skip,
    ),
    Operation(
        name="SkipLayerNorm",
        doc="sum = x + skip; y = LayerNorm(sum)",
        inputs=(_X, _SKIP, _WEIGHT, _BIAS),
        outputs=(_Y, _SUM),
        attributes=LayerNormAttributes,
        infer=_infer_skip,
        reference=_reference_skip_layer,
    ),
)
