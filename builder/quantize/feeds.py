"""Which linear layers read which value, and what can absorb a scale of it: read from the traced network."""

from dataclasses import dataclass, field

import onnx_ir as ir

from ..network import Network
from ..passes import graph as g
from ..passes.head import makes_logits
from ..passes.linear import Linear, read_linear
from ..passes.pipeline import clean
from ..passes.router import is_router
from .folds import Fold, find_fold


@dataclass(frozen=True)
class Layer:
    """A torch.nn.Linear: its module path, and its weight, one parameter [n, k].

    `parameter` is the weight's name; of a head that is tied to the embedding, the embedding's.
    """

    name: str
    n: int
    k: int
    is_head: bool
    parameter: str


@dataclass(frozen=True)
class InputGroup:
    """Layers that read one and the same value, in order of execution.

    `fold` is None where a scale of the value cannot be absorbed by what makes it: where something else reads the value,
    a layer's weight is used elsewhere too, or the way to parameters leads through something that is not linear.
    """

    layers: tuple[Layer, ...]
    fold: Fold | None


@dataclass(frozen=True)
class Feeds:
    """Groups in order of execution, and products with weights that are left alone: module path -> reason."""

    groups: list[InputGroup] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)


def read_feeds(network: Network) -> Feeds:
    """Every linear layer once, grouped by the value it reads, in order of execution, and what looks like a linear layer
    but is none. `network`: as traced; it stays."""
    graph = network.graph.clone()
    clean(graph)
    found = Feeds()
    readers: dict[ir.Value, list[Layer]] = {}
    seen: set[str] = set()
    for node in (node for node in graph if g.is_op(node, "Experts", domain=g.DOMAIN)):
        name = (node.name or "").rpartition("/")[0]
        found.others[name] = "no method reaches experts; build --weights rounds them to the nearest"
    for linear in (linear for node in graph if (linear := read_linear(node)) is not None):
        name = (linear.node.name or "").rpartition("/")[0]
        reason = _reason_against(linear, name, network)
        if reason is not None:
            found.others[name] = reason
        elif name not in seen:
            layer = Layer(name, linear.n, linear.k, makes_logits(linear.output), str(linear.weight.name))
            readers.setdefault(linear.x, []).append(layer)
        seen.add(name)
    found.groups.extend(InputGroup(tuple(layers), _fold(graph, x, layers)) for x, layers in readers.items())
    return found


def _reason_against(linear: Linear, name: str, network: Network) -> str | None:
    """Why a product is left alone; None if it is a torch.nn.Linear that can be quantized."""
    if is_router(linear.output):
        return "it chooses experts"
    if not g.is_parameter(linear.weight):
        return "its weight is computed from parameters"
    if network.tied.get(f"{name}.weight", f"{name}.weight") != linear.weight.name:
        return f"its weight {linear.weight.name} belongs to another module"
    return "its weight is stored as [inputs, outputs]" if linear.transposed else None


def _fold(graph: ir.Graph, x: ir.Value, layers: list[Layer]) -> Fold | None:
    weights = {graph.initializers[layer.parameter] for layer in layers}
    if x.is_graph_output() or len(x.uses()) != len(layers):
        return None
    if any(node.inputs[1] not in weights for node in x.consumers()) or any(len(w.uses()) > 1 for w in weights):
        return None
    return find_fold(x, layers[0].k)
