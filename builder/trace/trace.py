"""Trace a checkpoint's Transformers class into a network, without weights, and remember the result."""

from ...progress import NoProgress, Progress
from ..network import Network
from . import trace_cache


def trace(config: dict, *, max_seq_len: int, progress: Progress | None = None) -> Network:
    """The network of a raw config.json.

    `max_seq_len`: the network is right for sequences of up to so many tokens. Rotary frequencies may depend on it (see
    rope_update), and masks of a model's own are looked at no further (see attention_probe).
    Raises UnsupportedModelError, naming what is missing, for a model that cannot be expressed. A network traced before
    with the same versions comes from the cache, without importing PyTorch or Transformers.
    """
    progress = progress or NoProgress()
    key = trace_cache.key(config, max_seq_len)
    network = trace_cache.load(key)
    if network is None:
        from .trace_model import trace_model

        network = trace_model(config, max_seq_len, progress)
        trace_cache.store(key, network)
    network.config = config  # a cached one may come from a config that differs in what does not matter here
    return network
