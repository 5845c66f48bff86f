"""Which weight scheme each linear layer gets from the options of a build."""

from ....quantization.scheme import WeightScheme, WeightType
from ...config import BuildConfig

DEFAULT_INT4_GROUP = 64
HEAD_GROUP = 64


def scheme_of_linear(config: BuildConfig, k: int) -> WeightScheme:
    """The scheme of a linear layer of `k` inputs other than the head.

    int4 weights have zero points: for the bytes of symmetric groups half as long they lose less. Groups of integers are
    at most what the layer has: kernels round inputs, and take memory, by the size of groups.
    """
    if config.weights is None:
        return WeightScheme(WeightType(config.dtype))
    if config.weights == "int4":
        return WeightScheme(WeightType.INT4, min(config.group_size or DEFAULT_INT4_GROUP, k), symmetric=False)
    type_, group_size = WeightType(config.weights), config.group_size or 0
    return WeightScheme(type_, min(group_size, k) if type_.is_integer else group_size)


def scheme_of_head(config: BuildConfig, *, others_quantized: bool) -> WeightScheme:
    """The scheme of the layer that makes the logits; `others_quantized`: the checkpoint holds others quantized.

    A quantized model's head is a large part of a small model's bytes, but its error goes straight into the logits:
    it gets int8, and never with one scale for a whole channel.
    """
    quantized = others_quantized or config.weights is not None
    if config.head == "int8" or (config.head == "auto" and quantized):
        return WeightScheme(WeightType.INT8, HEAD_GROUP)
    return WeightScheme(WeightType(config.dtype))
