"""A network and options in; a program with addresses, its kernels, and its table of launches out."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....checkpoint.layouts.kv_cache import KvScales
from ....errors import UnsupportedModelError
from ....plugins.discovery import kernels
from ....plugins.linear.cuda.packing import layout_of_weight
from ....plugins.plugin import DOMAIN
from ....progress import Progress
from ....runtime.executors.cuda import launches as table
from ....runtime.executors.cuda.device import Device
from ....runtime.executors.cuda.facts import CudaFacts
from ...build_options import BuildConfig
from ...lowering.lower import lower
from ...lowering.memory_plan import plan_memory
from ...lowering.program import Tactic
from ...lowering.stored_rows import Stored
from ...lowering.weights_file import plan_weights, write_weights
from ...passes.derived import Read
from ..sampler import SamplerCompilation, start_compiling_sampler
from ..target import WEIGHTS, Plan
from .compile import CUBIN, FACTS, Compilation, assembler_version, compiler_name, start_compiling
from .greedy import add_greedy_call
from .narrow import narrow
from .options import CudaOptions
from .schedule import PlannedLaunch, context_of, schedule
from .segments.call import segment_kernel
from .segments.plans import Segments, cut_for
from .segments.tensorrt import TensorRt
from .source.call import Context, CudaCall, Picks
from .specialize import Specialization
from .timing import timed_picks
from .timing_cache import TimingCache

if TYPE_CHECKING:
    from ...network import Network

TABLE = "launches.json"
SAMPLER = "cuda/sampler.so"
ALIGNMENT = 256
"""Bytes: what the driver aligns memory to, and TensorRT may take its tensors for."""


@dataclass(frozen=True)
class CudaCompilation:
    """A compilation whose cubins, table of launches and sampler go into an engine's folder."""

    running: Compilation
    sampler: SamplerCompilation
    plan: "CudaPlan"
    folder: Path

    @property
    def cached(self) -> bool:
        return self.running.cached and self.sampler.cached

    def wait(self) -> None:
        shutil.copyfile(self.sampler.wait(), self.folder.parent / Path(SAMPLER).name)
        found = self.running.wait()
        made = []
        for number, (key, folder) in enumerate(found.items()):
            (self.folder / cubin_name(number)).write_bytes((folder / CUBIN).read_bytes())
            made.append(_kernel(number, self.plan.kernels[key], json.loads((folder / FACTS).read_text())))
        written = self.plan.launch_table(tuple(made)).to_json()
        (self.folder / TABLE).write_text(json.dumps(written, indent=1) + "\n")

    def cancel(self) -> None:
        self.sampler.cancel()
        self.running.cancel()


