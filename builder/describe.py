"""engine.json, and the network beside it for people to look at."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from .. import __version__
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.config import max_positions
from ..runtime.manifest import (
    KvCacheSpec,
    KvDtype,
    KvGroup,
    KvGroupKind,
    Limits,
    Manifest,
    ModelFacts,
    Quantization,
    SequenceState,
    StateSpec,
)
from .generation_defaults import generation_defaults
from .lowering.program import Program
from .passes import derived
from .targets.target import WEIGHTS, Plan

if TYPE_CHECKING:
    from .network import Network


def manifest_of(
    checkpoint: Checkpoint,
    network: "Network",
    plan: Plan,
    name: str | None = None,
    chat_template_error: str | None = None,
) -> Manifest:
    """All of engine.json but the digests. `name`: of the model; default: what the checkpoint calls itself."""
    config, program = plan.config, plan.program
    facts = replace(model_facts(checkpoint, network, plan), chat_template_error=chat_template_error)
    return Manifest(
        builder_version=__version__,
        model=replace(facts, name=name) if name else facts,
        limits=Limits(
            max_batch_size=config.max_batch_size,
            max_num_tokens=config.max_num_tokens,
            max_seq_len=plan.max_seq_len,
            max_logits_rows=plan.max_logits_rows,
        ),
        kv_cache=kv_cache_of(plan),
        quantization=Quantization(
            scheme=plan.scheme,
            linear_layers=dict(Counter(str(weight.scheme) for weight in program.linear_weights)),
        ),
        target=plan.facts(),
        state=StateSpec(
            slot_bytes=program.state_bytes,
            states=tuple(SequenceState(name=s.name, operation=s.operation, shape=s.shape) for s in program.states),
        ),
    )


def model_facts(checkpoint: Checkpoint, network: "Network", plan: Plan) -> ModelFacts:
    config = checkpoint.config
    bos = config.get("bos_token_id", checkpoint.generation_config.get("bos_token_id"))
    return ModelFacts(
        name=model_name(checkpoint),
        architecture=network.architecture,
        model_type=str(config["model_type"]),
        vocab_size=plan.program.vocab_size,
        num_layers=network.num_layers,
        num_parameters=sum(math.prod(parameter.shape) for parameter in network.parameters.values()),
        eos_token_ids=checkpoint.eos_token_ids,
        bos_token_id=bos if isinstance(bos, int) else None,
        generation_defaults=generation_defaults(checkpoint.generation_config).values,
        max_positions=max_positions(checkpoint.config),
        long_rope_after=network.long_rope_after,
    )


def model_name(checkpoint: Checkpoint) -> str:
    """The name the checkpoint gives itself, else that of its repository in a Hub cache, else that of its folder."""
    name = checkpoint.config.get("_name_or_path")
    if isinstance(name, str) and name and not Path(name).is_absolute():
        return name
    folder = checkpoint.path.resolve()
    repository = folder.parent.parent.name  # models--org--name/snapshots/<commit>
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/", 1)
    return folder.name


def kv_cache_of(plan: Plan) -> KvCacheSpec:
    config, block = plan.config, plan.config.kv_block_size
    groups = tuple(
        KvGroup(
            kind=KvGroupKind.SLIDING_WINDOW if group.window else KvGroupKind.FULL,
            window=group.window,
            layers=tuple(layer.index for layer in group.layers),
            bytes_per_block=block * sum(layer.token_bytes() for layer in group.layers),
        )
        for group in plan.program.groups
    )
    return KvCacheSpec(block_size=block, dtype=KvDtype(config.kv_cache or config.dtype), groups=groups)


def save_network(network: "Network", program: Program, path: Path) -> None:
    """network.onnx beside weights.bin. A parameter points at the packed bytes that hold it, in the kernels' layout."""
    places: dict[str, tuple[int, int]] = {}
    for plain in program.plain_weights:
        for name in derived.parameters_of(plain.source):
            places.setdefault(name, (plain.buffer.offset, plain.buffer.row_size * (2 if plain.bf16 else 4)))
    for weight in program.packed_weights:
        for name in (name for source in weight.sources for name in derived.parameters_of(source)):
            places[name] = (weight.offset, weight.nbytes)
    graph = network.model.graph
    for name, value in list(graph.initializers.items()):
        if value.const_value is None:
            offset, length = places.get(name, (0, 0))
            shape = value.shape or ir.Shape([])
            dtype = value.dtype or ir.DataType.FLOAT
            value.const_value = ir.ExternalTensor(WEIGHTS, offset, length, dtype, shape=shape, name=name, base_dir="")
    ir.save(network.model, path)
