"""What is done to a model: one definition shared by quantizer, readers, writers, packers, builder and recipes."""

from dataclasses import dataclass
from enum import StrEnum


class WeightType(StrEnum):
    """How one element of a linear layer's weight is stored. FP8 is E4M3 (Micikevicius et al., 2022): 1-4-3, to 448."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        return {"fp32": 32, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}[self.value]

    @property
    def is_integer(self) -> bool:
        return self in (WeightType.INT8, WeightType.INT4)

    @property
    def largest(self) -> float:
        """The largest magnitude that values are scaled to in int8 (127) or FP8 (448)."""
        return {WeightType.INT8: 127.0, WeightType.FP8: 448.0}[self]

    @property
    def is_scaled(self) -> bool:
        """Whether elements are multiples of scales: integers and FP8."""
        return self.is_integer or self is WeightType.FP8


@dataclass(frozen=True)
class WeightScheme:
    """A weight's element type and, for scaled types, how many elements along K share one scale.

    `group_size` 0 means one scale per output channel (the whole of K). A group size that does not divide K leaves a
    shorter last group. Symmetric integer weights are w = scale * q, int8 q in [-128, 127], int4 q in [-8, 7]; FP8
    weights are w = scale * q, too. An asymmetric weight, int4 in groups only, is scale * (q - zero) with a zero for
    every scale.
    """

    type: WeightType
    group_size: int = 0
    symmetric: bool = True

    def __post_init__(self) -> None:
        if not self.symmetric and (self.type is not WeightType.INT4 or not self.group_size):
            raise ValueError(f"only int4 weights in groups have zero points, not {self}")

    def groups(self, k: int) -> int:
        """Number of scales along K."""
        return -(-k // self.group_size) if self.group_size else 1

    def __str__(self) -> str:
        group = f"-g{self.group_size}" if self.group_size else ""
        return f"{self.type}{group}{'' if self.symmetric else '-zeros'}"


class ActivationScheme(StrEnum):
    """How a linear layer's inputs are quantized (activation quantization): to the element type of its weight.

    NONE leaves it to the kernels: inputs of int8 weights keep 15 bits, by token and group, those of int4 weights
    become int8 that way. DYNAMIC finds a scale for each token at run time, which for int8 the kernels do for each token
    and group. STATIC has one scale for all inputs of the layer, from calibration.
    """

    NONE = "none"
    DYNAMIC = "dynamic"
    STATIC = "static"


@dataclass(frozen=True)
class LinearScheme:
    """All that is done to a linear layer."""

    weight: WeightScheme
    activation: ActivationScheme = ActivationScheme.NONE

    def __post_init__(self) -> None:
        allowed = self.weight.type in (WeightType.INT8, WeightType.FP8)
        if self.activation is not ActivationScheme.NONE and not allowed:
            raise ValueError(f"only int8 and FP8 weights have {self.activation} activations, not {self.weight}")

    def __str__(self) -> str:
        return f"{self.weight}{'' if self.activation is ActivationScheme.NONE else f'-{self.activation}'}"


class KvType(StrEnum):
    """How one element of a quantized KV cache is stored."""

    INT8 = "int8"
    FP8 = "fp8"

    @property
    def largest(self) -> float:
        """The largest magnitude that keys and values are scaled to."""
        return WeightType(self).largest

    @property
    def by_head(self) -> bool:
        """Whether each head has a scale from calibration. Steps of int8 are even, so a head of small elements would
        lose bits beside one of large; E4M3 has as many bits at any size, and loaders take one scale."""
        return self is KvType.INT8
