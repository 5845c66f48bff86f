"""Which weight scheme each linear layer gets from the options of a build."""

from ...errors import BuildError
from ...quantization.scheme import WeightScheme, WeightType
from ..build_options import BuildConfig

DEFAULT_INT4_GROUP = 64
HEAD_GROUP = 64
INT4_HEAD_GROUP = 32


def scheme_of_linear(config: BuildConfig, name: str, k: int) -> WeightScheme:
    """The scheme of a linear layer other than the head, whose weight `name` is of `k` inputs.

    int4 weights have zero points: at the same size they lose less than symmetric groups half as long.
    Raises BuildError for a group size larger than `k`.
    """
    if config.weights is None:
        return WeightScheme(WeightType(config.dtype))
    if config.group_size and config.group_size > k:
        raise BuildError(
            f"--group-size {config.group_size} is larger than the {k} inputs of {name}; choose one of at most {k}, or "
            "leave it out"
        )
    if config.weights == "int4":
        return WeightScheme(WeightType.INT4, config.group_size or DEFAULT_INT4_GROUP, symmetric=False)
    return WeightScheme(WeightType(config.weights), config.group_size or 0)


def scheme_of_router(config: BuildConfig) -> WeightScheme:
    """The scheme of a layer that chooses experts: never rounded, for it is small, and no choice is nearly right."""
    return WeightScheme(WeightType(config.dtype))


def scheme_of_head(config: BuildConfig, *, others_quantized: bool) -> WeightScheme:
    """The scheme of the layer that makes the logits; `others_quantized`: the checkpoint holds others quantized.

    A quantized model's head is a large part of a small model's bytes, but its error goes straight into the logits:
    it gets int8, and never with one scale for a whole channel. int4 is for those who ask, in groups as fine as any.
    """
    if config.head == "int4":
        return WeightScheme(WeightType.INT4, INT4_HEAD_GROUP, symmetric=False)
    quantized = others_quantized or config.weights is not None
    if config.head == "int8" or (config.head == "auto" and quantized):
        return WeightScheme(WeightType.INT8, HEAD_GROUP)
    return WeightScheme(WeightType(config.dtype))
