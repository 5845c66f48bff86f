"""How an engine is run: the options that `LLM`, `AsyncLLM` and the commands share."""

from dataclasses import dataclass
from typing import Any

from ..errors import EngineError, shown
from ..units import Bytes
from .batcher.policies import CapacityPolicy

MAX_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Options of a run. Raises EngineError naming the field, its limits and the value found."""

    threads: int | None = None
    """Worker threads; default: the physical cores available."""
    kv_cache_memory: Bytes | None = None
    """Memory for the KV cache, such as 2GB; default: what max_batch_size of the longest sequences need, within half of
    the memory available, or on a GPU within memory_utilization."""
    memory_utilization: float | None = None
    """Share of the machine's memory, or of the GPU's, above 0 and at most 1, for weights, activations and KV cache
    together; of a GPU 0.9 by default."""
    max_num_seqs: int | None = None
    """Most sequences in a step, at most the engine's max_batch_size, which is the default."""
    max_num_tokens: int | None = None
    """Most tokens in a step, at most the engine's max_num_tokens, which is the default."""
    capacity_policy: CapacityPolicy = CapacityPolicy.GUARANTEED_NO_EVICT
    """Start a request only if it is sure to fit, or let requests be preempted."""
    prefix_cache: bool = True
    """Let requests that begin alike share what is computed; without it, compute every prompt from its first token."""
    warm_up: bool = False
    """When the engine is opened, do what the first requests would wait for: on a GPU, capture the CUDA graphs of all
    batch sizes that decode; on a CPU, read all weights."""

    def __post_init__(self) -> None:
        if self.threads is not None and not _is_integer(self.threads, 1, MAX_THREADS):
            raise EngineError(
                f"threads must be an integer in [1, {MAX_THREADS}], got {shown(self.threads)}; "
                "leave it out to use every physical core"
            )
        if self.kv_cache_memory is not None and type(self.kv_cache_memory) is not int:
            raise EngineError(f"kv_cache_memory must be a whole number of bytes, got {shown(self.kv_cache_memory)}")
        share = self.memory_utilization
        if share is not None:
            if type(share) not in (int, float) or not 0 < share <= 1:
                raise EngineError(f"memory_utilization must be a number in (0, 1], got {shown(share)}")
            if self.kv_cache_memory is not None:
                raise EngineError("memory_utilization and kv_cache_memory both size the KV cache: give one of them")
        for name in ("max_num_seqs", "max_num_tokens"):
            value = getattr(self, name)
            if value is not None and not _is_integer(value, 1):
                raise EngineError(f"{name} must be an integer of at least 1, got {shown(value)}")
        if not isinstance(self.capacity_policy, str) or self.capacity_policy not in list(CapacityPolicy):
            names = ", ".join(CapacityPolicy)
            raise EngineError(f"capacity_policy must be one of {names}, got {shown(self.capacity_policy)}")
        object.__setattr__(self, "capacity_policy", CapacityPolicy(self.capacity_policy))
        for name in ("prefix_cache", "warm_up"):
            value = getattr(self, name)
            if type(value) is not bool:
                raise EngineError(f"{name} must be True or False, got {shown(value)}")


def _is_integer(value: Any, low: int, high: float = float("inf")) -> bool:
    return type(value) is int and low <= value <= high
