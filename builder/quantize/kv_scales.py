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

Largest = dict[nn.Module, list[np.ndarray]]
"""Of each attention module, float32 [Hk] of keys and of values: the largest magnitude in each key-value head."""

_watchers: list[Largest] = []


def register_observed_attention() -> None:
    """Make OBSERVED an attention implementation: that of a model's own file ("eager"), which `observed` looks into."""
    AttentionInterface.register(OBSERVED, _attention)
    AttentionMaskInterface.register(OBSERVED, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@contextmanager
def observed() -> Iterator[Largest]:
    """What attention modules are given within the block."""
    found: Largest = {}
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)


def scales(found: Largest, names: dict[nn.Module, str], kind: KvType) -> dict[str, np.ndarray]:
    """Tensors k_scale and v_scale of each attention module, float32 [Hk, 1, 1] if `kind` is by head, else [1]: the
    largest becomes that of `kind`."""
    return {
        f"{names[module]}.{part}_scale": _scale(sizes, kind)
        for module, pair in found.items()
        for part, sizes in zip("kv", pair, strict=True)
    }


def _scale(sizes: np.ndarray, kind: KvType) -> np.ndarray:
    sizes = sizes.reshape(-1, 1, 1) if kind.by_head else sizes.max(keepdims=True)
    return np.where(sizes > 0, sizes, np.float32(1)) / np.float32(kind.largest)


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *more: Any, **keywords: Any) -> Any:
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise UnsupportedModelError(
            f"{type(module).__name__} has no plain form of its attention, so scales of a KV cache cannot be found; "
            "leave --kv-cache out here, and ask for it when an engine is built"
        )
    if not key.is_meta:
        for found in _watchers:
            sizes = [tensor.detach().abs().amax((0, 2, 3)).float().numpy() for tensor in (key, value)]
            found[module] = [np.maximum(*pair) for pair in zip(sizes, found.get(module, sizes), strict=True)]
    return eager(module, query, key, value, *more, **keywords)
