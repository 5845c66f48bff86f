"""Writes small models as GGUF files, in the way of llama.cpp's converter: its names, its layouts, its metadata."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGUFWriter, TokenType, get_tensor_name_map

_BYTES = 256
_TOKENS = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    *(f"<0x{byte:02X}>" for byte in range(_BYTES)),
    "▁",
    "a",
    "b",
    "ab",
    "▁a",
]
_KINDS = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * _BYTES + [TokenType.NORMAL] * 5
VOCAB_SIZE = len(_TOKENS)


def write_gguf(
    path: Path, model: Any, architecture: str, metadata: dict[str, Any] | None = None, *, parts: int = 1
) -> Path:
    """Write `model`, a Transformers model of few layers and VOCAB_SIZE tokens, in float32.

    `metadata`: the architecture's keys beyond those that every architecture has, or whole ones, of `tokenizer.`.
    `parts`: files that it is split into, of which `path` is the first.
    """
    writer, config = GGUFWriter(path, architecture), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, value in (metadata or {}).items():
        _add(writer, key if key.startswith("tokenizer.") else f"{architecture}.{key}", value)
    _add_tokenizer(writer)
    tensors = list(_tensors(model, architecture).items())
    for part in range(parts):
        if parts > 1:
            writer.add_uint16("split.no", part)
            writer.add_uint16("split.count", parts)
            writer.add_int32("split.tensors.count", len(tensors))
        for name, values in tensors[part * len(tensors) // parts : (part + 1) * len(tensors) // parts]:
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        writer = GGUFWriter(path.with_name(path.name.replace("-00001-", f"-{part + 2:05}-")), architecture)
    return path


def write_vocabulary(path: Path, model: str, tokens: list[str], metadata: dict[str, Any]) -> Path:
    """A file of a tokenizer only: its `tokens`, and keys of `tokenizer.ggml.` (or whole ones, of `general.`)."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    for key, value in metadata.items():
        _add(writer, key if key.startswith(("general.", "tokenizer.")) else f"tokenizer.ggml.{key}", value)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.close):
        step()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    (writer.add_array if isinstance(value, list) else kinds[type(value)])(key, value)


def _add_tokenizer(writer: GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_TOKENS)
    writer.add_token_scores([float(-index) for index in range(VOCAB_SIZE)])
    writer.add_token_types(_KINDS)
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_space_prefix(False)


def _tensors(model: Any, architecture: str) -> dict[str, np.ndarray]:
    config = model.config
    kind = next(kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(kind, config.num_hidden_layers)
    tensors = {}
    for name, parameter in model.named_parameters():  # each tied one once
        base, dot, suffix = name.rpartition(".")
        values = parameter.detach().numpy()
        if architecture == "llama" and ".q_proj" in name:
            values = _interleaved(values, config.num_attention_heads)
        if architecture == "llama" and ".k_proj" in name:
            values = _interleaved(values, config.num_key_value_heads)
        if architecture.startswith("gemma") and base.endswith("norm"):
            values = values + 1
        tensors[names.get_name(base) + dot + suffix] = np.ascontiguousarray(values, np.float32)
    return tensors


def _interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head's halves by turns, as llama.cpp's rotary embedding wants them."""
    return values.reshape(heads, 2, -1, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
