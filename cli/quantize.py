"""`enginesmith quantize`: a checkpoint in, a quantized checkpoint out."""

from pathlib import Path

import click

from ..builder.quantize.quantize_options import QuantizeConfig
from .click_options import made_from, pydantic_fields, with_options
from .progress import terminal_progress
from .show import show_quantization
from .stream import advise, as_argument, remark


@click.command("quantize")
@click.argument("checkpoint")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The checkpoint folder to write.")
@with_options(pydantic_fields(QuantizeConfig))
def command(checkpoint: str, output: Path, **options: object) -> None:
    """Write a quantized copy of CHECKPOINT (a Hugging Face folder, a GGUF file, or a Hub id): a checkpoint in a format
    that `enginesmith build`, Transformers and vLLM read.

    Interrupted, the same command goes on where it stopped.
    """
    config = made_from(QuantizeConfig, options)
    from ..builder.quantize.quantize import quantize
    from ..checkpoint.sources import resolve

    progress = terminal_progress()
    source = resolve(checkpoint, progress)
    try:
        report = quantize(source, output, config, progress=progress)
    except (KeyboardInterrupt, SystemExit):
        remark("Layers that were finished are kept: the same command goes on from there.")
        raise
    show_quantization(report, output)
    advise("enginesmith", "build", as_argument(output), "-o", "ENGINE")
