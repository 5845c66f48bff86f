"""Cache groups for tests of the KV cache's books."""

from enginesmith.runtime.manifest import KvCacheSpec, KvDtype, KvGroup, KvGroupKind

BLOCK = 4


def full(bytes_per_block: int = 10) -> KvGroup:
    return KvGroup(kind=KvGroupKind.FULL, window=0, layers=(0,), bytes_per_block=bytes_per_block)


def sliding(window: int, bytes_per_block: int = 10) -> KvGroup:
    return KvGroup(kind=KvGroupKind.SLIDING_WINDOW, window=window, layers=(1,), bytes_per_block=bytes_per_block)


def spec(*groups: KvGroup) -> KvCacheSpec:
    return KvCacheSpec(block_size=BLOCK, dtype=KvDtype.BF16, groups=groups)
