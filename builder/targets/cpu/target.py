"""The cpu target: what this machine can build for, and what it can do at best."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....errors import BuildError, ToolchainError
from ....plugins.cpu.isa import Isa, machine_flags, native_isa
from ....runtime.executors.cpu_facts import cpu_facts
from ....runtime.manifest import Manifest
from ...build_options import BuildConfig
from ..target import Finding
from . import toolchain
from .ceilings import CpuCeilings
from .options import CpuOptions

if TYPE_CHECKING:
    from ....checkpoint.layouts.kv_cache import KvScales
    from ...lowering.stored_rows import Stored
    from ...network import Network
    from .plan import CpuPlan


@dataclass(frozen=True)
class CpuHost:
    """An instruction set to compile for, and a compiler."""

    isa: Isa
    with_compiler: toolchain.Compiler

    @property
    def title(self) -> str:
        return f"cpu {self.isa}"

    @property
    def compiler(self) -> str:
        return (self.with_compiler.version.splitlines() or [self.with_compiler.name])[0]

    def plan(
        self,
        network: "Network",
        config: BuildConfig,
        max_seq_len: int,
        stored: "Stored | None" = None,
        kv_scales: "Mapping[str, KvScales] | None" = None,
    ) -> "CpuPlan":
        from .plan import plan

        return plan(network, config, self.isa, max_seq_len, stored, kv_scales, self.with_compiler)


class CpuTarget:
    """x86-64 CPUs with AVX2 or more."""

    def check_host(self, options: CpuOptions, *, runs_here: bool) -> CpuHost:
        isa = choose_isa(options, runs_here=runs_here)
        return CpuHost(isa, toolchain.find_compiler())

    def machine(self) -> str:
        return str(native_isa())

    def findings(self) -> Iterator[Finding]:
        names = ", ".join(isa for isa in Isa if isa.cpu_flags <= machine_flags())
        advice = "" if names else "engines need an x86-64 CPU with AVX2"
        yield Finding("instruction sets", names or "no AVX2", native_isa() is not None, advice, "run")
        try:
            compiler = toolchain.find_compiler()
            found = f"{compiler.name}: {compiler.version.splitlines()[0]}"
            yield Finding("C++ compiler", found, needed_to="build")
        except ToolchainError as error:
            yield Finding("C++ compiler", "none", False, str(error), "build")

    def ceilings(self, engine: Manifest | None = None) -> CpuCeilings:
        isa = choose_isa(CpuOptions(), runs_here=True) if engine is None else Isa(cpu_facts(engine).isa)
        return CpuCeilings(isa)


TARGET = CpuTarget()


def choose_isa(options: CpuOptions, *, runs_here: bool) -> Isa:
    """The instruction set to compile for. Raises BuildError where this machine should run it and could not."""
    native = native_isa()
    if options.isa == "native":
        if native is None:
            raise BuildError(
                "this machine lacks AVX2, the least that cpu engines need; name an instruction set with --isa, "
                "add --no-check, and run the engine elsewhere"
            )
        return native
    wanted = Isa(options.isa)
    order = list(Isa)
    if runs_here and (native is None or order.index(wanted) > order.index(native)):
        raise BuildError(
            f"--isa {wanted} was asked for, but this machine has {native or 'not even AVX2'}, so the engine cannot be "
            "checked here; add --no-check to build it for another machine"
        )
    return wanted
