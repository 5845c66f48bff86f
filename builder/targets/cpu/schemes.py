"""Which weight scheme each linear layer gets from the options of a build."""

from ....quantization.scheme import WeightScheme, WeightType
from ...config import BuildConfig

DEFAULT_INT4_GROUP = 64
HEAD_GROUP = 64


def scheme_of_linear(config: BuildConfig, *, is_head: bool) -> WeightScheme:
    """The scheme of a linear layer; `is_head`: it makes the logits.

    A quantized model's head gets int8 with a scale for every 64 weights: it is a large part of a small model's bytes,
    but its error goes straight into the logits. int4 weights have zero points: for the bytes of symmetric groups half
    as long they lose less.
    """
    if config.weights is None:
        return WeightScheme(WeightType(config.dtype))
    if is_head:
        return WeightScheme(WeightType.INT8, config.group_size or HEAD_GROUP)
    if config.weights == "int4":
        return WeightScheme(WeightType.INT4, config.group_size or DEFAULT_INT4_GROUP, symmetric=False)
    return WeightScheme(WeightType.INT8, config.group_size or 0)
