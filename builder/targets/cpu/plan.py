"""A network and options in; a program with addresses, its source, and its library out."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....checkpoint.layouts.kv_cache import KvScales
from ....plugins.cpu.isa import Isa
from ....plugins.discovery import kernels
from ....plugins.linear.cpu.packing import layout_of_weight
from ....progress import Progress
from ....runtime.executors.cpu_abi import ABI_VERSION
from ....runtime.executors.cpu_facts import CpuFacts
from ...build_options import BuildConfig
from ...lowering.lower import lower
from ...lowering.memory_plan import plan_memory
from ...lowering.program import Tactic
from ...lowering.stored_rows import Stored
from ...lowering.weights_file import plan_weights, write_weights
from ...passes.derived import Read
from ..sampler import start_compiling_sampler
from ..target import WEIGHTS, Plan
from . import toolchain
from .emit import EngineFacts, emit
from .source.call import CpuCall

if TYPE_CHECKING:
    from ...network import Network

LIBRARY, SAMPLER = "cpu/engine.so", "cpu/sampler.so"
_PROMPT_ROWS = 64


@dataclass(frozen=True)
class CpuCompilation:
    """The compilations whose libraries go into an engine's folder."""

    running: Mapping[Path, toolchain.Compilation]

    @property
    def cached(self) -> bool:
        return all(compilation.cached for compilation in self.running.values())

    def wait(self) -> None:
        for library, compilation in self.running.items():
            shutil.copyfile(compilation.wait(), library)

    def cancel(self) -> None:
        for compilation in self.running.values():
            compilation.cancel()


@dataclass(frozen=True)
class CpuPlan(Plan):
    """A program for one instruction set, and its source."""

    source: str
    isa: Isa
    with_compiler: toolchain.Compiler | None = None

    def start_compiling(self, folder: Path) -> CpuCompilation:
        library = folder / LIBRARY
        library.parent.mkdir()
        library.with_suffix(".cpp").write_text(self.source)
        running = toolchain.start_compiling(self.source, self.isa, self.with_compiler)
        return CpuCompilation(
            {library: running, folder / SAMPLER: start_compiling_sampler(self.isa, self.with_compiler)}
        )

    def pack(self, folder: Path, read: Read, progress: Progress) -> None:
        write_weights(folder / WEIGHTS, self.program, partial(layout_of_weight, isa=self.isa), read, progress)

    def tactics(self) -> list[Tactic]:
        calls = (call for call in self.program.calls if isinstance(call, CpuCall))
        return [tactic for call in calls if (tactic := call.tactic(self.isa)) is not None]

    def facts(self) -> CpuFacts:
        return CpuFacts(
            name="cpu",
            weights=WEIGHTS,
            weights_bytes=self.program.weights_bytes,
            isa=str(self.isa),
            cpu_flags=tuple(sorted(self.isa.cpu_flags)),
            library=LIBRARY,
            sampler=SAMPLER,
            abi_version=ABI_VERSION,
            arena_bytes=self.program.arena_bytes,
        )

    @property
    def max_logits_rows(self) -> int:
        return logits_rows(self.config)


def logits_rows(config: BuildConfig) -> int:
    """Rows of logits that a step may keep: one a sequence, and as many as prompt log-probabilities run well with."""
    return max(config.max_batch_size, min(config.max_num_tokens, _PROMPT_ROWS))


def plan(
    network: "Network",
    config: BuildConfig,
    isa: Isa,
    max_seq_len: int,
    stored: Stored | None = None,
    kv_scales: Mapping[str, KvScales] | None = None,
    compiler: toolchain.Compiler | None = None,
) -> CpuPlan:
    """Lower `network`, give every buffer and weight its place, and write the source. `compiler`: default, the best."""
    program = lower(network, config, kernels("cpu"), stored, kv_scales)
    plan_memory(program, config.max_num_tokens, logits_rows(config))
    plan_weights(program, partial(layout_of_weight, isa=isa))
    source = emit(
        program,
        config,
        EngineFacts(
            f"{network.architecture} for {isa}",
            isa,
            max_seq_len,
            logits_rows(config),
            network.long_rope_after is not None,
        ),
    )
    return CpuPlan(program, config, max_seq_len, source, isa, compiler)
