"""The options of the cuda target."""

from typing import Literal

from pydantic import Field

from ..options import TargetOptions

COMPUTE_CAPABILITIES = ("80", "86", "89", "90", "100", "120")


class CudaOptions(TargetOptions):
    """An engine for NVIDIA GPUs of one compute capability."""

    name: Literal["cuda"] = "cuda"  # pyright: ignore[reportIncompatibleVariableOverride]
    sm: Literal["native", "80", "86", "89", "90", "100", "120"] = Field(
        default="native", description="Compute capability to compile for: 90 is 9.0; native is this machine's."
    )


OPTIONS = CudaOptions
