"""What a GGUF file says of a model, and Transformers' importer leaves out of the config."""

from typing import Any

from ..errors import CheckpointError
from .gguf_file import GgufFile
from .gguf_rope import rope_from_gguf

# Keys of GGUF (ggml's docs/gguf.md; each begins with the architecture's name), and Transformers' names of these facts.
_FACTS = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}


def complete_config(config: Any, source: GgufFile) -> None:
    """Put into `config`, a Transformers config made from the file, what is missing there.

    Raises CheckpointError for what the model's class cannot express: a model without it gives wrong results.
    """
    stated = {key: source.metadata.get(f"{source.architecture}.{key}") for key in _FACTS}
    for key, name in _FACTS.items():
        if stated[key] and stated[key] != _value(config, name):
            if not hasattr(config, name):
                raise CheckpointError(
                    f"{source.path}: {key} is {stated[key]}, and {type(config).__name__} knows no {name}. "
                    "Use the model's safetensors checkpoint."
                )
            setattr(config, name, stated[key])
    _set_kinds_of_layers(config, source)
    _set_query_scale(config)
    rope = rope_from_gguf(source, config)
    if rope is not None:
        config.rope_parameters = rope


def _value(config: Any, name: str) -> Any:
    found = getattr(config, name, None)
    return config.hidden_size // config.num_attention_heads if found is None and name == "head_dim" else found


def _set_kinds_of_layers(config: Any, source: GgufFile) -> None:
    """Which layers have a sliding window: a flag for each, or each n-th has none."""
    pattern = source.metadata.get(f"{source.architecture}.attention.sliding_window_pattern")
    if pattern is None or getattr(config, "layer_types", None) is None:
        return
    layers = range(config.num_hidden_layers)
    sliding = [(layer + 1) % pattern != 0 for layer in layers] if isinstance(pattern, int) else list(pattern)
    if len(sliding) != len(layers):
        raise CheckpointError(
            f"{source.path}: attention.sliding_window_pattern has {len(sliding)} flags for {len(layers)} layers."
        )
    config.layer_types = ["sliding_attention" if flag else "full_attention" for flag in sliding]


def _set_query_scale(config: Any) -> None:
    """GGUF does not state what queries are divided by the root of. llama.cpp takes the size of a head, or the width of
    a head's share of the hidden size for the models whose heads are not that wide (Gemma 2 and 3 of 27B)."""
    stated = getattr(config, "query_pre_attn_scalar", None)
    if stated is not None and stated != config.head_dim:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
