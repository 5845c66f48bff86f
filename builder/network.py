"""The network: what tracing makes, passes improve, and targets lower. docs/network.md lists its operations."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir


@dataclass(frozen=True)
class Parameter:
    """A tensor that the checkpoint must hold, under the name that the Transformers class gives it."""

    name: str
    shape: tuple[int, ...]


@dataclass
class Network:
    """A decoder over packed tokens: input_ids [T], position_ids [T], logits_rows [R] int64 -> logits [R, V] float32.

    `parameters` are all tensors a checkpoint of this architecture holds, shared ones once; those that the graph uses
    are initializers of the same name without data. `tied` maps other names of shared tensors, under which a checkpoint
    may store them, to the name here; `converts`: Transformers renames, joins or cuts tensors when it loads a
    checkpoint. `ignorable_unexpected` are regular expressions of tensors a checkpoint may hold in addition.
    `base_prefix` is the prefix ("model") that a headless model's checkpoint lacks.
    Past `long_rope_after` tokens a sequence's positions have LONG_ROPE added, where that is not None.
    """

    model: ir.Model
    parameters: dict[str, Parameter]
    tied: dict[str, str]
    ignorable_unexpected: list[str]
    config: dict[str, Any]
    architecture: str
    base_prefix: str
    vocab_size: int
    num_layers: int
    long_rope_after: int | None = None
    converts: bool = False

    @property
    def graph(self) -> ir.Graph:
        return self.model.graph

    def save(self, path: Path) -> None:
        """Write `path` (ONNX; parameters appear as inputs, being without data) and `path` + ".json" beside it."""
        graph = self.model.graph
        hidden = [value for value in graph.initializers.values() if value.const_value is None]
        for value in hidden:
            del graph.initializers[str(value.name)]
            graph.inputs.append(value)
        try:
            ir.save(self.model, path)
        finally:
            for value in hidden:
                graph.inputs.remove(value)
                graph.initializers[str(value.name)] = value
        facts = {
            "parameters": {p.name: list(p.shape) for p in self.parameters.values()},
            "used": [value.name for value in hidden],
            "tied": self.tied,
            "ignorable_unexpected": self.ignorable_unexpected,
            "config": self.config,
            "architecture": self.architecture,
            "base_prefix": self.base_prefix,
            "vocab_size": self.vocab_size,
            "num_layers": self.num_layers,
            "long_rope_after": self.long_rope_after,
            "converts": self.converts,
        }
        _facts_path(path).write_text(json.dumps(facts))

    @classmethod
    def load(cls, path: Path) -> "Network":
        """Read what `save` wrote. Raises OSError, ValueError or KeyError if the files are absent or damaged."""
        facts = json.loads(_facts_path(path).read_text())
        model = ir.load(path)
        used = set(facts.pop("used"))
        for value in [value for value in model.graph.inputs if value.name in used]:
            model.graph.inputs.remove(value)
            model.graph.initializers[str(value.name)] = value
        facts["parameters"] = {name: Parameter(name, tuple(shape)) for name, shape in facts["parameters"].items()}
        return cls(model=model, **facts)


def _facts_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")
