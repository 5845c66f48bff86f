"""When a waiting request may start: what happens when the KV cache would run full."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..kv_cache.manager import KvCacheManager
    from ..request import Request


class CapacityPolicy(StrEnum):
    """The names users choose by."""

    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    MAX_UTILIZATION = "max_utilization"


class AdmissionRule(Protocol):
    """Decides, for the request at the head of the queue, whether it starts now, with `prefix` as `kv` found it."""

    def admit(
        self, kv: "KvCacheManager", request: "Request", prefix: Sequence[Sequence[int]], num_running: int
    ) -> bool: ...


class GuaranteedNoEvict:
    """Start a request only when the blocks of its longest possible output are free for it: it then runs to its end."""

    def admit(
        self, kv: "KvCacheManager", request: "Request", prefix: Sequence[Sequence[int]], num_running: int
    ) -> bool:
        return kv.promise(request.blocks, request.max_total_tokens, prefix)


class MaxUtilization:
    """Start a request when its tokens so far fit and each running one could still take a block; preempt when full."""

    def admit(
        self, kv: "KvCacheManager", request: "Request", prefix: Sequence[Sequence[int]], num_running: int
    ) -> bool:
        return kv.can_reserve(len(request.token_ids), prefix, spare_blocks=num_running)


def admission_rule(policy: CapacityPolicy) -> AdmissionRule:
    """The rule of a policy."""
    return GuaranteedNoEvict() if policy is CapacityPolicy.GUARANTEED_NO_EVICT else MaxUtilization()
