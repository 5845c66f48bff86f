"""Which kernels a matrix runs with, for how many rows: tiles, splits of K, and what all of them are told."""

from dataclasses import dataclass

from ....quantization.scheme import ActivationScheme, WeightType
from .packing import CHANNEL_GROUP, LinearLayout

MOST_SPLIT_ROWS = 64
"""The most rows whose partial sums are kept in memory."""
_PROGRAMS = 200  # what occupies a large GPU; it is no property of one, so that engines for all GPUs add up alike
_LEAST_PART = 256  # inputs
_MOST_SPLITS = 16


@dataclass(frozen=True)
class Tactic:
    """Tiles of outputs and rows, for least .. most rows (None: any more); `is_split`: each part of K has programs."""

    block_outputs: int
    block_rows: int
    num_warps: int
    num_stages: int
    is_split: bool
    least: int
    most: int | None

    @property
    def title(self) -> str:
        """For the report."""
        parts = ", a program for each part of K" if self.is_split else ""
        return f"{self.block_outputs}x{self.block_rows} tiles{parts}"


def splits(layout: LinearLayout) -> int:
    """Into how many parts K is cut: more for fewer outputs."""
    tiles, count = -(-layout.n // 64), 1
    while tiles * count < _PROGRAMS and layout.k // (2 * count) >= _LEAST_PART and count < _MOST_SPLITS:
        count *= 2
    return count


def tactics(layout: LinearLayout) -> tuple[Tactic, ...]:
    """By number of rows. All give the same bits: they differ in what a program does, not in the order of a sum.

    Tiles are as large as registers hold on every GPU: sums of steps and of parts, and both matrices' sums, lie there.
    """
    is_split, is_quantized = splits(layout) > 1, layout.is_quantized_product
    few = (
        Tactic(64, 16, 4, 4, is_split, 1, 16),
        Tactic(64, 32, 4, 4, is_split, 17, 32),
        Tactic(64, 64, 8, 4, is_split, 33, MOST_SPLIT_ROWS),
    )
    if layout.scheme.type is WeightType.FP32:
        return (*few, Tactic(64, 64, 4, 3, False, MOST_SPLIT_ROWS + 1, None))
    some = Tactic(64, 64, 8 if is_quantized else 4, 3, False, MOST_SPLIT_ROWS + 1, 256)
    block_rows = 64 if layout.gated or layout.scheme.type.is_scaled else 128
    return (*few, some, Tactic(128, block_rows, 16 if is_quantized else 8, 3, False, 257, None))


def constants(layout: LinearLayout) -> dict[str, int | bool | str]:
    """What every kernel of a matrix is told of its weight."""
    scheme = layout.scheme
    return {
        "N": layout.n,
        "K": layout.k,
        "FORMAT": str(scheme.type) if scheme.type.is_scaled else "float",
        "QUANTIZED": layout.is_quantized_product,
        "GROUP": scheme.group_size,
        "INPUT_GROUP": input_group(layout),
        "STEP": layout.step,
        "SPLITS": splits(layout),
    }


def input_group(layout: LinearLayout) -> int:
    """Inputs that share a scale where each token has its own: the weight's groups for int8, all for FP8."""
    if layout.activation is ActivationScheme.DYNAMIC and layout.scheme.type is WeightType.INT8:
        return layout.scheme.group_size or CHANNEL_GROUP
    return layout.k
