"""Rotary frequencies that depend on the length of the sequence, decided once per engine.

Transformers recomputes the frequencies of "dynamic" and "longrope" while it runs, from the longest position in the
batch: a request's result would depend on its neighbours, and change as it grows. Here, as in other serving engines,
`max_seq_len` decides: longrope takes its long factors if max_seq_len exceeds the original context length, and dynamic
NTK takes the base of a sequence of max_seq_len tokens (of the model's own limit if that is longer).
"""

import types

import torch
from torch import nn

from .config_facts import changes


def freeze_rope(model: nn.Module, max_seq_len: int) -> None:
    """Set final frequencies in every rotary module and take the update out of its forward."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            kinds = {None: kinds}
        if not isinstance(kinds, dict):
            continue
        changing = [layer_type for layer_type, kind in kinds.items() if changes(kind)]
        for layer_type in changing:
            _freeze(module, layer_type, kinds[layer_type], max_seq_len)
        if changing:
            plain = getattr(type(module).forward, "__wrapped__", type(module).forward)
            module.forward = types.MethodType(plain, module)


def _freeze(module: nn.Module, layer_type: str | None, kind: str, max_seq_len: int) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    extra = {} if layer_type is None else {"layer_type": layer_type}
    prefix = "" if layer_type is None else f"{layer_type}_"
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](module.config, torch.device("cpu"), seq_len=max_seq_len, **extra)
    module._buffers[f"{prefix}inv_freq"] = frequencies
    setattr(module, f"{prefix}attention_scaling", scaling)
