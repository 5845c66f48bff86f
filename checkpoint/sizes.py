"""Whether the sizes in config.json can be those of the weights: asked before a model of these sizes is made."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, shown
from . import config as facts
from .safetensors import TensorInfo

# Numbers of modules, whatever a model class calls them: it makes them in a loop. "vision_feature_layer", say, is none.
_COUNT = re.compile(r"(layers|^n_layer|num_layer|blocks|codebooks|depth|experts|groups|quantizers)$")
_NOT_SHAPES = {"compression_config", "quantization_config"}
_FEW = 4096  # so many modules take no time, whether or not there are tensors for them
_LONGEST = 2**31 - 1


def check_sizes(path: Path, config: Mapping[str, Any], infos: Collection[TensorInfo]) -> None:
    """Raise CheckpointError for sizes below 1, or beyond what the stored tensors could fill.

    A model with more layers than tensors, or wider than all of its weights, would take memory and time without end
    before `bind` could say that it does not fit. `path`: of config.json.
    """
    tensors, elements = len(infos), sum(info.nbytes // info.dtype.itemsize for info in infos)
    limits = {
        "the number of layers": (facts.num_layers(config), 1, tensors),
        "the number of attention heads": (facts.num_attention_heads(config), 1, elements),
        "the number of key and value heads": (facts.num_key_value_heads(config), 1, elements),
        "the hidden size": (facts.hidden_size(config), 1, elements),
        "the size of a head": (facts.head_dim(config), 1, elements),
        "the size of the vocabulary": (facts.vocab_size(config), 1, elements),
        **{key: (found, 0, max(tensors, _FEW)) for key, found in _counts(config)},
    }
    for what, (found, least, most) in limits.items():
        if found is not None and found > most:
            raise CheckpointError(
                f"{path}: {what} is {shown(found)}, but the weights have only {tensors} tensors of {elements} "
                "elements. Check that config.json belongs to these weights."
            )
        _check_range(path, what, found, least, most)
    _check_range(path, "the longest sequence", facts.max_positions(config), 2, _LONGEST)


def _check_range(path: Path, what: str, found: int | None, least: int, most: int) -> None:
    if found is not None and not least <= found <= most:
        limit = f"at least {least}" if found < least else f"at most {most}"
        raise CheckpointError(f"{path}: {what} is {shown(found)}, and must be {limit}.")


def _counts(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every number of modules in a config and in the configs inside it, by its key."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key not in _NOT_SHAPES:
            yield from _counts(value)
        elif type(value) is int and _COUNT.search(key):
            yield key[-80:], value
