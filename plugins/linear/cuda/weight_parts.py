"""Where the parts of a weight lie in memory, as pointers of the kernels that read them."""

from collections.abc import Sequence

from ....builder.lowering.program import LinearWeight
from ....builder.targets.cuda.source.call import WeightPart
from .packing import layout_of_weight

Parts = dict[str, WeightPart | None]

BOTH = ("", "up_")
"""What the names of the first and the second matrix's arguments begin with."""


def element_parts(weight: LinearWeight, prefixes: Sequence[str] = BOTH) -> Parts:
    """Elements, and scales and zeros of groups, of each matrix; None where a weight has none."""
    layout, found = layout_of_weight(weight), Parts()
    grouped = layout.scheme.type.is_scaled and layout.scheme.group_size > 0
    for matrix, prefix in enumerate(prefixes):
        exists = matrix < layout.matrices
        values, scales, zeros = (
            place(matrix) for place in (layout.values_offset, layout.scales_offset, layout.zeros_offset)
        )
        found[f"{prefix}values"] = _part(weight, layout.element, values, exists)
        found[f"{prefix}scales"] = _part(weight, layout.scale_element, scales, exists and grouped)
        found[f"{prefix}zeros"] = _part(weight, layout.scale_element, zeros, exists and not layout.scheme.symmetric)
    return found


def channel_parts(weight: LinearWeight, prefixes: Sequence[str] = BOTH) -> Parts:
    """The scales of whole outputs of each matrix; None where a weight has none."""
    layout, found = layout_of_weight(weight), Parts()
    exist = layout.scheme.type.is_scaled and layout.scheme.group_size == 0
    for matrix, prefix in enumerate(prefixes):
        scales = layout.scales_offset(matrix)
        found[f"{prefix}channel_scales"] = _part(weight, "*fp32", scales, exist and matrix < layout.matrices)
    return found


def _part(weight: LinearWeight, kind: str, offset: int, exists: bool) -> WeightPart | None:
    return WeightPart(weight, kind, offset) if exists else None
