"""What a quantized checkpoint says of the KV cache: the element type, and scales found by calibration.

Format, of compressed-tensors: `kv_cache_scheme` in the quantization_config has num_bits, type ("int" or "float"),
strategy, symmetric and dynamic, as weights have; the tensors k_scale and v_scale of an attention module, a number or
one for each key-value head ("attn_head"), are what keys and values in the cache are multiplied by.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import CheckpointError
from ...quantization.scheme import KvType
from ..checkpoint import Checkpoint

_TYPES = {"int": KvType.INT8, "float": KvType.FP8}
_STRATEGIES = ("tensor", "attn_head", "token")
_KEY_SCALE = ".k_scale"
_KNOWN = f"8-bit integers or FP8 without zero points, scales by {', '.join(_STRATEGIES)}"


@dataclass(frozen=True)
class KvScheme:
    """The element type, and whether scales are stored (`static`) or found for each token."""

    type: KvType
    static: bool


@dataclass(frozen=True)
class KvScales:
    """What the keys and values of one attention module are multiples of in a cache of `type`: float32 [1] or [Hk]."""

    type: KvType
    key: np.ndarray
    value: np.ndarray


def read_kv_scheme(checkpoint: Checkpoint, config: Mapping[str, object]) -> KvScheme | None:
    """The scheme that a quantization_config states, if any. Raises CheckpointError for one that no cache can have."""
    stated = config.get("kv_cache_scheme")
    if not stated:
        return None
    if not isinstance(stated, dict):
        raise CheckpointError(f"{checkpoint.path}: kv_cache_scheme should be an object, found {stated!r}.")
    bits, kind, strategy = stated.get("num_bits", 8), str(stated.get("type", "int")), str(stated.get("strategy"))
    zeros = "" if stated.get("symmetric", True) is True else " with zero points"
    static = not stated.get("dynamic")
    if bits != 8 or kind not in _TYPES or strategy not in _STRATEGIES or zeros or (static and strategy == "token"):
        raise CheckpointError(
            f"{checkpoint.path}: kv_cache_scheme asks for {'static' if static else 'dynamic'} {kind} of {bits} bits by "
            f"{strategy}{zeros}, which the KV cache cannot have; known: {_KNOWN}. Remove it from config.json to have "
            "an ordinary KV cache, or choose one with --kv-cache."
        )
    return KvScheme(_TYPES[kind], static)


@dataclass
class KvTensors:
    """The scales found, by attention module; the tensors that were `used`; and what is wrong with some."""

    scales: dict[str, KvScales]
    used: set[str]
    offenders: list[str]


def read_kv_scales(checkpoint: Checkpoint, kind: KvType, parameters: Iterable[str], base_prefix: str = "") -> KvTensors:
    """The stored scales of every attention module that has `parameters` (names of the model's)."""
    found = KvTensors({}, set(), [])
    modules = {name[: dot.start()] for name in parameters for dot in re.finditer(r"\.", name)}
    prefix = base_prefix.rstrip(".") + "." if base_prefix else ""
    for tensor in [name for name in checkpoint.tensors if name.endswith(_KEY_SCALE)]:
        stored = tensor.removesuffix(_KEY_SCALE)
        module = next((m for m in (stored, prefix + stored, stored.removeprefix(prefix)) if m in modules), None)
        if module is None:
            continue
        parts = {part: f"{stored}.{part}_scale" for part in "kv"}
        zeros = [f"{stored}.{part}_zero_point" for part in "kv"]
        wrong = [problem for name in parts.values() if (problem := _problem(checkpoint, name))]
        wrong += [f"{name}: the KV cache has no zero points" for name in zeros if _any(checkpoint, name)]
        found.used.update(name for name in (*parts.values(), *zeros) if name in checkpoint.tensors)
        found.offenders += wrong
        if not wrong:
            key, value = (checkpoint.read(parts[part]).astype(np.float32).reshape(-1) for part in "kv")
            found.scales[module] = KvScales(kind, key, value)
    return found


def _problem(checkpoint: Checkpoint, name: str) -> str:
    if name not in checkpoint.tensors:
        return f"{name}: missing"
    values = checkpoint.read(name).astype(np.float32)
    if not values.size or not np.isfinite(values).all() or not (values > 0).all():
        return f"{name}: scales should be positive numbers, found {values.reshape(-1)[:4].tolist()}"
    return ""


def _any(checkpoint: Checkpoint, name: str) -> bool:
    return name in checkpoint.tensors and bool(checkpoint.read(name).astype(np.float32).any())
