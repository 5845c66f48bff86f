"""GPTQ's layout, as AutoGPTQ and GPTQModel write it: 4 or 8 bits, inputs in a row to a word.

Format: qweight int32 [K bits / 32, N] holds inputs in a row in word r of an output, from its lowest bits up; qzeros
int32 [K / G, N bits / 32] likewise outputs; scales [K / G, N]; g_idx [K], the group of each input, perhaps. A weight is
scale * (q - zero). Of two conventions, the first ("gptq") stores zero - 1, and "gptq_v2" zero itself.
"""

import logging
from collections.abc import Mapping

import numpy as np

from ...errors import CheckpointError
from ...quantization.quantized import QuantizedWeight
from ..checkpoint import Checkpoint
from . import bits
from .layout import FLOATS, INDICES, INT32, Layout, Part, Tensors, groups_of, integer, unsupported
from .stored import StoredWeight, integer_weight

_KNOWN = 'GPTQ of 4 or 8 bits, checkpoint_format "gptq" or "gptq_v2"'
_ADDED = {"gptq": 1, "gptq_v2": 0}  # to stored zeros, by checkpoint_format

log = logging.getLogger(__name__)


class GptqLayout(Layout):
    """`quant_method` "gptq"."""

    markers = ("qweight",)

    def __init__(self, checkpoint: Checkpoint, config: Mapping[str, object]) -> None:
        self.bits = integer(config, "bits")
        form = str(config.get("checkpoint_format") or "gptq").lower()
        if self.bits not in (4, 8) or form not in _ADDED or config.get("is_marlin_format"):
            form = "marlin" if config.get("is_marlin_format") else form
            packing = f'GPTQ of {self.bits} bits, checkpoint_format "{form}"'
            raise unsupported(checkpoint, packing, (*self.markers, "B"), _KNOWN)
        if config.get("dynamic"):
            raise unsupported(checkpoint, "GPTQ with rules for single modules (dynamic)", self.markers, _KNOWN)
        self.added = _ADDED[form]
        self.group_size = max(integer(config, "group_size"), 0)
        self.symmetric = config.get("sym") is True
        self.title = f"GPTQ, int{self.bits} in groups of {self.group_size or 'K'}, {form} zeros"
        log.info("%s: zeros are stored as %s (%s)", checkpoint.path, "zero - 1" if self.added else "they are", form)

    def parts(self, module: str, n: int, k: int) -> dict[str, Part]:
        groups, each = groups_of(k, self.group_size), 32 // self.bits
        return {
            "qweight": Part(INT32, ((-(-k // each), n),)),
            "qzeros": Part(INT32, ((groups, -(-n // each)),)),
            "scales": Part(FLOATS, ((groups, n),)),
            "g_idx": Part(INDICES, ((k,),), required=False),
        }

    def weight(self, module: str, n: int, k: int, tensors: Tensors) -> StoredWeight:
        middle = 1 << (self.bits - 1)
        zeros = bits.unpack(tensors["qzeros"], self.bits)[:, :n].astype(np.float32) + (self.added - middle)
        symmetric = self.symmetric and not zeros.any()

        def rows(first: int, last: int) -> QuantizedWeight:
            words = np.ascontiguousarray(tensors["qweight"][:, first:last].T)
            q = bits.centred(bits.unpack(words, self.bits)[:, :k], self.bits)
            scale = np.asarray(tensors["scales"][:, first:last].T, np.float32)
            return QuantizedWeight(q, scale, None if symmetric else zeros[:, first:last].T)

        return integer_weight(
            (n, k),
            self.bits,
            self.group_size,
            rows,
            symmetric=symmetric,
            scales=tensors["scales"],
            group_of=group_of(f"{module}.g_idx", tensors.get("g_idx"), k, self.group_size),
        )


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
