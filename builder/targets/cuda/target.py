"""The cuda target: what this machine can build for, and the GPU that it has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ....errors import BuildError, EngineError, ToolchainError
from ....extras import install_command
from ....runtime.executors.cuda.device import Device, find_device
from ....runtime.executors.cuda.segments import PACKAGES
from ....runtime.manifest import Manifest
from ....units import shown_size
from ...build_options import BuildConfig
from ..sampler import require_compiler
from ..target import Ceilings, Finding
from .options import COMPUTE_CAPABILITIES, CudaOptions

if TYPE_CHECKING:
    from ....checkpoint.layouts.kv_cache import KvScales
    from ...lowering.stored_rows import Stored
    from ...network import Network
    from .plan import CudaPlan
    from .segments.tensorrt import TensorRt


@dataclass(frozen=True)
class CudaHost:
    """A compute capability to compile for; with the GPU of that kind, where kernels can be timed.

    `tensorrt`: what computes segments, if not our own kernels alone.
    """

    sm: int
    device: Device | None = None
    tensorrt: "TensorRt | None" = None

    @property
    def title(self) -> str:
        return f"cuda sm_{self.sm}"

    @property
    def compiler(self) -> str:
        from .compile import compiler_name

        return compiler_name() if self.tensorrt is None else f"{compiler_name()}, {self.tensorrt}"

    def plan(
        self,
        network: "Network",
        config: BuildConfig,
        max_seq_len: int,
        stored: "Stored | None" = None,
        kv_scales: "Mapping[str, KvScales] | None" = None,
    ) -> "CudaPlan":
        from .plan import plan

        return plan(network, config, self.sm, max_seq_len, stored, kv_scales, self.device, self.tensorrt)


class CudaTarget:
    """NVIDIA GPUs from Ampere on."""

    def check_host(self, options: CudaOptions, *, runs_here: bool) -> CudaHost:
        if find_spec("triton") is None:
            advice = install_command("cuda-build")
            raise ToolchainError(f"kernels for NVIDIA GPUs are compiled by Triton, which is not installed: {advice}")
        require_compiler()
        sm = choose_sm(options, runs_here=runs_here)
        device = _device_of(sm)
        return CudaHost(sm, device if options.tactics == "auto" else None, choose_tensorrt(options, sm, device))

    def machine(self) -> str:
        try:
            return f"sm_{find_device().sm}"
        except EngineError:
            return "no GPU"

    def findings(self) -> Iterator[Finding]:
        try:
            device = find_device()
            yield Finding("GPU", f"{device.name}, {_describe(device)}", needed_to="run")
        except EngineError as error:
            yield Finding("GPU", "none", False, str(error), "run")
        if find_spec("triton") is None:
            advice = f"to build for NVIDIA GPUs: {install_command('cuda-build')}"
            yield Finding("Triton", "none", False, advice, "build")
        else:
            from .compile import compiler_name

            names = ", ".join(f"sm_{sm}" for sm in COMPUTE_CAPABILITIES)
            yield Finding("Triton", f"{compiler_name()}, compiles for {names}", needed_to="build")

        found = [f"{package} {version(package)}" for package in PACKAGES if find_spec(package) is not None]
        advice = "" if found else f"for --dense tensorrt: {install_command('tensorrt')}"
        yield Finding("TensorRT", ", ".join(found) or "none", True, advice)

    def ceilings(self, engine: Manifest | None = None) -> Ceilings:
        raise BuildError("the ceilings of a GPU are not measured yet")


TARGET = CudaTarget()


def choose_sm(options: CudaOptions, *, runs_here: bool) -> int:
    """The compute capability to compile for. Raises BuildError where none is named and none is here, or this machine
    should run the engine and could not."""
    try:
        device = find_device()
    except EngineError as error:
        if options.sm == "native":
            names = ", ".join(COMPUTE_CAPABILITIES)
            raise BuildError(
                f"there is no GPU here whose compute capability could be taken ({error}); name one with --sm: {names}"
            ) from None
        if runs_here:
            raise BuildError(
                f"the engine cannot be checked here: {error}; add --no-check to build it for another machine"
            ) from None
        return int(options.sm)
    if options.sm == "native":
        if str(device.sm) not in COMPUTE_CAPABILITIES:
            raise BuildError(
                f"{device.name} has compute capability {device.sm / 10:.1f}; kernels are compiled for "
                f"{', '.join(COMPUTE_CAPABILITIES)}"
            )
        return device.sm
    if runs_here and int(options.sm) != device.sm:
        raise BuildError(
            f"--sm {options.sm} was asked for, but {device.name} has {device.sm}, so the engine cannot be checked "
            "here; add --no-check to build it for another machine"
        )
    return int(options.sm)


def _device_of(sm: int) -> Device | None:
    """This machine's GPU, if it is of that compute capability."""
    try:
        device = find_device()
    except EngineError:
        return None
    return device if device.sm == sm else None


def choose_tensorrt(options: CudaOptions, sm: int, device: Device | None) -> "TensorRt | None":
    """The TensorRT that `--dense` asks for; `device`: this machine's GPU, if it is of that compute capability.

    Raises ToolchainError where it is asked for and cannot build here.
    """
    if options.dense == "triton":
        return None
    from .segments.tensorrt import find_tensorrt

    try:
        return find_tensorrt(sm, None if device is None else device.sm)
    except ToolchainError:
        if options.dense == "tensorrt":
            raise
        return None


def _describe(device: Device) -> str:
    return (
        f"compute capability {device.sm / 10:.1f}, {shown_size(device.memory)}, driver for CUDA {device.shown_driver}"
    )
