"""`enginesmith build`: a checkpoint in, an engine folder out."""

from pathlib import Path

import click

from ..builder.config import BuildConfig
from .options import made_from, pydantic_fields, with_options
from .progress import terminal_progress
from .show import show_build


@click.command("build")
@click.argument("checkpoint")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The engine folder to write.")
@with_options(pydantic_fields(BuildConfig))
def command(checkpoint: str, output: Path, **options: object) -> None:
    """Build an engine from CHECKPOINT: a Hugging Face folder, a GGUF file, or a Hub id.

    The engine is written beside OUTPUT and renamed when it is whole; an older engine there is replaced.
    """
    config = made_from(BuildConfig, options)
    from ..builder.build import build
    from ..checkpoint.sources import resolve

    progress = terminal_progress()
    report = build(resolve(checkpoint, progress), output, config, progress=progress)
    show_build(report, output)
