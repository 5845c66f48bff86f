"""What is done to a weight: one definition shared by quantizer, packers, builder, manifest and recipes."""

from dataclasses import dataclass
from enum import StrEnum


class WeightType(StrEnum):
    """How one element of a linear layer's weight is stored."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        return {"fp32": 32, "bf16": 16, "int8": 8, "int4": 4}[self.value]

    @property
    def is_integer(self) -> bool:
        return self in (WeightType.INT8, WeightType.INT4)


@dataclass(frozen=True)
class WeightScheme:
    """A weight's element type and, for integer types, how many elements along K share one scale.

    `group_size` 0 means one scale per output channel (the whole of K). A group size that does not divide K leaves a
    shorter last group. Symmetric integer weights are w = scale * q, int8 q in [-128, 127], int4 q in [-8, 7]. An
    asymmetric weight, int4 in groups only, is scale * (q - zero) with a zero for every scale.
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
