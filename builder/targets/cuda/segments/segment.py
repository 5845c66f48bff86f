"""Cutting a network: what TensorRT computes at once becomes one node, and lowering goes on with what is left."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from ....lowering.dims import Symbol
from ....lowering.program import LinearWeight
from ..source.standard import Setting
from .forms import form_of, refusal, symbol_of
from .partition import partition

if TYPE_CHECKING:
    from ....network import Network

DOMAIN = "enginesmith.segments"


@dataclass(frozen=True, eq=False)
class Segment:
    """Nodes of the uncut network, in order. `inputs` are made by others, `outputs` are read by others.

    `weights`: of its matrix products.
    """

    number: int
    symbol: Symbol
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    weights: tuple[LinearWeight, ...]

    @property
    def title(self) -> str:
        """Its operations, as a report names them."""
        counts = Counter(node.op_type for node in self.nodes)
        return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())


@dataclass(frozen=True)
class Cut:
    """A copy of the network with a node of DOMAIN for each segment, whose attribute `number` tells which.

    `kept`: of matrix products that are in no segment, why, by the name of their result.
    """

    network: "Network"
    segments: tuple[Segment, ...]
    kept: dict[str, str]


def cut(network: "Network", setting: Setting) -> Cut:
    """Cut a network, which stays as it is, into segments that multiply matrices, and all else."""
    nodes = [node for node in network.graph if not all(setting.facts.is_static(out) for out in node.outputs)]
    reasons = [refusal(setting, node) for node in nodes]
    numbers = {node: number for number, node in enumerate(nodes)}
    feeds = [
        {numbers[source] for value in node.inputs if value is not None and (source := value.producer()) in numbers}
        for node in nodes
    ]
    kinds = [None if reason else symbol_of(setting, node) for node, reason in zip(nodes, reasons, strict=True)]
    groups = [[nodes[number] for number in group] for group in partition(feeds, kinds)]
    wanted = [group for group in groups if any(_multiplies(node) for node in group)]
    segments = tuple(_segment(number, group, setting) for number, group in enumerate(wanted))
    kept = {str(n.outputs[0].name): why for n, why in zip(nodes, reasons, strict=True) if why and _multiplies(n)}
    model = network.model.clone()
    _replace(model.graph, segments)
    return Cut(replace(network, model=model), segments, kept)


def _multiplies(node: ir.Node) -> bool:
    form = form_of(node)
    return form is not None and form.weight is not None


def _segment(number: int, nodes: Sequence[ir.Node], setting: Setting) -> Segment:
    inside = set(nodes)
    read = [value for node in nodes for value in node.inputs if value is not None]
    inputs = [value for value in read if not setting.facts.is_static(value) and value.producer() not in inside]
    outputs = [out for node in nodes for out in node.outputs if _leaves(out, inside)]
    forms = [(node, form) for node in nodes if (form := form_of(node)) is not None]
    weights = tuple(form.weight(setting, node) for node, form in forms if form.weight is not None)
    for weight in weights:
        weight.is_packed, weight.nbytes = False, stored_bytes(weight)
    symbol = symbol_of(setting, nodes[0])
    return Segment(number, symbol, tuple(nodes), tuple(dict.fromkeys(inputs)), tuple(outputs), weights)


def stored_bytes(weight: LinearWeight) -> int:
    """Bytes of a weight's elements, scales and zeros in a plan, scales and zeros as bf16."""
    scheme = weight.scheme.weight
    scales = 2 * scheme.groups(weight.k) * (1 if scheme.symmetric else 2) if scheme.type.is_scaled else 0
    return len(weight.sources) * weight.n * (weight.k * scheme.type.bits // 8 + scales)


def _leaves(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(node not in inside for node in value.consumers())


def _replace(graph: ir.Graph, segments: Sequence[Segment]) -> None:
    """Put the nodes of segments in the place of those that they stand for, which are found by their results."""
    producers = {out.name: node for node in graph for out in node.outputs}
    values = {value.name: value for value in (*graph.inputs, *graph.initializers.values())}
    values |= {out.name: out for node in graph for out in node.outputs}
    for segment in segments:
        old = [producers[node.outputs[0].name] for node in segment.nodes]
        inputs = [values[value.name] for value in segment.inputs]
        made = ir.node("Segment", inputs, {"number": segment.number}, domain=DOMAIN, num_outputs=len(segment.outputs))
        for new, value in zip(made.outputs, segment.outputs, strict=True):
            replaced = values[value.name]
            new.shape, new.type = replaced.shape, replaced.type
            replaced.replace_all_uses_with(new, replace_graph_outputs=True)
            new.name, replaced.name = value.name, f"{value.name}_replaced"
            values[value.name] = new
        graph.insert_before(old[0], made)
        graph.remove(old, safe=True)
    graph.sort()
