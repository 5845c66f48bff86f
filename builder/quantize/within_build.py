"""A quantization that a build asks for: a checkpoint that lasts as long as the build."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ...atomic import temporary_folder
from ...checkpoint.checkpoint import open_checkpoint
from ...errors import OptionError
from ...progress import Progress
from ..build_options import BuildConfig
from ..quantized_source import QuantizedSource
from .quantize import quantize
from .quantize_options import QuantizeConfig


@contextmanager
def quantized(
    checkpoint: str | Path, output: Path, config: BuildConfig, options: QuantizeConfig, progress: Progress
) -> Iterator[QuantizedSource]:
    """The checkpoint quantized, in a folder beside `output` that vanishes with the block.

    Raises OptionError where the build's own options quantize, too, and what `quantize` raises.
    """
    if config.weights is not None:
        raise OptionError(f"--weights {config.weights} and --quantize exclude each other; leave one of them out", None)
    original = open_checkpoint(checkpoint, progress)
    output.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(output.parent, output.name) as folder:
        path = folder / original.path.name  # the engine takes its model's name from it
        report = quantize(original.path, path, options, progress=progress)
        yield QuantizedSource(path, asdict(report), original)
