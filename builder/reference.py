"""A checkpoint in Transformers, in float32: what engines and quantized checkpoints are compared with.

The model is made of the cleaned config.json and of tensors, both given by us: Transformers opens no file of the
checkpoint, so nothing else in the folder (adapters, code, generation settings) has a say.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.weights import Weights
from ..errors import BuildError, EnginesmithError, reason


def load_reference(checkpoint: Checkpoint) -> Any:
    """The torch module with the stored tensors, as the safetensors library reads them.

    Raises BuildError where Transformers cannot load them.
    """
    return _load(checkpoint, lambda: _stored(checkpoint))


def load_dequantized(weights: Weights) -> Any:
    """The torch module with the values of quantized weights. The quantizer's own library is not asked: few run
    without a GPU. Raises BuildError where Transformers cannot take the values.
    """

    def values() -> dict[str, Any]:
        import torch

        return {name: torch.from_numpy(np.array(weights.reference(name), np.float32)) for name in weights.names}

    return _load(weights.checkpoint, values)


def forward(model: Any, tokens: Sequence[int], **keywords: Any) -> np.ndarray:
    """Logits [rows, vocabulary], float32, of one sequence, given to the model as Transformers' `generate` gives it.

    Raises BuildError where the model class fails."""
    import torch

    if "position_ids" in inspect.signature(model.forward).parameters:  # some count from elsewhere if not told
        keywords["position_ids"] = torch.arange(len(tokens))[None]
    try:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([list(tokens)]), use_cache=False, **keywords).logits
            return logits[0].float().numpy()
    except Exception as error:
        raise BuildError(
            f"{type(model).__name__} of Transformers fails on {len(tokens)} tokens: {reason(error)}"
        ) from error


def _stored(checkpoint: Checkpoint) -> dict[str, Any]:
    """The tensors of the checkpoint's files, mapped."""
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    for path in dict.fromkeys(info.file for info in checkpoint.tensors.values()):
        state |= load_file(path)
    return {name: state[name] for name in checkpoint.tensors}


def _load(checkpoint: Checkpoint, state_of: Callable[[], dict[str, Any]]) -> Any:
    import torch
    from transformers.utils import logging

    from .trace.skeleton import causal_class

    logging.disable_progress_bar()  # the commands show their own
    kwargs: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True, "attn_implementation": "eager"}
    try:
        model_class, config = causal_class(checkpoint.config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model_class.from_pretrained(None, config=config, state_dict=state_of(), **kwargs).eval()
    except EnginesmithError:
        raise
    except Exception as error:  # whatever a model class raises on a config.json that was edited
        raise BuildError(
            f"Transformers cannot load {checkpoint.path} for the check: {reason(error)}; --no-check builds without it"
        ) from error
