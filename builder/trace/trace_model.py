"""The steps of a trace that was not in the cache."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import onnx_ir as ir
import torch
from torch.export.graph_signature import OutputKind

from ...checkpoint.config import num_layers
from ...progress import Progress
from ..network import Network, Parameter
from . import checkpoint_names
from .convert import WRAPPER_PREFIX, Converter, known_placeholders
from .export import INPUT_NAMES, export
from .gelu import make_gelus_opaque
from .norms import make_norms_opaque
from .own_experts import replace_own_experts
from .rope_update import switch_rope
from .skeleton import fake_parameters, make_skeleton


def trace_model(config: dict[str, Any], max_seq_len: int, progress: Progress) -> Network:
    """Trace a raw config.json; see trace.trace."""
    with progress.task("Tracing the model", total=4) as task, _quiet():
        model = make_skeleton(config, max_seq_len)
        long_rope_after = switch_rope(model, max_seq_len)
        make_norms_opaque(model)
        make_gelus_opaque(model)
        replace_own_experts(model)
        tied = checkpoint_names.tied_parameters(model)
        mode = fake_parameters(model)
        task.advance()
        program = export(model, mode, max_seq_len)
        task.advance(2)
        graph = convert(program, tied)
        task.advance()
    parameters = checkpoint_names.checkpoint_parameters(model, tied)
    return Network(
        model=ir.Model(graph, ir_version=11, producer_name="enginesmith"),
        parameters=parameters,
        tied=tied,
        ignorable_unexpected=list(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()),
        config=config,
        architecture=type(model).__name__,
        base_prefix=str(getattr(model, "base_model_prefix", "")),
        vocab_size=int(graph.outputs[0].shape[1]),  # type: ignore[index,arg-type]
        num_layers=max(num_layers(config) or 0, sum(node.op_type == "PagedAttention" for node in graph)),
        long_rope_after=long_rope_after,
        converts=checkpoint_names.converts(model),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the user what libraries warn of, log, and print of graphs that they fail on."""
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    disabled = logging.root.manager.disable
    transformers_logging.set_verbosity_error()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        transformers_logging.set_verbosity(verbosity)


def convert(program: torch.export.ExportedProgram, tied: dict[str, str]) -> ir.Graph:
    """The ONNX graph of an exported program, cleaned of everything that its output does not need."""
    signature = program.graph_signature
    state = program.state_dict
    stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    weights: dict[str, ir.Value] = {}
    by_name: dict[str, ir.Value] = {}
    for placeholder, target in stored.items():
        if target in state:
            name = target.removeprefix(WRAPPER_PREFIX)
            name = tied.get(name, name)
            if name not in by_name:
                by_name[name] = _parameter_value(Parameter(name, tuple(state[target].shape)))
            weights[placeholder] = by_name[name]
    graph = Converter(_symbols(program), weights, known_placeholders(program)).run(program.graph, INPUT_NAMES)
    for name, value in by_name.items():
        graph.initializers[name] = value
    kinds = [spec.kind for spec in signature.output_specs]  # what a model writes into its parameters comes first
    logits = graph.outputs[kinds.index(OutputKind.USER_OUTPUT)]
    graph.outputs.clear()
    graph.outputs.append(logits)
    _remove_dead(graph)
    graph.outputs[0].name = "logits"
    return graph


def _parameter_value(parameter: Parameter) -> ir.Value:
    return ir.Value(name=parameter.name, shape=ir.Shape(parameter.shape), type=ir.TensorType(ir.DataType.FLOAT))


def _symbols(program: torch.export.ExportedProgram) -> dict[Any, str]:
    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    ids, _, rows = (by_name[name].meta["val"].shape[0].node.expr for name in program.graph_signature.user_inputs)
    return {ids: "T", rows: "R"}


def _remove_dead(graph: ir.Graph) -> None:
    for node in reversed(graph):
        outputs = [value for value in node.outputs if value.uses() or value.is_graph_output()]
        if not outputs:
            graph.remove(node, safe=True)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]
