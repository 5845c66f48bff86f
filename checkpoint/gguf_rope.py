"""What a GGUF file says of rotary embeddings, and Transformers' importer leaves out.

llama.cpp's defaults (src/llama-model.cpp, load_hparams): a base of 10000, all of a head's dimensions, scaling that is
linear, by a factor of 1 where `rope.scaling.factor` and its older name `rope.scale_linear` are missing or 0.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, shown
from .gguf_file import GgufFile

_SCALING = {
    "type": "linear",
    "factor": 0.0,
    "original_context_length": 0,
    "finetuned": False,
    "attn_factor": 1.0,
    "alpha": 0.0,
    "yarn_ext_factor": -1.0,  # 1 for YaRN
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_log_multiplier": 0.0,
}
_NOT_CARRIED = ("attn_factor", "alpha", "yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier")
_OTHERS = ("dimension_count", "dimension_count_swa", "dimension_sections", "freq_base", "freq_base_swa", "scale_linear")
ROPE_KEYS = frozenset((*(f"rope.scaling.{key}" for key in _SCALING), *(f"rope.{key}" for key in _OTHERS)))
# The constants of every Llama 3.1 to 3.3 model; the file holds only the factors they lead to.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rope_from_gguf(source: GgufFile, config: Any) -> dict[str, Any] | None:
    """`rope_parameters` for config.json, or None for a model without rotary embeddings.

    Reads `<arch>.rope.*` (linear and YaRN scaling), and recognises Llama 3's scaling by its per-frequency divisors,
    `rope_freqs.weight`. In a model with layers of several kinds, scaling is that of full attention; layers with a
    window may have a base of their own, `<arch>.rope.freq_base_swa`. Raises CheckpointError for any other scaling: a
    model without it gives wrong results.
    """
    stated = getattr(config, "rope_parameters", None)
    if not stated:
        return None
    rope = _Rope(source, config)
    if "full_attention" not in stated:
        rope.refuse_others(stated)
        return rope.of(stated)
    local = dict(stated["sliding_attention"])
    if rope.number("freq_base_swa") is not None:
        local["rope_theta"] = rope.number("freq_base_swa")
    rope.set_width(local, "dimension_count_swa")
    return {**stated, "sliding_attention": local, "full_attention": rope.of(stated["full_attention"])}


def head_size(config: Any) -> int | None:
    """The width of a head."""
    found = getattr(config, "head_dim", None)
    heads = getattr(config, "num_attention_heads", None)
    return found if isinstance(found, int) else config.hidden_size // heads if heads else None


class _Rope:
    def __init__(self, source: GgufFile, config: Any) -> None:
        self._source, self._config = source, config
        self._prefix = f"{source.architecture}.rope."

    def number(self, key: str, default: Any = None) -> Any:
        value = self._source.metadata.get(self._prefix + key, default)
        kinds = (str,) if key == "scaling.type" else (bool,) if key == "scaling.finetuned" else (int, float)
        if value is not default and (not isinstance(value, kinds) or self._prefix + key in self._source.arrays):
            raise CheckpointError(
                f"{self._source.path}: {self._prefix}{key} should be a {kinds[-1].__name__}, found {shown(value)}."
            )
        return value

    def refuse_others(self, stated: dict[str, Any]) -> None:
        """What only models with layers of several kinds, or positions of several axes, have."""
        sections = f"{self._prefix}dimension_sections" in self._source.metadata and "mrope_section" not in stated
        for key, same in (("freq_base_swa", "freq_base"), ("dimension_count_swa", "dimension_count")):
            if self.number(key) not in (None, self.number(same)) or sections:
                raise CheckpointError(
                    f"{self._source.path}: {self._prefix}{'dimension_sections' if sections else key} is something that "
                    f"{type(self._config).__name__} does not know. Use the model's safetensors checkpoint."
                )

    def of(self, stated: dict[str, Any]) -> dict[str, Any]:
        """The parameters of layers whose config so far has those of `stated`."""
        base = {
            key: value for key, value in stated.items() if key in ("partial_rotary_factor", "mrope_section", "truncate")
        }
        base["rope_theta"] = float(self.number("freq_base", 10000.0))
        self.set_width(base, "dimension_count")
        freqs = next((tensor for tensor in self._source.tensors if tensor.name == "rope_freqs.weight"), None)
        factors = None if freqs is None else freqs.dequantize().astype(np.float64)
        if factors is not None and not np.all(factors == 1):
            return base | _llama3(self._source.path, factors, base["rope_theta"])
        return base | self._scaling()

    def set_width(self, base: dict[str, Any], key: str) -> None:
        """Put into `base` how many dimensions of a head `key` says are rotated: all, or the first of them."""
        stated, size = self.number(key), head_size(self._config)
        if not stated or not size:
            return
        if stated != int(size * base.get("partial_rotary_factor", 1.0)):
            if "partial_rotary_factor" not in base or stated > size:
                raise CheckpointError(
                    f"{self._source.path}: rope.{key} is {stated}, and {type(self._config).__name__} rotates "
                    f"all {size} dimensions of a head. Use the model's safetensors checkpoint."
                )
            base["partial_rotary_factor"] = stated / size

    def _scaling(self) -> dict[str, Any]:
        scaling = {key: self.number(f"scaling.{key}", default) for key, default in _SCALING.items()}
        factor = self.number("scaling.factor", self.number("scale_linear", 0.0)) or 1.0
        kind = scaling["type"]
        if kind == "none" or (kind == "linear" and factor == 1.0):
            kind, factor = "default", 1.0
        lost = [key for key in _NOT_CARRIED if scaling[key] != _SCALING[key]]
        if kind == "yarn" and math.isclose(scaling["yarn_ext_factor"], 1.0):
            lost.remove("yarn_ext_factor")
        if kind not in ("default", "linear", "yarn") or factor <= 0 or (kind == "yarn" and factor == 1.0) or lost:
            found = {key: value for key, value in scaling.items() if value != _SCALING[key]}
            raise CheckpointError(
                f"{self._source.path}: rotary scaling {found} is not imported from GGUF. "
                "Use the model's safetensors checkpoint."
            )
        if kind == "default":
            return {"rope_type": kind}
        return {"rope_type": kind, "factor": factor} | (self._yarn(scaling) if kind == "yarn" else {})

    def _yarn(self, scaling: dict[str, Any]) -> dict[str, Any]:
        original = scaling["original_context_length"] or self._config.max_position_embeddings
        rope = {"original_max_position_embeddings": original}
        for key in ("beta_fast", "beta_slow"):
            rope[key] = scaling[f"yarn_{key}"]
        return rope


def _llama3(path: Path, factors: np.ndarray, theta: float) -> dict[str, Any]:
    """Llama 3's parameters, checked to lead to exactly the divisors the file stores."""
    factor = float(factors.max())
    dims = 2 * len(factors)
    wavelength = 2 * np.pi * theta ** (np.arange(0, dims, 2) / dims)
    low, high, original = (
        _LLAMA3[key] for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
    if not np.allclose(factors, 1 / ((1 - smooth) / factor + smooth), rtol=1e-4):
        raise CheckpointError(
            f"{path}: rope_freqs.weight holds a rotary scaling that is not Llama 3's, and is not imported from GGUF. "
            "Use the model's safetensors checkpoint."
        )
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
