"""`enginesmith build`: a checkpoint in, an engine folder out."""

from pathlib import Path

import click

from ..builder.config import BuildConfig
from .options import build_model, model_options
from .progress import terminal_progress


@click.command("build")
@click.argument("checkpoint")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The engine folder to write.")
@model_options(BuildConfig)
def command(checkpoint: str, output: Path, **options: object) -> None:
    """Build an engine from CHECKPOINT: a Hugging Face folder, a GGUF file, or a Hub id.

    The engine is written beside OUTPUT and renamed when it is whole; an older engine there is replaced.
    """
    config = build_model(BuildConfig, options)
    from ..builder.build import build

    report = build(checkpoint, output, config, progress=terminal_progress())
    from .show import show_build

    show_build(report, output)
