"""engine.json: what an engine says of itself.

Plain dataclasses with a small strict reader: importing pydantic would take a tenth of the second that a start may take.
"""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, TypeVar

from ..errors import EngineError, shown
from ..units import shown_size

FORMAT_VERSION = 2

MAX_BATCH_SIZE, MAX_NUM_TOKENS, MAX_SEQ_LEN = 1 << 12, 1 << 16, 1 << 24
MAX_VOCAB_SIZE, MAX_GROUPS, MAX_BYTES = 1 << 24, 1 << 10, 1 << 48
MAX_TABLE_BYTES = 1 << 28
"""What the runtime makes room for; a build's own limits lie within."""

LONG_ROPE = 1 << 24
"""Added to the positions of tokens that take the second of a model's two sets of rotary frequencies."""

T = TypeVar("T")


class KvDtype(StrEnum):
    """Element type of keys and values in the cache."""

    BF16 = "bf16"
    FP32 = "fp32"
    INT8 = "int8"
    FP8 = "fp8"


class KvGroupKind(StrEnum):
    """How long a layer keeps its keys and values."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the runtime must know of the model. `generation_defaults`: SamplingParams fields the checkpoint advises.

    `max_positions`: the longest sequence the model was made for, where it says; `chat_template_error`: why its chat
    template cannot be used, where it cannot; `long_rope_after`: past how many tokens a sequence takes the long of two
    sets of rotary frequencies, where there are two.
    """

    name: str
    architecture: str
    model_type: str
    vocab_size: int
    num_layers: int
    num_parameters: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None = None
    generation_defaults: dict[str, float] = field(default_factory=dict)
    max_positions: int | None = None
    chat_template_error: str | None = None
    long_rope_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The sizes an engine was compiled for: sequences a step, tokens a step, tokens of prompt and output a sequence,
    and rows of logits that a step keeps (0: max_batch_size).
    """

    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_logits_rows: int = 0

    def __post_init__(self) -> None:
        if self.max_logits_rows == 0:
            object.__setattr__(self, "max_logits_rows", self.max_batch_size)


@dataclass(frozen=True, kw_only=True)
class KvGroup:
    """Layers that share one block table. `layers` are cache layers, `bytes_per_block` counts keys and values of all."""

    kind: KvGroupKind
    window: int
    layers: tuple[int, ...]
    bytes_per_block: int


@dataclass(frozen=True, kw_only=True)
class KvCacheSpec:
    """The paged KV cache; the order of `groups` is the order of block tables in a step."""

    block_size: int
    dtype: KvDtype
    groups: tuple[KvGroup, ...]


@dataclass(frozen=True, kw_only=True)
class SequenceState:
    """What an operation keeps of each sequence from one step to the next: float32 of this shape."""

    name: str
    operation: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """The states of a sequence, in one slot of `slot_bytes`; none where every layer is attention."""

    slot_bytes: int = 0
    states: tuple[SequenceState, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How weights are stored: the scheme asked for, and how many linear layers got which."""

    scheme: str
    linear_layers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What runs the engine. `weights` is a name in the manifest's `files`. Each target adds facts of its own in a
    subclass, FACTS of its backend (executors/registry.py), which `name` tells."""

    name: str
    weights: str
    weights_bytes: int

    def files(self) -> tuple[str, ...]:
        """Names in the manifest's `files` that the engine cannot run without."""
        return (self.weights,)


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Digest (hexadecimal) and size of one file of the folder."""

    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All of engine.json. `files` is filled in by `write_engine`."""

    builder_version: str
    model: ModelFacts
    limits: Limits
    kv_cache: KvCacheSpec
    quantization: Quantization
    target: Target
    state: StateSpec = StateSpec()
    files: dict[str, FileEntry] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; the format version comes first."""
        return {"format_version": self.format_version, **asdict(self)}

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that is here, and so of every file."""
        return sha256(json.dumps(self.to_json(), sort_keys=True).encode()).digest()

    @classmethod
    def from_json(cls, data: Any, target_facts: Callable[[object], type[Target]]) -> "Manifest":
        """The inverse of `to_json`; raises EngineError naming the first field that is missing, unknown or wrong.

        `target_facts(name)`: the class of a target's facts, or an EngineError.
        """
        target = data.get("target") if isinstance(data, dict) else None
        if not isinstance(target, dict):
            raise EngineError("engine.json: it names no target; the engine must be rebuilt")
        facts = _read(target_facts(target.get("name")), target, "engine.json.target")
        manifest = _read(cls, {**data, "target": facts}, "engine.json")
        _validate(manifest)
        return manifest


