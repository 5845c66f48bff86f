"""What a user calls: a checkpoint to an engine, perhaps by way of a quantized checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint.output import check_output
from ..progress import NoProgress, Progress
from ..runtime.engine_dir import MANIFEST
from .build_options import BuildConfig
from .compile import compile_engine
from .report import BuildReport
from .targets.registry import target_of

if TYPE_CHECKING:
    from .quantize.quantize_options import QuantizeConfig


def build(
    checkpoint: str | Path,
    output: str | Path,
    config: BuildConfig | None = None,
    *,
    quantize: "QuantizeConfig | None" = None,
    progress: Progress | None = None,
    name: str | None = None,
) -> BuildReport:
    """Build the engine folder `output` from a Hugging Face folder or a GGUF file, which `quantize` quantizes first.

    `name`: of the model; default: what the checkpoint calls itself. The folder appears whole, or not at all. Raises
    CheckpointError (not a usable checkpoint), UnsupportedModelError (it needs an operation that the target lacks,
    named), ToolchainError (no compiler), BuildError (a bad option, a full disk, or an engine whose logits are too far
    from those of Transformers).
    """
    config, progress = config or BuildConfig(), progress or NoProgress()
    output = Path(output)
    check_output(output, MANIFEST, "an engine")
    if quantize is None:
        return compile_engine(checkpoint, output, config, progress, name)
    from .quantize.within_build import quantized

    target_of(config.target).check_host(config.target, runs_here=config.check)  # an error now, not after minutes
    with quantized(checkpoint, output, config, quantize, progress) as source:
        return compile_engine(source.path, output, config, progress, name, source)
