"""Scales of a quantized KV cache, from the keys and values that attention is given on calibration data."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ...errors import UnsupportedModelError
from ...quantization.scheme import KvType

OBSERVED = "enginesmith_observed"

_watchers: list[dict[nn.Module, list[float]]] = []


def register_observed_attention() -> None:
    """Make OBSERVED an attention implementation: that of a model's own file ("eager"), which `observed` looks into."""
    AttentionInterface.register(OBSERVED, _attention)
    AttentionMaskInterface.register(OBSERVED, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@contextmanager
def observed() -> Iterator[dict[nn.Module, list[float]]]:
    """The largest magnitudes of keys and of values that each attention module is given within the block."""
    found: dict[nn.Module, list[float]] = {}
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)


def scales(found: dict[nn.Module, list[float]], names: dict[nn.Module, str], kind: KvType) -> dict[str, np.ndarray]:
    """Tensors k_scale and v_scale, float32 [1], of each attention module: the largest becomes that of `kind`."""
    return {
        f"{names[module]}.{part}_scale": np.array([(size or 1.0) / kind.largest], np.float32)
        for module, sizes in found.items()
        for part, size in zip("kv", sizes, strict=True)
    }


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *more: Any, **keywords: Any) -> Any:
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise UnsupportedModelError(
            f"{type(module).__name__} has no plain form of its attention, so scales of a KV cache cannot be found; "
            "leave --kv-cache out here, and ask for it when an engine is built"
        )
    if not key.is_meta:
        for found in _watchers:
            sizes = [float(tensor.abs().max()) for tensor in (key, value)]
            found[module] = [max(pair) for pair in zip(sizes, found.get(module, [0.0, 0.0]), strict=True)]
    return eager(module, query, key, value, *more, **keywords)
