"""The launches of a matrix product, which Linear and GatedMLP share."""

from dataclasses import dataclass, field

from ....builder.lowering.dims import Dim, Symbol
from ....builder.lowering.program import LinearWeight
from ....builder.lowering.values import Values
from ....builder.lowering.views import DType, View
from ....builder.targets.cuda.source.call import (
    Candidate,
    Choice,
    Context,
    CudaCall,
    Extent,
    Launch,
    Typed,
    When,
    count,
    counted,
    tiles,
)
from ....quantization.scheme import ActivationScheme, WeightType
from ..activation_function import ActivationFunction
from ..lower import MatrixProduct
from .matrix import combine_kernel, split_kernel, walk_kernel
from .packing import PANEL, LinearLayout, layout_of_weight
from .quantize import quantize_kernel
from .tactics import MOST_SPLIT_ROWS, Tactic, constants, input_group, splits, tactics
from .weight_parts import channel_parts, element_parts

_FP8_DOT = 89  # the first compute capability with matrix instructions for FP8


@dataclass(frozen=True)
class Scratch:
    """Memory of one call: quantized inputs [rows, K] and their scales, and the sums of parts of K."""

    inputs: View | None = None
    scales: View | None = None
    partial: View | None = None

    @property
    def views(self) -> list[View]:
        return [view for view in (self.inputs, self.scales, self.partial) if view is not None]


@dataclass(frozen=True)
class Finish:
    """What is done to the sums, and where they go; `up_bias` is of a gated MLP's second matrix."""

    bias: View | None
    up_bias: View | None
    residual: View | None
    y: View
    activation: ActivationFunction


