"""How long sequences may get, by the checkpoint and by what was asked for."""

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.config import max_positions
from ..errors import BuildError
from .build_options import BuildConfig

DEFAULT_MAX_SEQ_LEN = 8192


def choose_max_seq_len(checkpoint: Checkpoint, config: BuildConfig) -> int:
    """The engine's limit of prompt plus output, in tokens. Raises BuildError where the model cannot go that far."""
    limit = max_positions(checkpoint.config)
    if config.max_seq_len is None:
        return min(limit or DEFAULT_MAX_SEQ_LEN, DEFAULT_MAX_SEQ_LEN)
    if limit is not None and config.max_seq_len > limit:
        raise BuildError(
            f"max_seq_len {config.max_seq_len} is more than the {limit} tokens that the model was made for "
            f"(its config.json); ask for {limit} or less"
        )
    return config.max_seq_len
