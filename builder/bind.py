"""A network's parameters, found in a checkpoint."""

from typing import TYPE_CHECKING

from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.layouts.layout import Layout
from ..checkpoint.weights import Weights, bind_weights
from .converted_names import converted_parameters

if TYPE_CHECKING:
    from .network import Network


def bind_network(network: "Network", checkpoint: Checkpoint, layout: Layout | None) -> Weights:
    """`bind_weights` for all parameters of a traced network; raises the same, and
    what `converted_parameters` raises."""
    shapes = {name: parameter.shape for name, parameter in network.parameters.items()}
    assembled = converted_parameters(network.config, checkpoint) if network.converts else {}
    return bind_weights(
        checkpoint, layout, shapes, network.tied, network.ignorable_unexpected, network.base_prefix, assembled
    )
