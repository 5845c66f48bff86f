"""Attention, through Transformers' attention interface."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from ...errors import UnsupportedModelError
from . import ops
from .masks import LazyMask, MaskSpec, lazy_mask

NAME = "enginesmith"

# Keywords that do not change what attention computes in inference without a dense cache.
_HARMLESS = {
    "cache", "cache_position", "dropout", "is_causal", "logits_to_keep", "num_items_in_batch", "output_attentions",
    "output_hidden_states", "output_router_logits", "past_key_values", "position_embeddings", "position_ids",
    "return_dict", "training", "use_cache",
}  # fmt: skip


_LACKING = {
    "indices": "sparse attention, to the keys that an indexer chooses",
    "position_bias": "attention with a learned bias for each distance",
}


def register_attention() -> None:
    """Make "enginesmith" an attention implementation."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, lazy_mask)


def use_attention(model: nn.Module) -> None:
    """Let a model that was made for eager attention ask for "enginesmith" instead.

    One whose class knows of no attention interface goes on as with eager attention, except for its masks.
    """
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            config._attn_implementation_internal = NAME


def _attention(
    module: nn.Module,
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
    _refuse_unknown(module, others)
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    sinks = s_aux if sinks is None else sinks
    if isinstance(attention_mask, Tensor):
        if sinks is not None:
            raise UnsupportedModelError(f"{type(module).__name__} has sinks and makes its own attention mask")
        return _spelled_out(query, key, value, attention_mask, scale, softcap), None
    mask = _mask(module, attention_mask, others.get("is_causal"), sliding_window)
    return ops.paged_attention(query, key, value, sinks, (), scale, mask, float(softcap or 0.0)), None


def _spelled_out(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, softcap: float | None
) -> Tensor:
    """Attention with a mask that the model made, for own_attention.py to read."""
    grouped = query.unflatten(1, (key.shape[1], -1))
    scores = grouped @ key.unsqueeze(2).transpose(-1, -2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    mask = mask.unsqueeze(2)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return (scores.softmax(-1) @ value.unsqueeze(2)).flatten(1, 2).transpose(1, 2)


def _refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    unknown = sorted(name for name, value in others.items() if value is not None and name not in _HARMLESS)
    if unknown:
        lacks = ", ".join(_LACKING.get(name, f"attention with {name}") for name in unknown)
        raise UnsupportedModelError(f"{type(module).__name__} needs {lacks}, which engines lack")


def _mask(module: nn.Module, mask: LazyMask | None, is_causal: bool | None, sliding_window: int | None) -> MaskSpec:
    if mask is not None:
        return mask.spec
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return MaskSpec(causal=bool(causal), window=int(sliding_window or 0))
