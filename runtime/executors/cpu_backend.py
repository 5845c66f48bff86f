"""CPU engines: what they need of a machine, and how they are opened."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import EngineError
from ...plugins.cpu.isa import machine_flags
from ..manifest import Manifest
from .cpu import CpuExecutor
from .cpu_abi import ABI_VERSION
from .cpu_facts import CpuFacts, cpu_facts
from .executor import Executor

FACTS = CpuFacts


def check_machine(path: Path, manifest: Manifest) -> None:
    target = cpu_facts(manifest)
    if target.abi_version != ABI_VERSION:
        raise EngineError(
            f"{path} speaks ABI {target.abi_version}, this enginesmith {ABI_VERSION}; rebuild it from its checkpoint: "
            f"enginesmith build CHECKPOINT -o {path}"
        )
    flags = machine_flags()
    if not flags:
        raise EngineError("/proc/cpuinfo lists no instruction sets, so that none can be relied on: mount /proc")
    missing = sorted(set(target.cpu_flags) - flags)
    if missing:
        raise EngineError(
            f"{path} was built for {target.isa}, but this CPU lacks {', '.join(missing)}; "
            "rebuild here, or with '--isa avx2', which runs on every x86-64 machine since 2015"
        )


def describe(target: CpuFacts) -> dict[str, str]:
    return {"instruction set": f"{target.isa} ({', '.join(target.cpu_flags)})"}


def open_executor(path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None) -> Executor:
    return CpuExecutor(path, manifest, num_blocks, threads)
