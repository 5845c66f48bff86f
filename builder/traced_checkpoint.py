"""The network of a checkpoint: its config's, save that tensors stored with values of their own are not tied."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..checkpoint.binding import differing_ties
from ..checkpoint.checkpoint import Checkpoint
from ..progress import Progress

if TYPE_CHECKING:
    from .network import Network

_TIE = "tie_word_embeddings"


def trace_checkpoint(checkpoint: Checkpoint, max_seq_len: int, progress: Progress) -> tuple["Network", list[str]]:
    """`trace` of its config.json, and notes for the report. As in Transformers, a head that is stored and differs from
    the embedding counts, whatever config.json says of a tie. Raises UnsupportedModelError."""
    from .trace.trace import trace

    network = trace(checkpoint.config, max_seq_len=max_seq_len, progress=progress)
    differing = differing_ties(checkpoint, network.tied, network.base_prefix)
    if not differing:
        return network, []
    network = trace(_untied(checkpoint.config), max_seq_len=max_seq_len, progress=progress)
    pairs = ", ".join(f"{alias} and {owner}" for alias, owner in differing.items())
    return network, [f"config.json ties {pairs} ({_TIE}), but they are stored with different values: both are used"]


def _untied(config: Mapping[str, Any]) -> dict[str, Any]:
    parts = {name: _untied(part) for name, part in config.items() if isinstance(part, Mapping) and _TIE in part}
    return {**config, **parts, _TIE: False}
