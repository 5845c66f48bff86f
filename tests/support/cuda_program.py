"""A network lowered for the cuda target, whose launches Triton's interpreter runs on memory of the host."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from triton_interpreter import Pointer, interpret

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.lower import lower
from enginesmith.builder.lowering.memory_plan import plan_memory
from enginesmith.builder.lowering.program import LinearWeight, PackedLayout
from enginesmith.builder.lowering.weights_file import plan_weights, write_weights
from enginesmith.builder.targets.cuda.narrow import narrow
from enginesmith.builder.targets.cuda.schedule import PlannedLaunch, context_of, schedule
from enginesmith.plugins.discovery import kernels
from enginesmith.plugins.linear.cuda.packing import layout_of_weight
from enginesmith.runtime.executors.cuda.inputs import StepInputs
from enginesmith.runtime.executors.cuda.launches import Argument, Count, Home
from enginesmith.runtime.executors.executor import SequenceSlice
from enginesmith.runtime.manifest import Limits

MAX_SEQ_LEN = 64


class CudaProgram:
    """`network`, lowered and packed; `parameters`: its weights. Every cache group has blocks for four sequences."""

    def __init__(
        self,
        network: Any,
        parameters: Mapping[str, np.ndarray],
        config: BuildConfig,
        folder: Path,
        *,
        sm: int = 90,
        layout_of: Callable[[LinearWeight], PackedLayout] = layout_of_weight,
    ) -> None:
        self.program = lower(network, config, kernels("cuda"))
        narrow(self.program)
        plan_memory(self.program, config.max_num_tokens, config.max_batch_size)
        plan_weights(self.program, layout_of)
        self.context = context_of(self.program, config, sm, MAX_SEQ_LEN)
        self.kernels, launches = schedule(self.program, self.context, "interpreter")
        self.launches = [launch for launch in launches if isinstance(launch, PlannedLaunch)]
        write_weights(folder / "weights.bin", self.program, layout_of, parameters.__getitem__)
        limits = Limits(
            max_batch_size=config.max_batch_size, max_num_tokens=config.max_num_tokens, max_seq_len=MAX_SEQ_LEN
        )
        blocks = 4 * self.context.table_columns
        strides = [self.context.block_bytes(group.layers[0]) for group in self.program.groups]
        self.inputs = StepInputs(limits, config.kv_block_size, len(strides), None)
        self._arena = _memory(self.program.arena_bytes)
        self._weights = np.fromfile(folder / "weights.bin", np.uint8)
        self._caches = [_memory(blocks * stride) for stride in strides]
        self._used = 0

    def run(self, sequences: Sequence[Sequence[int]]) -> np.ndarray:
        """Logits [all tokens, vocab] of new sequences that one step takes."""
        slices = [self._new(tokens) for tokens in sequences]
        return self.step(slices, range(sum(map(len, sequences))))

    def step(self, slices: Sequence[SequenceSlice], rows: Sequence[int]) -> np.ndarray:
        """Logits [rows, vocab] of one step."""
        counts = self.inputs.fill(slices, rows)
        for launch in self.launches:
            if launch.when is None or launch.when.holds(counts):
                self._launch(launch, counts)
        logits = self.program.logits
        assert logits is not None
        found = self._arena[logits.buffer.offset :].view(np.float32)
        return found[: len(rows) * self.program.vocab_size].reshape(len(rows), -1).copy()

    def _new(self, tokens: Sequence[int]) -> SequenceSlice:
        columns = self.context.table_columns
        table = array("i", range(self._used, self._used + columns))
        self._used = (self._used + columns) % (4 * columns)
        return SequenceSlice(array("i", tokens), 0, len(tokens), [table] * len(self._caches))

    def _launch(self, launch: PlannedLaunch, counts: Mapping[Count, int]) -> None:
        kernel = self.kernels[launch.kernel]
        pending = iter(launch.arguments)
        named = {
            name: kernel.constants[name] if kind == "constexpr" else self._value(next(pending), kind, counts)
            for name, kind in kernel.signature.items()
        }
        interpret(kernel.function, tuple(extent.size(counts) for extent in launch.grid), **named)

    def _value(self, argument: Argument, kind: str, counts: Mapping[Count, int]) -> Any:
        if argument.home is Home.COUNT:
            return counts[Count(argument.name)]
        if argument.home is Home.INPUT:
            address = self.inputs.address + self.inputs.offset(argument.name, argument.group)
        else:
            memory = {Home.ARENA: self._arena, Home.WEIGHTS: self._weights}.get(argument.home)
            address = (self._caches[argument.group] if memory is None else memory).ctypes.data
        return Pointer(address + argument.offset, kind.removeprefix("*"))


def _memory(nbytes: int) -> np.ndarray:
    """Bytes of ones, which are NaN as float32 and bf16: what is read before it is written shows."""
    return np.full(nbytes + 256, 0xFF, np.uint8)
