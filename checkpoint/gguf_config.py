"""The Transformers config of a GGUF file: what Transformers' importer finds, and what it leaves out.

A key that says something of attention or rotary embeddings is carried over, or is what the model has anyway, or is
refused: none is lost. Where llama.cpp has a default (src/llama-model.cpp, load_hparams), the config gets that one.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, shown
from .gguf_file import GgufFile
from .gguf_rope import ROPE_KEYS, head_size, rope_from_gguf

# Keys of GGUF (ggml's docs/gguf.md; each begins with the architecture's name), and Transformers' names of these facts,
# of which a config has one.
_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "norm_epsilon")
_FACTS: dict[str, tuple[str, ...]] = {
    "attention.head_count": ("num_attention_heads",),
    "attention.layer_norm_epsilon": _EPSILONS,
    "attention.layer_norm_rms_epsilon": _EPSILONS,
    "attention.relative_buckets_count": ("relative_attention_num_buckets",),
    "attention.shared_kv_layers": ("num_kv_shared_layers",),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
}
# What has a number of its own in some architecture, and changes nothing at these values.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.value_scale": (0, 1),
    "attention.temperature_length": (0,),
    "attention.temperature_scale": (0,),
    "router_logit_softcapping": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "expert_weights_scale": (0, 1),
    "expert_group_count": (0, 1),
}
_CHECKED = ("head_count_kv", "key_length", "value_length", "key_length_swa", "value_length_swa", "scale")
_OF_LAYERS = "sliding_window_pattern"
_WINDOW_BY_DEFAULT = ("gemma2", "gemma3", "gemma4", "gpt-oss", "gpt_oss")  # llama.cpp knows their windows


def transformers_config(source: GgufFile, vocab_size: int) -> Any:
    """A config made by Transformers' importer, and completed.

    Raises CheckpointError for an architecture Transformers cannot import, and for keys that the model's class cannot
    express: a model without them gives wrong results.
    """
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as folder:
        _write_facts(source, vocab_size, Path(folder) / "facts.gguf")
        try:
            config = AutoConfig.from_pretrained(folder, gguf_file="facts.gguf", local_files_only=True)
            config.vocab_size = source.metadata.get(f"{source.architecture}.vocab_size", vocab_size)  # not all set it
            complete_config(config, source)
        except CheckpointError:
            raise
        except Exception as error:  # configs check the type of what they are given
            raise CheckpointError(f"{source.path}: Transformers cannot import this GGUF file: {error}") from error
    return config


def _write_facts(source: GgufFile, vocab_size: int, path: Path) -> None:
    """A GGUF file with the same numbers, names and texts, and no weights and no vocabulary: what the importer reads
    of the whole model, wherever its tensors are."""
    from gguf import GGUFWriter
    from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS

    writer = GGUFWriter(path, source.architecture)
    counted = source.arrays if source.architecture not in GGUF_CONFIG_ARCHS else ()  # these want the vocabulary's size
    for key, value in {f"{source.architecture}.vocab_size": vocab_size, **source.metadata}.items():
        if key in ("general.architecture", "general.alignment", "general.file_type") or key in counted:
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            (writer.add_int64 if value < 0 else writer.add_uint64)(key, value)
        elif isinstance(value, float):
            writer.add_float64(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, np.zeros(1, np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


def complete_config(config: Any, source: GgufFile) -> None:
    """Put into `config`, a Transformers config made from the file, what is missing there.

    Raises CheckpointError for what the model's class cannot express.
    """
    facts = _Facts(source)
    _set_heads(config, facts)
    for key, names in _FACTS.items():
        value = facts.number(key)
        if value and not any(_same(getattr(config, name, None), value) for name in names):
            name = next((name for name in names if hasattr(config, name)), None)
            if name is None:
                raise facts.inexpressible(key, f"{type(config).__name__} knows no {names[0]}")
            setattr(config, name, value)
    window = "attention.sliding_window"
    none = facts.number(window) == 0 or (source.architecture not in _WINDOW_BY_DEFAULT and not facts.states(window))
    if none and hasattr(config, "sliding_window"):
        config.sliding_window = None
    for key, values in _NEUTRAL.items():
        value = facts.number(key)
        if value is not None and value not in values and not _has(config, key, value):
            raise facts.inexpressible(key, f"{type(config).__name__} knows nothing of it")
    _refuse_unknown(source, facts)
    _set_kinds_of_layers(config, source)
    _set_query_scale(config, facts)
    rope = rope_from_gguf(source, config)
    if rope is not None:
        config.rope_parameters = rope


class _Facts:
    """The architecture's own keys, by what follows its name."""

    def __init__(self, source: GgufFile) -> None:
        self._source, self._prefix = source, f"{source.architecture}."

    def states(self, key: str) -> bool:
        return self._prefix + key in self._source.metadata

    def number(self, key: str) -> Any:
        """A number, or None where the file does not state it; of one for every layer, that of them all."""
        value = self._source.metadata.get(self._prefix + key)
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, str) or self._prefix + key in self._source.arrays:
            raise CheckpointError(f"{self._source.path}: {self._prefix}{key} should be a number, found {shown(value)}.")
        return None if isinstance(value, tuple) else value

    def inexpressible(self, key: str, reason: str) -> CheckpointError:
        value = shown(self._source.metadata.get(self._prefix + key))
        return CheckpointError(
            f"{self._source.path}: {key} is {value}, and {reason}. Use the model's safetensors checkpoint."
        )


