"""A checkpoint's Transformers model without its weights."""

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ...errors import UnsupportedModelError
from . import attention
from .rope_update import freeze_rope

# What a config says about storage is of no concern to the computation.
_STORAGE_KEYS = ("quantization_config", "torch_dtype", "dtype", "auto_map", "_attn_implementation")


def make_config(config: dict):
    """The Transformers config object of a raw config.json. Raises UnsupportedModelError for an unknown model type."""
    from transformers import CONFIG_MAPPING

    model_type = str(config.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        remote = " (its own code, named by auto_map, is never run)" if "auto_map" in config else ""
        raise UnsupportedModelError(
            f"config.json: model_type {model_type!r} is not one that Transformers knows{remote}; "
            "a newer Transformers may know it"
        )
    return CONFIG_MAPPING[model_type].from_dict({k: v for k, v in config.items() if k not in _STORAGE_KEYS})


def make_skeleton(config: dict, max_seq_len: int) -> nn.Module:
    """The model in float32 with parameters on "meta" and real buffers; its rotary frequencies are fixed."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    hf_config = make_config(config)
    if type(hf_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"config.json: model_type {config['model_type']!r} has no causal language model")
    attention.register_attention()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32, attn_implementation=attention.NAME)
    model.eval().requires_grad_(False)
    model.tie_weights()
    _fill_buffers(model)
    freeze_rope(model, max_seq_len)
    return model


def _fill_buffers(model: nn.Module) -> None:
    """Give meta buffers their values, the way Transformers does when it loads a checkpoint."""
    initialise: Any = model._init_weights
    for module in model.modules():
        empty = {name: buffer for name, buffer in module._buffers.items() if buffer is not None and buffer.is_meta}
        for name, buffer in empty.items():
            module._buffers[name] = torch.zeros_like(buffer, device="cpu")
        if empty:
            initialise(module)


def fake_parameters(model: nn.Module) -> FakeTensorMode:
    """Replace parameters, and buffers that a checkpoint stores, by tensors without memory. Ties are kept."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            with mode:
                made[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return made[id(tensor)]

    originals = []  # keeps ids from being reused
    parameters: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                originals.append(parameter)
                if id(parameter) not in parameters:
                    parameters[id(parameter)] = nn.Parameter(fake(parameter), requires_grad=False)
                module._parameters[name] = parameters[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                originals.append(buffer)
                module._buffers[name] = fake(buffer)
    return mode
