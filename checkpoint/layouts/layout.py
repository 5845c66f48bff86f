"""What a layout is: how one quantizer stores the weights of linear layers, several tensors for each."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from ...errors import CheckpointError
from ..checkpoint import Checkpoint
from ..safetensors import DTYPES
from .kv_cache import KvScales, KvScheme, read_kv_scales
from .stored import StoredWeight
from .tensors import Tensors

INT32 = (DTYPES["I32"],)
INT8 = (DTYPES["I8"],)
FP8 = (DTYPES["F8_E4M3"],)
FLOATS = tuple(DTYPES[name] for name in ("F16", "BF16", "F32"))
INDICES = tuple(DTYPES[name] for name in ("I32", "I64"))

_SCALES = ("scales", "weight_scale", "weight_scale_inv")


@dataclass(frozen=True)
class Part:
    """One of the tensors a weight is stored as. Any of `shapes` will do, or any at all where there is none."""

    dtypes: tuple[np.dtype, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    required: bool = True


@dataclass
class QuantizedModules:
    """The weights that a layout makes up, by parameter; `used` tensors of the checkpoint; and what is wrong."""

    weights: dict[str, StoredWeight] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    offenders: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)  # parameters that offenders tell of
    kv_scales: dict[str, KvScales] = field(default_factory=dict)  # by attention module


class Layout(ABC):
    """One way of storing quantized weights, as the `quantization_config` of a checkpoint describes it.

    `title` names it for people. A module is quantized if it has a tensor of one of the suffixes `markers`; all others
    are stored as usual, whatever the config says of them. `ignorable`: patterns of other tensors that it brings.
    `kv_cache`: what it says of the KV cache. `notes`: sentences on what was taken otherwise than the checkpoint says.
    """

    title: str
    markers: tuple[str, ...]
    ignorable: tuple[str, ...] = ()
    kv_cache: KvScheme | None = None

    @abstractmethod
    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        """The tensors that make up the weight [n, k] of a module, by suffix."""

    @cached_property
    def notes(self) -> list[str]:
        return []

    @abstractmethod
    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        """What `weight` should stand for, float32 [N, K], by `reference.py`."""

    @abstractmethod
    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        """The weight made of tensors that are as `parts` says."""

    def resolve(
        self, checkpoint: Checkpoint, parameters: Mapping[str, Sequence[int]], base_prefix: str = ""
    ) -> QuantizedModules:
        """Find the quantized among `parameters` (name to shape). Tensors are checked, not unpacked."""
        found = QuantizedModules()
        for name, shape in parameters.items():
            module = self._module(checkpoint, name, base_prefix)
            if module is not None:
                self._resolve(checkpoint, name, module, tuple(shape), found)
        if self.kv_cache is not None and self.kv_cache.static:
            kv = read_kv_scales(checkpoint, self.kv_cache.type, parameters, base_prefix)
            found.kv_scales = kv.scales
            found.used |= kv.used
            found.offenders += kv.offenders
        return found

    def _module(self, checkpoint: Checkpoint, name: str, base_prefix: str) -> str | None:
        module, _, last = name.rpartition(".")
        if last != "weight":
            return None
        prefix = base_prefix.rstrip(".") + "." if base_prefix else ""
        other = module.removeprefix(prefix) if module.startswith(prefix) else prefix + module
        for each in (module, other):
            if any(f"{each}.{marker}" in checkpoint.tensors for marker in self.markers):
                return each
        return None

    def _resolve(
        self, checkpoint: Checkpoint, name: str, module: str, shape: tuple[int, ...], found: QuantizedModules
    ) -> None:
        if len(shape) != 2:
            found.offenders.append(f"{module}: quantized, but {name} is no matrix: {list(shape)}")
            found.failed.add(name)
            return
        parts = self.parts(module, *shape)
        stored = {suffix: f"{module}.{suffix}" for suffix in parts if f"{module}.{suffix}" in checkpoint.tensors}
        wrong = [
            f"{module}.{suffix}: missing" for suffix, part in parts.items() if part.required and suffix not in stored
        ]
        for suffix, tensor in stored.items():
            info = checkpoint.tensors[tensor]
            if problem := _problem(parts[suffix], info.dtype, info.shape):
                wrong.append(f"{tensor}: {problem}")
            elif suffix in _SCALES and not np.isfinite(checkpoint.read(tensor).astype(np.float32)).all():
                wrong.append(f"{tensor}: holds NaN or an infinity; the file is damaged")
        found.used.update(stored.values())
        bias = f"{module}.bias"
        if bias in checkpoint.tensors and not checkpoint.read(bias).any():
            found.used.add(bias)  # some quantizers store zeros for layers without a bias
        if wrong:
            found.offenders += wrong
            found.failed.add(name)
        else:
            tensors = {suffix: checkpoint.read(tensor) for suffix, tensor in stored.items()}
            reference = partial(self.reference, module, *shape, tensors)
            found.weights[name] = replace(self.weight(module, *shape, tensors), reference=reference)


def _problem(part: Part, dtype: np.dtype, shape: tuple[int, ...]) -> str:
    if part.shapes and shape not in part.shapes:
        return f"expected {' or '.join(str(list(each)) for each in part.shapes)}, found {list(shape)}"
    if part.dtypes and dtype not in part.dtypes:
        return f"expected {' or '.join(map(str, part.dtypes))}, found {dtype}"
    return ""


def unsupported(checkpoint: Checkpoint, packing: str, suffixes: Iterable[str], known: str) -> CheckpointError:
    """The error for a packing that is not read: names it, a tensor that has it, and that tensor's shape."""
    suffixes = tuple(f".{suffix}" for suffix in suffixes)
    tensor = next((info for name, info in checkpoint.tensors.items() if name.endswith(suffixes)), None)
    example = f" (as in {tensor.name}, {tensor.dtype} {list(tensor.shape)})" if tensor else ""
    return CheckpointError(
        f"{checkpoint.path}: its weights are packed as {packing}{example}, which is not read; known: {known}. "
        "Use another quantization of this model, or the unquantized checkpoint."
    )


def integer(config: Mapping[str, object], key: str, default: int | None = None) -> int:
    """A whole number of a `quantization_config`. Raises CheckpointError where it is absent or something else."""
    value = config.get(key, default)
    if value is None and default is not None:
        return default
    if type(value) is not int:
        raise CheckpointError(f"config.json: quantization_config.{key} should be a whole number, found {value!r}.")
    return value


def groups_of(k: int, group_size: int) -> int:
    """Scales along K; group size 0 is the whole of K."""
    return math.ceil(k / group_size) if group_size else 1
