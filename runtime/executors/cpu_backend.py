"""CPU engines: what they need of a machine, and how they are opened."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import EngineError
from ...plugins.cpu.isa import machine_flags
from ...units import shown_size
from ..manifest import Manifest
from ..memory import available_memory, total_memory
from .cpu import CpuExecutor
from .cpu_abi import ABI_VERSION
from .cpu_facts import CpuFacts, cpu_facts
from .executor import Executor

FACTS = CpuFacts
_DEFAULT_SHARE = 0.5
"""Part of the available memory that the KV cache may take when it is not told otherwise."""


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


def cache_memory(target: CpuFacts, utilization: float | None) -> tuple[int, str]:
    if utilization is None:
        return int(available_memory() * _DEFAULT_SHARE), "half of the memory available"
    others = target.weights_bytes + target.arena_bytes
    left = int(total_memory() * utilization) - others
    sizes = f"{shown_size(others)} of weights and activations"
    return left, f"what memory_utilization {utilization:g} leaves beside {sizes}"


def open_executor(path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None) -> Executor:
    return CpuExecutor(path, manifest, num_blocks, threads)
