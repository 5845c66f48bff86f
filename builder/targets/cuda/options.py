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
    tactics: Literal["auto", "table"] = Field(
        default="auto",
        description="Which kernels are taken: auto times candidates where this machine has the GPU, table never does.",
    )
    timing_cache: str | None = Field(
        default=None, description="JSON file of what candidates took: read, and added to where they are timed."
    )
    batch_invariant: bool = Field(
        default=True,
        description="Take only kernels that add up in the same order, so that a request's output is the same bit for "
        "bit whatever shares its batch.",
    )
    dense: Literal["triton", "tensorrt", "auto"] = Field(
        default="triton",
        description="What computes linear layers and what lies between them: Triton's kernels, or TensorRT where it "
        "can, and then a request's output may depend on the others; auto is tensorrt where it is installed and builds "
        "for --sm.",
    )


OPTIONS = CudaOptions
