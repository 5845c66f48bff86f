"""Which kernels a matrix runs with, for how many rows: tiles, splits of K, and what all of them are told."""

from dataclasses import dataclass

from ....quantization.scheme import ActivationScheme, WeightType
from .packing import CHANNEL_GROUP, LinearLayout

MOST_SPLIT_ROWS = 64
"""The most rows whose partial sums are kept in memory."""
_PROGRAMS = 200  # what occupies a large GPU; it is no property of one, so that engines for all GPUs add up alike
_LEAST_PART = 256  # inputs
_MOST_SPLITS = 16


_ROOMY = {80, 90, 100}
"""Compute capabilities whose blocks can have 160 KB of shared memory; others have 99 KB (CUDA Programming Guide)."""


@dataclass(frozen=True)
class Tactic:
    """Tiles of outputs and rows, for least .. most rows (None: any more). K is cut into `splits` parts.

    `is_split`: each part has programs of its own.
    """

    block_outputs: int
    block_rows: int
    num_warps: int
    num_stages: int
    is_split: bool
    least: int
    most: int | None
    splits: int

    @property
    def title(self) -> str:
        """For the report."""
        parts = f", K in {self.splits} parts{' with programs of their own' * self.is_split}" * (self.splits > 1)
        return f"{self.block_outputs}x{self.block_rows} tiles, {self.num_warps} warps, {self.num_stages} stages{parts}"


def splits(layout: LinearLayout) -> int:
    """Into how many parts K is cut: more for fewer outputs."""
    tiles, count = -(-layout.n // 64), 1
    while tiles * count < _PROGRAMS and layout.k // (2 * count) >= _LEAST_PART and count < _MOST_SPLITS:
        count *= 2
    return count


def tactics(layout: LinearLayout, sm: int = 90, *, batch_invariant: bool = True) -> tuple[Tactic, ...]:
    """Candidates by number of rows, of each number the one first that is taken where nothing is timed.

    All give the same bits: they differ in what a program does, not in the order of a sum. Tiles are as large as
    registers hold on every GPU: sums of steps and of parts, and both matrices' sums, lie there. Not `batch_invariant`:
    also such as cut K into fewer parts.
    """
    found = []
    for (least, most), shapes in _shapes(layout, sm).items():
        is_split = most is not None and most <= MOST_SPLIT_ROWS
        parts = [splits(layout)] if batch_invariant else sorted({splits(layout), max(splits(layout) // 2, 1), 1})[::-1]
        found += [Tactic(*shape, is_split and part > 1, least, most, part) for part in parts for shape in shapes]
    return tuple(found)


def _shapes(layout: LinearLayout, sm: int) -> dict[tuple[int, int | None], list[tuple[int, int, int, int]]]:
    """By least and most rows: tiles of outputs and rows, warps, stages."""
    scheme, is_quantized = layout.scheme, layout.is_quantized_product
    stages = (4, 3, 5) if sm in _ROOMY else (3, 4, 2)
    found: dict[tuple[int, int | None], list[tuple[int, int, int, int]]] = {
        (1, 16): [(64, 16, 4, count) for count in stages],
        (17, 32): [(64, 32, 4, count) for count in stages[:2]],
        (33, MOST_SPLIT_ROWS): [(64, 64, 8, count) for count in stages[:2]],
    }
    if scheme.type is WeightType.FP32:
        return {**found, (MOST_SPLIT_ROWS + 1, None): [(64, 64, 4, 3), (64, 64, 4, 2)]}
    is_int8 = is_quantized and scheme.type is WeightType.INT8
    rows = 64 if layout.gated or scheme.type.is_scaled else 128
    some = (64, 64, 8 if is_quantized else 4)
    many = (128, rows, 16 if is_int8 else 8)
    found[MOST_SPLIT_ROWS + 1, 256] = [(*some, 3), (*some, 2), (*many, 3)]
    found[257, None] = [(*many, 3), (*many, 2), (*some, 3), *([(*many, 4)] if sm in _ROOMY else [])]
    return found


def constants(layout: LinearLayout, parts: int | None = None) -> dict[str, int | bool | str]:
    """What every kernel of a matrix is told of its weight. `parts` of K: default, as many as all tactics have."""
    scheme = layout.scheme
    return {
        "N": layout.n,
        "K": layout.k,
        "FORMAT": str(scheme.type) if scheme.type.is_scaled else "float",
        "QUANTIZED": layout.is_quantized_product,
        "GROUP": scheme.group_size,
        "INPUT_GROUP": input_group(layout),
        "STEP": layout.step,
        "SPLITS": parts or splits(layout),
    }


def input_group(layout: LinearLayout) -> int:
    """Inputs that share a scale where each token has its own: the weight's groups for int8, all for FP8."""
    if layout.activation is ActivationScheme.DYNAMIC and layout.scheme.type is WeightType.INT8:
        return layout.scheme.group_size or CHANNEL_GROUP
    return layout.k
