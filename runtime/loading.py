"""From an engine folder to an engine that can be stepped."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import EngineError
from .admission import Admission
from .engine import Engine
from .engine_dir import open_engine
from .executors.registry import backend_of, open_executor
from .kv_cache.block_hash import BlockHasher
from .kv_cache.manager import KvCacheManager
from .kv_cache.sizing import num_blocks, num_slots
from .manifest import Limits, Manifest, Target
from .runtime_config import RuntimeConfig
from .tokenizer import NoTokenizer, Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedEngine:
    """An open engine, and what makes requests for it."""

    manifest: Manifest
    tokenizer: Tokenizer | NoTokenizer
    engine: Engine
    admission: Admission


def load(path: str | Path, config: RuntimeConfig, *, verify: bool = True) -> LoadedEngine:
    """Open an engine folder. Raises EngineError when it is damaged or does not fit this machine or these options."""
    folder = open_engine(path, verify=verify)
    manifest = folder.manifest
    limits, kv_spec = _limits(manifest.limits, config), manifest.kv_cache
    budget, source = cache_memory(config, manifest.target)
    slots = num_slots(manifest.state, kv_spec, limits, budget, source)
    left = f"{source} without {slots} states" if slots else source
    blocks = num_blocks(kv_spec, limits, budget - slots * manifest.state.slot_bytes, left)
    tokenizer = load_tokenizer(folder.tokenizer)
    if manifest.model.chat_template_error:
        log.warning("%s: %s; chats are refused, prompts work", path, manifest.model.chat_template_error)
    executor = open_executor(folder.path, manifest, blocks, config.threads)
    if config.warm_up:
        try:
            executor.warm_up()
        except BaseException:
            executor.close()
            raise
    long_rope_after = manifest.model.long_rope_after
    shares = config.prefix_cache and not slots
    hasher = BlockHasher(manifest.digest, kv_spec.block_size, long_rope_after) if shares else None
    kv = KvCacheManager(kv_spec, blocks, limits.max_num_tokens, hasher, slots)
    engine = Engine(executor, kv, limits, config.capacity_policy, long_rope_after)
    return LoadedEngine(manifest, tokenizer, engine, Admission(manifest, tokenizer, kv))


def _limits(built: Limits, config: RuntimeConfig) -> Limits:
    return replace(
        built,
        max_batch_size=_at_most(built.max_batch_size, "max_batch_size", config.max_num_seqs, "max_num_seqs"),
        max_num_tokens=_at_most(built.max_num_tokens, "max_num_tokens", config.max_num_tokens, "max_num_tokens"),
    )


def _at_most(limit: int, limit_name: str, wanted: int | None, name: str) -> int:
    if wanted is None:
        return limit
    if wanted > limit:
        raise EngineError(
            f"{name} must be at most {limit}, the engine's {limit_name}, got {wanted}; "
            f"or rebuild with --{limit_name.replace('_', '-')} {wanted}"
        )
    return wanted


def cache_memory(config: RuntimeConfig, target: Target) -> tuple[int, str]:
    """Bytes that the KV cache may take, and what says so."""
    if config.kv_cache_memory is not None:
        return config.kv_cache_memory, "kv_cache_memory"
    return backend_of(target.name).cache_memory(target, config.memory_utilization)
