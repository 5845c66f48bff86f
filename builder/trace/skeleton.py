"""A checkpoint's Transformers model without its weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ...errors import UnsupportedModelError, reason, shown
from ...units import shown_size
from . import attention, experts
from .config_facts import cleaned
from .rope_update import freeze_rope

_MAX_BUFFERS = 1 << 30


def causal_class(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The Transformers class of a raw config.json's causal language model, and its config object, cleaned.

    Raises UnsupportedModelError for a model type without one, and for values that the config class refuses.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    model_type = str(config.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        remote = " (its own code, named by auto_map, is never run)" if "auto_map" in config else ""
        raise UnsupportedModelError(
            f"config.json: model_type {shown(model_type)} is not one that Transformers knows{remote}; "
            "a newer Transformers may know it"
        )
    config_class: Any = CONFIG_MAPPING[model_type]
    mappings: Any = (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    classes: list[Any] = [mapping[config_class] for mapping in mappings if config_class in mapping]
    # A class of the whole config has the names under which such checkpoints store their tensors.
    model_class = min(classes, key=lambda found: found.config_class is not config_class, default=None)
    if model_class is None:
        raise UnsupportedModelError(f"config.json: model_type {model_type!r} has no causal language model")
    try:
        hf_config = config_class.from_dict(cleaned(config))
        if model_class.config_class is config_class.sub_configs.get("text_config"):
            hf_config = hf_config.get_text_config()
    except Exception as error:
        raise UnsupportedModelError(
            f"config.json: Transformers refuses this {model_type!r} config: {reason(error)}"
        ) from error
    if getattr(hf_config, "is_encoder_decoder", False) and not getattr(hf_config, "is_decoder", False):
        raise UnsupportedModelError(
            f"config.json: {model_type!r} is an encoder-decoder model (is_encoder_decoder), whose decoder does not run "
            "alone; engines hold decoders"
        )
    return model_class, hf_config


def make_skeleton(config: Mapping[str, Any], length: int, attention_name: str | None = None) -> nn.Module:
    """The model in float32 with parameters on "meta" and real buffers; its rotary frequencies are those of sequences of
    `length` tokens.

    `attention_name`: an attention implementation of Transformers; None means the one that is traced.
    """
    model_class, hf_config = causal_class(config)
    attention.register_attention()
    experts.register_experts()
    try:
        with torch.device("meta"):
            names = {"attn_implementation": attention_name or "eager", "experts_implementation": experts.NAME}
            model = model_class._from_config(hf_config, dtype=torch.float32, **names)
        if attention_name is None:
            attention.use_attention(model)
        model.eval().requires_grad_(False)
        model.tie_weights()
        _require_small_buffers(model)
        _fill_buffers(model, model)
        freeze_rope(model, length)
    except UnsupportedModelError:
        raise
    except Exception as error:
        interface = reason(error)
        if isinstance(error, KeyError):  # whose text is the bare key: an activation or rope type
            interface = f"config.json names {interface}, which Transformers does not know"
        raise UnsupportedModelError(f"model_type {config['model_type']!r} cannot be built: {interface}") from error
    _require_finite_buffers(model)
    return model


def _require_small_buffers(model: nn.Module) -> None:
    """Buffers get memory, unlike parameters: tables by position of a model for endless sequences would fill it."""
    needed = sum(buffer.nbytes for buffer in model.buffers())
    if needed > _MAX_BUFFERS:
        raise UnsupportedModelError(
            f"config.json: {type(model).__name__} would make tables of {shown_size(needed)}; the limit is "
            f"{shown_size(_MAX_BUFFERS)}. Check the longest sequence that it states (max_position_embeddings)"
        )


def _require_finite_buffers(model: nn.Module) -> None:
    """Buffers follow from the config: rotary frequencies without a value mean numbers there that make no sense."""
    for name, buffer in model.named_buffers():
        if "inv_freq" in name and not bool(torch.isfinite(buffer).all()):
            raise UnsupportedModelError(
                f"config.json: its rotary frequencies ({name}) are not finite numbers; "
                "check rope_theta and rope_parameters (or rope_scaling)"
            )


def _fill_buffers(module: nn.Module, owner: Any) -> bool:
    """Give meta buffers their values, the way Transformers does when it loads a checkpoint: the model that a module
    belongs to (`owner`, or a model inside it) initialises it, and afterwards itself, which may set buffers of layers.
    Whether there were any."""
    owner = module if hasattr(module, "_init_weights") else owner
    empty = {name: buffer for name, buffer in module._buffers.items() if buffer is not None and buffer.is_meta}
    for name, buffer in empty.items():
        module._buffers[name] = torch.zeros_like(buffer, device="cpu")
    if empty:
        owner._init_weights(module)
    inside = [_fill_buffers(child, owner) for child in module.children()]
    if any(inside) and module is owner:
        owner._init_weights(module)
    return bool(empty) or any(inside)


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
