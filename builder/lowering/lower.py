"""Network to Program: walks the nodes that the logits depend on, and hands each to its handler."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...checkpoint.layouts.kv_cache import KvScales
from ...errors import UnsupportedModelError
from ..config import BuildConfig
from . import elementwise, loops, ops_fused, reshapes  # noqa: F401  (they fill the table of handlers)
from .dims import Symbol
from .expressions import Expr
from .lowering import Lowering, Unsupported, entry_of, path_of, product
from .ops_embedding import require_tied
from .program import LoopCall, Program
from .stored_rows import Stored
from .views import Buffer, DType, Home, contiguous

if TYPE_CHECKING:
    from ..network import Network

_INPUTS = {"input_ids": Symbol.TOKENS, "position_ids": Symbol.TOKENS, "logits_rows": Symbol.ROWS}


def lower(
    network: "Network",
    config: BuildConfig,
    stored: Stored | None = None,
    kv_scales: Mapping[str, KvScales] | None = None,
) -> Program:
    """The kernel calls, buffers and weights of `network`; nothing has an address yet.

    `stored`: parameters that the checkpoint holds quantized. They keep their scheme where the kernels have it.
    `kv_scales`: of quantized keys and values, by attention module, used where the cache is of their type.
    Raises UnsupportedModelError naming every node that the cpu target cannot express, and BuildError for scales that do
    not fit their module, and for an int8 embedding without an int8 head that it is tied to.
    """
    lowering = Lowering(network, config, stored or {}, kv_scales or {})
    graph = network.model.graph
    offenders: list[str] = []
    lowering.needed = _needed_nodes(lowering, graph)
    for node in graph:
        if node in lowering.needed and entry_of(node) is None:
            offenders.append(_offence(node, "the cpu target has no such operation"))
    if offenders:
        raise _unsupported(network, offenders)
    _set_inputs(lowering, graph)
    for node in graph:
        entry = entry_of(node) if node in lowering.needed else None
        if entry is None:
            continue
        try:
            entry.handler(lowering, node)
        except (Unsupported, UnsupportedModelError) as error:
            offenders.append(_offence(node, str(error)))
            _pretend(lowering, node)
        lowering.lowered.add(node)
    if offenders:
        raise _unsupported(network, offenders)
    require_tied(lowering)
    _set_logits(lowering, graph)
    lowering.program.layers.sort(key=lambda layer: layer.index)
    return lowering.program


def _needed_nodes(lowering: Lowering, graph: ir.Graph) -> set[ir.Node]:
    """The nodes whose results the logits are computed from at run time."""
    needed: set[ir.Node] = set()
    pending = [out.producer() for out in graph.outputs if not lowering.is_static(out)]
    while pending:
        node = pending.pop()
        if node is None or node in needed:
            continue
        needed.add(node)
        entry = entry_of(node)
        for index, value in enumerate(node.inputs):
            is_data = entry is None or entry.data_inputs is None or index in entry.data_inputs
            if value is not None and is_data and not lowering.is_static(value):
                pending.append(value.producer())
    return needed


def _set_inputs(lowering: Lowering, graph: ir.Graph) -> None:
    for value in graph.inputs:
        if lowering.is_parameter(value):
            continue
        if value.name not in _INPUTS:
            raise UnsupportedModelError(f"the network has an input {value.name!r} that the runtime does not give")
        buffer = Buffer(value.name, DType.I32, _INPUTS[value.name], 1, Home.INPUT)
        lowering.assign(value, contiguous(buffer, lowering.shape(value)))


def _set_logits(lowering: Lowering, graph: ir.Graph) -> None:
    """The logits end in one contiguous [R, V] buffer of the arena."""
    out = graph.outputs[0]
    view = lowering.view(out)
    shape = (product(view.shape[:-1]), view.shape[-1])
    flat = view.reshape(shape)
    if flat is None or flat.strides != (shape[1].count, 1) or flat.buffer.home is not Home.ARENA or flat.offset:
        flat = lowering.allocate("logits", view.shape)
        lowering.emit(LoopCall("logits", [(flat, Expr("load", (view,), DType.F32, view.shape))]))
    lowering.program.logits = flat
    lowering.program.vocab_size = shape[1].count


def _pretend(lowering: Lowering, node: ir.Node) -> None:
    """Give the outputs of a node that failed some memory, so that later offenders are found too."""
    for out in node.outputs:
        if out not in lowering.values:
            try:
                lowering.assign(out, lowering.new(out))
            except (Unsupported, UnsupportedModelError):
                continue


def _offence(node: ir.Node, reason: str) -> str:
    domain = f"{node.domain}." if node.domain else ""
    return f"  {domain}{node.op_type} in {path_of(node)}: {reason}"


def _unsupported(network: "Network", offenders: list[str]) -> UnsupportedModelError:
    unique = list(dict.fromkeys(offenders))
    shown = unique[:20] + ([f"  ... and {len(unique) - 20} more"] if len(unique) > 20 else [])
    return UnsupportedModelError(
        f"{network.architecture} cannot be built for the cpu target; {len(unique)} operations are not supported:\n"
        + "\n".join(shown)
    )
