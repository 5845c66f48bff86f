"""The `config_groups` of compressed-tensors: which modules are quantized alike, and how."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...errors import CheckpointError
from ...quantization.scheme import ActivationScheme
from ..checkpoint import Checkpoint
from .compressed_presets import preset
from .fp8 import block_size
from .layout import integer, unsupported

_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_SUFFIXES = ("weight_packed", "weight_scale")
_KNOWN = "integers of 4 or 8 bits by channel or group, FP8 by tensor, channel or block, in the formats " + ", ".join(
    _FORMATS
)


class Strategy(StrEnum):
    """What one scale is for."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    GROUP = "group"
    BLOCK = "block"


@dataclass(frozen=True)
class ConfigGroup:
    """How the modules that `targets` names (by name, by "re:" and a pattern, or by class) are quantized."""

    targets: tuple[str, ...]
    bits: int
    is_float: bool
    packed: bool
    strategy: Strategy
    group_size: int
    symmetric: bool
    block: tuple[int, int] | None
    activation: ActivationScheme

    def __str__(self) -> str:
        kind = "FP8" if self.is_float else f"int{self.bits}"
        of = f"group of {self.group_size}" if self.strategy is Strategy.GROUP else str(self.strategy)
        return f"{kind} by {of}{'' if self.symmetric else ' with zeros'}"

    def names(self, module: str) -> bool:
        """Whether a target is this module, or a pattern of it; a class, such as "Linear", names none."""
        return any(
            re.match(target[3:], module) if target.startswith("re:") else module == target for target in self.targets
        )


def read_groups(checkpoint: Checkpoint, config: Mapping[str, Any]) -> list[ConfigGroup]:
    """The groups, one for a whole class of modules last.

    Raises CheckpointError for a format that is not read, and for groups that cannot be told apart.
    """
    sparsity = config.get("sparsity_config") or {}
    if sparsity and sparsity.get("format", "dense") != "dense":
        raise unsupported(checkpoint, f"compressed-tensors of sparse format {sparsity['format']}", _SUFFIXES, _KNOWN)
    transforms = config.get("transform_config") or {}
    if transforms.get("config_groups", transforms):
        raise unsupported(checkpoint, "compressed-tensors with transforms of inputs", _SUFFIXES, _KNOWN)
    stated = config.get("config_groups")
    if not isinstance(stated, dict) or not stated:
        raise CheckpointError(
            f"{checkpoint.path}: quantization_config.config_groups should name groups of modules, found {stated!r}."
        )
    full = [group if isinstance(group, dict) else preset(checkpoint, name, group) for name, group in stated.items()]
    groups = [_read(checkpoint, config, group) for group in full if group.get("weights")]
    by_name = [group for group in groups if _is_by_name(group)]
    by_class = [group for group in groups if not _is_by_name(group)]
    if len({str(group) for group in by_class}) > 1 or not groups:
        raise CheckpointError(
            f"{checkpoint.path}: quantization_config.config_groups has {len(groups)} groups for whole classes of "
            "modules; exactly one can be told apart by the names of tensors."
        )
    return by_name + by_class


def _is_by_name(group: ConfigGroup) -> bool:
    return all(not target[:1].isupper() for target in group.targets)  # classes are "Linear" and the like


def _read(checkpoint: Checkpoint, config: Mapping[str, Any], group: Mapping[str, Any]) -> ConfigGroup:
    weights = group["weights"]
    form = str(group.get("format") or config.get("format"))
    kind, strategy = str(weights.get("type", "int")), str(weights.get("strategy"))
    width = integer(weights, "num_bits", 8)
    size = weights.get("group_size")
    whole = strategy == Strategy.GROUP and size == -1
    packing = f'compressed-tensors in the format "{form}": {kind} of {width} bits by {strategy}'
    is_float = kind == "float"
    integers = kind == "int" and width in (4, 8) and strategy != Strategy.BLOCK
    if form not in _FORMATS or strategy not in list(Strategy) or not (integers or (is_float and width == 8)):
        raise unsupported(checkpoint, packing, _SUFFIXES, _KNOWN)
    if is_float and strategy == Strategy.GROUP:
        raise unsupported(checkpoint, packing, _SUFFIXES, _KNOWN)
    return ConfigGroup(
        targets=tuple(map(str, group.get("targets") or ())),
        bits=width,
        is_float=is_float,
        packed=form == "pack-quantized",
        strategy=Strategy.CHANNEL if whole else Strategy(strategy),
        group_size=integer(weights, "group_size") if strategy == Strategy.GROUP and not whole else 0,
        symmetric=weights.get("symmetric", True) is True,
        block=block_size(checkpoint, weights.get("block_structure")) if strategy == Strategy.BLOCK else None,
        activation=_activation(group.get("input_activations"), kind),
    )


def _activation(inputs: object, kind: str) -> ActivationScheme:
    """What inputs are rounded to, where that is 8 bits of the weight's kind; kernels do without anything else."""
    if not isinstance(inputs, dict) or inputs.get("num_bits", 8) != 8 or inputs.get("type", "int") != kind:
        return ActivationScheme.NONE
    if inputs.get("dynamic"):
        return ActivationScheme.DYNAMIC
    whole = inputs.get("strategy", "tensor") == "tensor" and inputs.get("symmetric", True)
    return ActivationScheme.STATIC if whole else ActivationScheme.NONE
