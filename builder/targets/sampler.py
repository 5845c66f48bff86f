"""The sampler's library. It runs on the CPU, whatever runs the network, and is the same for every model."""

from ...plugins.cpu.isa import Isa
from ...plugins.sampling.cpu.library import SOURCE
from .cpu import toolchain

SamplerCompilation = toolchain.Compilation


def start_compiling_sampler(isa: Isa = Isa.AVX2, compiler: toolchain.Compiler | None = None) -> SamplerCompilation:
    """Begin to compile it, by default for every CPU that engines run on. Raises ToolchainError without a compiler."""
    return toolchain.start_compiling(SOURCE.read_text(), isa, compiler)


def require_compiler() -> None:
    """Raises ToolchainError where no C++ compiler is found."""
    toolchain.find_compiler()
