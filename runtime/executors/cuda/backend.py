"""Engines for NVIDIA GPUs: what they need of a machine, and how they are opened."""

from collections.abc import Sequence
from pathlib import Path

from ....errors import EngineError
from ....units import shown_size
from ...manifest import Manifest
from ..executor import Executor
from .device import Device, find_device, shown_version
from .executor import CudaExecutor
from .facts import CudaFacts, cuda_facts
from .resources import Resources
from .segments import check_tensorrt

FACTS = CudaFacts
_DEFAULT_SHARE = 0.9
"""Part of the device's memory for weights, activations and KV cache together, when it is not told otherwise."""


def check_machine(path: Path, manifest: Manifest) -> None:
    facts, device = cuda_facts(manifest), find_device()
    rebuild = f"enginesmith build CHECKPOINT --target cuda --sm {device.sm} -o {path}"
    if device.sm != facts.sm:
        raise EngineError(
            f"{path} was built for GPUs of compute capability {facts.sm / 10:.1f}, but {device.name} has "
            f"{device.sm / 10:.1f}; rebuild it: {rebuild}"
        )
    if device.driver // 1000 < facts.cuda // 1000:
        raise EngineError(
            f"{path} was compiled by CUDA {shown_version(facts.cuda)}, but this machine's driver knows CUDA "
            f"{device.shown_driver}; install a driver for CUDA {facts.cuda // 1000}, or rebuild with an older "
            f"triton: {rebuild}"
        )
    if facts.tensorrt:
        check_tensorrt(facts.tensorrt, path, rebuild)


def describe(target: CudaFacts) -> dict[str, str]:
    return {
        "compute capability": f"{target.sm / 10:.1f}",
        "kernels": f"{len(target.cubins)}, by {target.compiler} for drivers of CUDA {target.cuda // 1000} or newer",
        **({"segments": f"{len(target.plans)}, by {target.tensorrt}"} if target.plans else {}),
        "batch invariance": "a request's output never depends on the others" if target.batch_invariant else "none",
    }


def cache_memory(target: CudaFacts, utilization: float | None) -> tuple[int, str]:
    """As vLLM counts: a share of all the device's memory, which must be free, less what else the engine needs.

    The context, loaded kernels and CUDA graphs are not counted: the rest of the memory is for them.
    """
    device, share = find_device(), _DEFAULT_SHARE if utilization is None else utilization
    wanted, free = int(device.memory * share), _free_memory(device)
    if free < wanted:
        raise EngineError(
            f"memory_utilization {share:g} asks for {shown_size(wanted)} of the {shown_size(device.memory)} of "
            f"{device.name}, but {shown_size(free)} are free: end what else uses the GPU, lower memory_utilization to "
            f"{int(100 * free / device.memory) / 100:g}, or size the cache by kv_cache_memory"
        )
    weights = target.weights_bytes + target.plans_bytes
    left = wanted - weights - target.arena_bytes
    return (
        left,
        f"what memory_utilization {share:g} of the {shown_size(device.memory)} of {device.name} leaves beside "
        f"{shown_size(weights)} of weights and {shown_size(target.arena_bytes)} of activations",
    )


def _free_memory(device: Device) -> int:
    """Bytes of the device that nobody has, once there is a context."""
    resources = Resources(device)
    try:
        return resources.free()
    finally:
        resources.close()


def open_executor(path: Path, manifest: Manifest, num_blocks: Sequence[int], threads: int | None) -> Executor:
    return CudaExecutor(path, manifest, num_blocks, threads)
