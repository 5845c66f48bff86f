"""Which stored tensor fills which parameter of the traced model; every disagreement is reported at once."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import CheckpointError, listed
from .assembly import Assembly
from .checkpoint import Checkpoint
from .layouts.layout import QuantizedModules
from .safetensors import DTYPES

# Buffers that older versions of model classes saved; the model computes them itself.
_COMPUTED = re.compile(
    r"(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|masked_bias|(attn|attention)\.bias|position_ids)$"
)
_FLOATS = frozenset(DTYPES[name] for name in ("F64", "F32", "F16", "BF16"))
_COMPARE_BYTES = 16 << 20
_MAX_LINES = 40  # of a message


@dataclass
class _Offenders:
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    wrong_shape: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    wrong_dtype: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    untied: list[str] = field(default_factory=list)
    quantized: list[str] = field(default_factory=list)


def bind(
    checkpoint: Checkpoint,
    parameters: Mapping[str, Sequence[int]],
    tied: Mapping[str, str] | None = None,
    ignorable_unexpected: Iterable[str] = (),
    base_prefix: str = "",
    quantized: QuantizedModules | None = None,
    assembled: Mapping[str, Assembly] | None = None,
) -> dict[str, str]:
    """Map each parameter name to the checkpoint tensor that holds its value.

    A tensor matches by its exact name, or with `base_prefix` ("model.", "transformer.") added or taken away.
    `tied` maps an alias ("lm_head.weight") to the parameter that owns the value: a checkpoint may store either, or
    both if they are equal. Tensors the model does not use may match a regex of `ignorable_unexpected` (searched, as
    Transformers does) or be a buffer that models compute themselves. Parameters that are `quantized`, or `assembled` of
    other tensors, are left out, and what is wrong with them is told with the rest. Raises one CheckpointError that
    lists every missing, unexpected, wrongly shaped and wrongly typed tensor. Values are not read, except to compare
    tied ones.
    """
    tied, quantized, assembled = tied or {}, quantized or QuantizedModules(), assembled or {}
    base_prefix = base_prefix.rstrip(".") + "." if base_prefix else ""
    offenders, bound, used = _Offenders(quantized=quantized.offenders), {}, set(quantized.used)
    for name, shape in parameters.items():
        if name in quantized.weights or name in quantized.failed:
            continue
        if name in assembled:
            used.update(_assembled(checkpoint, assembled[name], tuple(shape), offenders))
            continue
        aliases = [alias for alias, owner in tied.items() if owner == name]
        stored = [found for each in (name, *aliases) if (found := _find(checkpoint, each, base_prefix))]
        used.update(stored)
        if not stored:
            offenders.missing.append(name)
            continue
        bound[name] = stored[0]
        info = checkpoint.tensors[stored[0]]
        if info.shape != tuple(shape):
            offenders.wrong_shape[f"expected {list(shape)}, found {list(info.shape)}"].append(info.name)
        elif info.dtype not in _FLOATS:
            offenders.wrong_dtype[f"expected a floating-point type, found {info.dtype}"].append(info.name)
        else:
            offenders.untied += [alias for alias in stored[1:] if not _same(checkpoint, stored[0], alias)]
    ignorable = [_COMPUTED, *(re.compile(pattern) for pattern in ignorable_unexpected)]
    offenders.unexpected = [
        name for name in checkpoint.tensors if name not in used and not any(p.search(name) for p in ignorable)
    ]
    _raise_if_any(checkpoint, offenders)
    return bound


def differing_ties(checkpoint: Checkpoint, tied: Mapping[str, str], base_prefix: str) -> dict[str, str]:
    """Of `tied`, as in `bind`: aliases and owners that are both stored, in floating point, with different values."""
    base_prefix = base_prefix.rstrip(".") + "." if base_prefix else ""
    differing = {}
    for alias, owner in tied.items():
        first, second = (_find(checkpoint, name, base_prefix) for name in (alias, owner))
        floats = [each for each in (first, second) if each and checkpoint.tensors[each].dtype in _FLOATS]
        if len(floats) == 2 and not _same(checkpoint, *floats):
            differing[alias] = owner
    return differing


def _assembled(checkpoint: Checkpoint, assembly: Assembly, shape: tuple[int, ...], offenders: _Offenders) -> list[str]:
    """The tensors that a parameter is made of."""
    names = assembly.names()
    if assembly.shape != shape:
        offenders.wrong_shape[f"expected {list(shape)}, found {list(assembly.shape)}"] += names
    for name in names:
        if (dtype := checkpoint.tensors[name].dtype) not in _FLOATS:
            offenders.wrong_dtype[f"expected a floating-point type, found {dtype}"].append(name)
    return names


def _find(checkpoint: Checkpoint, name: str, base_prefix: str) -> str | None:
    candidates = [name]
    if base_prefix:
        candidates += [name.removeprefix(base_prefix)] if name.startswith(base_prefix) else [base_prefix + name]
    return next((each for each in candidates if each in checkpoint.tensors), None)


def _same(checkpoint: Checkpoint, first: str, second: str) -> bool:
    """Whether two stored tensors are equal, byte for byte; compared in slices, so that pages can be dropped."""
    a, b = checkpoint.tensors[first], checkpoint.tensors[second]
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    left = checkpoint.read(first).reshape(-1).view(np.uint8)
    right = checkpoint.read(second).reshape(-1).view(np.uint8)
    step = _COMPARE_BYTES
    return all(np.array_equal(left[at : at + step], right[at : at + step]) for at in range(0, len(left), step))


def _raise_if_any(checkpoint: Checkpoint, offenders: _Offenders) -> None:
    lines = []
    for title, names in (("missing", offenders.missing), ("unexpected", offenders.unexpected)):
        if names:
            lines.append(f"  {title} ({len(names)}): {listed(_compact(names), 20)}")
    for title, groups in (("wrong shape", offenders.wrong_shape), ("wrong dtype", offenders.wrong_dtype)):
        lines += [f"  {title}: {listed(_compact(names), 20)}: {what}" for what, names in groups.items()]
    lines += [f"  {what}" for what in offenders.quantized]
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"  and {len(lines) - _MAX_LINES} lines more"]
    if offenders.untied:
        lines.append(
            f"  differs from the tensor it is tied to: {listed(offenders.untied)}"
            " (set tie_word_embeddings to false in config.json if the model was trained untied)"
        )
    if not lines:
        return
    raise CheckpointError(
        f"{checkpoint.path}: its tensors are not those that config.json describes.\n"
        + "\n".join(lines)
        + "\nCheck that config.json belongs to these weights and that every weight file was downloaded."
    )


def _compact(names: Iterable[str]) -> list[str]:
    """Names that differ only in their first number become one: layers.{0-31}.mlp.up_proj.weight."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    plain = []
    for name in names:
        match = re.search(r"(?<=\.)\d+(?=\.)", name)
        if match:
            groups[name[: match.start()], name[match.end() :]].append(int(match.group()))
        else:
            plain.append(name)
    return plain + [
        before + (f"{{{_ranges(numbers)}}}" if len(numbers) > 1 else str(numbers[0])) + after
        for (before, after), numbers in groups.items()
    ]


def _ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as "0-3,7"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
