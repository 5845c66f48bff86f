"""A quantized checkpoint in Transformers: the model with the weights that its integers and scales stand for."""

from typing import Any

import numpy as np

from ..checkpoint.weights import Weights
from ..errors import BuildError


def load_dequantized(weights: Weights) -> Any:
    """The torch module, in float32. The quantizer's own library is not asked: few run without a GPU.

    Raises BuildError where Transformers cannot take the weights.
    """
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.utils import logging

    from .trace.skeleton import make_config

    logging.disable_progress_bar()  # the commands show their own
    config = make_config(weights.checkpoint.config)
    names = [*weights.tensors, *weights.stored]
    state = {name: torch.from_numpy(np.array(weights.reference(name), np.float32)) for name in names}
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kwargs: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    try:
        return model_class.from_pretrained(None, config=config, state_dict=state, **kwargs).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise BuildError(
            f"Transformers cannot take the dequantized weights of {weights.checkpoint.path} for the check: {error}; "
            "--no-check builds without it"
        ) from error