def scratch_of(values: Values, weight: LinearWeight, rows: Dim) -> Scratch:
    """Fresh memory for a call with that many rows."""
    layout = layout_of_weight(weight)
    inputs = scales = partial = None
    if layout.is_quantized_product:
        inputs = values.allocate("quantized_inputs", (rows, Dim(layout.k)), DType.BOOL)
    if layout.activation is ActivationScheme.DYNAMIC:
        scales = values.allocate("input_scales", (rows, Dim(-(-layout.k // input_group(layout)))))
    if splits(layout) > 1:
        sizes = splits(layout), layout.matrices, MOST_SPLIT_ROWS, layout.n
        partial = values.allocate("sums_of_parts", tuple(Dim(size) for size in sizes))
    return Scratch(inputs, scales, partial)


def rounds_inputs(weight: LinearWeight) -> bool:
    """Whether the first that is done to inputs is to round them to bf16."""
    scheme = weight.scheme
    return scheme.weight.type is not WeightType.FP32 and scheme.activation is ActivationScheme.NONE


@dataclass
class MatrixCall(MatrixProduct, CudaCall):
    """A call that is launches of matrix kernels."""

    scratch: Scratch = field(init=False)

    def allocate(self, values: Values) -> None:
        self.scratch = scratch_of(values, self.weight, self.rows)

    def bf16_reads(self) -> list[View]:
        return [self.x] if rounds_inputs(self.weight) else []

    def writes(self) -> list[View]:
        return [*super().writes(), *self.scratch.views]


def matrix_launches(
    weight: LinearWeight, x: View, rows: Dim, finish: Finish, scratch: Scratch, context: Context
) -> list[Launch | Choice]:
    """Inputs are quantized, if they are to be; then, of the tactics, a step has one for its number of rows."""
    matrix = _Matrix(weight, layout_of_weight(weight), x, rows, finish, scratch, context)
    items: list[Launch | Choice] = [matrix.quantize()] if scratch.inputs is not None else []
    candidates: dict[When, list[Candidate]] = {}
    for tactic in tactics(matrix.layout, context.sm, batch_invariant=context.batch_invariant):
        if (when := _when(tactic, rows)) is not None:
            launches = matrix.launches(tactic, None if rows.is_static else when)
            candidates.setdefault(when, []).append(Candidate(tactic.title, tuple(launches)))
    return items + [
        Choice(matrix.title, None if rows.is_static else when, tuple(found)) for when, found in candidates.items()
    ]


def _when(tactic: Tactic, rows: Dim) -> When | None:
    """The steps whose rows the tactic is for; None where there are none."""
    least = -(-tactic.least // rows.count)
    most = None if tactic.most is None else tactic.most // rows.count
    if rows.is_static:
        is_chosen = tactic.least <= rows.count and (tactic.most is None or rows.count <= tactic.most)
        return When(count(Dim(1, Symbol.TOKENS)), 1) if is_chosen else None
    return None if most is not None and most < least else When(count(rows), least, most)


@dataclass(frozen=True)
class _Matrix:
    weight: LinearWeight
    layout: LinearLayout
    x: View
    rows: Dim
    finish: Finish
    scratch: Scratch
    context: Context

    @property
    def title(self) -> str:
        """What is computed, and how inputs, bias and residual lie: what decides which kernel is fastest."""
        finish = self.finish
        extras = (("bias", finish.bias), ("residual", finish.residual))
        found = " ".join(name for name, view in extras if view is not None)
        kind = f"{'gated ' if self.layout.gated else ''}linear"
        types = f"{self.weight.scheme} {self.x.dtype} to {finish.y.dtype} {finish.activation}"
        return f"{kind} {self.layout.n}x{self.layout.k} {types} {found}".strip()

    def quantize(self) -> Launch:
        """Rows of x to int8 or FP8."""
        layout, group = self.layout, input_group(self.layout)
        groups = -(-layout.k // group)
        block, blocks = (1 << (size - 1).bit_length() for size in (group, groups))
        fixed = {
            "K": layout.k,
            "X_ROW": self.x.strides[0],
            "FORMAT": str(layout.scheme.type),
            "INPUT_SCALE": self.weight.input_scale or 1.0,
            "GROUP": group,
            "BLOCK_GROUPS": blocks,
            "BLOCK": block,
        }
        pointers = {"x": self.x, "quantized": self._inputs(), "scales": self.scratch.scales}
        num_warps = min(max(block * blocks // 1024, 1), 16)
        return Launch(quantize_kernel, pointers, (tiles(self.rows),), fixed, num_warps=num_warps)

    def launches(self, tactic: Tactic, when: When | None) -> list[Launch]:
        layout, finish = self.layout, self.finish
        units, times = counted(self.rows)
        grid = (tiles(self.rows, tactic.block_rows), Extent(-(-layout.n // tactic.block_outputs)))
        inputs = {"x": self.x if self.scratch.inputs is None else self._inputs(), "x_scales": self.scratch.scales}
        product = constants(layout, tactic.splits) | times
        product["FP8_DOT"] = self.context.sm >= _FP8_DOT
        product["X_ROW"] = self.x.strides[0] if self.scratch.inputs is None else layout.k
        product |= {"BLOCK_OUTPUTS": tactic.block_outputs, "BLOCK_ROWS": tactic.block_rows}
        ends = {
            "Y_ROW": finish.y.strides[0],
            "RESIDUAL_ROW": 0 if finish.residual is None else finish.residual.strides[0],
            "INPUT_SCALE": self.weight.input_scale or 1.0,
            "ACTIVATION": str(finish.activation),
        }
        last = {"bias": finish.bias, "up_bias": finish.up_bias, "residual": finish.residual, "y": finish.y} | units
        sizes = {"num_warps": tactic.num_warps, "num_stages": tactic.num_stages, "when": when, "title": tactic.title}
        if not tactic.is_split:
            pointers = inputs | element_parts(self.weight) | channel_parts(self.weight) | last
            return [Launch(walk_kernel, pointers, grid, product | ends, **sizes)]
        partial, most = {"partial": self.scratch.partial}, {"MOST_ROWS": MOST_SPLIT_ROWS}
        pointers = inputs | element_parts(self.weight) | partial | units
        parts = (*grid, Extent(tactic.splits))
        combined = {key: product[key] for key in ("N", "SPLITS")} | times | ends | most
        combined |= {"GATED": layout.gated, "BLOCK_OUTPUTS": 4 * PANEL}
        combine_grid = (tiles(self.rows), Extent(-(-layout.n // (4 * PANEL))))
        combine = partial | channel_parts(self.weight) | last
        return [
            Launch(split_kernel, pointers, parts, product | most, **sizes),
            Launch(combine_kernel, combine, combine_grid, combined, when=when, num_warps=2, title=tactic.title),
        ]

    def _inputs(self) -> Typed:
        assert self.scratch.inputs is not None
        return Typed(self.scratch.inputs, "*i8" if self.layout.scheme.type is WeightType.INT8 else "*u8")
