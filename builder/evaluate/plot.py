"""A picture of which layers suffer: relative error by layer, one colour for each kind of projection."""

from collections.abc import Sequence
from pathlib import Path

from ...errors import EvaluationError
from ...measure.figures import require_matplotlib, save_figure
from ..quantize.report import LayerReport


def plot_layers(layers: Sequence[LayerReport], path: str | Path, title: str = "") -> None:
    """Write a PNG: layers of the model on x, relative error of outputs (else of weights) on y; the worst is named.

    Raises EvaluationError where matplotlib is missing, there is nothing to show, or the file cannot be written.
    """
    shown = [layer for layer in layers if layer.error > 0]
    if not shown:
        raise EvaluationError(
            "there are no errors of layers to plot: give a checkpoint made by 'enginesmith quantize', or two "
            "checkpoints to compare"
        )
    figure = require_matplotlib()(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    last = max((layer.depth for layer in shown if layer.depth is not None), default=0)
    places = {layer.name: last + 1 if layer.depth is None else layer.depth for layer in shown}
    kinds = dict.fromkeys(layer.kind for layer in shown)
    for kind in kinds:
        of_kind = sorted((places[layer.name], layer.error) for layer in shown if layer.kind == kind)
        axes.plot(*zip(*of_kind, strict=True), marker="o", markersize=4, linewidth=1, label=kind)
    worst = max(shown, key=lambda layer: layer.error)
    beyond = places[worst.name] > last / 2  # the middle: its name goes to the side that has room
    axes.annotate(
        f"{worst.name}: {worst.error:.3g}",
        (places[worst.name], worst.error),
        fontsize=8,
        xytext=(-5 if beyond else 5, 6),
        textcoords="offset points",
        horizontalalignment="right" if beyond else "left",
    )
    of_outputs = any(layer.output_error is not None for layer in shown)
    axes.set(xlabel="layer", ylabel=f"relative error of {'outputs' if of_outputs else 'weights'}", title=title)
    axes.set_yscale("log")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8, ncols=2)
    save_figure(figure, path)
