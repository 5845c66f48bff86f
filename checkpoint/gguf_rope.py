"""What a GGUF file says of rotary embeddings, and Transformers' importer leaves out."""

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from .gguf_file import GgufFile

# The constants of every Llama 3.1 to 3.3 model; the file holds only the factors they lead to.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rope_from_gguf(source: GgufFile, config: Any) -> dict[str, Any] | None:
    """`rope_parameters` for config.json, or None where the file adds nothing to those of `config`.

    Reads `<arch>.rope.scaling.*` (linear and YaRN), and recognises Llama 3's scaling by its per-frequency divisors,
    `rope_freqs.weight`. In a model with layers of several kinds, scaling is that of full attention; layers with a
    window may have a base of their own, `<arch>.rope.freq_base_swa`. Raises CheckpointError for any other scaling: a
    model without it gives wrong results.
    """
    stated = getattr(config, "rope_parameters", None) or {}
    if "full_attention" not in stated:
        return _of_one_kind(source, stated.get("rope_theta"))
    scaled = _of_one_kind(source, stated["full_attention"].get("rope_theta"))
    rope = stated if scaled is None else {**stated, "full_attention": scaled}
    theta = source.metadata.get(f"{source.architecture}.rope.freq_base_swa")
    if theta is not None:
        rope = {**rope, "sliding_attention": {**rope["sliding_attention"], "rope_theta": theta}}
    return None if rope is stated else rope


def _of_one_kind(source: GgufFile, theta: float | None) -> dict[str, Any] | None:
    base = {} if theta is None else {"rope_theta": theta}
    freqs = next((tensor for tensor in source.tensors if tensor.name == "rope_freqs.weight"), None)
    if freqs is not None:
        factors = freqs.dequantize().astype(np.float64)
        if np.all(factors == 1):
            return None
        return base | _llama3(source.path, factors, float(theta or 10000.0))
    prefix = f"{source.architecture}.rope.scaling."
    scaling = {key.removeprefix(prefix): value for key, value in source.metadata.items() if key.startswith(prefix)}
    return _scaled(source.path, scaling, base)


def _scaled(path: Path, scaling: dict[str, Any], base: dict[str, Any]) -> dict[str, Any] | None:
    kind = scaling.get("type", "none")
    if kind == "none":
        return None
    known = {"type", "factor", "original_context_length", "finetuned"}
    if kind not in ("linear", "yarn") or not scaling.keys() <= known or "factor" not in scaling:
        raise CheckpointError(
            f"{path}: rotary scaling {scaling} is not imported from GGUF. Use the model's safetensors checkpoint."
        )
    rope = base | {"rope_type": kind, "factor": scaling["factor"]}
    if kind == "yarn" and "original_context_length" in scaling:
        rope["original_max_position_embeddings"] = scaling["original_context_length"]
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
