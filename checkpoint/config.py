"""config.json, raw: what it says, under the names that different model classes give the same fact.

No default is ever invented: a helper returns None where the file is silent and the fact cannot be derived.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, shown
from ..json_files import parse_object, read_bytes
from .files import exists, refuse_pointer

_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises CheckpointError where it cannot be read or is not an object."""
    data = read_bytes(path, CheckpointError)
    refuse_pointer(path, data)
    return parse_object(data, path, CheckpointError, "download the file again")


def read_optional_json(path: Path) -> dict[str, Any]:
    """`read_json`, or an empty dict where there is no such file."""
    return read_json(path) if exists(path) else {}


def read_config(folder: Path) -> dict[str, Any]:
    """The raw config.json of a checkpoint folder. Raises CheckpointError where it is absent or names no model."""
    path = folder / "config.json"
    if not exists(path):
        raise CheckpointError(
            f"{folder}: not a checkpoint: there is no config.json in it. Give a Hugging Face model folder "
            "(config.json and *.safetensors) or a .gguf file."
        )
    config = read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{path}: no model_type in it, so the model's class is unknown.")
    return config


def decoder_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the text decoder: `text_config` in multimodal checkpoints, else itself."""
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def stored_dtype(config: Mapping[str, Any]) -> str | None:
    """The dtype the checkpoint says its weights have ("bfloat16"), under `dtype` or the older `torch_dtype`."""
    for part in (config, decoder_config(config)):
        for key in ("dtype", "torch_dtype"):
            if isinstance(value := part.get(key), str):
                return value.removeprefix("torch.")
    return None


def num_attention_heads(config: Mapping[str, Any]) -> int | None:
    """Query heads of an attention layer."""
    return _first_int(decoder_config(config), "num_attention_heads", "n_head", "num_heads")


def num_key_value_heads(config: Mapping[str, Any]) -> int | None:
    """Key and value heads; where absent or null, as many as query heads (or one under `multi_query`)."""
    decoder = decoder_config(config)
    stated = _first_int(decoder, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    if stated is None and decoder.get("multi_query") is True:
        return 1
    return stated if stated is not None else num_attention_heads(config)


def hidden_size(config: Mapping[str, Any]) -> int | None:
    """Width of the residual stream."""
    return _first_int(decoder_config(config), "hidden_size", "n_embd", "d_model")


def head_dim(config: Mapping[str, Any]) -> int | None:
    """Elements of one attention head; where absent or null, hidden size / query heads."""
    stated = _first_int(decoder_config(config), "head_dim")
    hidden, heads = hidden_size(config), num_attention_heads(config)
    if stated is not None or hidden is None or not heads:
        return stated
    return hidden // heads


def vocab_size(config: Mapping[str, Any]) -> int | None:
    """Rows of the table of token embeddings."""
    return _first_int(decoder_config(config), "vocab_size")


def num_layers(config: Mapping[str, Any]) -> int | None:
    """Decoder layers."""
    return _first_int(decoder_config(config), "num_hidden_layers", "n_layer", "num_layers", "n_layers")


def max_positions(config: Mapping[str, Any]) -> int | None:
    """The longest sequence, in tokens, that the model says it was made for."""
    return _first_int(decoder_config(config), *_POSITIONS)


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rotary embedding's parameters in their newer form: `rope_type` always set, `rope_theta` where stated.

    Reads `rope_parameters`, or the older `rope_scaling` with `type` or `rope_type` beside a `rope_theta` of its own.
    None where the config says nothing of rotary embeddings. Where a model has one set for each kind of layer,
    the result maps each kind to its set.
    """
    decoder = decoder_config(config)
    stated = decoder.get("rope_parameters") or decoder.get("rope_scaling") or {}
    theta = decoder.get("rope_theta")
    if not isinstance(stated, Mapping):
        raise CheckpointError(f"config.json: rope_scaling should be an object, found {shown(stated)}.")
    if not stated and theta is None:
        return None
    if stated and all(isinstance(value, Mapping) for value in stated.values()):
        return {kind: _one_rope(value, theta) for kind, value in stated.items()}
    return _one_rope(stated, theta)


def _one_rope(stated: Mapping[str, Any], theta: object) -> dict[str, Any]:
    rope = {key: value for key, value in stated.items() if key != "type"}
    rope["rope_type"] = stated.get("rope_type") or stated.get("type") or "default"
    if theta is not None:
        rope.setdefault("rope_theta", theta)
    return rope


def _first_int(config: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        if isinstance(value := config.get(key), int) and not isinstance(value, bool):
            return value
    return None
