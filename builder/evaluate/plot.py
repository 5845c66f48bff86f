"""A picture of which layers suffer: relative error by layer, one colour for each kind of projection."""

import math
from collections.abc import Sequence
from pathlib import Path

from ...atomic import new_file
from ...errors import EvaluationError
from .layers import LayerError

_NAMED = 3  # of the worst


def plot_layers(layers: Sequence[LayerError], path: str | Path, title: str = "") -> None:
    """Write a PNG: layers of the model on x, relative error of outputs (of weights, where those are all) on y.

    Raises EvaluationError where matplotlib is missing or there is nothing to show.
    """
    shown = [layer for layer in layers if layer.error > 0 and math.isfinite(layer.error)]
    if not shown:
        raise EvaluationError(
            "there are no errors of layers to plot: give a checkpoint made by 'enginesmith quantize', or two "
            "checkpoints to compare"
        )
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise EvaluationError("plots need matplotlib, of the extra 'plot': pip install 'enginesmith[plot]'") from None
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    last = max((layer.depth for layer in shown if layer.depth is not None), default=0)
    places = {layer.name: last + 1 if layer.depth is None else layer.depth for layer in shown}
    kinds = dict.fromkeys(layer.kind for layer in shown)
    for kind in kinds:
        of_kind = sorted((places[layer.name], layer.error) for layer in shown if layer.kind == kind)
        axes.plot(*zip(*of_kind, strict=True), marker="o", markersize=4, linewidth=1, label=kind)
    for layer in sorted(shown, key=lambda layer: -layer.error)[:_NAMED]:
        axes.annotate(
            layer.name, (places[layer.name], layer.error), fontsize=8, xytext=(4, 4), textcoords="offset points"
        )
    of_outputs = any(layer.output_error is not None for layer in shown)
    axes.set(xlabel="layer", ylabel=f"relative error of {'outputs' if of_outputs else 'weights'}", title=title)
    axes.set_yscale("log")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8, ncols=2)
    with new_file(Path(path)) as work:
        figure.savefig(work, format="png", dpi=120)