def _same(found: object, value: float) -> bool:
    return isinstance(found, int | float) and math.isclose(found, value, rel_tol=1e-6)


def _has(config: Any, key: str, value: float) -> bool:
    """Whether Transformers' importer has brought a key over that others do not have."""
    return _same(getattr(config, key.rpartition(".")[2], None), value)


def _refuse_unknown(source: GgufFile, facts: _Facts) -> None:
    prefix = f"{source.architecture}."
    known = {*_FACTS, *_NEUTRAL, *ROPE_KEYS, *(f"attention.{key}" for key in (*_CHECKED, _OF_LAYERS))}
    for name in source.metadata:
        key = name.removeprefix(prefix)
        if name.startswith((f"{prefix}rope.", f"{prefix}attention.")) and key not in known:
            raise facts.inexpressible(key, "this key is not imported from GGUF")


def _set_heads(config: Any, facts: _Facts) -> None:
    """Heads of keys and values are as many as those of queries, and as wide as their share of the hidden size, where
    the file does not say."""
    if hasattr(config, "num_key_value_heads") and not facts.states("attention.head_count_kv"):
        config.num_key_value_heads = config.num_attention_heads
    length = facts.number("attention.key_length")
    swa = facts.number("attention.key_length_swa")
    if hasattr(config, "global_head_dim"):  # the width of full attention, which the importer has set
        length = swa or length
    if length and length != head_size(config):
        if not hasattr(config, "head_dim"):
            raise facts.inexpressible("attention.key_length", f"{type(config).__name__} knows no head_dim")
        config.head_dim = length
    for key in ("value_length", "key_length_swa", "value_length_swa"):
        value = facts.number(f"attention.{key}")
        sizes = {head_size(config), getattr(config, "global_head_dim", None)}
        if value and value not in sizes:
            raise facts.inexpressible(f"attention.{key}", f"the heads of {type(config).__name__} have {sizes}")


def _set_kinds_of_layers(config: Any, source: GgufFile) -> None:
    """Which layers have a sliding window: a flag for each, or each n-th has none."""
    pattern = source.metadata.get(f"{source.architecture}.attention.{_OF_LAYERS}")
    if pattern is None or getattr(config, "layer_types", None) is None:
        return
    layers = range(config.num_hidden_layers)
    if type(pattern) is int and 0 < pattern <= len(layers):
        sliding = [(layer + 1) % pattern != 0 for layer in layers]
    elif isinstance(pattern, tuple) and len(pattern) == len(layers):
        sliding = list(pattern)
    else:
        raise CheckpointError(
            f"{source.path}: attention.{_OF_LAYERS} is {shown(pattern)}, neither a flag for each of {len(layers)} "
            "layers nor every how manieth has no window."
        )
    config.layer_types = ["sliding_attention" if flag else "full_attention" for flag in sliding]


def _set_query_scale(config: Any, facts: _Facts) -> None:
    """GGUF rarely states what queries are divided by the root of. llama.cpp takes the size of a head, or the width of
    a head's share of the hidden size for the models whose heads are not that wide (Gemma 2 and 3 of 27B)."""
    known = getattr(config, "query_pre_attn_scalar", None)
    scale = facts.number("attention.scale")
    if scale and known is not None and _same(round(scale**-2), scale**-2):
        config.query_pre_attn_scalar = round(scale**-2)
    elif known is not None and known != config.head_dim and not scale:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
    elif scale and not _same((head_size(config) or 1) ** -0.5, scale):
        raise facts.inexpressible("attention.scale", f"{type(config).__name__} divides by the root of a head's size")
