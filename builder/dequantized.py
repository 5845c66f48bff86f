"""A quantized checkpoint in Transformers: the model with the weights that its integers and scales stand for."""

from typing import Any

import numpy as np

from ..checkpoint.weights import Weights
from ..errors import BuildError


def load_dequantized(weights: Weights) -> Any:
    """The torch module of a quantized checkpoint, in float32 with the weights that its integers and scales stand for.

    The quantizer's own library is not asked: few of them run without a GPU, and none in float32.
    """
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    from .trace.skeleton import make_config

    config = make_config(weights.checkpoint.config)
    names = [*weights.tensors, *weights.stored]
    state = {name: torch.from_numpy(np.array(weights.values(name), np.float32)) for name in names}
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kwargs: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    try:
        return model_class.from_pretrained(None, config=config, state_dict=state, **kwargs).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise BuildError(
            f"Transformers cannot take the dequantized weights of {weights.checkpoint.path} for the check: {error}; "
            "--no-check builds without it"
        ) from error
