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


@dataclass(frozen=True)
class WeightScheme:
    """A weight's element type and, for integer types, how many elements along K share one scale.

    `group_size` 0 means one scale per output channel (the whole of K). A group size that does not divide K leaves a
    shorter last group. Integer weights are symmetric: w = scale * q, int8 q in [-127, 127], int4 q in [-8, 7].
    """

    type: WeightType
    group_size: int = 0

    def groups(self, k: int) -> int:
        """Number of scales along K."""
        return -(-k // self.group_size) if self.group_size else 1

    def __str__(self) -> str:
        return f"{self.type}-g{self.group_size}" if self.group_size else str(self.type)