def _validate(manifest: Manifest) -> None:
    limits, kv, model = manifest.limits, manifest.kv_cache, manifest.model
    sizes = {
        "limits.max_batch_size": (limits.max_batch_size, MAX_BATCH_SIZE),
        "limits.max_num_tokens": (limits.max_num_tokens, MAX_NUM_TOKENS),
        "limits.max_seq_len": (limits.max_seq_len, MAX_SEQ_LEN),
        "limits.max_logits_rows": (limits.max_logits_rows, MAX_NUM_TOKENS),
        "kv_cache.block_size": (kv.block_size, MAX_NUM_TOKENS),
        "model.vocab_size": (model.vocab_size, MAX_VOCAB_SIZE),
    }
    for index, group in enumerate(kv.groups):
        where = f"kv_cache.groups[{index}]"
        sizes[f"{where}.bytes_per_block"] = (group.bytes_per_block, MAX_BYTES)
        if (group.kind is KvGroupKind.SLIDING_WINDOW) != (group.window > 0):
            raise EngineError(f"engine.json: {where}: a {group.kind} group cannot have window {group.window}")
    for name, (value, most) in sizes.items():
        _require_within(name, value, 1, most)
    _require_within("state.slot_bytes", manifest.state.slot_bytes, 0, MAX_BYTES)
    keeps_something = manifest.state.slot_bytes > 0
    _require_within("the number of kv_cache.groups", len(kv.groups), 0 if keeps_something else 1, MAX_GROUPS)
    tables = 4 * len(kv.groups) * limits.max_batch_size * -(-limits.max_seq_len // kv.block_size)
    if tables > MAX_TABLE_BYTES:
        raise EngineError(
            f"engine.json: the block tables of {limits.max_batch_size} sequences (max_batch_size) of "
            f"{limits.max_seq_len} tokens (max_seq_len) take {shown_size(tables)}, the limit is "
            f"{shown_size(MAX_TABLE_BYTES)}; rebuild the engine with smaller ones"
        )
    for name, entry in manifest.files.items():
        if not is_plain_relative(name):
            raise EngineError(f"engine.json: files: {shown(name)} is not a plain path inside the engine folder")
        if entry.bytes < 0 or len(entry.sha256) != 64:
            raise EngineError(f"engine.json: files: {shown(name)} has a malformed size or digest")
    for name in manifest.target.files():
        if name not in manifest.files:
            raise EngineError(f"engine.json: target names {shown(name)}, which is not among the engine's files")


def _require_within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise EngineError(f"engine.json: {name} must be in [{least}, {most}], got {value}; the engine must be rebuilt")


def is_plain_relative(name: str) -> bool:
    """Whether `name` is a normalised relative POSIX path that cannot leave its folder."""
    path = PurePosixPath(name)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and str(path) == name
        and "\\" not in name
        and "\0" not in name
    )


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value`, from JSON, as the type `kind`: a dataclass, tuple[X, ...], dict[str, X], X | None, enum, or scalar."""
    if is_dataclass(kind):
        return value if isinstance(value, Target) else _read_dataclass(kind, value, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _read(args[0], value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _read(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(kind, type):
        if issubclass(kind, Enum) and value in list(kind):
            return kind(value)
        if type(value) is kind or (kind is float and type(value) is int):
            return value
    raise EngineError(
        f"{where}: expected {getattr(kind, '__name__', kind)}, got {shown(value)}; the engine must be rebuilt"
    )


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise EngineError(f"{where}: expected an object, got {shown(value)}; the engine must be rebuilt")
    hints = typing.get_type_hints(kind)
    required = {f.name for f in fields(kind) if f.default is f.default_factory}  # both MISSING
    for name in sorted(value.keys() - hints.keys()):
        raise EngineError(f"{where}: unknown field {shown(name)}; known are {', '.join(hints)}")
    for name in sorted(required - value.keys()):
        raise EngineError(f"{where}: field {name!r} is missing; the engine must be rebuilt")
    return kind(**{name: _read(hints[name], item, f"{where}.{name}") for name, item in value.items()})
