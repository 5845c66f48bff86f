"""All passes over a network, in the order they need each other."""

from collections.abc import Callable

import onnx_ir as ir

from ..network import Network
from .activation_epilogue import fuse_activations
from .attention_scale import fold_attention_scales
from .common_subexpressions import eliminate_common_subexpressions
from .constant_folding import fold_constants
from .dead_code import eliminate_dead_code
from .early_rows import select_rows_early
from .gated_mlp import fuse_gated_mlps
from .linear import fuse_linears
from .merge_linears import merge_linears
from .names import make_names_unique
from .no_ops import remove_no_ops
from .norm import fuse_norms
from .norm_offset import fold_norm_offsets
from .partial_rotary import fuse_partial_rotary
from .residual_epilogue import fuse_residuals
from .row_reshapes import move_row_reshapes
from .skip_norm import fuse_skip_norms
from .splits import make_splits
from .static_shapes import make_shapes_static
from .views import merge_views

Pass = Callable[[ir.Graph], int]

CLEANING: dict[str, Pass] = {
    "constant_folding": fold_constants,
    "static_shapes": make_shapes_static,
    "splits": make_splits,
    "no_ops": remove_no_ops,
    "views": merge_views,
    "common_subexpressions": eliminate_common_subexpressions,
    "dead_code": eliminate_dead_code,
}
FUSING: dict[str, Pass] = {
    "norm": fuse_norms,
    "norm_offset": fold_norm_offsets,
    "linear": fuse_linears,
    "row_reshapes": move_row_reshapes,
    "row_views": merge_views,
    "partial_rotary": fuse_partial_rotary,
    "attention_scale": fold_attention_scales,
    "gated_mlp": fuse_gated_mlps,
    "linear_activation": fuse_activations,
    "linear_residual": fuse_residuals,
    "early_rows": select_rows_early,
    "merge_linears": merge_linears,
    "skip_norm": fuse_skip_norms,
}
_MAX_ROUNDS = 8


def optimize(network: Network) -> dict[str, int]:
    """Clean and fuse `network` in place; how many times each pass applied, in the order of first use.

    Cleaning passes run until none changes anything, fusing passes once, then what they left behind is cleaned.
    """
    graph = network.model.graph
    counts = clean(graph) | dict.fromkeys(FUSING, 0)
    for name, run in FUSING.items():
        counts[name] += run(graph)
    for name, count in clean(graph).items():
        counts[name] += count
    make_names_unique(graph)
    graph.sort()
    return counts


def clean(graph: ir.Graph) -> dict[str, int]:
    """Run the cleaning passes until none changes anything; how many times each applied."""
    counts = dict.fromkeys(CLEANING, 0)
    for _ in range(_MAX_ROUNDS):
        changed = {name: run(graph) for name, run in CLEANING.items()}
        for name, count in changed.items():
            counts[name] += count
        if not any(changed.values()):
            break
    return counts
