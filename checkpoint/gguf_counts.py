"""The counts that a GGUF file states, held against its tensors before anything is sized by them."""

import re

from ..errors import CheckpointError, shown
from .gguf_file import GgufFile

_BLOCK = re.compile(r"((?:enc\.|dec\.)?blk\.\d+)\.")
_MAX_POSITIONS = (1 << 31) - 1
# No model has more of these than the longest side of its largest tensor: heads times their length is a side, and so
# are experts, the vocabulary, and the widths of layers.
_SIDES = (
    "vocab_size",
    "embedding_length",
    "feed_forward_length",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.relative_buckets_count",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "ssm.conv_kernel",
    "ssm.state_size",
    "ssm.time_step_rank",
    "ssm.inner_size",
    "ssm.group_count",
    "shortconv.l_cache",
)
_REQUIRED = ("block_count", "embedding_length")
_MAY_BE_ZERO = ("expert_", "attention.head_count", "feed_forward_length")  # also where only some layers have none


def check_counts(source: GgufFile) -> None:
    """Raises CheckpointError for a count that is no number, negative, or more than the file's tensors can have."""
    blocks = len({match[1] for tensor in source.tensors if (match := _BLOCK.match(tensor.name))})
    longest = max((size for tensor in source.tensors for size in tensor.shape), default=0)
    for key in _REQUIRED:
        if f"{source.architecture}.{key}" not in source.metadata:
            raise CheckpointError(f"{source.path}: states no {source.architecture}.{key}. Download it again.")
    _check(source, "block_count", blocks, f"its tensors are of {blocks} blocks")
    _check(source, "context_length", _MAX_POSITIONS, f"the limit is {_MAX_POSITIONS}")
    for key in _SIDES:
        _check(source, key, longest, f"no side of its tensors is longer than {longest}")


def _check(source: GgufFile, key: str, limit: int, reason: str) -> None:
    name = f"{source.architecture}.{key}"
    value = source.metadata.get(name)
    if value is None:
        return
    if name in source.arrays:
        raise CheckpointError(f"{source.path}: {name} is a list of {value}; it should be a number, or one a layer.")
    least = 0 if key.startswith(_MAY_BE_ZERO) else 1
    for count in value if isinstance(value, tuple) else (value,):
        if type(count) is not int or count < least:
            raise CheckpointError(f"{source.path}: {name} should be at least {least}, found {shown(value)}.")
        if count > limit:
            raise CheckpointError(f"{source.path}: {name} is {shown(count)}, but {reason}. Download it again.")
