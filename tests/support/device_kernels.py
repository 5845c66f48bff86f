"""Kernels of triton.jit compiled, and run on this machine's GPU through engines' own launches, on copies of tensors."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from enginesmith.builder.targets.cuda.compile import CUBIN, job_of
from enginesmith.builder.targets.cuda.compile_worker import compile_job
from enginesmith.builder.targets.cuda.specialize import Specialization
from enginesmith.runtime.executors.cuda.device import find_device
from enginesmith.runtime.executors.cuda.driver import call
from enginesmith.runtime.executors.cuda.inputs import StepInputs
from enginesmith.runtime.executors.cuda.launches import Argument, Count, Extent, Home, Kernel, Launch, LaunchTable
from enginesmith.runtime.executors.cuda.prepared import Memories, PreparedLaunches
from enginesmith.runtime.executors.cuda.resources import Resources
from enginesmith.runtime.manifest import Limits

_TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}
_NO_INPUTS = StepInputs(Limits(max_batch_size=1, max_num_tokens=1, max_seq_len=1), 16, 1, None)


def run(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: dict[str, Any],
    compile_: Callable[[dict[str, Any]], dict[str, Any]] = compile_job,
) -> None:
    """`kernel[grid](**arguments)`. Tensors of the host are copied to the device, and back afterwards."""
    device, resources = find_device(), None
    try:
        resources = Resources(device)
        stream = resources.stream()
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in arguments.values() if _is_tensor(x)}
        copies = {}
        for address, storage in storages.items():
            copies[address] = resources.memory(storage.nbytes())
            call("cuMemcpyHtoDAsync", copies[address], address, storage.nbytes(), stream)
        launch, counts = _arguments(kernel, arguments, copies)
        constants = {param.name: arguments[param.name] for param in kernel.params if _is_constant(param, arguments)}
        signature = {name: kind for name, (kind, _) in launch.items()}
        specialized = Specialization(kernel, signature, constants, (), 4, 2, device.sm)
        with tempfile.TemporaryDirectory() as folder:
            facts = compile_({**json.loads(json.dumps(job_of(specialized))), "output": folder})
            made = Kernel(str(Path(folder, CUBIN)), source="", constants={}, signature=signature, **facts)
            found = tuple(argument for _, argument in launch.values() if argument is not None)
            one = Launch("test", 0, tuple(Extent(size) for size in grid), found, None)
            memories = Memories(0, 0, (), 0, _NO_INPUTS)
            PreparedLaunches(LaunchTable((made,), (one,), 0, 0), Path(), memories, resources).run(counts, stream)
            for address, storage in storages.items():
                call("cuMemcpyDtoHAsync", address, copies[address], storage.nbytes(), stream)
            call("cuStreamSynchronize", stream)
    finally:
        if resources is not None:
            resources.close()


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_constant(param: Any, arguments: dict[str, Any]) -> bool:
    return param.is_constexpr or arguments[param.name] is None


def _arguments(
    kernel: Any, arguments: dict[str, Any], copies: dict[int, int]
) -> tuple[dict[str, tuple[str, Argument | None]], dict[Count, int]]:
    """Types and places of a kernel's parameters, and what is counted: whole numbers take the names of counts."""
    found: dict[str, tuple[str, Argument | None]] = {}
    counts = dict.fromkeys(Count, 0)
    free = iter(Count)
    for param in kernel.params:
        value = arguments[param.name]
        if _is_constant(param, arguments):
            found[param.name] = ("constexpr", None)
        elif _is_tensor(value):
            begin = copies[value.untyped_storage().data_ptr()]
            offset = begin + value.storage_offset() * value.element_size()
            found[param.name] = (_TYPES[value.dtype], Argument(Home.ARENA, offset))
        else:
            count = next(free)
            counts[count] = int(value)
            found[param.name] = ("i32", Argument(Home.COUNT, name=count.value))
    return found, counts
