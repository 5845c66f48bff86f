"""The options of the cpu target."""

from typing import Literal

from pydantic import Field

from ..options import TargetOptions


class CpuOptions(TargetOptions):
    """An engine for x86-64 CPUs."""

    name: Literal["cpu"] = "cpu"  # pyright: ignore[reportIncompatibleVariableOverride]
    isa: Literal["native", "avx2", "avx512", "amx"] = Field(
        default="native", description="Instruction set to compile for."
    )


OPTIONS = CpuOptions
