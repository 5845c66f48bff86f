"""Rotary frequencies that depend on the length of the sequence.

Transformers recomputes the frequencies of "longrope" and "dynamic" while it runs, from the longest position in the
batch. Longrope has two sets of them: its short factors for sequences up to the original length, its long ones beyond.
A network that may see both computes both, and takes for each token what its position says: the runtime adds
LONG_ROPE to the positions of sequences past the original length. Dynamic NTK changes nothing up to the model's own
limit, which no engine exceeds.
"""

import copy
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...runtime.manifest import LONG_ROPE
from .config_facts import changes


def freeze_rope(model: nn.Module, length: int) -> None:
    """Set the frequencies of a sequence of `length` tokens in every rotary module, and take the update out of its
    forward."""
    for module, kinds in _rotary_modules(model):
        if any(map(changes, kinds.values())):
            _freeze(module, kinds, length)


def switch_rope(model: nn.Module, max_seq_len: int) -> int | None:
    """Make longrope choose for each token by LONG_ROPE in its position. Returns the length past which a sequence's
    tokens need it; None where no sequence of up to `max_seq_len` tokens gets there, and nothing is changed."""
    originals = {original for module, kinds in _rotary_modules(model) for original in _original_lengths(module, kinds)}
    original = min(originals, default=max_seq_len)
    if original >= max_seq_len:
        return None
    for module, kinds in _rotary_modules(model):
        for name, length in (("short", original), ("long", original + 1)):
            copied = copy.copy(module)
            copied._buffers, copied._modules = dict(module._buffers), {}
            _freeze(copied, kinds, length)
            module.add_module(name, copied)
        module.forward = types.MethodType(_forward_of_both, module)
    return original


def _forward_of_both(self: Any, x: Tensor, position_ids: Tensor, *more: Any, **options: Any) -> tuple[Tensor, ...]:
    long = position_ids >= LONG_ROPE
    positions = torch.where(long, position_ids - LONG_ROPE, position_ids)
    both = (part(x, positions, *more, **options) for part in (self.short, self.long))
    return tuple(torch.where(long[..., None], b, a) for a, b in zip(*both, strict=True))


def _rotary_modules(model: nn.Module) -> Iterator[tuple[nn.Module, dict[str | None, str]]]:
    """Rotary modules and their rope types, by kind of layer where they have several, else under None."""
    for module in list(model.modules()):
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            yield module, {None: kinds}
        elif isinstance(kinds, dict):
            yield module, kinds


def _original_lengths(module: Any, kinds: dict[str | None, str]) -> Iterator[int]:
    for layer_type, kind in kinds.items():
        if kind == "longrope":
            stated = module.config.rope_parameters
            yield (stated if layer_type is None else stated[layer_type])["original_max_position_embeddings"]


def _freeze(module: Any, kinds: dict[str | None, str], length: int) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for layer_type, kind in kinds.items():
        if changes(kind):
            extra = {} if layer_type is None else {"layer_type": layer_type}
            prefix = "" if layer_type is None else f"{layer_type}_"
            made = ROPE_INIT_FUNCTIONS[kind](module.config, torch.device("cpu"), seq_len=length, **extra)
            module._buffers[f"{prefix}inv_freq"] = made[0]
            setattr(module, f"{prefix}attention_scaling", made[1])
    plain = getattr(type(module).forward, "__wrapped__", type(module).forward)
    module.forward = types.MethodType(plain, module)
