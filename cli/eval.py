"""`enginesmith eval`: how good an engine or a checkpoint is, alone and beside another."""

from pathlib import Path

import click

from ..builder.evaluate.evaluate import Evaluation, evaluate
from ..builder.evaluate.plot import plot_layers
from ..builder.quantize.report import LayerReport
from ..measure.figures import require_matplotlib
from ..measure.windows import DEFAULT_TOKENS, DEFAULT_WINDOW
from .progress import terminal_progress
from .show import section
from .terminal import write_json

_WORST = 8


@click.command("eval")
@click.argument("model", metavar="ENGINE_OR_CHECKPOINT")
@click.option("--against", metavar="CHECKPOINT", help="Also measure how far it is from this checkpoint, or engine.")
@click.option(
    "--text", type=click.Path(path_type=Path), help="A UTF-8 file; default: the language reference that Python brings."
)
@click.option(
    "--window", type=click.IntRange(min=2), help=f"Tokens the model sees at once [default: {DEFAULT_WINDOW}]."
)
@click.option("--stride", type=click.IntRange(min=1), help="Tokens scored in each window [default: half of it].")
@click.option(
    "--tokens", type=click.IntRange(min=2), default=DEFAULT_TOKENS, show_default=True, help="Tokens of the text to use."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="PNG",
    help="Draw the errors of layers into this file: of a checkpoint made by `quantize`, or of two checkpoints.",
)
def command(
    model: str,
    against: str | None,
    text: Path | None,
    window: int | None,
    stride: int | None,
    tokens: int,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Measure the perplexity of ENGINE_OR_CHECKPOINT and, with --against, its distance from another model.

    An engine runs as it serves. A checkpoint (a Hugging Face folder, a GGUF file or a Hub id) runs in Transformers in
    float32; a quantized one with the weights that its integers stand for.
    """
    if plot is not None:
        require_matplotlib()  # an error now rather than after minutes
    found = evaluate(
        model, against, text=text, window=window, stride=stride, max_tokens=tokens, progress=terminal_progress()
    )
    if as_json:
        write_json(found.to_json(), indent=2)
    else:
        _show(found)
    if plot is not None:
        plot_layers(found.layers, plot, title=found.subject)


def _show(found: Evaluation) -> None:
    facts = {
        "text": f"{found.text}: {found.tokens} tokens scored in windows of {found.window}, stride {found.stride}",
        "perplexity": f"{found.perplexity:.4f}",
    }
    if (other := found.comparison) is not None:
        facts |= {
            "perplexity of the other": f"{other.perplexity:.4f} ({other.against})",
            "ratio": f"{other.perplexity_ratio:.4f} ({other.perplexity_ratio - 1:+.2%})",
            "KL divergence": f"{other.kl:.3g} nats a token, at worst {other.kl_worst:.3g}",
            "top-1 agreement": f"{other.top1:.1%}",
        }
    facts["seconds"] = f"{found.seconds:.1f}"
    section(f"Quality of {found.subject}", facts)
    section(f"Worst of {len(found.layers)} layers", dict(map(_row, found.worst_layers[:_WORST])))


def _row(layer: LayerReport) -> tuple[str, str]:
    errors = {"output": layer.output_error, "weight": layer.weight_error}
    told = ", ".join(f"{error:.3g} of its {what}" for what, error in errors.items() if error is not None)
    return layer.name, f"{told}{f' ({layer.scheme})' if layer.scheme else ''}"
