"""The launches of a step, in order, and the kernels that they are of."""

from collections.abc import Iterator
from dataclasses import dataclass

from ....runtime.executors.cuda import launches as table
from ...build_options import BuildConfig
from ...lowering.program import Call, Program
from .segments.call import SegmentCall
from .segments.export import row_sizes
from .segments.plans import plan_name
from .source import loops
from .source.call import Choice, Context, CudaCall, Launch, Picks
from .source.launch import COUNTS
from .specialize import Specialization, argument_of, specialize


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch whose kernel is known by its key."""

    node: str
    kernel: str
    grid: tuple[table.Extent, ...]
    arguments: tuple[table.Argument, ...]
    when: table.When | None


def context_of(
    program: Program, config: BuildConfig, sm: int, max_seq_len: int, *, batch_invariant: bool = True
) -> Context:
    """What kernels may depend on. In a block of a cache group, its layers lie side by side."""
    strides, offsets = {}, {}
    for group in program.groups:
        sizes = [layer.token_bytes() * config.kv_block_size for layer in group.layers]
        for number, layer in enumerate(group.layers):
            strides[layer.index], offsets[layer.index] = sum(sizes), sum(sizes[:number])
    return Context(
        sm=sm,
        max_num_tokens=config.max_num_tokens,
        max_batch_size=config.max_batch_size,
        max_seq_len=max_seq_len,
        block_size=config.kv_block_size,
        table_columns=-(-max_seq_len // config.kv_block_size),
        strides=strides,
        layer_offsets=offsets,
        batch_invariant=batch_invariant,
    )


def schedule(
    program: Program, context: Context, compiler: str, picks: Picks | None = None
) -> tuple[dict[str, Specialization], tuple[PlannedLaunch | table.SegmentRun, ...]]:
    """Kernels by key, and launches, of a program whose buffers and weights have their places."""
    picks, groups = picks or Picks(context.sm), groups_of(program)
    found: dict[str, Specialization] = {}
    planned: list[PlannedLaunch | table.SegmentRun] = []
    for call in program.calls:
        if isinstance(call, SegmentCall):
            planned.append(_segment_run(call))
            continue
        for item in items_of(call, context):
            for launch in picks.of(item).candidate.launches if isinstance(item, Choice) else (item,):
                kernel, arguments = specialize(launch, context, groups)
                key = kernel.key(compiler)
                found.setdefault(key, kernel)
                planned.append(PlannedLaunch(call.name, key, launch.grid, tuple(arguments), launch.when))
    return found, tuple(planned)


def items_of(call: Call, context: Context) -> Iterator[Launch | Choice]:
    """The launches and choices of a call that steps of the engine reach."""
    items = call.launches(context) if isinstance(call, CudaCall) else loops.launches(call, context)
    for item in items:
        if item.when is None or item.when.least <= context.most(item.when.count):
            yield item


def groups_of(program: Program) -> dict[int, int]:
    """Cache layer -> cache group."""
    return {layer.index: number for number, group in enumerate(program.groups) for layer in group.layers}


def _segment_run(call: SegmentCall) -> table.SegmentRun:
    inputs, outputs = (
        tuple(
            table.Tensor(f"{side}_{number}", argument_of(view), tuple(row_sizes(view)))
            for number, view in enumerate(views)
        )
        for side, views in (("input", call.inputs), ("output", call.outputs))
    )
    return table.SegmentRun(call.name, plan_name(call.segment), COUNTS[call.segment.symbol], inputs, outputs)
