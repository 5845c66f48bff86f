"""All passes over a network, in the order they need each other."""

from collections.abc import Callable

import onnx_ir as ir

from ...plugins.discovery import passes
from ..network import Network
from .activation_epilogue import fuse_activations
from .attention_scale import fold_attention_scales
from .common_subexpressions import eliminate_common_subexpressions
from .early_rows import select_rows_early
from .gated_mlp import fuse_gated_mlps
from .graph import constant
from .merge_linears import merge_linears
from .merge_views import merge_views
from .norm_offset import fold_norm_offsets
from .partial_rotary import fuse_partial_rotary
from .residual_epilogue import fuse_residuals
from .row_reshapes import move_row_reshapes
from .skip_norm import fuse_skip_norms
from .splits import make_splits
from .unique_names import make_names_unique
from .weight_products import products_as_linears

Pass = Callable[[ir.Graph], int]

CLEANING: dict[str, Pass] = {
    "splits": make_splits,
    "views": merge_views,
    "common_subexpressions": eliminate_common_subexpressions,
}
FUSING: dict[str, Pass] = {
    "weight_products": products_as_linears,
    "product_views": merge_views,
    "norm_offset": fold_norm_offsets,
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

    Cleaning passes run until none changes anything, fusing passes once, those of plugins last; then what they left
    behind is cleaned.
    """
    graph = network.model.graph
    fusing = {**FUSING, **passes()}
    counts = clean(graph) | dict.fromkeys(fusing, 0)
    for name, run in fusing.items():
        counts[name] += run(graph)
    for name, count in clean(graph).items():
        counts[name] += count
    _remove_unread_constants(graph)
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


def _remove_unread_constants(graph: ir.Graph) -> None:
    """Parameters stay even when unread: a checkpoint is still expected to have them."""
    for name, value in list(graph.initializers.items()):
        if constant(value) is not None and not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
