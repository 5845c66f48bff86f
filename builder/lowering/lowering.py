"""What an operation is lowered with."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...checkpoint.layouts.kv_cache import KvScales
from ...plugins.discovery import operation
from ..build_options import BuildConfig
from ..passes.graph import dims
from .expressions import Operand
from .facts import Facts
from .liveness import Liveness
from .nodes import parsed
from .program import Program, State
from .program_weights import ProgramWeights
from .stored_rows import Stored
from .values import Values

if TYPE_CHECKING:
    from ..network import Network


@dataclass(frozen=True)
class Lowering:
    """One network being lowered: what is known of its values, what they are by now, and the program so far."""

    config: BuildConfig
    kv_scales: Mapping[str, KvScales]
    program: Program
    facts: Facts
    weights: ProgramWeights
    liveness: Liveness
    values: Values


def new_state(lowering: Lowering, node: ir.Node) -> State:
    """Room for the state of a recurrence, of the shape that its operation says."""
    schema = operation(node.op_type, node.domain)
    assert schema.state is not None
    inputs, attributes = parsed(node)
    shapes = [None if value is None else dims(value) for value in inputs]
    module = (node.name or "").rpartition("/")[0]
    return lowering.program.add_state(module, schema.name, schema.state(shapes, attributes))


def new_lowering(
    network: "Network",
    facts: Facts,
    config: BuildConfig,
    stored: Stored,
    kv_scales: Mapping[str, KvScales],
    needed: Set[ir.Node],
) -> Lowering:
    """A lowering that has not begun; `needed`: the nodes that the logits depend on."""
    program, operands = Program(), dict[ir.Value, Operand]()
    weights = ProgramWeights(facts, config, stored, program)
    liveness = Liveness(operands, needed)
    values = Values(facts, weights, liveness, program, operands)
    return Lowering(config, kv_scales, program, facts, weights, liveness, values)
