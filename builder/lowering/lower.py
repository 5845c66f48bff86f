"""Network to Program: walks the nodes that the logits depend on, and hands each to its kernel."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...checkpoint.layouts.kv_cache import KvScales
from ...errors import BuildError, UnsupportedModelError
from ...plugins.discovery import operation
from ...plugins.plugin import DOMAIN
from ..build_options import BuildConfig
from ..passes.graph import dims
from . import elementwise, loops, reshapes  # noqa: F401  (they fill STANDARD)
from .dims import Symbol
from .expressions import Expr
from .facts import Facts, Unsupported, product
from .kernels import STANDARD, Kernel, Kernels
from .lowering import Lowering, new_lowering
from .nodes import parsed, path_of
from .program import LinearWeight, LoopCall, Program
from .stored_rows import Stored
from .views import Buffer, DType, Home, contiguous

if TYPE_CHECKING:
    from ..network import Network

_INPUTS = {"input_ids": Symbol.TOKENS, "position_ids": Symbol.TOKENS, "logits_rows": Symbol.ROWS}


def lower(
    network: "Network",
    config: BuildConfig,
    kernels: Sequence[Kernel],
    stored: Stored | None = None,
    kv_scales: Mapping[str, KvScales] | None = None,
) -> Program:
    """The kernel calls, buffers and weights of `network`, which stays as it is; nothing has an address yet.

    `kernels`: a target's own, which come before those of standard operations. `stored`: parameters that the checkpoint
    holds quantized. They keep their scheme where the kernels have it. `kv_scales`: of quantized keys and values, by
    attention module, used where the cache is of their type.
    Raises UnsupportedModelError naming every node that cannot be lowered, and BuildError for scales that do not fit
    their module, and for an int8 embedding without an int8 head that it is tied to.
    """
    graph, facts = network.model.graph, Facts(network)
    found = Kernels([*kernels, *STANDARD])
    needed = _needed_nodes(facts, found, graph)
    nodes = [node for node in graph if node in needed]
    offenders = [_offence(node, "the target has no such operation") for node in nodes if not found.has(node)]
    if offenders:
        raise _unsupported(network, offenders)
    lowering = new_lowering(network, facts, config, stored or {}, kv_scales or {}, needed)
    _set_inputs(lowering, graph)
    for node in nodes:
        try:
            _lower_node(lowering, found, node)
        except (Unsupported, UnsupportedModelError) as error:
            offenders.append(_offence(node, str(error)))
            _pretend(lowering, node)
        lowering.liveness.lowered.add(node)
    if offenders:
        raise _unsupported(network, offenders)
    _require_tied(lowering)
    _set_logits(lowering, graph)
    lowering.program.layers.sort(key=lambda layer: layer.index)
    return lowering.program


def _needed_nodes(facts: Facts, kernels: Kernels, graph: ir.Graph) -> set[ir.Node]:
    """The nodes whose results the logits are computed from at run time."""
    needed: set[ir.Node] = set()
    pending = [out.producer() for out in graph.outputs if not facts.is_static(out)]
    while pending:
        node = pending.pop()
        if node is None or node in needed:
            continue
        needed.add(node)
        for index, value in enumerate(node.inputs):
            if value is not None and kernels.needs_as_data(node, index) and not facts.is_static(value):
                pending.append(value.producer())
    return needed


def _lower_node(lowering: Lowering, kernels: Kernels, node: ir.Node) -> None:
    kernel = kernels.find(lowering, node)
    if kernel is None:
        raise Unsupported("no kernel takes it in this form")
    if node.domain == DOMAIN:
        _check_shapes(node)
    kernel.lower(lowering, node)


def _check_shapes(node: ir.Node) -> None:
    """Raises Unsupported where a plugin's operation has shapes that are not those of its own rule."""
    inputs, attributes = parsed(node)
    shapes = [None if value is None else dims(value) for value in inputs]
    try:
        expected = operation(node.op_type).infer(shapes, attributes)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    for out, shape in zip(node.outputs, expected, strict=False):
        if dims(out) != shape:
            raise Unsupported(f"its output is declared {dims(out)}, but made {shape}")


def _set_inputs(lowering: Lowering, graph: ir.Graph) -> None:
    for value in graph.inputs:
        if lowering.facts.is_parameter(value):
            continue
        if value.name not in _INPUTS:
            raise UnsupportedModelError(f"the network has an input {value.name!r} that the runtime does not give")
        buffer = Buffer(value.name, DType.I32, _INPUTS[value.name], 1, Home.INPUT)
        lowering.values.assign(value, contiguous(buffer, lowering.facts.shape(value)))


def _set_logits(lowering: Lowering, graph: ir.Graph) -> None:
    """The logits end in one contiguous [R, V] buffer of the arena."""
    values, program = lowering.values, lowering.program
    view = values.view(graph.outputs[0])
    shape = (product(view.shape[:-1]), view.shape[-1])
    flat = view.reshape(shape)
    if flat is None or flat.strides != (shape[1].count, 1) or flat.buffer.home is not Home.ARENA or flat.offset:
        flat = values.allocate("logits", view.shape)
        values.emit(LoopCall("logits", [(flat, Expr("load", (view,), DType.F32, view.shape))]))
    program.logits, program.vocab_size = flat, shape[1].count


def _require_tied(lowering: Lowering) -> None:
    """Raises BuildError where lookups should read the head, and none does."""
    program = lowering.program
    lookups = [call for call in program.calls if call.table() is not None]
    if lowering.config.embedding == "plain" or any(isinstance(call.table(), LinearWeight) for call in lookups):
        return
    head = [str(source.name).removesuffix(".weight") for source in program.linear_weights[-1].sources]
    raise BuildError(
        "--embedding int8 reads rows out of the head, to which the embedding must be tied, but this model's have a "
        f"weight each ({', '.join([*(call.name for call in lookups), *head])}); leave --embedding out"
    )


def _pretend(lowering: Lowering, node: ir.Node) -> None:
    """Give the outputs of a node that failed some memory, so that later offenders are found too."""
    for out in node.outputs:
        if out not in lowering.values.operands:
            try:
                lowering.values.assign(out, lowering.values.new(out))
            except (Unsupported, UnsupportedModelError):
                continue


def _offence(node: ir.Node, reason: str) -> str:
    domain = f"{node.domain}." if node.domain else ""
    return f"  {domain}{node.op_type} in {path_of(node)}: {reason}"


def _unsupported(network: "Network", offenders: list[str]) -> UnsupportedModelError:
    unique = list(dict.fromkeys(offenders))
    shown = unique[:20] + ([f"  ... and {len(unique) - 20} more"] if len(unique) > 20 else [])
    return UnsupportedModelError(
        f"{network.architecture} cannot be built; {len(unique)} operations are not supported:\n" + "\n".join(shown)
    )
