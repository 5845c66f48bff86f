"""Whether the sizes in config.json can be those of the weights: asked before a model of these sizes is made."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, shown
from . import config as facts

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

# Numbers of modules, whatever a model class calls them: it makes them in a loop.
_COUNT = re.compile(r"(layers?|blocks|codebooks|depth|experts|groups|quantizers)$")
_NOT_SHAPES = {"compression_config", "quantization_config"}
_FEW = 4096  # so many modules take no time, whether or not there are tensors for them
_LONGEST = 2**31 - 1


def check_sizes(checkpoint: "Checkpoint") -> None:
    """Raise CheckpointError for sizes below 1, or beyond what the stored tensors could fill.

    A model with more layers than tensors, or wider than all of its weights, would take memory and time without end
    before `bind` could say that it does not fit.
    """
    config = checkpoint.config
    elements, tensors = max(checkpoint.num_parameters, 1), len(checkpoint.tensors)
    limits = {
        "the number of layers": (facts.num_layers(config), 1, tensors),
        "the number of attention heads": (facts.num_attention_heads(config), 1, elements),
        "the number of key and value heads": (facts.num_key_value_heads(config), 1, elements),
        "the hidden size": (facts.hidden_size(config), 1, elements),
        "the size of a head": (facts.head_dim(config), 1, elements),
        "the size of the vocabulary": (facts.vocab_size(config), 1, elements),
        "the longest sequence": (facts.max_positions(config), 2, None),
    }
    for what, (found, least, most) in limits.items():
        if found is not None:
            _check(checkpoint, what, found, least, most)
    for key, found in _counts(config):
        _check(checkpoint, key, found, 0, max(tensors, _FEW))


def _check(checkpoint: "Checkpoint", what: str, found: int, least: int, most: int | None) -> None:
    where = f"{checkpoint.path / 'config.json'}: {what} is {shown(found)}"
    if found < least:
        raise CheckpointError(f"{where}, and must be at least {least}.")
    if most is None and found > _LONGEST:
        raise CheckpointError(f"{where}, and must be at most {_LONGEST}.")
    if most is not None and found > most:
        raise CheckpointError(
            f"{where}, but the weights have only {len(checkpoint.tensors)} tensors of "
            f"{checkpoint.num_parameters} elements. Check that config.json belongs to these weights."
        )


def _counts(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every number of modules in a config and in the configs inside it, by its key."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key not in _NOT_SHAPES:
            yield from _counts(value)
        elif type(value) is int and _COUNT.search(key):
            yield key[-80:], value
