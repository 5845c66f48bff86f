"""A network's parameters, found in a checkpoint."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..checkpoint.assembly import Assembly
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.layouts.layout import FLOATS, Layout
from ..checkpoint.weights import Weights, bind_weights
from ..errors import CheckpointError
from .converted_names import converted_parameters

if TYPE_CHECKING:
    from .network import Network


def bind_network(network: "Network", checkpoint: Checkpoint, layout: Layout | None) -> Weights:
    """`bind_weights` for all parameters of a traced network; raises the same, what `converted_parameters` raises, and
    CheckpointError for a mixture of experts whose experts are quantized."""
    shapes = {name: parameter.shape for name, parameter in network.parameters.items()}
    assembled = converted_parameters(network.config, checkpoint) if network.converts else {}
    if layout is not None:
        _refuse_quantized_experts(network, checkpoint, layout, assembled)
    return bind_weights(
        checkpoint, layout, shapes, network.tied, network.ignorable_unexpected, network.base_prefix, assembled
    )


def _refuse_quantized_experts(
    network: "Network", checkpoint: Checkpoint, layout: Layout, assembled: Mapping[str, Assembly]
) -> None:
    from .passes.derived import parameters_of

    weights = [value for node in network.graph if node.op_type == "Experts" for value in node.inputs[3:6]]
    for name in dict.fromkeys(name for value in weights if value is not None for name in parameters_of(value)):
        stored = assembled[name].names() if name in assembled else [name]
        infos = [checkpoint.tensors.get(each) for each in stored]
        if any(info is None or info.dtype not in FLOATS for info in infos):
            raise CheckpointError(
                f"{checkpoint.path}: the experts of its mixtures are quantized ({layout.title}), which is not read "
                f"({name} is not stored in floating point). Build the unquantized checkpoint with --weights instead."
            )
