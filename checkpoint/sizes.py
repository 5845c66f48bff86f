"""Whether the sizes in config.json can be those of the weights: asked before a model of these sizes is made."""

from ..errors import CheckpointError, shown
from . import config as facts
from .checkpoint import Checkpoint


def check_sizes(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for sizes below 1, or beyond what the stored tensors could fill.

    A model with more layers than tensors, or wider than all of its weights, would take memory and time without end
    before `bind` could say that it does not fit.
    """
    config = checkpoint.config
    widest = max(checkpoint.num_parameters, 1)
    limits = {
        "the number of layers": (facts.num_layers(config), 1, len(checkpoint.tensors)),
        "the number of attention heads": (facts.num_attention_heads(config), 1, widest),
        "the number of key and value heads": (facts.num_key_value_heads(config), 1, widest),
        "the hidden size": (facts.hidden_size(config), 1, widest),
        "the size of a head": (facts.head_dim(config), 1, widest),
        "the longest sequence": (facts.max_positions(config), 2, None),
    }
    for what, (found, least, most) in limits.items():
        if found is None:
            continue
        where = f"{checkpoint.path / 'config.json'}: {what} is {shown(found)}"
        if found < least:
            raise CheckpointError(f"{where}, and must be at least {least}.")
        if most is not None and found > most:
            raise CheckpointError(
                f"{where}, but the weights have only {len(checkpoint.tensors)} tensors of "
                f"{checkpoint.num_parameters} elements. Check that config.json belongs to these weights."
            )
