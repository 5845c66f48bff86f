"""Attention, through Transformers' attention interface."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from ...errors import UnsupportedModelError
from . import ops  # noqa: F401  (defines the operators)
from .masks import LazyMask, MaskSpec, lazy_mask

NAME = "enginesmith"

# Keywords that do not change what attention computes in inference without a dense cache.
_HARMLESS = {
    "cache", "cache_position", "dropout", "is_causal", "num_items_in_batch", "output_attentions",
    "output_hidden_states", "output_router_logits", "past_key_values", "position_embeddings", "position_ids",
    "return_dict", "training", "use_cache",
}  # fmt: skip


def register_attention() -> None:
    """Make "enginesmith" an attention implementation; layers number themselves in the order in which they run."""
    AttentionInterface.register(NAME, _attention())
    AttentionMaskInterface.register(NAME, lazy_mask)


def _attention() -> Callable[..., tuple[Tensor, None]]:
    layers = 0

    def attention(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: LazyMask | Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        sliding_window: int | None = None,
        s_aux: Tensor | None = None,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:
        nonlocal layers
        _refuse_unknown(module, others)
        mask = _mask(module, attention_mask, others.get("is_causal"), sliding_window)
        out = torch.ops.enginesmith.paged_attention(
            query,
            key,
            value,
            s_aux if sinks is None else sinks,
            layers,
            float(query.shape[-1] ** -0.5 if scaling is None else scaling),
            mask.window,
            float(softcap or 0.0),
            int(mask.causal),
            mask.chunk,
        )
        layers += 1
        return out, None

    return attention


def _refuse_unknown(module: torch.nn.Module, others: dict[str, Any]) -> None:
    unknown = sorted(name for name, value in others.items() if value is not None and name not in _HARMLESS)
    if unknown:
        raise UnsupportedModelError(f"{type(module).__name__} needs attention with {', '.join(unknown)}")


def _mask(module: torch.nn.Module, mask: Any, is_causal: bool | None, sliding_window: int | None) -> MaskSpec:
    if isinstance(mask, LazyMask):
        return mask.spec
    if mask is not None:
        raise UnsupportedModelError(f"{type(module).__name__} makes its own attention mask, which is not supported")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return MaskSpec(causal=bool(causal), window=int(sliding_window or 0))