@dataclass(frozen=True)
class CudaPlan(Plan):
    """A program for one compute capability: its kernels by key, and its launches in order."""

    context: Context
    picks: Picks
    kernels: dict[str, Specialization]
    launches: tuple[PlannedLaunch | table.SegmentRun, ...]
    logits: int
    tokens: int
    segments: Segments | None = None

    @property
    def folder(self) -> str:
        return f"cuda/sm_{self.context.sm}"

    def start_compiling(self, folder: Path) -> CudaCompilation:
        target = folder / self.folder
        target.mkdir(parents=True)
        sampler = start_compiling_sampler()
        return CudaCompilation(start_compiling(self.kernels), sampler, self, target)

    def pack(self, folder: Path, read: Read, progress: Progress) -> None:
        write_weights(folder / WEIGHTS, self.program, layout_of_weight, read, progress)
        if self.segments is not None:
            self.segments.build(self.program, folder / self.folder, read, progress)

    def tactics(self) -> list[Tactic]:
        calls = (call for call in self.program.calls if isinstance(call, CudaCall))
        return [tactic for call in calls if (tactic := call.tactic(self.context, self.picks)) is not None]

    def notes(self) -> list[str]:
        return [] if self.segments is None else self.segments.notes()

    def facts(self) -> CudaFacts:
        segments = self.segments if self.segments is not None and self.segments.names else None
        return CudaFacts(
            name="cuda",
            weights=WEIGHTS,
            weights_bytes=self.program.weights_bytes,
            sm=self.context.sm,
            launches=f"{self.folder}/{TABLE}",
            cubins=tuple(f"{self.folder}/{cubin_name(number)}" for number in range(len(self.kernels))),
            sampler=SAMPLER,
            arena_bytes=self.program.arena_bytes,
            compiler=compiler_name(),
            cuda=assembler_version(self.context.sm),
            batch_invariant=self.context.batch_invariant and segments is None,
            tensorrt="" if segments is None else str(segments.engine),
            plans=() if segments is None else tuple(f"{self.folder}/{name}" for name in segments.names),
            plans_bytes=0 if segments is None else segments.device_bytes(),
        )

    def launch_table(self, made: tuple[table.Kernel, ...]) -> table.LaunchTable:
        """The table of launches of kernels that were made in the order of `kernels`."""
        numbers = {key: number for number, key in enumerate(self.kernels)}
        launches = tuple(
            table.Launch(item.node, numbers[item.kernel], item.grid, item.arguments, item.when)
            if isinstance(item, PlannedLaunch)
            else item
            for item in self.launches
        )
        return table.LaunchTable(made, launches, self.logits, self.tokens)


def _require_kernels(network: "Network") -> None:
    """Raises UnsupportedModelError for operations of plugins that have no side for GPUs."""
    known = {kernel.operation for kernel in kernels("cuda")}
    needed = {node.op_type for node in network.model.graph if node.domain == DOMAIN}
    if missing := ", ".join(sorted(needed - known)):
        raise UnsupportedModelError(
            f"{network.architecture} needs {missing}, for which the cuda target has no kernels yet; build it with "
            "--target cpu"
        )


def cubin_name(number: int) -> str:
    return f"kernel_{number}.cubin"


def _kernel(number: int, kernel: Specialization, facts: dict[str, Any]) -> table.Kernel:
    return table.Kernel(
        file=cubin_name(number),
        source=kernel.source,
        constants=kernel.constants,
        signature=kernel.signature,
        **facts,
    )


def plan(
    network: "Network",
    config: BuildConfig,
    sm: int,
    max_seq_len: int,
    stored: Stored | None = None,
    kv_scales: Mapping[str, KvScales] | None = None,
    device: Device | None = None,
    tensorrt: TensorRt | None = None,
) -> CudaPlan:
    """Lower `network`, give every buffer and weight its place, choose kernels, and list the launches of a step.

    `device`: of that compute capability, where candidates are to be timed. `tensorrt`: what computes segments, if
    anything but our own kernels.
    """
    options = config.target
    assert isinstance(options, CudaOptions)
    _require_kernels(network)
    found_kernels, segments = kernels("cuda"), None
    if tensorrt is not None:
        segments = cut_for(tensorrt, network, config, sm, stored)
        network = segments.cut.network
        found_kernels = [*found_kernels, segment_kernel(segments.cut.segments, str(tensorrt), segments.setting)]
    program = lower(network, config, found_kernels, stored, kv_scales)
    tokens = add_greedy_call(program)
    narrow(program)
    plan_memory(program, config.max_num_tokens, config.max_batch_size, ALIGNMENT)
    plan_weights(program, layout_of_weight)
    context = context_of(program, config, sm, max_seq_len, batch_invariant=options.batch_invariant)
    cache = TimingCache(Path(options.timing_cache) if options.timing_cache else None)
    picks = timed_picks(program, context, device, compiler_name(), cache, start_compiling)
    found, launches = schedule(program, context, compiler_name(), picks)
    assert program.logits is not None
    places = program.logits.buffer.offset, tokens.buffer.offset
    return CudaPlan(program, config, max_seq_len, context, picks, found, launches, *places, segments)
