"""GPTQ's layout, as AutoGPTQ and GPTQModel write it: 4 or 8 bits, inputs in a row to a word.

Format: qweight int32 [K bits / 32, N] holds inputs in a row in word r of an output, from its lowest bits up; qzeros
int32 [K / G, N bits / 32] likewise outputs; scales [K / G, N]; g_idx [K], the group of each input, perhaps. A weight is
scale * (q - zero). Of two conventions, the first ("gptq") stores zero - 1, and "gptq_v2" zero itself.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CheckpointError
from ...quantization.quantized import QuantizedWeight
from ..checkpoint import Checkpoint
from . import bits, reference
from .layout import FLOATS, INDICES, INT32, Layout, Part, Tensors, groups_of, integer, unsupported
from .stored import StoredWeight, integer_weight

_KNOWN = 'GPTQ of 4 or 8 bits, checkpoint_format "gptq" or "gptq_v2"'
ADDED = {"gptq": 1, "gptq_v2": 0}  # to stored zeros, by checkpoint_format

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Numbers:
    """What the numbers of a module are; group size 0 is the whole of K."""

    bits: int
    group_size: int
    symmetric: bool | None  # None: not said

    def __str__(self) -> str:
        return f"int{self.bits} in groups of {self.group_size or 'K'}"


class GptqLayout(Layout):
    """`quant_method` "gptq". `dynamic` maps patterns of module names to what differs there; the first to fit wins."""

    markers = ("qweight",)

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
        form = str(config.get("checkpoint_format") or config.get("format") or "gptq").lower()
        self._form = "marlin" if config.get("is_marlin_format") else form
        self._usual = self._numbers(checkpoint, config)
        self._rules = self._dynamic(checkpoint, config)
        self._scattered = config.get("desc_act") is not False
        self.added = ADDED[form]
        self._shifts: dict[int, str] = {}  # by how much symmetric zeros are off, and a module whose are
        kinds = dict.fromkeys([str(self._usual), *(str(numbers) for _, numbers in self._rules)])
        self.title = f"GPTQ, {' and '.join(kinds)}, {form} zeros"
        log.info("%s: zeros are stored as %s (%s)", checkpoint.path, "zero - 1" if self.added else "they are", form)

    def _numbers(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> _Numbers:
        width = integer(config, "bits")
        if width not in (4, 8) or self._form not in ADDED:
            packing = f'GPTQ of {width} bits, checkpoint_format "{self._form}"'
            raise unsupported(checkpoint, packing, (*self.markers, "B"), _KNOWN)
        return _Numbers(
            width, max(integer(config, "group_size"), 0), None if config.get("sym") is None else bool(config["sym"])
        )

    def _dynamic(self, checkpoint: Checkpoint, config: Mapping[str, Any]) -> list[tuple[re.Pattern[str], _Numbers]]:
        """Rules "+:pattern"; those of "-:pattern" are for modules that are not quantized, and so have no `qweight`."""
        rules = config.get("dynamic") or {}
        if not isinstance(rules, dict) or not all(isinstance(changes, dict) for changes in rules.values()):
            raise CheckpointError(
                f"{checkpoint.path}: quantization_config.dynamic should map patterns to objects, found {rules!r}."
            )
        found = []
        for pattern, changes in rules.items():
            if not pattern.startswith("-:"):
                try:
                    compiled = re.compile(pattern.removeprefix("+:"))
                except re.error as error:
                    raise CheckpointError(
                        f"{checkpoint.path}: quantization_config.dynamic: {pattern!r} is no pattern: {error}."
                    ) from None
                found.append((compiled, self._numbers(checkpoint, {**config, **changes})))
        return found

    def _of(self, module: str) -> _Numbers:
        return next((numbers for pattern, numbers in self._rules if pattern.match(module)), self._usual)

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        numbers = self._of(module)
        groups, each = groups_of(k, numbers.group_size), 32 // numbers.bits
        return {
            "qweight": Part(INT32, ((-(-k // each), n),)),
            "qzeros": Part(INT32, ((groups, -(-n // each)),)),
            "scales": Part(FLOATS, ((groups, n),)),
            "g_idx": Part(INDICES, ((k,),), required=False),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        numbers = self._of(module)
        width, middle = numbers.bits, 1 << (numbers.bits - 1)
        zeros = bits.unpack(tensors["qzeros"], width)[:, :n].astype(np.float32) + (self.added - middle)
        symmetric = self._symmetric(module, numbers, zeros)
        group = group_of(f"{module}.g_idx", tensors.get("g_idx"), k, numbers.group_size)
        if group is not None and not self._scattered:
            raise CheckpointError(
                f"{module}.g_idx: scatters groups over the inputs, but the quantization_config says desc_act: false. "
                "The checkpoint contradicts itself; use another quantization of this model."
            )

        def rows(first: int, last: int) -> QuantizedWeight:
            words = np.ascontiguousarray(tensors["qweight"][:, first:last].T)
            q = bits.centred(bits.unpack(words, width)[:, :k], width)
            scale = np.asarray(tensors["scales"][:, first:last].T, np.float32)
            return QuantizedWeight(q, scale, None if symmetric else zeros[:, first:last].T)

        return integer_weight(
            (n, k),
            width,
            numbers.group_size,
            rows,
            symmetric=symmetric,
            scales=tensors["scales"],
            group_of=group,
        )

    def reference(self, module: str, n: int, k: int, tensors: Tensors) -> np.ndarray:
        numbers = self._of(module)
        return reference.gptq(
            tensors, (n, k), numbers.bits, numbers.group_size, symmetric=numbers.symmetric, version=self._form
        )

    def _symmetric(self, module: str, numbers: _Numbers, zeros: np.ndarray) -> bool:
        """Whether zeros, float32 [G, N] counted from the middle, are there: all of them, or, of a checkpoint that is
        labelled as of one convention and stored by the other, all one beside it."""
        low, high = int(zeros.min(initial=0)), int(zeros.max(initial=0))
        if numbers.symmetric is False:
            return False
        shift = 1 if self.added else -1
        uniform = bool(zeros.size) and (zeros == zeros.flat[0]).all()
        if not uniform or zeros.flat[0] not in (0, shift):
            if numbers.symmetric is None:
                return False
            raise CheckpointError(
                f"{module}.qzeros: zero points lie from {low} to {high} about the middle, but the quantization_config "
                "says sym: true. The checkpoint contradicts itself; use another quantization of this model."
            )
        self._shifts.setdefault(int(zeros.flat[0]), module)
        if len(self._shifts) > 1:
            raise CheckpointError(
                f"{' and '.join(f'{name}.qzeros' for name in self._shifts.values())}: symmetric zero points by both "
                "conventions. The checkpoint contradicts itself; use another quantization of this model."
            )
        if zeros.flat[0] and not self.notes:
            self.notes.append(
                f"zero points are stored by the other convention than checkpoint_format {self._form!r} says (as in "
                f"{module}.qzeros): taken as {1 << (numbers.bits - 1)}, the middle, as symmetric weights have them"
            )
        return True


def group_of(name: str, indices: np.ndarray | None, k: int, group_size: int) -> np.ndarray | None:
    """The group of each input, or None where groups are runs of `group_size` inputs.

    Raises CheckpointError where an index is of no group.
    """
    if indices is None or np.array_equal(indices, np.arange(k) // (group_size or k)):
        return None
    groups = groups_of(k, group_size)
    if indices.min() < 0 or indices.max() >= groups:
        raise CheckpointError(
            f"{name}: holds groups from {indices.min()} to {indices.max()}; there are {groups} of {group_size or k} "
            "inputs. The checkpoint is damaged."
        )
    return np.asarray(indices)
